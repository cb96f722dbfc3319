"""Data to rank: readers of LETOR, CSV, Parquet, Arrow and JSON files, and generators."""

from rankrls.datasets._csv import iter_csv, load_csv
from rankrls.datasets._dump import dump_letor
from rankrls.datasets._generate import make_preference_pairs, make_ranking
from rankrls.datasets._letor import iter_letor, load_letor
from rankrls.datasets._parquet import iter_parquet
from rankrls.datasets._preferences import load_preferences
from rankrls.datasets._ranking import iter_ranking, load_ranking
from rankrls.datasets._rock_paper_scissors import make_rock_paper_scissors

__all__ = [
    "dump_letor",
    "iter_csv",
    "iter_letor",
    "iter_parquet",
    "iter_ranking",
    "load_csv",
    "load_letor",
    "load_preferences",
    "load_ranking",
    "make_preference_pairs",
    "make_ranking",
    "make_rock_paper_scissors",
]

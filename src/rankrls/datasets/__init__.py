"""Data to rank: readers of LETOR, Parquet and Arrow files, and generators."""

from rankrls.datasets._dump import dump_letor
from rankrls.datasets._generate import make_preference_pairs, make_ranking
from rankrls.datasets._letor import iter_letor, load_letor
from rankrls.datasets._parquet import iter_parquet
from rankrls.datasets._relations import make_rock_paper_scissors

__all__ = [
    "dump_letor",
    "iter_letor",
    "iter_parquet",
    "load_letor",
    "make_preference_pairs",
    "make_ranking",
    "make_rock_paper_scissors",
]

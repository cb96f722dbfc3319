"""Data to rank: readers of LETOR, CSV, Parquet, Arrow, JSON and TREC files, and generators."""

from rankrls.datasets._generate import (
    make_preference_pairs,
    make_product_search,
    make_ranking,
    make_rock_paper_scissors,
)
from rankrls.datasets._letor import dump_letor, load_group
from rankrls.datasets._named_tables import load_preferences, load_relations
from rankrls.datasets._readers import (
    ids_from_comments,
    iter_csv,
    iter_letor,
    iter_parquet,
    iter_ranking,
    load_csv,
    load_ids,
    load_letor,
    load_ranking,
)
from rankrls.datasets._trec import dump_qrels, dump_run, load_qrels, load_run

__all__ = [
    "dump_letor",
    "dump_qrels",
    "dump_run",
    "ids_from_comments",
    "iter_csv",
    "iter_letor",
    "iter_parquet",
    "iter_ranking",
    "load_csv",
    "load_group",
    "load_ids",
    "load_letor",
    "load_preferences",
    "load_qrels",
    "load_ranking",
    "load_relations",
    "load_run",
    "make_preference_pairs",
    "make_product_search",
    "make_ranking",
    "make_rock_paper_scissors",
]

"""Preprocessing for rankers: encoding of tables, scaling by query, transformations of features."""

from rankrls.preprocessing._query_scaler import QueryScaler
from rankrls.preprocessing._table_encoder import TableEncoder
from rankrls.preprocessing.ranking_features import RankingFeatures

__all__ = ["QueryScaler", "RankingFeatures", "TableEncoder"]

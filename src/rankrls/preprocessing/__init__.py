"""Preprocessing for rankers: encoding of tables, scaling by query, transformations of features."""

from rankrls.preprocessing._query_scaler import QueryScaler
from rankrls.preprocessing._ranking_features import RankingFeatures
from rankrls.preprocessing._table_encoder import TableEncoder

__all__ = ["QueryScaler", "RankingFeatures", "TableEncoder"]

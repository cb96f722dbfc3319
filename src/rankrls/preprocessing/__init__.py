"""Features as rankers want them: tables made numeric, scaling by query, views for `AutoRanker`."""

from rankrls.preprocessing._query_scaler import QueryScaler
from rankrls.preprocessing._ranking_features import RankingFeatures
from rankrls.preprocessing._table_encoder import TableEncoder

__all__ = ["QueryScaler", "RankingFeatures", "TableEncoder"]

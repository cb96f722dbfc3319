"""Members of `AutoRanker`: rows, views of their numbers, and linear rankers on features of both."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import pairwise_kernels

from rankrls._validation import Queries
from rankrls.estimators.rankrls import RankRLS
from rankrls.preprocessing import RankingFeatures

Array = NDArray[Any]

#: The rows that a loss compares.
WITHIN, ALL_ROWS, BY_QUERY = "within queries", "all rows", "within queries, each the same"
GIVEN_PAIRS = "given pairs"

#: Grid of alphas, as multiples of the mean squared norm of the rows.
ALPHAS = 2.0 ** np.arange(-4, 11, 2)

#: A linear kernel on more columns than this uses basis vectors as well.
MAX_COLUMNS = 800

#: A wider block is projected to this many principal components.
MAX_COMPONENTS = 256


@dataclass(frozen=True)
class View:
    """Blocks of `RankingFeatures` and a kernel; gamma is ``factor`` / mean squared norm."""

    blocks: tuple[str, ...]
    kernel: str
    factor: float = 0.3


@dataclass(frozen=True)
class BlockScale:
    """Rows of a block less their mean, projected to axes and scaled to a mean squared norm of 1."""

    mean: Array
    axes: Array

    @classmethod
    def learn(cls, rows: Array) -> BlockScale:
        """Learn mean, axes and scale."""
        mean = rows.mean(axis=0)
        variances, axes = rows.var(axis=0), np.eye(len(mean))
        if len(mean) > MAX_COMPONENTS:
            centred = rows - mean
            variances, axes = np.linalg.eigh(centred.T @ centred / len(rows))
            variances, axes = variances[-MAX_COMPONENTS:], axes[:, -MAX_COMPONENTS:]
        total = variances.sum()
        return cls(mean, axes / np.sqrt(total if total > 0 else 1.0))

    def transform(self, rows: Array) -> Array:
        """Project rows."""
        if self.axes.shape[0] == self.axes.shape[1]:
            return (rows - self.mean) * self.axes.diagonal()
        return (rows - self.mean) @ self.axes


@dataclass(frozen=True, eq=False)
class Rows:
    """Numbers and blocks of rows of whole queries; ``cache`` keeps transformed numbers."""

    numbers: Any
    blocks: dict[str, Array]
    queries: Queries | None
    cache: dict[str, Array] = field(default_factory=dict)

    def view(self, blocks: Any, features: RankingFeatures) -> Any:
        """Return a view of the numbers."""
        return features._view(blocks, self.numbers, self.queries, self.cache)


@dataclass(frozen=True, eq=False)
class LinearMember:
    """A linear ranker on Φ = [scale × view, or its Nyström features, weight × block …].

    The Nyström features are k(x, ``basis``) ``mapping``, the features of the view have a mean
    squared norm of 1, and ``factor`` is that of the scores in the average.
    """

    views: list[str]
    kernel: str
    gamma: float
    basis: Any
    mapping: Array | None
    scale: float
    weights: dict[str, float]
    estimator: RankRLS | None = None
    factor: float = 0.0

    @property
    def name(self) -> str:
        """Name of the view."""
        return " + ".join(self.views)

    @property
    def used_blocks(self) -> str:
        """Blocks with their weights."""
        return " + ".join(f"{w:g} {name}" for name, w in self.weights.items() if w) or "none"

    @classmethod
    def draw(
        cls, view: View, rows: Rows, features: Any, n_basis: int, rng: np.random.RandomState
    ) -> LinearMember:
        """Draw the basis vectors of a view among the rows, and find its scales."""
        values = rows.view(view.blocks, features)
        m, n = values.shape
        basis = mapping = None
        gamma = view.factor / mean_squared_norm(values)
        if view.kernel != "linear" or n > MAX_COLUMNS or sparse.issparse(values):
            basis = values[np.sort(rng.choice(m, min(n_basis, m), replace=False))]
            roots, vectors = np.linalg.eigh(_kernel(view.kernel, gamma, basis, basis))
            kept = roots > 1e-10 * max(roots[-1], 1e-300)
            mapping = vectors[:, kept] / np.sqrt(roots[kept])
        member = cls(list(view.blocks), view.kernel, gamma, basis, mapping, 1.0, {})
        return replace(member, scale=1 / np.sqrt(mean_squared_norm(member.phi(rows, features))))

    def phi(self, rows: Rows, features: RankingFeatures) -> Array:
        """Return Φ of rows."""
        values = rows.view(self.views, features)
        if self.basis is not None:
            values = _kernel(self.kernel, self.gamma, values, self.basis) @ self.mapping
        parts = [self.scale * values]
        parts += [weight * rows.blocks[name] for name, weight in self.weights.items() if weight]
        return np.hstack(parts) if len(parts) > 1 else parts[0]

    def fitted(self, chosen: Any, rows: Rows, features: Any, graph: Any) -> LinearMember:
        """Set the ranker, which learns from all rows later, and the factor."""
        estimator = unfitted(chosen.alpha, chosen.loss)
        return replace(self, estimator=estimator, factor=chosen.factor)

    def predict(self, rows: Rows, features: RankingFeatures) -> Array:
        """Return the scores of rows, times the factor."""
        assert self.estimator is not None
        return self.phi(rows, features) @ (self.factor * self.estimator.coef_.T)


@dataclass(frozen=True, eq=False)
class ColumnMember:
    """One column, as its rank within the query or its logarithm, times a factor."""

    name: str
    column: int
    block: str
    factor: float

    kernel = used_blocks = "none"

    def fitted(self, chosen: Any, rows: Rows, features: Any, graph: Any) -> ColumnMember:
        """Set the factor."""
        return replace(self, factor=chosen.factor * self.factor)

    def predict(self, rows: Rows, features: RankingFeatures) -> Array:
        """Return the scores of rows, times the factor."""
        return self.factor * rows.view([self.block], features)[:, self.column]


def unfitted(alpha: float, loss: tuple[str, str]) -> RankRLS:
    """Return the linear ranker of a member."""
    weighting = "query" if loss[1] == BY_QUERY else "size"
    return RankRLS(alpha, cost=loss[0], query_weighting=weighting, solver="primal")


def _kernel(kernel: str, gamma: float, rows: Any, basis: Any) -> Array:
    if kernel == "linear":
        values = rows @ basis.T
        return values.toarray() if sparse.issparse(values) else values
    return pairwise_kernels(rows, basis, metric=kernel, gamma=gamma)


def mean_squared_norm(rows: Any) -> float:
    """Mean squared norm of the centred rows."""
    if sparse.issparse(rows):
        mean = np.asarray(rows.mean(axis=0)).ravel()
        squares = float(rows.multiply(rows).sum()) / rows.shape[0] - float(mean @ mean)
    else:
        squares = float(rows.var(axis=0).sum())
    return squares if squares > 0 else 1.0

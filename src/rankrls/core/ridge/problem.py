"""One training problem, asked for held-out predictions: the exact shortcut, or a refit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls import _memory
from rankrls._progress import Progress
from rankrls.core.linalg.conjugate_gradients import IterationOptions
from rankrls.core.preferences.graph import PreferenceGraph
from rankrls.core.preferences.objectives import Objective
from rankrls.core.ridge.bipartite import BipartiteSpectrum
from rankrls.core.ridge.build import fit_model
from rankrls.core.ridge.components import dual_holdout, primal_holdout, split_folds
from rankrls.core.ridge.models import predict_path
from rankrls.core.ridge.nystroem_folds import nystroem_holdout, nystroem_rows_holdout
from rankrls.core.ridge.rows import RowSpectrum
from rankrls.core.spaces.kernels import Kernel
from rankrls.core.spaces.nystroem import NystroemMap

__all__ = ["HeldOut", "HoldoutProblem", "default_pairs"]

Array = NDArray[Any]

#: More literal refits than this are refused: the data or the cost have no shortcut.
MAX_REFITS = 5000


@dataclass(frozen=True)
class HeldOut:
    """Predictions of each fold by the model without it.

    Attributes
    ----------
    predictions : list of ndarray of shape (n_alphas, len(fold), n_outputs)
        Up to a constant for every fold (and query).
    n_refits : ndarray of shape (n_alphas,), int
        How many folds were refitted literally, for lack of a shortcut or of digits.
    """

    predictions: list[Array]
    n_refits: Array


class HoldoutProblem:
    """Data, preferences and parameters of one model.

    Parameters
    ----------
    graph : PreferenceGraph over m rows
    kernel : Kernel
    X : ndarray or sparse array of shape (m, n); the kernel matrix if it is precomputed
    loss : dict
        cost, ties and query_weighting.
    basis : ndarray of int, optional
        Nyström basis vectors; None: no approximation.
    keep_basis : bool
        Whether basis vectors that are left out stay in the basis.
    """

    def __init__(
        self,
        graph: PreferenceGraph,
        kernel: Kernel,
        X: Any,
        *,
        loss: dict[str, str],
        basis: Array | None = None,
        keep_basis: bool = False,
    ) -> None:
        self.graph, self.kernel, self.X = graph, kernel, X
        self.loss, self.basis, self.keep_basis = loss, basis, keep_basis
        self.objectives = graph.objectives(**loss)
        self._gram: Array | None = None
        self._spectrum: RowSpectrum | None = None

    def with_graph(self, graph: PreferenceGraph) -> HoldoutProblem:
        """The same data, queries and parameters with other scores; decompositions are shared."""
        other = HoldoutProblem(
            graph,
            self.kernel,
            self.X,
            loss=self.loss,
            basis=self.basis,
            keep_basis=self.keep_basis,
        )
        other._gram, other._spectrum = self._gram, self._spectrum
        return other

    # ------------------------------------------------------------------ folds

    def folds(self, folds: Sequence[Array], alphas: Array) -> HeldOut:
        """Hold out any folds: unions of queries, or rows of one ranking."""
        m, n_outputs = self.graph.n_rows, self.graph.n_outputs
        self._require_something_left(folds)
        out = [np.full((len(alphas), len(rows), n_outputs), np.nan) for rows in folds]
        n_refits = np.zeros(len(alphas), dtype=np.int64)
        refits: dict[tuple[int, bytes], Array] = {}  # one holds all outputs
        for objective in self.objectives:
            parts, unsafe = self._shortcut(objective, folds, alphas)
            for number, part in enumerate(parts):
                out[number][..., objective.outputs] = part
            n_refits += unsafe.sum(axis=1)
            refitted = np.flatnonzero(unsafe.any(axis=0)).tolist()
            if len(refitted) > MAX_REFITS:
                raise ValueError(self._reason(f"{len(refitted):,} refits"))
            mine = np.isin(np.arange(n_outputs), objective.outputs)
            for i in refitted:
                bad = np.flatnonzero(unsafe[:, i])
                key = (i, bad.tobytes())
                if key not in refits:
                    rest = np.setdiff1d(np.arange(m), folds[i])
                    refits[key] = self._refit(rest, folds[i], alphas[bad])
                out[i][bad] = np.where(mine, refits[key], out[i][bad])
        return HeldOut(out, n_refits)

    def _require_something_left(self, folds: Sequence[Array]) -> None:
        """Raise if a fold holds all that an output's scores prefer."""
        graph = self.graph
        if graph.scores is None or graph.n_given_pairs:
            return
        codes = graph.query_codes
        assert codes is not None
        split = set(split_folds(self.objectives[0].system, folds))
        informative = np.column_stack([_varies(s, codes) for s in graph.scores.T])
        total = informative.sum(axis=0)
        for number, rows in enumerate(folds):
            left = total - informative[rows].sum(axis=0) > 0
            if number in split and left.all():
                left = graph[np.setdiff1d(np.arange(graph.n_rows), rows)].scored_outputs()
            if not left.all():
                hint = ""
                if (
                    number not in split
                    and len(np.unique(codes[informative[:, np.argmin(left)]])) <= 1
                ):
                    hint = (
                        ", since no more than one query has a pair (leave out qid if all rows are "
                        "one ranking, to hold out pairs or folds of its rows)"
                    )
                raise ValueError(
                    f"fold {number} leaves no query with a pair to learn from: nothing is left"
                    f"{hint}"
                )

    def _shortcut(
        self, objective: Objective, folds: Sequence[Array], alphas: Array
    ) -> tuple[list[Array], Array]:
        if not split_folds(objective.system, folds):
            return self._components(objective, folds, alphas)
        weighting, columns = self.loss["query_weighting"], objective.outputs
        if self._all_pairs() and (self.graph.n_queries == 1 or weighting == "size"):
            if self.basis is None:
                return self.rows(columns).folds(folds, alphas, weighting)
            if self.graph.n_queries == 1 and self.graph.scores is not None:
                s = self.graph.scores[:, columns]
                leave = partial(
                    nystroem_rows_holdout,
                    s=s,
                    folds=folds,
                    alphas=alphas,
                    query_weighting=weighting,
                )
                return self._nystroem(leave)
        k = len(objective.outputs)
        empty = [np.full((len(alphas), len(rows), k), np.nan) for rows in folds]
        return empty, np.ones((len(alphas), len(folds)), dtype=bool)

    def _components(
        self, objective: Objective, folds: Sequence[Array], alphas: Array
    ) -> tuple[list[Array], Array]:
        factor = objective.system.independent_factor()
        k = len(objective.outputs)
        if factor.t.shape[1] < k:  # one target for all outputs
            factor.t = np.repeat(factor.t, k, axis=1)
        if self.basis is not None:
            leave = partial(nystroem_holdout, factor=factor, folds=folds, alphas=alphas)
            return self._nystroem(leave)
        features = self.features()
        if features is not None:
            return primal_holdout(features, factor, folds, alphas)
        return dual_holdout(self.gram(), factor, objective.system.degree(), folds, alphas)

    def _nystroem(
        self, holdout: Callable[..., tuple[list[Array], Array]]
    ) -> tuple[list[Array], Array]:
        assert self.basis is not None
        K_RR = self._block(self.X, self.basis)[self.basis]
        nystroem = NystroemMap.from_gram(K_RR)
        kept = self.basis[nystroem.kept]
        Phi = nystroem.features(self._block(self.X, kept))
        back = nystroem.coefficients(np.eye(len(kept))[None])[0]
        if self.keep_basis:
            return holdout(Phi, back, np.full(len(kept), -1), kept[:0])
        return holdout(Phi, back, kept, np.setdiff1d(self.basis, kept))

    # ------------------------------------------------------------------ pairs of one ranking

    def pairs(self, pairs: Array, alphas: Array) -> Iterator[tuple[Array, int]]:
        """For each alpha, predictions (n_pairs, 2, n_outputs) without both rows, and refits."""
        for alpha, (out, unsafe) in zip(alphas, self._pairs(pairs, alphas), strict=True):
            for number, refitted in self._refit_pairs(pairs, unsafe, alpha):
                out[number] = refitted
            yield out, int(unsafe.sum())

    def concordance(self, alphas: Array) -> Iterator[tuple[Array, int]]:
        """For each alpha, Σ sign((s_i − s_j)(f_i − f_j)) over all pairs i < j left out, and refits.

        Shape (n_outputs,).
        """
        scores = self.graph.scores
        assert scores is not None
        pairs = default_pairs(self.graph)
        self._require_pairs(pairs)
        if self._bipartite():
            order = np.sign(scores[pairs[:, 0]] - scores[pairs[:, 1]])
            for out, n_refits in self.pairs(pairs, alphas):
                yield (np.sign(out[:, 0] - out[:, 1]) * order).sum(axis=0), n_refits
            return
        spectrum = self.rows(np.arange(self.graph.n_outputs))
        results = spectrum.concordance(scores, alphas, self.loss["query_weighting"])
        for alpha, (total, unsafe) in zip(alphas, results, strict=True):
            everything = np.ones(len(unsafe), dtype=bool)
            for number, refitted in self._refit_pairs(unsafe, everything, alpha):
                i, j = unsafe[number]
                total += np.sign((scores[i] - scores[j]) * (refitted[0] - refitted[1]))
            yield total, len(unsafe)

    def _pairs(self, pairs: Array, alphas: Array) -> Iterator[tuple[Array, Array]]:
        self._require_pairs(pairs)
        if self._bipartite():
            assert self.graph.scores is not None
            features = self.features()
            data = {"K": self.gram()} if features is None else {"X": features}
            spectrum = BipartiteSpectrum(self.graph.scores[:, 0], self.loss, **data)
            return spectrum.pairs(pairs, alphas)
        columns = np.arange(self.graph.n_outputs)
        return self.rows(columns).pairs(pairs, alphas, self.loss["query_weighting"])

    def _refit_pairs(
        self, pairs: Array, unsafe: Array, alpha: float
    ) -> Iterator[tuple[int, Array]]:
        if unsafe.sum() > MAX_REFITS:
            raise ValueError(self._reason(f"{int(unsafe.sum()):,} refits"))
        everything = np.arange(self.graph.n_rows)
        for number in np.flatnonzero(unsafe):
            rest = np.setdiff1d(everything, pairs[number])
            yield int(number), self._refit(rest, pairs[number], np.array([alpha]))[0]

    def _require_pairs(self, pairs: Array) -> None:
        if not self.can_leave_pairs_out():
            raise ValueError(self._reason("leave-pair-out"))
        assert self.graph.scores is not None
        if self.graph.n_rows < 4:
            raise ValueError("leave-pair-out needs at least 4 rows: two of them are left out")
        scores, middle = self.graph.scores, self.graph.n_rows // 2
        # With a third row that differs from the median, no pair holds all that differ.
        differ = scores != np.partition(scores, middle, axis=0)[middle]
        for column in np.flatnonzero(differ.sum(axis=0) <= 2):
            others = np.flatnonzero(differ[:, column])
            if len(others):
                held = np.array([(pairs == row).any(axis=1) for row in others]).all(axis=0)
                if held.any():
                    first = tuple(pairs[held][0].tolist())
                    raise ValueError(
                        f"without the pair {first} all scores are equal: nothing is left to learn"
                    )

    def can_leave_pairs_out(self) -> bool:
        """Whether `pairs` has its shortcut."""
        one = self.graph.n_queries == 1 and self.basis is None
        return self._bipartite() or (one and self._all_pairs())

    def _bipartite(self) -> bool:
        """Whether this is one ranking of two levels in which tied pairs do not count."""
        graph = self.graph
        if graph.scores is None or graph.n_given_pairs or graph.sample_weight is not None:
            return False
        if self.loss["cost"] == "magnitude" and self.loss["ties"] == "keep":
            return False
        one = graph.n_queries == 1 and graph.n_outputs == 1 and self.basis is None
        return one and len(np.unique(graph.scores)) == 2

    def rows(self, columns: Array) -> RowSpectrum:
        """The problem as ridge regression with a free intercept for each query."""
        assert self.graph.scores is not None
        assert self.graph.query_codes is not None
        s = self.graph.scores[:, columns]
        if self._spectrum is None:
            features = self.features()
            data = {"K": self.gram()} if features is None else {"X": features}
            self._spectrum = RowSpectrum(s, self.graph.query_codes, **data)
            return self._spectrum
        return self._spectrum.with_scores(s)

    def _all_pairs(self) -> bool:
        """Whether the objective compares all rows of a query, unweighted, by their scores."""
        graph = self.graph
        if self.loss["cost"] != "magnitude" or graph.n_given_pairs or graph.scores is None:
            return False
        if graph.sample_weight is not None:
            return False
        if self.loss["ties"] == "keep":
            return True
        assert graph.query_codes is not None
        return all(
            len(np.unique(np.column_stack([graph.query_codes, s]), axis=0)) == len(s)
            for s in graph.scores.T
        )

    def _reason(self, what: str) -> str:
        return (
            f"{what}: no exact shortcut. Whole queries (components of the preferences) can always "
            "be left out; rows of a query only with cost='magnitude', ties='keep' (or no ties), no "
            "sample weights, no given pairs, and one query (or query_weighting='size', no basis); "
            "pairs of one ranking with two levels also with tied pairs dropped"
        )

    # ------------------------------------------------------------------ data

    def features(self) -> Array | None:
        """Dense explicit features, centred, if working on them is cheaper than on a kernel."""
        m, n = self.X.shape
        if not self.kernel.linear or n > m:
            return None
        if sparse.issparse(self.X):
            advice = "use fewer features, or refit fold by fold with a splitter"
            _memory.require("exact hold-out", m, n, copies=2, advice=advice)
        X = self.X.toarray() if sparse.issparse(self.X) else np.asarray(self.X, dtype=np.float64)
        return X - X.mean(axis=0)

    def gram(self) -> Array:
        """The kernel matrix in double precision, computed once."""
        if self._gram is None:
            m = self.X.shape[0]
            _memory.require("exact hold-out", m, m, copies=4, advice="use a Nyström basis")
            if self.kernel.precomputed:
                self._gram = np.asarray(self.X, dtype=np.float64)
            elif self.kernel.linear and not sparse.issparse(self.X):
                X = self.X - self.X.mean(axis=0, dtype=np.float64)
                self._gram = X @ X.T
            else:
                self._gram = self.kernel(self.X).astype(np.float64, copy=False)
        return self._gram

    def _block(self, X: Any, columns: Array) -> Array:
        if self.kernel.precomputed:
            return np.asarray(X[:, columns], dtype=np.float64)
        return self.kernel(X, self.X[columns]).astype(np.float64, copy=False)

    def _refit(self, rest: Array, held: Array, alphas: Array) -> Array:
        """Fit without the held-out rows, literally: (n_alphas, len(held), n_outputs)."""
        basis = None
        if self.basis is not None:
            staying = np.isin(self.basis, rest)
            if self.keep_basis and not staying.all():
                raise ValueError(self._reason("a refit with basis vectors that are not in it"))
            basis = np.searchsorted(rest, self.basis[staying])
            if not len(basis):
                raise ValueError("a fold holds all basis vectors: nothing is left to span a model")
        graph = self.graph[rest]
        train = self.X[rest][:, rest] if self.kernel.precomputed else self.X[rest]
        new = self.X[held][:, rest] if self.kernel.precomputed else self.X[held]
        fit = fit_model(
            graph,
            self.kernel,
            train,
            alphas,
            loss=self.loss,
            solver="auto",
            basis=basis,
            random_state=np.random.RandomState(0),
            progress=Progress("", 0),
            iteration=IterationOptions(tol=1e-10, max_iter=10_000),
        )
        return predict_path(fit.model, new)


def _varies(s: Array, codes: Array) -> Array:
    """Whether the query of each row has different scores, bool of shape (m,)."""
    example = np.zeros(int(codes.max()) + 1)
    example[codes] = s
    different = np.zeros(len(example), dtype=bool)
    different[codes[s != example[codes]]] = True
    return different[codes]


def default_pairs(graph: PreferenceGraph) -> Array:
    """All i < j with different scores, shape (n_pairs, 2); with several outputs all i < j."""
    if graph.scores is None:
        raise ValueError("leave-pair-out needs scores y")
    i, j = np.triu_indices(graph.n_rows, 1)
    if graph.n_outputs == 1:
        different = graph.scores[i, 0] != graph.scores[j, 0]
        i, j = i[different], j[different]
    return np.column_stack([i, j])

"""Regression diagnostics: the influence of judgements, items, queries or rows on the model.

A group is a set U of squared terms of the objective that are left out together: edges of given
pairs, or coordinates of the factor of L. In the spectrum of the problem (see
`leave_judgements_out`), Ψ_U are their vectors, t_U their targets, ρ_U their residuals,
H = Ψ diag(σ/(σ + alpha)) Ψᵀ, and e_U the residuals by the model without U, from the exact
hold-outs. Then

- the leverage is trace H_UU;
- leaving out U changes b by −Ψ_Uᵀe_U: with the rows B of the spectrum, scores without U are
  B diag(σ/(σ + alpha)) (b − Ψ_Uᵀe_U);
- Cook's distance is the squared change of all fitted terms, ‖diag(σ/(σ + alpha)) Ψ_Uᵀe_U‖², divided
  by trace(H) s², with s² = tᵀρ/N the estimated noise variance of the N terms;
- ρ_Uᵀe_U is the cost of fitting U, and F = (ρ_Uᵀe_U/|U|)/((tᵀρ − ρ_Uᵀe_U)/(N − |U|)) has an F
  distribution with |U| and N − |U| degrees of freedom, if f is a Gaussian process with covariance k
  and the terms have independent noise, in the proportion 1 : alpha.

This module solves no systems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from rankrls import _resources
from rankrls.core.preferences.laplacian import SumLaplacian
from rankrls.core.ridge.leave_judgements_out import (
    CUT,
    SINGULAR,
    EdgeSpectrum,
    EdgeTerms,
    JudgementFolds,
    Judgements,
)
from rankrls.core.ridge.leave_out import split_folds
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.spaces.spaces import NystroemSpace

__all__ = [
    "Influence",
    "NewRows",
    "counted_problem",
    "judgement_influence",
    "judgement_terms",
    "query_influence",
    "row_influence",
    "squared_residuals",
]

Array = NDArray[Any]

#: Maximum size of a work array.
WORK = 2**21

#: Maximum number of held-out predictions, over all alphas, computed at a time.
SCORES = 2**25

NO_SPECTRUM = (
    "the scales of the features are too different for diagnostics; scale them, or increase alpha"
)


@dataclass(frozen=True)
class Influence:
    """Diagnostics of all groups, arrays of shape (n_groups,); NaN for a group without terms.

    Attributes
    ----------
    size : ndarray of int
        Number of independent terms |U|.
    leverage : ndarray
    residual : ndarray
        Residual by the model without the group: signed for a single term, otherwise the root mean
        square.
    studentised : ndarray
        √F.
    p_value : ndarray
    cook : ndarray
    agreement : ndarray or None
        Cosine of the angle between the targets t_U and their predictions t_U − e_U by the model
        without the group; NaN if one of them is zero. None for rows.
    weight : ndarray or None
        Weight κ of the squared residual of a row; None for other groups.
    metric : ndarray or None
        Metric on new rows of the model without the group, if new rows were given.
    metric_of_all : float or None
        The same metric for the full model.
    """

    size: Array
    leverage: Array
    residual: Array
    studentised: Array
    p_value: Array
    cook: Array
    agreement: Array | None
    weight: Array | None = None
    metric: Array | None = None
    metric_of_all: float | None = None


@dataclass(frozen=True)
class NewRows:
    """Rows X, in the form of the training rows, and a function from scores (n,) to a metric."""

    X: Any
    metric: Callable[[Array], float]


@dataclass(frozen=True)
class _AuditedTerms:
    """Groups of terms with their held-out residuals.

    Attributes
    ----------
    terms : EdgeTerms, for a single alpha
    folds : JudgementFolds
        Indices of the terms of each group.
    e : ndarray of shape (total,)
        Residuals without the group, concatenated over groups.
    size : ndarray of shape (n_groups,), int
        Number of independent terms of each group.
    scale : ndarray of shape (n_groups,)
        Divisors that turn sums of squares of e into mean squares.
    n_terms : int
        N.
    energy : float
        tᵀt of all N terms.
    free : ndarray of shape (l,)
        Fraction of each term that is absorbed by free offsets, between 0 and 1.
    """

    terms: EdgeTerms
    folds: JudgementFolds
    e: Array
    size: Array
    scale: Array
    n_terms: int
    energy: float
    free: Array


def judgement_influence(
    problem: RidgeProblem, folds: JudgementFolds, alpha: float, new: NewRows | None = None
) -> Influence:
    """Diagnostics of groups of given pairs; pairs of zero weight are excluded."""
    counted = problem.graph.pair_weight > 0
    kept = folds.members[counted[folds.members]]
    sizes = folds.sums(counted).astype(np.int64)
    mine = JudgementFolds((np.cumsum(counted) - 1)[kept], sizes, folds.what, folds.labels)
    problem, _, used = counted_problem(problem)
    new = _with_columns(problem, new, used)
    terms, e = judgement_terms(problem, mine, alpha)
    problem = problem.twin(terms.alphas)
    z, weight = terms.edges.z, terms.edges.weight
    n_terms, energy = len(z), float(terms.t @ terms.t)
    laplacian = problem.objectives[0].laplacian
    if isinstance(laplacian, SumLaplacian):  # scores are terms, too
        factor = laplacian.scored.independent_factor()
        n_terms += factor.shape[1] - factor.null().shape[1]
        energy += float(np.square(factor.t).sum())
    groups = _AuditedTerms(
        terms,
        mine,
        e,
        mine.sizes,
        mine.sums(weight),
        n_terms,
        energy,
        np.zeros(len(z)),
    )
    return _influence(groups, problem, new)


def query_influence(
    problem: RidgeProblem, folds: list[Array], alpha: float, new: NewRows | None = None
) -> Influence:
    """Diagnostics of queries or unions of queries, given as rows, which together cover all rows."""
    grid = np.array([alpha])
    if split_folds(problem.objectives[0].laplacian, folds).any():
        raise ValueError(
            "a group shares a query or given pairs with the rest; only "
            "groups of whole queries can be audited"
        )
    f = problem.leave_out(folds, grid).by_row(problem.graph.n_rows)[0]
    problem = problem.twin(grid)
    laplacian = problem.objectives[0].laplacian
    factor = laplacian.independent_factor()
    terms = _coordinate_terms(problem, grid)
    number = np.empty(problem.graph.n_rows, dtype=np.int64)
    number[np.concatenate(folds)] = np.repeat(np.arange(len(folds)), [len(rows) for rows in folds])
    mine = JudgementFolds(
        np.argsort(number[factor.owner], kind="stable"),
        np.bincount(number[factor.owner], minlength=len(folds)),
    )
    e = (factor.t - factor.rmatmat(f))[mine.members, 0]
    free = _null_squares(factor)
    groups = _AuditedTerms(
        terms,
        mine,
        e,
        np.rint(mine.sums(1.0 - free)).astype(np.int64),
        np.bincount(number, laplacian.degree(), minlength=len(folds)),
        round(len(free) - free.sum()),
        float(np.square(factor.t).sum()),
        free,
    )
    return _influence(groups, problem, new)


def row_influence(problem: RidgeProblem, alpha: float, new: NewRows | None = None) -> Influence:
    """Diagnostics of rows, if all pairs within a query have equal weight.

    A row is one term κ (s − f − b)² with the free offset b of its query. The other rows keep their
    weight κ, which equals a refit without the row for query_weighting="size".
    """
    if not problem.every_pair_counts():
        raise ValueError(
            "by='row' needs cost='magnitude', ties='keep' (or no ties), no sample weights and no "
            "given pairs, because otherwise a row is not a single term of the objective"
        )
    grid = np.array([alpha])
    problem = problem.twin(grid)
    laplacian = problem.objectives[0].laplacian
    factor = laplacian.independent_factor()
    terms = _coordinate_terms(problem, grid)
    free = _null_squares(factor)
    m = len(free)
    every = JudgementFolds.single(m)
    J, rho = np.empty((2, m))
    for rows in _blocks(every, len(terms.share)):
        squares = np.square(terms.vectors(rows))
        C = 1.0 - free[rows] - squares.sum(axis=1)
        if terms.spectrum.exact_cuts:
            C[CUT > C] = 0.0
        J[rows] = C + squares @ terms.shrinkage[:, 0]
        rho[rows] = _residuals(terms, rows, C)
    least = max(float(terms.least()[0, 0]), 0.0 if terms.spectrum.exact_cuts else SINGULAR[0])
    certain = (free < 1 - 1e-9) & (least < J)
    e = np.divide(rho, J, out=np.full(m, np.nan), where=certain)
    kappa = np.divide(laplacian.degree(), 1.0 - free, out=np.zeros(m), where=free < 1 - 1e-9)
    size = (kappa > 0).astype(np.int64)
    n_terms = round(len(free) - free.sum())
    energy = float(np.square(factor.t).sum())
    groups = _AuditedTerms(terms, every, e, size, kappa, n_terms, energy, free)
    found = _influence(groups, problem, new)
    return replace(found, agreement=None, weight=np.where(kappa > 0, kappa, np.nan))


def squared_residuals(problem: RidgeProblem, folds: list[Array], alphas: Array) -> Array:
    """Squared error of held-out labels for each alpha, shape (n_alphas,).

    Whole queries are weighted as in the objective. The rows in folds of one ranking, if all pairs
    have equal weight, are weighted equally, with the best offset for each fold.
    """
    graph = problem.graph
    laplacian = problem.objectives[0].laplacian
    whole = not split_folds(laplacian, folds).any()
    step = max(1, SCORES // graph.n_rows)
    found = []
    for start in range(0, len(alphas), step):
        held = problem.leave_out(folds, alphas[start : start + step])
        if whole:
            factor = laplacian.independent_factor()
            e = factor.t - factor.rmatmat(held.by_row(graph.n_rows)[..., 0].T)
            found.append(np.square(e).sum(axis=0))
            continue
        assert graph.scores is not None
        total = np.zeros(len(held.values))
        for rows, part in zip(folds, held.predictions, strict=True):
            missed = graph.scores[rows, 0] - part[..., 0]
            total += np.square(missed - missed.mean(axis=1, keepdims=True)).sum(axis=1)
        found.append(total)
    return np.concatenate(found)


# -- terms ------------------------------------------------------------------------------------


def counted_problem(problem: RidgeProblem) -> tuple[RidgeProblem, Array, Array]:
    """Restrict the problem to pairs of positive weight and rows with an edge; return these, too."""
    graph = problem.graph
    counted, used = np.flatnonzero(graph.pair_weight > 0), np.flatnonzero(graph.used_rows())
    if len(used) < graph.n_rows or len(counted) < graph.n_given_pairs:
        problem = problem.on_rows(graph.only_pairs(counted)[used], used)
    return problem, counted, used


def judgement_terms(
    problem: RidgeProblem, folds: JudgementFolds, alpha: float
) -> tuple[EdgeTerms, Array]:
    """Terms of given pairs, all of positive weight, and e_U of all folds, shape (total,)."""
    grid = np.array([alpha])
    held = problem.leave_judgements_out(folds.take(np.flatnonzero(folds.sizes)), grid)
    problem = problem.twin(grid)
    graph = problem.graph
    z, weight = problem.loss.of_pair.edges(graph.magnitude, graph.pair_weight)
    terms = EdgeTerms(_spectrum(problem, grid), Judgements(graph.pairs, weight, z), grid, False)
    return terms, terms.root[folds.members] * (z[folds.members] - held.values[0, :, 0])


def _spectrum(problem: RidgeProblem, grid: Array, factor: Any = None) -> EdgeSpectrum:
    found = next(iter(problem.edge_spectra(0, grid, factor)), None)
    if found is None:
        raise ValueError(NO_SPECTRUM)
    return found[1]


def _coordinate_terms(problem: RidgeProblem, grid: Array) -> EdgeTerms:
    """The coordinates of the factor as edges of weight 1 to a row of zeros."""
    factor = problem.objectives[0].laplacian.independent_factor()
    width = problem.n_coefficients
    advice = "use fewer features or basis vectors, or leave out the diagnostics"
    _resources.require("diagnostics", factor.shape[1], width, copies=4, advice=advice)
    spectrum = _spectrum(problem, grid, factor)
    p, q = spectrum.B.shape
    spectrum = replace(spectrum, B=np.vstack([spectrum.B, np.zeros((1, q))]))
    ends = np.column_stack([np.arange(p), np.full(p, p)])
    return EdgeTerms(spectrum, Judgements(ends, np.ones(p), factor.t[:, 0]), grid, False)


def _null_squares(factor: Any) -> Array:
    """Squared part of each coordinate in the null space of F, between 0 and 1, shape (p,)."""
    N = factor.null()
    return np.asarray(N.multiply(N).sum(axis=1)).ravel()


def _residuals(terms: EdgeTerms, U: Array, C: Array) -> Array:
    """Residuals ρ_U, shape (u,); where the diagonal C of C_UU is zero, b holds the target."""
    fixed = terms.fixed(U)[:, 0]
    if terms.spectrum.exact_cuts:
        fixed[CUT > C] = 0.0
    return fixed + terms.of_edges(terms.shrunken, U)[0, :, 0]


def _with_columns(problem: RidgeProblem, new: NewRows | None, used: Array) -> NewRows | None:
    """New rows for the problem of some rows; columns are selected if X is a kernel matrix.

    A basis selects its columns itself.
    """
    if new is None or not problem.space.kernel.precomputed or new.X.shape[1] == len(used):
        return new
    if isinstance(problem.space, NystroemSpace):
        return new
    return replace(new, X=new.X[:, used])


def _blocks(folds: JudgementFolds, q: int) -> Iterator[Array]:
    """Indices of consecutive folds whose terms are processed together."""
    limit, ends = max(1, WORK // max(q, 1)), np.cumsum(folds.sizes)
    first = 0
    while first < len(folds):
        last = int(np.searchsorted(ends, folds.starts[first] + limit, side="right"))
        last = max(last, first + 1)
        yield np.arange(first, last)
        first = last


# -- all groups -------------------------------------------------------------------------------


@np.errstate(divide="ignore", invalid="ignore")
def _influence(groups: _AuditedTerms, problem: RidgeProblem, new: NewRows | None) -> Influence:
    terms, folds = groups.terms, groups.folds
    share, shrinkage = terms.share[:, 0], terms.shrinkage[:, 0]
    b, n = terms.spectrum.b[:, 0], len(folds)
    leverage, squares, cost, moved, targets, predictions, both = np.zeros((7, n))
    products = _fitted_products(problem, terms)
    freedom = float(share.sum() if products.ndim == 1 else products.trace())
    metric = None if new is None else np.full(n, np.nan)
    if new is not None:
        of_new = terms.spectrum.of_rows(problem.inputs_of(new.X)) * share
        fitted = of_new @ b
    for numbers in _blocks(folds, len(share)):
        places = folds.places(numbers)
        U, e = folds.members[places], groups.e[places]
        t = terms.t[U]
        group = np.repeat(np.arange(len(numbers)), folds.sizes[numbers])
        Psi = terms.vectors(U)
        n_here, squared = len(numbers), np.square(Psi)
        C = 1.0 - groups.free[U] - squared.sum(axis=1)
        for out, values in (
            (leverage, squared @ share),
            (squares, e * e),
            (cost, e * _residuals(terms, U, C)),
            (targets, t * t),
            (predictions, np.square(t - e)),
            (both, t * (t - e)),
        ):
            out[numbers] = np.bincount(group, values, minlength=n_here)
        Psi *= e[:, None]
        some = np.flatnonzero(folds.sizes[numbers])
        starts = (folds.starts[numbers] - folds.starts[numbers[0]])[some]
        lost = np.add.reduceat(Psi, starts, axis=0) if len(some) else Psi[:0]
        product = lost * products if products.ndim == 1 else lost @ products
        moved[numbers[some]] = np.einsum("ij,ij->i", product, lost)
        if new is not None and metric is not None:
            scores = fitted[:, None] - of_new @ lost.T
            known = np.isfinite(scores).all(axis=0)
            for place in np.flatnonzero(known):
                metric[numbers[some[place]]] = new.metric(scores[:, place])
    size, N = groups.size, groups.n_terms
    counted = size > 0
    # tᵀρ: the part outside the spectrum plus the part shrunk by alpha.
    misfit = max(groups.energy - float(b @ b), 0.0) + float(shrinkage @ (b * b))
    single = folds.sizes == 1
    residual = np.sqrt(squares / groups.scale)
    residual[single] *= np.sign(groups.e[folds.starts[single]])
    rest = N - size
    noise = np.maximum(misfit - cost, 0.0) / rest
    ratio = np.maximum(cost, 0.0) / size / noise
    values = {
        "leverage": leverage,
        "residual": residual,
        "studentised": np.sqrt(ratio),
        "p_value": f_distribution.sf(ratio, np.maximum(size, 1), np.maximum(rest, 1)),
        "cook": moved / (freedom * misfit / N),
        "agreement": np.clip(both / np.sqrt(targets * predictions), -1.0, 1.0),
    }
    known = {name: np.where(counted, value, np.nan) for name, value in values.items()}
    of_all = None if new is None else new.metric(fitted)
    return Influence(size=size, **known, metric=metric, metric_of_all=of_all)


def _fitted_products(problem: RidgeProblem, terms: EdgeTerms) -> Array:
    """D such that cᵀDc is the squared change of all fitted terms if b changes by c, (q, q).

    If the spectrum has eigenvalues, only its diagonal (σ/(σ + alpha))² is returned, shape (q,). For
    features whitened for one alpha, D = ΨᵀΨ = I − alpha WᵀW, with the whitened unit vectors W.
    """
    if np.isfinite(terms.spectrum.values).all():
        return np.square(terms.share[:, 0])
    made, n = problem.decompose(terms.alphas)[0].factorization, len(terms.share)
    W = next(made.whitened_rows(np.eye(n), terms.alphas))
    return np.eye(n) - float(terms.alphas[0]) * (W.T @ W)

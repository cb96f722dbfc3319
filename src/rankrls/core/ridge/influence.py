"""Regression diagnostics: the influence of judgements, items, queries or rows on the model.

A group is a set U of terms that are left out together, with ρ = J t the residuals of the model of
all terms and e those of the model without U (see `residuals`); "Diagnostics" in docs/mathematics.md
has the formulas. This module solves no systems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from rankrls import _resources
from rankrls.core.preferences.laplacian import SumLaplacian
from rankrls.core.ridge.problem import RidgeProblem
from rankrls.core.ridge.residuals import Folds, Residuals, split_folds
from rankrls.core.spaces.products import subtract

Array = NDArray[Any]

#: Maximum size of a work array.
WORK = 2**21

#: Diagnostics of all groups by name, of shape (n_groups,); NaN for a group without terms.
Influence = dict[str, Array]

#: Rows X, in the form of the training rows, and a function from scores (n,) to a metric.
NewRows = tuple[Any, Callable[[Array], float]]


def judgement_influence(
    problem: RidgeProblem, folds: Folds, alpha: float, new: NewRows | None = None
) -> Influence:
    """Diagnostics of groups of given pairs; pairs of zero weight are excluded."""
    counted = problem.graph.pair_weight > 0
    kept = folds.members[counted[folds.members]]
    mine = Folds((np.cumsum(counted) - 1)[kept], folds.sums(counted), folds.what, folds.labels)
    graph, used = problem.graph, np.flatnonzero(problem.graph.used_rows())
    if len(used) < graph.n_rows or not counted.all():
        problem = problem.on_rows(graph.only_pairs(np.flatnonzero(counted))[used], used)
    space = problem.space
    if new is not None and space.kernel.precomputed and space.basis is None:
        # Columns of a kernel matrix; a basis selects its columns itself.
        X, metric = new
        new = X if X.shape[1] == len(used) else X[:, used], metric
    grid = np.array([alpha])
    held = problem.leave_judgements_out(mine.take(np.flatnonzero(mine.sizes)), grid)
    terms, _ = problem.judgement_residuals(0, grid)
    root = terms.root
    assert root is not None
    e = terms.t[mine.members, 0] - root[mine.members] * held.values[0, :, 0]
    n_terms, energy = len(root), float(np.square(terms.t[:, 0]).sum())
    laplacian = problem.objectives[0]
    if isinstance(laplacian, SumLaplacian):  # scores are terms, too
        factor = laplacian.scored.factor()
        n_terms += factor.shape[1] - factor.null().shape[1]
        energy += float(np.square(factor.t).sum())
    scale = mine.sums(np.square(root))
    return _influence(terms, alpha, mine, e, mine.sizes, scale, n_terms, energy, problem, new)


def query_influence(
    problem: RidgeProblem, folds: list[Array], alpha: float, new: NewRows | None = None
) -> Influence:
    """Diagnostics of queries or unions of queries, given as rows, which together cover all rows."""
    grid, n = np.array([alpha]), len(folds)
    if split_folds(problem.objectives[0], folds).any():
        raise ValueError(
            "a group shares a query or given pairs with the rest; only "
            "groups of whole queries can be audited"
        )
    f = problem.leave_out(folds, grid).by_row(problem.graph.n_rows)[0]
    terms, factor, free = _coordinate_terms(problem, grid)
    rows = Folds.of_list(folds)
    number = np.empty(problem.graph.n_rows, dtype=np.int64)
    number[rows.members] = np.repeat(np.arange(n), rows.sizes)
    mine = Folds(
        np.argsort(number[factor.row_of], kind="stable"),
        np.bincount(number[factor.row_of], minlength=n),
    )
    e = (factor.t - factor.rmatmat(f))[mine.members, 0]
    size = np.rint(mine.sums(1.0 - free)).astype(np.int64)
    scale = np.bincount(number, problem.objectives[0].degree(), minlength=n)
    n_terms, energy = round(len(free) - free.sum()), float(np.square(factor.t).sum())
    return _influence(terms, alpha, mine, e, size, scale, n_terms, energy, problem, new)


def row_influence(problem: RidgeProblem, alpha: float, new: NewRows | None = None) -> Influence:
    """Diagnostics of rows, as terms κ (s − f − b)² with the free offset b of the query.

    The other rows keep their weight κ, as in a refit without the row for query_weighting="size".
    """
    if not problem.every_pair_counts():
        raise ValueError(
            "by='row' needs cost='magnitude', ties='keep' (or no ties), no sample weights and no "
            "given pairs, because otherwise a row is not a single term of the objective"
        )
    terms, factor, free = _coordinate_terms(problem, np.array([alpha]))
    m, every = len(free), Folds.single(len(free))
    J, rho = np.empty((2, m))
    for rows in _blocks(every, len(terms.b)):
        residuals, J[rows] = terms.residuals(rows, alpha)
        rho[rows] = residuals[:, 0]
    within, least = free < 1 - 1e-9, 0.0 if terms.exact else terms.least(alpha)
    e = np.divide(rho, J, out=np.full(m, np.nan), where=within & (least < J))
    degree = problem.objectives[0].degree()
    kappa = np.divide(degree, 1.0 - free, out=np.zeros(m), where=within)
    size, n_terms = (kappa > 0).astype(np.int64), round(len(free) - free.sum())
    energy = float(np.square(factor.t).sum())
    found = _influence(terms, alpha, every, e, size, kappa, n_terms, energy, problem, new)
    del found["agreement"]
    return found | {"weight": np.where(kappa > 0, kappa, np.nan)}


# -- terms ------------------------------------------------------------------------------------


def _coordinate_terms(problem: RidgeProblem, grid: Array) -> tuple[Residuals, Any, Array]:
    """Residuals of all coordinates of the factor, the factor, and their share of free offsets."""
    width = len(problem.decompose(grid)[0].b)
    advice = "use fewer features or basis vectors, or leave out the diagnostics"
    _resources.require("diagnostics", problem.graph.n_rows, width, copies=4, advice=advice)
    terms, factor, _ = problem.residuals(0, grid, cut=True)
    N = factor.null()
    return terms, factor, np.asarray(N.multiply(N).sum(axis=1)).ravel()


def _blocks(folds: Folds, q: int) -> Iterator[Array]:
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
def _influence(
    terms: Residuals,
    alpha: float,
    folds: Folds,
    e: Array,
    size: Array,
    scale: Array,
    N: int,
    energy: float,
    problem: RidgeProblem,
    new: NewRows | None,
) -> Influence:
    """Diagnostics of groups of terms from their residuals e without the group, shape (total,).

    Of the terms ``size`` are independent; squares of e are divided by ``scale``; N terms in all.
    """
    b, n, products = terms.coordinates(terms.b.T, alpha)[0], len(folds), terms.products(alpha)
    w = terms.weights(np.array([alpha]))[:, 0]
    diagonal = products if products.ndim == 1 else products.diagonal()
    leverage, squares, cost, moved, targets, predictions, both = np.zeros((7, n))
    measured = np.full(n, np.nan)
    if new is not None:
        space, (X, metric) = problem.space, new
        if problem.by_features:
            points = terms.made.rotate(space.basis.features(X) if space.basis is not None else X)
        else:
            K = X if space.rows is None else space.kernel(subtract(X, space.shift), space.rows)
            solver = problem.decompose(np.array([alpha]))[0]
            V, sigma = solver.factorization.spectrum()
            points = solver.factor.rmatmat(np.ascontiguousarray(K.T, dtype=np.float64)).T @ V
            points = np.divide(points, sigma, out=np.zeros_like(points), where=sigma != 0)
        of_new = terms.coordinates(points, alpha) * w
        fitted = of_new @ b
    for numbers in _blocks(folds, len(b)):
        places = folds.places(numbers)
        U, of_block = folds.members[places], e[places]
        t, rho = terms.t[U, 0], terms.residuals(U, alpha)[0][:, 0]
        group = np.repeat(np.arange(len(numbers)), folds.sizes[numbers])
        A = terms.coordinates(terms.vectors(U), alpha)
        for out, values in (
            (leverage, np.square(A) @ w),
            (squares, np.square(of_block)),
            (cost, of_block * rho),
            (targets, t * t),
            (predictions, np.square(t - of_block)),
            (both, t * (t - of_block)),
        ):
            out[numbers] = np.bincount(group, values, minlength=len(numbers))
        some = np.flatnonzero(folds.sizes[numbers])
        starts = (folds.starts[numbers] - folds.starts[numbers[0]])[some]
        lost = np.add.reduceat(A * of_block[:, None], starts, axis=0) if len(some) else A[:0]
        change = lost * w
        product = change * products if products.ndim == 1 else change @ products
        moved[numbers[some]] = np.einsum("ij,ij->i", product, change)
        if new is not None:
            scores = fitted[:, None] - of_new @ lost.T
            for place in np.flatnonzero(np.isfinite(scores).all(axis=0)):
                measured[numbers[some[place]]] = metric(scores[:, place])
    # tᵀρ = tᵀt − tᵀHt, as a sum of the part outside the spectrum and the shrunk part.
    misfit = max(energy - float(w @ (b * b)), 0.0)
    if products.ndim == 1:
        inside = np.divide(b * b, products, out=np.zeros_like(b), where=products > 0)
        misfit = max(energy - inside.sum(), 0.0) + float((1 - w * products) @ inside)
    freedom = float(w @ diagonal)
    single = folds.sizes == 1
    residual = np.sqrt(squares / scale)
    residual[single] *= np.sign(e[folds.starts[single]])
    rest = N - size
    noise = np.maximum(misfit - cost, 0.0) / rest
    ratio = np.maximum(cost, 0.0) / size / noise
    values = {
        "leverage": leverage,
        "deleted_residual": residual,
        "studentised": np.sqrt(ratio),  # √F
        "p_value": f_distribution.sf(ratio, np.maximum(size, 1), np.maximum(rest, 1)),
        "cook_distance": moved / (freedom * misfit / N),
        # The cosine between t_U and t_U − e_U.
        "agreement": np.clip(both / np.sqrt(targets * predictions), -1.0, 1.0),
    }
    if new is not None:
        values["metric_change"] = measured - metric(fitted)
    known = {name: np.where(size > 0, value, np.nan) for name, value in values.items()}
    return {"size": size, **known}

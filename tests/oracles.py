"""Naive oracles: dense, looped, obviously right. Slow on purpose."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
from scipy.linalg import helmert
from sklearn.svm import LinearSVC

from high_precision import pairwise_values, solve

#: w² and z of a preference of magnitude y.
COSTS = {
    "magnitude": lambda y: (1.0, y),
    "unit": lambda y: (1.0, 1.0),
    "relative": lambda y: (1 / y**2, y),
}


def edges_of_scores(s, qid=None, weight=None, *, cost, ties, query_weighting):
    """All edges (head, tail, w², z) of one output, by a double loop."""
    s = np.asarray(s, float)
    qid = [0] * len(s) if qid is None else list(qid)
    w = np.ones(len(s)) if weight is None else np.asarray(weight, float)
    edges = []
    for query in dict.fromkeys(qid):
        rows = [i for i in range(len(s)) if qid[i] == query]
        pairs = [(i, j) if s[i] >= s[j] else (j, i) for i, j in itertools.combinations(rows, 2)]
        if ties == "drop" or cost != "magnitude":
            pairs = [(i, j) for i, j in pairs if s[i] != s[j]]
        counted = sum(w[i] * w[j] for i, j in pairs)
        if counted == 0:
            continue
        c = {"pair": 1.0, "size": 1 / sum(w[i] for i in rows), "query": 1 / counted}
        for i, j in pairs:
            w2, z = COSTS[cost](s[i] - s[j])
            if w[i] * w[j] > 0:
                edges.append((i, j, c[query_weighting] * w[i] * w[j] * w2, z))
    return edges


def edges_of_pairs(pairs, magnitude=None, weight=None, *, cost):
    """The same for given pairs."""
    edges = []
    for e, (i, j) in enumerate(pairs):
        w2, z = COSTS[cost](1.0 if magnitude is None else magnitude[e])
        w = 1.0 if weight is None else weight[e]
        if w > 0:
            edges.append((int(i), int(j), w * w2, z))
    return edges


def laplacian(edges, m):
    """Dense L and r by a loop over edges."""
    L = np.zeros((m, m))
    r = np.zeros(m)
    for i, j, ww, z in edges:
        L[i, i] += ww
        L[j, j] += ww
        L[i, j] -= ww
        L[j, i] -= ww
        r[i] += ww * z
        r[j] -= ww * z
    return L, r


def incidence(edges, m):
    """M (m × l) with a column w(e_h − e_j) per edge, and N = w z: L = M Mᵀ, r = M N."""
    M = np.zeros((m, len(edges)))
    N = np.zeros(len(edges))
    for e, (i, j, ww, z) in enumerate(edges):
        M[i, e], M[j, e] = np.sqrt(ww), -np.sqrt(ww)
        N[e] = np.sqrt(ww) * z
    return M, N


def dual_coefficients(edges, K, alpha):
    """A = M (MᵀKM + alpha I)⁻¹ N: kernel ridge regression on explicit differences.

    The same function as (L K + alpha I)⁻¹ r (P1, eq. 17), which as a formula loses ten digits
    where alpha is small. So would a plain solve where K is singular: coefficients in the null
    space of MᵀKM are a function of norm zero, and are left out.
    """
    M, N = incidence(edges, len(K))
    values, vectors = np.linalg.eigh(M.T @ K @ M)
    kept = np.abs(values) > len(N) * np.finfo(float).eps * np.abs(values).max()
    U = vectors[:, kept]
    return M @ (U @ ((U.T @ N) / (values[kept] + alpha)))


def primal_coefficients(edges, X, alpha):
    """w = (DᵀD + alpha I)⁻¹ DᵀN for the explicit differences D = MᵀX: ridge regression."""
    M, N = incidence(edges, len(X))
    U, d, Vt = np.linalg.svd(M.T @ X, full_matrices=False)
    d[d < len(N) * np.finfo(float).eps * d.max()] = 0.0
    return Vt.T @ (d / (d**2 + alpha) * (U.T @ N))


def nystroem_coefficients(edges, K, basis, alpha):
    """a = (K_RM L K_MR + alpha K_RR)⁻¹ K_RM r by a dense solve (P2, eq. 8)."""
    L, r = laplacian(edges, len(K))
    KMR = K[:, basis]
    return np.linalg.solve(KMR.T @ L @ KMR + alpha * K[np.ix_(basis, basis)], KMR.T @ r)


def objective(edges, f, alpha, norm2):
    """Σ w² (z − (f_h − f_j))² + alpha ‖f‖²."""
    return sum(ww * (z - (f[i] - f[j])) ** 2 for i, j, ww, z in edges) + alpha * norm2


def difference_process(edges, K, alpha):
    """A Gaussian process on explicit differences: M (m × l), z, and covariance of z."""
    m, n_edges = len(K), len(edges)
    M = np.zeros((m, n_edges))
    z = np.zeros(n_edges)
    noise = np.zeros(n_edges)
    for e, (i, j, ww, target) in enumerate(edges):
        M[i, e], M[j, e] = 1.0, -1.0
        z[e] = target
        noise[e] = alpha / ww
    return M, z, M.T @ K @ M + np.diag(noise)


def relation_coefficients(K, G, rows, cols, y, alpha, *, ranking, sign=0, constant=False):
    """A (p × g) of f(x, z) = k_xᵀ A g_z, by the dense system over all edges, one term each.

    Centring by row, or of all labels for a ``constant``, is written as an orthonormal basis of its
    range (Helmert matrices), so that nothing is singular but the kernel; functions of norm zero are
    left out.
    """
    rows, cols, y = np.asarray(rows), np.asarray(cols), np.asarray(y, float)
    kernel = K[np.ix_(rows, rows)] * G[np.ix_(cols, cols)]
    if sign:
        kernel = 0.5 * (kernel + sign * K[np.ix_(rows, cols)] * G[np.ix_(cols, rows)])
    n = len(y)
    F = np.eye(n)
    if ranking or constant:
        F, lists = np.zeros((n, 0)), rows if ranking else np.zeros(n)
        for row in np.unique(lists):
            mine = np.flatnonzero(lists == row)
            block = np.zeros((n, len(mine) - 1))
            if len(mine) > 1:
                block[mine] = helmert(len(mine)).T
            F = np.hstack([F, block])
    S = F.T @ kernel @ F
    values, vectors = np.linalg.eigh((S + S.T) / 2)
    size = max(np.abs(kernel).max(), np.abs(values).max(initial=0.0))
    kept = values > n * np.finfo(float).eps * size
    U = vectors[:, kept]
    a = F @ (U @ ((U.T @ (F.T @ y)) / (values[kept] + alpha)))
    A = np.zeros((len(K), len(G)))
    np.add.at(A, (rows, cols), a)
    return 0.5 * (A + sign * A.T) if sign else A


# ---------------------------------------------------------------------- metrics


def pairwise_error(y, score, qid, weight=None):
    """Per-query errors in the order of the sorted labels, by a double loop."""
    weight = np.ones(len(y)) if weight is None else weight
    wrong, total = dict.fromkeys(qid, 0.0), dict.fromkeys(qid, 0.0)
    for i, j in itertools.permutations(range(len(y)), 2):
        if qid[i] == qid[j] and y[i] > y[j]:
            total[qid[i]] += weight[i] * weight[j]
            error = 0.5 if score[i] == score[j] else score[i] < score[j]
            wrong[qid[i]] += weight[i] * weight[j] * error
    return np.array([wrong[q] / total[q] if total[q] else math.nan for q in sorted(total)])


def orders(score):
    """All orders of the rows by descending score: every order of tied rows."""
    groups = [
        [i for i in range(len(score)) if score[i] == value]
        for value in sorted(set(score), reverse=True)
    ]
    for parts in itertools.product(*(itertools.permutations(g) for g in groups)):
        yield [i for part in parts for i in part]


def by_query(metric, y, score, qid):
    """Mean of ``metric(labels in ranked order)`` over the orders of ties, for sorted queries."""
    values = []
    for q in sorted(set(qid)):
        rows = [i for i in range(len(qid)) if qid[i] == q]
        labels, scores = [y[i] for i in rows], [score[i] for i in rows]
        values.append(np.mean([metric([labels[i] for i in order]) for order in orders(scores)]))
    return np.array(values)


def ndcg(labels, k=None, gain="exponential"):
    k = len(labels) if k is None else k

    def dcg(ranked):
        gains = [2.0**y - 1 if gain == "exponential" else y for y in ranked]
        return sum(g / math.log2(p + 2) for p, g in enumerate(gains[:k]))

    ideal = dcg(sorted(labels, reverse=True))
    return dcg(labels) / ideal if ideal > 0 else math.nan


def average_precision(labels, k=None, threshold=1):
    relevant = [y >= threshold for y in labels]
    k = len(labels) if k is None else k
    if not any(relevant):
        return math.nan
    hits = [sum(relevant[: p + 1]) / (p + 1) for p in range(min(k, len(labels))) if relevant[p]]
    return sum(hits) / sum(relevant)


def reciprocal_rank(labels, k=None, threshold=1):
    relevant = [y >= threshold for y in labels]
    if not any(relevant):
        return math.nan
    first = relevant.index(True) + 1
    return 1 / first if k is None or first <= k else 0.0


def precision(labels, k=None, threshold=1):
    relevant = [y >= threshold for y in labels]
    k = len(labels) if k is None else k
    return sum(relevant[:k]) / k if any(relevant) else math.nan


def recall(labels, k=None, threshold=1):
    relevant = [y >= threshold for y in labels]
    return sum(relevant[:k]) / sum(relevant) if any(relevant) else math.nan


def expected_reciprocal_rank(labels, k=None, max_grade=4):
    reached, total = 1.0, 0.0
    for place, y in enumerate(labels[:k], 1):
        stop = (2.0**y - 1) / 2.0**max_grade
        total += reached * stop / place
        reached *= 1 - stop
    return total if any(labels) else math.nan


# ---------------------------------------------------------------------- hinge losses


def hinge(edges, f, *, t=1.0, shape="hinge", mu=None):
    """Loss and δ = Σ β (e_h − e_j), by a loop over edges; the margin test is f_h < f_j + t."""
    loss, delta, total = 0.0, np.zeros(len(f)), 0.0
    for i, j, ww, _ in edges:
        z = (f[j] + t) - f[i]
        if not f[i] < f[j] + t:
            continue
        if shape == "hinge":
            loss, beta = loss + ww * z, ww
        elif shape == "squared":
            loss, beta = loss + ww * z**2, 2 * ww * z
        else:
            loss, beta = loss + ww * z, ww * min(z / mu, 1.0)
        delta[i] += beta
        delta[j] -= beta
        total += beta
    return loss, delta, total


def svm_objective(edges, X, alpha, *, shape="hinge", iterations=200_000):
    """The minimum of Σ w² loss + alpha ‖w‖², by liblinear on explicit differences."""
    signs = np.where(np.arange(len(edges)) % 2 == 0, 1.0, -1.0)
    D = np.array([(X[i] - X[j]) * sign for (i, j, _, _), sign in zip(edges, signs, strict=True)])
    weight = np.array([ww for _, _, ww, _ in edges])
    name = {"hinge": "hinge", "squared": "squared_hinge"}[shape]
    options = {"tol": 1e-8, "max_iter": iterations, "random_state": 0}
    svc = LinearSVC(loss=name, fit_intercept=False, C=0.5 / alpha, dual=True, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        svc.fit(D, signs, sample_weight=weight)
    w = svc.coef_[0]
    return hinge(edges, X @ w, shape=shape)[0] + alpha * w @ w


def hinge_minimum(edges, X, alpha, *, shape="hinge", iterations=200):
    """Lower and upper bound of the minimum of Σ w² loss + alpha ‖w‖², in extended precision.

    Textbook interior-point (hinge) or Newton (squared) method on explicit differences; the bounds
    are values of the dual and of the primal objective.
    """
    long = np.longdouble
    D = np.array([X[i] - X[j] for i, j, _, _ in edges]).astype(long)
    c = np.array([ww for _, _, ww, _ in edges]).astype(long)
    unit = c.max()
    c, alpha = c / unit, long(alpha) / unit
    minimum = _hinge_bounds if shape == "hinge" else _squared_bounds
    lower, upper = minimum(D, c, alpha, iterations)
    return float(lower * unit), float(upper * unit)


def _hinge_bounds(D, c, alpha, iterations):
    n_edges, n = D.shape
    one = np.ones(n_edges, D.dtype)
    w, s, xi, beta, gamma = np.zeros(n, D.dtype), one, one, c / 2, c / 2
    lower, upper = -np.inf, np.inf
    for _ in range(iterations):
        A = D.T @ np.clip(beta, 0, c)
        upper = min(upper, c @ np.maximum(1 - D @ w, 0) + alpha * (w @ w))
        lower = max(lower, np.clip(beta, 0, c).sum() - A @ A / (4 * alpha))
        if upper - lower <= 1e-12 * upper:
            break
        theta = 1 / (xi / gamma + s / beta)
        M = 2 * alpha * np.eye(n, dtype=D.dtype) + (D.T * theta) @ D
        bs, gx = beta * s, gamma * xi
        mu = (bs.sum() + gx.sum()) / (2 * n_edges)
        to_s, to_xi = -bs, -gx
        for corrected in (False, True):
            q = to_s / beta - to_xi / gamma - (D @ w + xi - s - 1)
            right = D.T @ (theta * q) - (2 * alpha * w - D.T @ beta)
            dw = solve(M, right)
            dw += solve(M, right - M @ dw)
            dbeta = theta * (q - D @ dw)
            ds, dxi = (to_s - s * dbeta) / beta, (to_xi + xi * dbeta) / gamma
            moves = ((s, ds), (xi, dxi), (beta, dbeta), (gamma, -dbeta))
            t = min([1] + [min(-v[d < 0] / d[d < 0]) for v, d in moves if (d < 0).any()])
            if not corrected:
                ahead = (beta + t * dbeta) @ (s + t * ds) + (gamma - t * dbeta) @ (xi + t * dxi)
                centre = mu * (ahead / (2 * n_edges) / mu) ** 3
                to_s, to_xi = centre - bs - dbeta * ds, centre - gx + dbeta * dxi
        t = D.dtype.type(0.99) * t
        w, s, xi = w + t * dw, s + t * ds, xi + t * dxi
        beta, gamma = beta + t * dbeta, gamma - t * dbeta
    return lower, upper


def _squared_bounds(D, c, alpha, iterations):
    n = D.shape[1]
    w = np.zeros(n, D.dtype)

    def value(w):
        return c @ np.maximum(1 - D @ w, 0) ** 2 + alpha * (w @ w)

    lower, upper = -np.inf, np.inf
    for _ in range(iterations):
        z = np.maximum(1 - D @ w, 0)
        A = D.T @ (2 * c * z)
        upper = min(upper, value(w))
        lower = max(lower, 2 * c @ z - c @ z**2 - A @ A / (4 * alpha))
        if upper - lower <= 1e-12 * upper:
            break
        violated = D[z > 0]
        M = 2 * alpha * np.eye(n, dtype=D.dtype) + (violated.T * (2 * c[z > 0])) @ violated
        gradient = 2 * alpha * w - A
        d, t = solve(M, -gradient), 1.0
        while value(w + t * d) > value(w) + 1e-4 * t * (gradient @ d) and t > 1e-18:
            t /= 2
        w = w + t * d
    return lower, upper


def pairwise_gram(name, K, G, first, second, sign=0):
    """Kernel values between two lists of pairs; with a sign ½(Γ ± Γ with swapped pairs)."""
    first, second = (np.reshape(pairs, (-1, 2)).astype(int) for pairs in (first, second))
    out = pairwise_values(name, K, G, first.T, second.T)
    if sign:
        out = 0.5 * (out + sign * pairwise_values(name, K, G, first.T, second[:, ::-1].T))
    return out

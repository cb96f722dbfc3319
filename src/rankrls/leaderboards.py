"""Leaderboards: ratings of items from pairwise judgements, with intervals and sets of ranks.

The model is Bradley–Terry's with controls: P(h is preferred to j) = σ(f_h − f_j + cᵀγ). Its
likelihood is maximised by Newton steps. Each of them is a weighted least-squares problem of
preferences: weights w p(1 − p) and targets d + (y − p)/(p(1 − p)) of the differences d.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, log_expit
from scipy.stats import norm, t
from sklearn.utils import Bunch, check_random_state

from rankrls import _resources
from rankrls._calls import warn
from rankrls._frames import data_frame, rows_in_order
from rankrls._validation import check_option, encode_qid
from rankrls.core.ridge.pairs import all_pairs
from rankrls.datasets import load_preferences
from rankrls.diagnostics.suggest import choose_pairs

__all__ = ["Leaderboard", "leaderboard"]

Array = NDArray[Any]

#: Groups that are too few for narrow intervals.
FEW_GROUPS = 10
#: Ridge on ratings: it only decides ratings that the judgements leave open.
RIDGE = 1e-6
#: Precisions of the effects of features and of the items' own deviations that are compared.
PRECISIONS = 4.0 ** np.arange(-4, 8, 2)
#: Weights of judgements that are not trusted, which are compared.
WEIGHTS = (0.0, 0.03, 0.1, 0.3, 1.0)
#: Random draws for sets of ranks and for P(best), and draws × items held at a time.
N_DRAWS, MAX_CELLS = 4000, 2**17
#: Points of a factor of ten of the odds, on the scale of chess.
ELO = 400 / np.log(10)


def leaderboard(
    judgements: Any,
    *,
    controls: str | Sequence[str] | None = None,
    groups: str | None = "auto",
    features: Any = None,
    trusted: str | Sequence[Any] | None = None,
    confidence: float = 0.95,
    random_state: Any = None,
    **columns: Any,
) -> Leaderboard:
    """Rate items by pairwise judgements, with confidence intervals and sets of ranks.

    Parameters
    ----------
    judgements : data frame, dict of columns, path or file, or Bunch
        A table as `rankrls.datasets.load_preferences` reads it (also arena tables with model_a,
        model_b and winner), or what it returns. A tie counts as half a win of each item.
    controls : str or sequence of str, optional
        Columns of the comparison whose effects are removed from the ratings, such as the difference
        of length (preferred minus other; first minus second in arena tables), or "position", the
        effect of being shown first. Ratings are those at a difference of zero.
    groups : str or None, default="auto"
        Column of what judgements have in common, such as the judge; intervals allow for any
        dependence within groups. "auto": as in `load_preferences`.
    features : array-like of shape (n_items, n_features), optional
        Features of the items, named by the index of a data frame, or by ``items=``. Items that were
        never judged are rated by them.
    trusted : str or sequence, optional
        Groups whose judgements are trusted, such as the human judges. The weight of all other
        judgements is chosen by the log loss of held-out trusted groups.
    confidence : float, default=0.95
    random_state : int, RandomState instance or None
        For the draws behind sets of ranks and P(best); ratings do not depend on it.
    **columns
        Further arguments of `load_preferences`, such as first="left", pair_weight="votes".

    Returns
    -------
    Leaderboard

    Notes
    -----
    Standard errors are those of the sandwich estimator, with the scores of a group summed. Sets of
    ranks hold simultaneously: with probability ``confidence`` all items have their true rank in
    their set, from 1 + the number of surely better items to n − that of surely worse ones, by
    simultaneous bounds of all differences (Mogstad, Romano, Shaikh and Wilhelm, 2024). With
    ``features``, ratings are f = Xβ + u, with the variances of β and u chosen by the marginal
    likelihood, and intervals are those of the posterior. Items that judgements do not connect are
    an error that lists the components.

    Examples
    --------
    >>> from rankrls import leaderboard
    >>> games = {"winner": list("aaabbaabca"), "loser": list("bbcacbccab")}
    >>> board = leaderboard(games, random_state=0)
    >>> board.items_.tolist()
    ['a', 'b', 'c']
    >>> bool(board.probability("a", "c") > 0.5)
    True
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1; got {confidence!r}")
    names = [controls] if isinstance(controls, str) else list(controls or ())
    data, covariates = _read(judgements, names, groups, features, columns)
    judged = _Judgements(data, covariates)
    guessed = groups == "auto" and trusted is None and not isinstance(judgements, Bunch)
    if guessed and judged.groups is not None and judged.n_groups < FEW_GROUPS:
        warn(
            f"intervals take judgements with the same {data.columns['groups']!r} as dependent, and "
            f"there are only {judged.n_groups} groups, which makes them wide: pass groups=None if "
            "they are independent, or another column"
        )
    if features is None:
        judged.require_connected()
    chosen = None
    if trusted is not None:
        trusted = [trusted] if isinstance(trusted, str) else trusted
        chosen = judged.choose_weight(trusted, check_random_state(random_state))
    X = None if features is None else _standardised(features, judged.items)
    return Leaderboard(judged, X, confidence, random_state, chosen)


def _read(
    judgements: Any, controls: list[str], groups: Any, features: Any, columns: dict[str, Any]
) -> tuple[Bunch, list[str]]:
    """Judgements as `load_preferences` returns them, with controls in ``pair_features``."""
    covariates = [name for name in controls if name != "position"]
    if isinstance(judgements, Bunch):
        data, stored = judgements, list(judgements.columns.get("pair_features", ()))
        if columns or not set(covariates) <= set(stored):
            raise ValueError(
                "judgements are already read: give controls as pair_features, and other columns, "
                "to load_preferences, or give the table here"
            )
        kept = [stored.index(name) for name in covariates]
        parts = [data.pair_features[:, kept]] if kept else []
    else:
        if features is not None and "items" not in columns:
            if not hasattr(features, "index"):
                raise ValueError(
                    "features have no names: give a data frame with the names of the items as its "
                    "index, or items=, their names in the order of the rows"
                )
            columns = columns | {"items": features}
        data = load_preferences(
            judgements, groups=groups, pair_features=covariates or None, **columns
        )
        parts = [] if data.pair_features is None else [data.pair_features]
    if "position" in controls:
        if data.position is None:
            raise ValueError(
                "controls='position' needs a table with both items in the order in which they were "
                "shown and the winner (model_a, model_b, winner)"
            )
        parts.append(data.position[:, None])
        covariates.append("position")
    return Bunch(**{**data, "pair_features": np.hstack(parts) if parts else None}), covariates


class _Judgements:
    """Judgements as arrays: items, outcome y ∈ {½, 1}, weights, controls, groups.

    The differences are d = A g: a row of A is e_h − e_j and the controls, in units of their size,
    and g holds the ratings of the items and the effects of the controls.
    """

    def __init__(self, data: Bunch, controls: list[str]) -> None:
        self.items, self.controls = np.asarray(data.item_names), controls
        self.n_items = len(self.items)
        advice = "leave out items of few judgements"
        _resources.require(
            "the covariance of all items", *[self.n_items] * 2, copies=6, advice=advice
        )
        self.h, self.j = data.pairs.T.astype(np.intp)
        self.y = np.where(np.asarray(data.magnitude) > 0, 1.0, 0.5)
        weight = data.pair_weight
        self.weight = np.ones(len(self.y)) if weight is None else np.asarray(weight, dtype=float)
        C = data.pair_features
        C = np.empty((len(self.y), 0)) if C is None else np.asarray(C, dtype=float)
        if not np.isfinite(C).all():
            raise ValueError("controls contain NaN or infinity; leave these judgements out")
        self.unit = np.sqrt((C**2).mean(axis=0))
        if (self.unit == 0).any():
            name = controls[int(np.flatnonzero(self.unit == 0)[0])]
            raise ValueError(f"control {name!r} is zero in every judgement; leave it out")
        self.C = C / self.unit
        self.groups, self.group = None, np.arange(len(self.y))
        if data.groups is not None:
            coded = encode_qid(data.groups, len(self.y), name="groups", of="judgements")
            self.groups, self.group = np.asarray(coded.labels), coded.codes
        self.n_groups = int(self.group.max()) + 1
        m, ends = len(self.y), np.column_stack([self.h, self.j]).ravel()
        signs, starts = np.tile([1.0, -1.0], m), np.arange(0, 2 * m + 1, 2)
        items = sparse.csr_array((signs, ends, starts), shape=(m, self.n_items))
        self.A = sparse.hstack([items, sparse.csr_array(self.C)], format="csr")
        same: dict[str, str] = {}
        for name in map(str, self.items):
            other = same.setdefault(" ".join(name.lower().split()), name)
            if other != name:
                warn(f"items {other!r} and {name!r} differ only in case or spaces; are they one?")

    def gram(self, weight: Array) -> Array:
        """Aᵀ diag(weight) A; its part of the items is the Laplacian of the graph of judgements."""
        n = self.n_items
        W = np.bincount(self.h * n + self.j, weight, minlength=n * n).reshape(n, n)
        W += W.T
        controls = (self.A.T @ (weight[:, None] * self.C)).T
        items = np.diag(W.sum(axis=1)) - W
        return np.block([[items, controls[:, :n].T], [controls]])

    def group_sums(self, values: Array) -> Array:
        """Sums over groups of values times the rows of A, shape (n_groups, n_columns)."""
        return (sparse.csr_array((values, (self.group, np.arange(len(values))))) @ self.A).toarray()

    def require_connected(self) -> None:
        """Raise an error if judgements of positive weight do not connect all items."""
        n, used = self.n_items, self.weight > 0
        links = sparse.csr_array((np.ones(used.sum()), (self.h[used], self.j[used])), shape=(n, n))
        count, part = connected_components(links, directed=False)
        if count > 1:
            shown = [self.items[part == k] for k in range(min(count, 4))]
            texts = [", ".join(map(str, p[:6])) + ", …" * (len(p) > 6) for p in shown]
            raise ValueError(
                f"the judgements fall into {count} components that were never compared with each "
                f"other, so their ratings have no common scale: {' | '.join(texts)}"
                f"{' | …' * (count > 4)}. Judge pairs across them, or rate each alone"
            )

    def choose_weight(self, trusted: Sequence[Any], rng: np.random.RandomState) -> float:
        """Set the weight of judgements of other groups, chosen by held-out trusted groups."""
        if self.groups is None:
            raise ValueError("trusted names groups, and the judgements have none; pass groups=")
        known = {str(name): number for number, name in enumerate(self.groups)}
        missing = [name for name in trusted if str(name) not in known]
        if missing or not len(trusted):
            raise ValueError(f"trusted names no group of the judgements: {missing or trusted!r}")
        numbers = np.array([known[str(name)] for name in trusted])
        own = np.isin(self.group, numbers)
        if own.all():
            raise ValueError("all groups are trusted, so there is no weight to choose")
        # Folds of trusted groups; with few of them, of their judgements.
        units = self.group[own] if len(numbers) >= 5 else np.arange(own.sum())
        order = rng.permutation(int(units.max()) + 1)
        fold = np.full(len(self.y), -1)
        fold[own] = order[units] % 5
        losses = [self._held_out_loss(weight, own, fold) for weight in WEIGHTS]
        if np.isnan(losses).all():
            raise ValueError(
                "without a fifth of the trusted groups, some items have no judgement, so that no "
                "weight can be chosen: trust more groups, or leave trusted out"
            )
        best = WEIGHTS[int(np.nanargmin(losses))]
        self.weight = np.where(own, self.weight, best * self.weight)
        self.require_connected()
        return best

    def _held_out_loss(self, weight: float, own: Array, fold: Array) -> float:
        """Log loss of trusted judgements by models without their fold; NaN if not connected."""
        total = 0.0
        full = np.where(own, self.weight, weight * self.weight)
        for number in range(5):
            held = fold == number
            used = np.where(held, 0.0, full)
            if len(np.union1d(self.h[used > 0], self.j[used > 0])) < self.n_items:
                return np.nan
            d = _maximise(self, used).d
            total += float((self.weight * held) @ ((1 - self.y) * d - log_expit(d)))
        return total


def _standardised(features: Any, items: Array) -> Array:
    """Features of the items with mean zero and total variance one."""
    X = np.asarray(rows_in_order(features, items, "features", "the items"), dtype=float)
    if X.ndim != 2 or len(X) != len(items):
        raise ValueError(
            f"features must have one row for each of the {len(items)} items; got shape {X.shape}. "
            "Name them by a data frame's index, or by items="
        )
    if not np.isfinite(X).all():
        raise ValueError("features contain NaN or infinity; fill them in first")
    scale = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1.0) / np.sqrt(X.shape[1])


def _maximise(
    judged: _Judgements, weight: Array, X: Array | None = None, precisions: Any = (RIDGE, RIDGE)
) -> Bunch:
    """Newton steps to the maximum of the penalised likelihood, from zero.

    Without features, each item has a rating of its own, with a weak ridge and mean zero. With
    features, f = Xβ + u, and ``precisions`` are those of the priors of β and of u. Returns g, the
    differences d, the inverse Hessian of g, and the marginal likelihood up to a constant.
    """
    n, q, y = judged.n_items, judged.C.shape[1], judged.y
    R: Array = np.eye(n + q)  # g = R b
    if X is not None:
        R = np.hstack([np.vstack([X, np.zeros((q, X.shape[1]))]), R])
    n_features = R.shape[1] - n - q
    ridge = np.repeat([*precisions, RIDGE], [n_features, n, q])
    ridge = ridge * weight.mean() if X is None else ridge
    b, step, best = np.zeros(R.shape[1]), np.zeros(R.shape[1]), -np.inf
    for _ in range(200):
        for halvings in range(30):
            new = b + step / 2**halvings
            d = judged.A @ (R @ new)
            # y log σ(d) + (1 − y) log σ(−d) = log σ(d) − (1 − y) d
            value = float(weight @ (log_expit(d) - (1 - y) * d) - 0.5 * ridge @ new**2)
            if value >= best - 1e-12 * abs(best):
                break
        converged = value - best <= 1e-13 * abs(value) + 1e-13
        b, best, p = new, value, expit(d)
        curvature = weight * p * (1 - p)
        H = judged.gram(curvature)
        H = H if X is None else R.T @ H @ R
        H.flat[:: len(H) + 1] += ridge
        if X is None:  # ratings have mean zero
            H[:n, :n] += curvature.sum() / n**2
        factor = cho_factor(H, check_finite=False)
        step = cho_solve(factor, R.T @ (judged.A.T @ (weight * (y - p))) - ridge * b)
        if converged and np.abs(step).max() < 1e-8:
            b = b + step
            break
    evidence = best - np.log(factor[0].diagonal()).sum() + 0.5 * np.log(ridge).sum()
    inverse = R @ cho_solve(factor, R.T)
    return Bunch(g=R @ b, d=judged.A @ (R @ b), inverse=inverse, evidence=evidence)


class Leaderboard:
    """Ratings of items; see `leaderboard`.

    Attributes
    ----------
    items_ : ndarray of shape (n_items,)
        Names, the best item first.
    ratings_ : ndarray of shape (n_items,)
        Log odds, with mean zero.
    covariance_ : ndarray of shape (n_items, n_items)
        Of the ratings.
    ranks_ : ndarray of shape (n_items, 2)
        The lowest and highest rank in the simultaneous set of each item.
    controls_ : dict of ndarray
        name, effect (log odds for one unit of the control), std, low and high.
    weight_ : float or None
        Weight of the judgements that are not trusted.
    n_judgements_, n_groups_ : int
        Their numbers; groups are None if judgements are taken as independent.
    """

    def __init__(
        self,
        judged: _Judgements,
        X: Array | None,
        confidence: float,
        random_state: Any,
        weight: float | None,
    ) -> None:
        self._judged, self.confidence, self.weight_ = judged, confidence, weight
        self.n_judgements_ = len(judged.y)
        self.n_groups_ = None if judged.groups is None else judged.n_groups
        self._prior, n = X is not None, judged.n_items
        grid = [(RIDGE, RIDGE)] if X is None else itertools.product(PRECISIONS, PRECISIONS)
        fits = (_maximise(judged, judged.weight, X, precisions) for precisions in grid)
        self._fitted = fitted = max(fits, key=lambda one: one.evidence)
        V = fitted.inverse if self._prior else self._sandwich()
        f, covariance = fitted.g[:n] - fitted.g[:n].mean(), _centred(V[:n, :n])
        if not self._prior:
            # An item of few judgements may have small residuals by chance (none, if it won all).
            # The model's variance, less as much as ties make of it on average.
            p = expit(fitted.d)
            w, variance = judged.weight, p * (1 - p)
            ratio = min(w**2 @ (judged.y - p) ** 2, w**2 @ variance) / (w @ variance)
            least = ratio * _centred(fitted.inverse[:n, :n]).diagonal()
            missing = np.maximum(least - covariance.diagonal(), 0.0)
            covariance.flat[:: n + 1] += missing
        self._order = order = np.argsort(-f, kind="stable")
        self.items_, self.ratings_ = judged.items[order], f[order]
        self.covariance_ = covariance[np.ix_(order, order)]
        effect, std = fitted.g[n:] / judged.unit, np.sqrt(V.diagonal()[n:]) / judged.unit
        half = self._quantile() * std
        names = np.array(judged.controls, dtype=object)
        self.controls_ = {"name": names, "effect": effect, "std": std}
        self.controls_ |= {"low": effect - half, "high": effect + half}
        self._simulate(check_random_state(random_state))
        self._warn_separated()

    def _sandwich(self) -> Array:
        """Covariance of ratings and effects, with scores summed by group."""
        judged, fitted, n = self._judged, self._fitted, self._judged.n_items
        p, M, h, j = expit(fitted.d), fitted.inverse, judged.h, judged.j
        # Residuals as without the judgement itself (HC3): items of few judgements are overfitted.
        spread = M[h, h] + M[j, j] - 2 * M[h, j]
        if n < len(M):
            cross = M[:n, n:]
            spread += 2 * ((cross[h] - cross[j]) * judged.C).sum(axis=1)
            spread += ((judged.C @ M[n:, n:]) * judged.C).sum(axis=1)
        leverage = np.minimum(judged.weight * p * (1 - p) * spread, 0.99)
        residual = judged.weight * (judged.y - p) / (1 - leverage)
        if judged.groups is None:
            meat = judged.gram(residual**2)
        else:
            U = judged.group_sums(residual)
            meat = U.T @ U
        return M @ meat @ M * (judged.n_groups / max(judged.n_groups - 1, 1))

    def _quantile(self) -> float:
        """Quantile of a studentised rating: Student's t with one degree less than groups."""
        level = 0.5 + self.confidence / 2
        if self._prior:
            return float(norm.ppf(level))
        return float(t.ppf(level, max(self._judged.n_groups - 1, 1)))

    def _simulate(self, rng: np.random.RandomState) -> None:
        """Sets of ranks by simultaneous bounds of all differences, and P(best), by random draws."""
        n, V = len(self.items_), self.covariance_
        draws = rng.standard_normal((N_DRAWS, n)) @ _root(V).T
        self.p_best_ = np.bincount(np.argmax(self.ratings_ + draws, axis=1), minlength=n) / N_DRAWS
        if not self._prior:  # few groups: the variance is uncertain, too
            freedom = max(self._judged.n_groups - 1, 1)
            draws /= np.sqrt(rng.chisquare(freedom, size=(N_DRAWS, 1)) / freedom)
        both = V.diagonal()[:, None] + V.diagonal()
        std = np.sqrt(np.maximum(both - 2 * V, 1e-12 * both + 1e-60))  # of equal items, rounding
        largest = np.zeros(N_DRAWS, dtype=np.float32)
        step = max(1, MAX_CELLS // n)
        unit = (1 / std).astype(np.float32)
        for start in range(0, N_DRAWS, step):
            part = np.ascontiguousarray(draws[start : start + step].T, dtype=np.float32)
            most, work = largest[start : start + step], np.empty_like(part)
            for i in range(n - 1):
                gap = np.subtract(part[i + 1 :], part[i], out=work[i + 1 :])
                np.abs(gap, out=gap)
                gap *= unit[i + 1 :, i : i + 1]
                np.maximum(most, gap.max(axis=0), out=most)
        self._critical = float(np.quantile(largest, self.confidence))
        gap = self.ratings_[:, None] - self.ratings_  # row less column
        sure = gap > self._critical * std
        self.ranks_ = np.column_stack([1 + sure.sum(axis=0), n - sure.sum(axis=1)])
        tied = np.zeros(n, dtype=np.int64)
        first = 0
        for i in range(1, n):
            if sure[first, i]:
                first = i
            tied[i] = tied[i - 1] + (first == i)
        self.tied_groups_ = tied + 1

    def _warn_separated(self) -> None:
        """Warn of items that won or lost everything: only the weak ridge bounds their ratings."""
        wins, _ = self.head_to_head()
        always = np.flatnonzero(~wins.any(axis=1) | ~wins.any(axis=0))
        if len(always) and not self._prior:
            names = ", ".join(repr(str(name)) for name in self.items_[always][:5])
            warn(
                f"{names}{', …' * (len(always) > 5)} won or lost all judgements, so the ratings "
                "have no finite maximum likelihood; these ratings and their intervals say no more "
                "than first or last"
            )
        decided = expit(self._fitted.d[self._judged.y == 1])
        if len(self.controls_["name"]) and (decided > 0.99).all():
            warn(
                f"the controls {', '.join(self.controls_['name'])} tell the outcome of every "
                "judgement, so that nothing is left to rate items by: leave out what is known "
                "only after a judgement"
            )

    def head_to_head(self) -> tuple[Array, Array]:
        """Weighted wins of the item of the row against that of the column, and judgements."""
        judged, n = self._judged, len(self.items_)
        place = np.empty(n, dtype=np.int64)
        place[self._order] = np.arange(n)
        h, j = place[judged.h], place[judged.j]
        wins = np.bincount(h * n + j, judged.weight * judged.y, minlength=n * n)
        wins += np.bincount(j * n + h, judged.weight * (1 - judged.y), minlength=n * n)
        wins = wins.reshape(n, n)
        return wins, wins + wins.T

    @property
    def std_(self) -> Array:
        """Standard errors of the ratings, shape (n_items,)."""
        return np.sqrt(np.maximum(self.covariance_.diagonal(), 0.0))

    def table(self, scale: str = "log-odds") -> dict[str, Array]:
        """Columns of the leaderboard by name, the best item first.

        Parameters
        ----------
        scale : {"log-odds", "elo"}, default="log-odds"
            "elo": 1000 + 400 log₁₀ of the odds.
        """
        check_option("scale", scale, ("log-odds", "elo"))
        unit, origin = (ELO, 1000.0) if scale == "elo" else (1.0, 0.0)
        rating, std = origin + unit * self.ratings_, unit * self.std_
        half = self._quantile() * std
        won, total = (counts.sum(axis=1) for counts in self.head_to_head())
        share = np.full(len(won), np.nan)
        np.divide(won, total, out=share, where=total > 0)
        count = np.bincount(np.concatenate([self._judged.h, self._judged.j]), minlength=len(won))
        return {
            "item": self.items_,
            "rating": rating,
            "std": std,
            "low": rating - half,
            "high": rating + half,
            "rank": np.arange(1, len(won) + 1),
            "rank_low": self.ranks_[:, 0],
            "rank_high": self.ranks_[:, 1],
            "tied_group": self.tied_groups_,
            "n_judgements": count[self._order],
            "win_rate": share,
            "p_best": self.p_best_,
        }

    def to_frame(self, scale: str = "log-odds") -> Any:
        """Return `table` as a pandas data frame."""
        return data_frame(self.table(scale))

    def __repr__(self) -> str:
        table = self.table()
        width = max(len(str(name)) for name in self.items_[:20])
        lines = [f"{'item':<{width}}  rating            interval   ranks"]
        for i, name in enumerate(self.items_[:20]):
            low, high = self.ranks_[i]
            lines.append(
                f"{name!s:<{width}}  {table['rating'][i]:6.3f}  "
                f"[{table['low'][i]:6.3f}, {table['high'][i]:6.3f}]  {low}–{high}"
            )
        more = len(self.items_) - 20
        return "\n".join([*lines, *([f"… and {more} more"] if more > 0 else [])])

    def probability(self, a: Any, b: Any) -> float:
        """Probability that item ``a`` is preferred to item ``b``, with all controls at zero."""
        rating = {str(item): f for item, f in zip(self.items_, self.ratings_, strict=True)}
        for name in (a, b):
            if str(name) not in rating:
                raise ValueError(f"{name!r} is not an item of this leaderboard")
        return float(expit(rating[str(a)] - rating[str(b)]))

    def judges(self) -> dict[str, Array]:
        """Agreement of every group with the ratings by all other groups.

        Returns
        -------
        dict of ndarray of shape (n_groups,)
            group, n_judgements, agreement (share of its judgements without ties whose preferred
            item is rated higher by the others, to first order in the share of the group), expected
            (the same if it judged as the model says) and p_value (of so low an agreement, by the
            normal distribution), the smallest first.
        """
        judged, fitted = self._judged, self._fitted
        if judged.groups is None:
            raise ValueError("the judgements have no groups; pass groups=, the column of judges")
        scores = judged.group_sums(judged.weight * (judged.y - expit(fitted.d)))
        without = fitted.g - scores @ fitted.inverse
        n, n_groups, group = judged.n_items, judged.n_groups, judged.group
        d = without[group, judged.h] - without[group, judged.j]
        d += (judged.C * without[group, n:]).sum(axis=1)
        counted = judged.weight * (judged.y == 1)
        sure = expit(np.abs(d))
        total, agreed, expected, variance = (
            np.bincount(judged.group, counted * part, minlength=n_groups)
            for part in (1.0, (d > 0) + 0.5 * (d == 0), sure, counted * sure * (1 - sure))
        )
        used = np.flatnonzero(total > 0)
        tiny = 1e-12 * total[used] ** 2
        z = (agreed[used] - expected[used]) / np.sqrt(np.maximum(variance[used], tiny))
        order = np.argsort(z, kind="stable")
        used, z = used[order], z[order]
        return {
            "group": judged.groups[used],
            "n_judgements": np.bincount(judged.group, minlength=n_groups)[used],
            "agreement": agreed[used] / total[used],
            "expected": expected[used] / total[used],
            "p_value": norm.cdf(z),
        }

    def suggest_pairs(self, k: int = 10) -> list[list[Any]]:
        """Pairs to judge next: each reduces the sum of the variances of all ratings most.

        Pairs are chosen as by `rankrls.diagnostics.suggest_pairs`; a judgement has the noise
        variance 1/(p(1 − p)).
        """
        pairs = all_pairs(len(self.items_))
        p = expit(self.ratings_[pairs[:, 0]] - self.ratings_[pairs[:, 1]])
        chosen = choose_pairs(
            pairs, _root(self.covariance_), np.ones(len(self.items_)), 1 / (p * (1 - p)), k
        )
        return [self.items_[pair].tolist() for pair in chosen]

    def plot(self, *, ax: Any = None, scale: str = "log-odds") -> Any:
        """Draw ratings with intervals, and the set of ranks of every item; returns the axes."""
        table = self.table(scale)
        n = len(self.items_)
        if ax is None:
            _, ax = _resources.pyplot().subplots(figsize=(7, 1 + 0.3 * n), layout="constrained")
        y = np.arange(n)
        error = [table["rating"] - table["low"], table["high"] - table["rating"]]
        ax.errorbar(table["rating"], y, xerr=error, fmt="o", color="#0072B2", capsize=3)
        ax.set_yticks(y, [str(name) for name in self.items_])
        ax.invert_yaxis()
        ax.set_xlabel(f"rating ({scale}), {100 * self.confidence:g}% interval")
        right = ax.secondary_yaxis("right")
        ranks = [f"{low}–{high}" if low < high else f"{low}" for low, high in self.ranks_]
        right.set_yticks(y, ranks)
        right.set_ylabel("set of ranks")
        return ax


def _root(V: Array) -> Array:
    """A matrix R with V = RRᵀ."""
    values, vectors = np.linalg.eigh(V)
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def _centred(V: Array) -> Array:
    """Covariance of the deviations from the mean."""
    V = V - V.mean(axis=0)
    return V - V.mean(axis=1, keepdims=True)

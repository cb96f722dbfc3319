"""Leaderboards: ratings of items from pairwise judgements, with intervals and sets of ranks.

The model is Bradley–Terry's with controls: P(h is preferred to j) = σ(f_h − f_j + cᵀγ). Its
likelihood is maximised by Newton steps. Each of them is a weighted least-squares problem of
preferences: weights w p(1 − p) and targets d + (y − p)/(p(1 − p)) of the differences d.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.csgraph import connected_components
from scipy.special import expit
from scipy.stats import norm, t
from sklearn.utils import Bunch, check_random_state

from rankrls._calls import warn
from rankrls._frames import data_frame
from rankrls._validation import check_option, encode_qid
from rankrls.datasets import load_preferences

__all__ = ["Leaderboard", "leaderboard"]

Array = NDArray[Any]

#: Ridge on ratings: it only decides ratings that the judgements leave open.
RIDGE = 1e-6
#: Precisions of the effects of features and of the items' own deviations that are compared.
PRECISIONS = 4.0 ** np.arange(-4, 8)
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
    trusted: Sequence[Any] | None = None,
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
        of length: preferred minus other, or first minus second in arena tables. "position" is the
        effect of being shown first. Ratings are those at a difference of zero.
    groups : str or None, default="auto"
        Column of what judgements have in common: the judge, the prompt, the session. Intervals
        allow for any dependence within groups. "auto": as in `load_preferences`.
    features : array-like of shape (n_items, n_features), optional
        Features of the items, with their names as the index of a data frame (or rows in the order
        of ``items=``, a further argument of `load_preferences`). Items that were never judged are
        rated by their features.
    trusted : sequence, optional
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

    Raises
    ------
    ValueError
        If the judgements do not connect all items; the message lists the components.

    Notes
    -----
    Standard errors are those of the sandwich estimator, with the scores of a group summed. Sets of
    ranks hold simultaneously: with probability ``confidence`` all items have their true rank in
    their set. The rank of an item is 1 + the number of items that are surely better, to n − the
    number of those that are surely worse, by simultaneous bounds of all differences (Mogstad,
    Romano, Shaikh and Wilhelm, 2024). With ``features``, ratings are f = Xβ + u, with the variances
    of β and u chosen by the marginal likelihood, and intervals are those of the posterior.

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
    data, names = _read(judgements, names, groups, features, columns)
    judged = _Judgements(data, names)
    if features is None:
        judged.require_connected()
    chosen = None
    if trusted is not None:
        chosen = judged.choose_weight(trusted, check_random_state(random_state))
    return Leaderboard(judged, _design(judged, features), confidence, random_state, chosen)


def _read(
    judgements: Any, controls: list[str], groups: Any, features: Any, columns: dict[str, Any]
) -> tuple[Bunch, list[str]]:
    """Judgements as `load_preferences` returns them, with controls in ``pair_features``."""
    covariates = [name for name in controls if name != "position"]
    if isinstance(judgements, Bunch):
        unread = [
            name for name in covariates if name not in judgements.columns.get("pair_features", ())
        ]
        if unread or columns:
            raise ValueError(
                "judgements are already read: give controls as pair_features, and other columns, "
                "to load_preferences, or give the table here"
            )
        data = judgements
        stored = list(data.columns.get("pair_features", ()))
        kept = [stored.index(name) for name in covariates]
        C = None if data.pair_features is None else data.pair_features[:, kept]
    else:
        if features is not None and "items" not in columns and hasattr(features, "index"):
            columns = columns | {"items": features}
        data = load_preferences(
            judgements, groups=groups, pair_features=covariates or None, **columns
        )
        C = data.pair_features
    parts = [] if C is None else [C]
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
    """Judgements as arrays: items, outcome y ∈ {½, 1}, weights, controls, groups."""

    def __init__(self, data: Bunch, controls: list[str]) -> None:
        self.items, self.controls = np.asarray(data.item_names), controls
        self.n_items = len(self.items)
        self.h, self.j = data.pairs.T.astype(np.intp)
        self.y = np.where(np.asarray(data.magnitude) > 0, 1.0, 0.5)
        weight = data.pair_weight
        self.weight = np.ones(len(self.y)) if weight is None else np.asarray(weight, dtype=float)
        C = data.pair_features
        self.C = np.empty((len(self.y), 0)) if C is None else np.asarray(C, dtype=float)
        if not np.isfinite(self.C).all():
            raise ValueError("controls contain NaN or infinity; leave these judgements out")
        self.unit = np.sqrt((self.C**2).mean(axis=0))
        if (self.unit == 0).any():
            name = controls[int(np.flatnonzero(self.unit == 0)[0])]
            raise ValueError(f"control {name!r} is zero in every judgement; leave it out")
        self.groups, self.group = None, np.arange(len(self.y))
        if data.groups is not None:
            coded = encode_qid(data.groups, len(self.y), name="groups", of="judgements")
            self.groups, self.group = np.asarray(coded.labels), coded.codes
        same: dict[str, str] = {}
        for name in map(str, self.items):
            other = same.setdefault(" ".join(name.lower().split()), name)
            if other != name:
                warn(f"items {other!r} and {name!r} differ only in case or spaces; are they one?")

    def item_sums(self, values: Array) -> Array:
        """Sum of values of the judgements of each item, those of second items with a minus."""
        n = self.n_items
        return np.bincount(self.h, values, minlength=n) - np.bincount(self.j, values, minlength=n)

    def gram(self, rows: Any, C: Array, weight: Array) -> Array:
        """[A C]ᵀ diag(weight) [A C] with A the differences of the items' rows.

        AᵀWA = rowsᵀ L rows with L the Laplacian of the graph of judgements.
        """
        n = self.n_items
        W = np.bincount(self.h * n + self.j, weight, minlength=n * n).reshape(n, n)
        W += W.T
        L = np.diag(W.sum(axis=1)) - W
        sums = [self.item_sums(weight * control) for control in C.T]
        cross = rows.T @ np.array(sums).reshape(-1, n).T
        left = rows.T @ (rows.T @ L).T
        return np.block([[left, cross], [cross.T, C.T @ (weight[:, None] * C)]])

    def group_sums(self, rows: Any, C: Array, values: Array) -> Array:
        """Sums over groups of values times the rows of [A C], shape (n_groups, n_coefficients)."""
        n_groups = int(self.group.max()) + 1
        shape = n_groups, self.n_items
        sums = sparse.csr_array((values, (self.group, self.h)), shape=shape)
        sums = sums - sparse.csr_array((values, (self.group, self.j)), shape=shape)
        found = sums @ rows
        of_C = [np.bincount(self.group, values * control, minlength=n_groups) for control in C.T]
        dense = found.toarray() if sparse.issparse(found) else found
        return np.hstack([dense, np.array(of_C).reshape(-1, n_groups).T])

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
        best = WEIGHTS[int(np.nanargmin(losses))]
        self.weight = np.where(own, self.weight, best * self.weight)
        self.require_connected()
        return best

    def _held_out_loss(self, weight: float, own: Array, fold: Array) -> float:
        """Log loss of trusted judgements by models without their fold; NaN if not connected."""
        total, design = 0.0, _design(self)
        full = np.where(own, self.weight, weight * self.weight)
        for number in range(5):
            held = fold == number
            used = np.where(held, 0.0, full)
            seen = np.union1d(self.h[used > 0], self.j[used > 0])
            if len(seen) < self.n_items:
                return np.nan
            fitted = _maximise(self, design, used, *design.candidates)
            d = fitted.d[held]
            loss = -(self.y[held] * _log_sigmoid(d) + (1 - self.y[held]) * _log_sigmoid(-d))
            total += float(self.weight[held] @ loss)
        return total


def _log_sigmoid(d: Array) -> Array:
    return -np.logaddexp(0.0, -d)


def _design(judged: _Judgements, features: Any = None) -> Bunch:
    """Rows of the items' coefficients, and the precisions of these that are compared.

    Without features, each item has a rating of its own, with a weak ridge; ratings have mean zero.
    With features, which are standardised, f = Xβ + u with a prior of β and of the deviations u.
    """
    n = judged.n_items
    if features is None:
        rows: Any = sparse.eye_array(n, format="csr")
        return Bunch(rows=rows, candidates=[np.full(n, RIDGE)], prior=False)
    X = np.asarray(features, dtype=float)
    if X.ndim != 2 or len(X) != n:
        raise ValueError(
            f"features must have one row for each of the {n} items; got shape {X.shape}. Name them "
            "by a data frame's index, or by items="
        )
    if not np.isfinite(X).all():
        raise ValueError("features contain NaN or infinity; fill them in first")
    scale = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1.0) / np.sqrt(X.shape[1])
    both = np.stack(np.meshgrid(PRECISIONS[::2], PRECISIONS[::2]), axis=-1).reshape(-1, 2)
    candidates = [np.repeat(pair, (X.shape[1], n)) for pair in both]
    return Bunch(rows=np.hstack([X, np.eye(n)]), candidates=candidates, prior=True)


def _maximise(judged: _Judgements, design: Bunch, weight: Array, precision: Array) -> Bunch:
    """Newton steps to the maximum of the penalised likelihood, from zero.

    Returns the coefficients of the items, the controls in units of their size, all differences d,
    the Hessian and the objective.
    """
    rows, C, y = design.rows, judged.C / judged.unit, judged.y
    n, q = rows.shape[1], C.shape[1]

    def differences(b: Array) -> Array:
        f = rows @ b[:n]
        return f[judged.h] - f[judged.j] + C @ b[n:]

    ridge = np.concatenate([precision, np.full(q, RIDGE)])
    b, best = np.zeros(n + q), -np.inf
    step = np.zeros(n + q)
    for _ in range(200):
        for halvings in range(30):
            new = b + step / 2**halvings
            d = differences(new)
            # y log σ(d) + (1 − y) log σ(−d) = log σ(d) − (1 − y) d
            value = float(weight @ (_log_sigmoid(d) - (1 - y) * d))
            value -= 0.5 * float(ridge @ new**2)
            if value >= best - 1e-12 * abs(best):
                break
        converged = value - best <= 1e-13 * abs(value) + 1e-13
        b, best = new, value
        p = expit(d)
        residual, curvature = weight * (y - p), weight * p * (1 - p)
        H = judged.gram(rows, C, curvature)
        H.flat[:: n + q + 1] += ridge
        gradient = np.concatenate([rows.T @ judged.item_sums(residual), C.T @ residual])
        gradient -= ridge * b
        if not design.prior:  # ratings have mean zero
            H[:n, :n] += curvature.sum() / n**2 + RIDGE
        factor = cho_factor(H, check_finite=False)
        step = cho_solve(factor, gradient)
        if converged and np.abs(step).max() < 1e-8:
            b = b + step
            break
    return Bunch(b=b, d=differences(b), H=H, factor=factor, value=best, C=C, ridge=ridge)


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
    """

    def __init__(
        self,
        judged: _Judgements,
        design: Any,
        confidence: float,
        random_state: Any,
        weight: float | None,
    ) -> None:
        self._judged, self.confidence, self.weight_ = judged, confidence, weight
        fitted, V = self._fit(design)
        n = design.rows.shape[1]
        rows = design.rows.toarray() if sparse.issparse(design.rows) else design.rows
        rows = rows - rows.mean(axis=0)
        f = rows @ fitted.b[:n]
        order = np.argsort(-f, kind="stable")
        self._order, self._fitted, self._design, self._V = order, fitted, design, V
        self.items_, self.ratings_ = judged.items[order], f[order]
        covariance = rows @ V[:n, :n] @ rows.T
        if not design.prior:
            # An item of few judgements may have small residuals by chance (none, if it won all).
            # The model's variance, less as much as ties make of it on average.
            p = expit(fitted.d)
            ratio = judged.weight @ (judged.y - p) ** 2 / (judged.weight @ (p * (1 - p)))
            least = rows @ cho_solve(fitted.factor, np.eye(len(V)))[:n, :n] @ rows.T
            least *= min(ratio, 1.0)
            missing = np.maximum(least.diagonal() - covariance.diagonal(), 0.0)
            covariance.flat[:: len(covariance) + 1] += missing
        self.covariance_ = covariance[np.ix_(order, order)]
        unit = judged.unit
        effect, std = fitted.b[n:] / unit, np.sqrt(V.diagonal()[n:]) / unit
        z = self._quantile()
        self.controls_ = {
            "name": np.array(judged.controls, dtype=object),
            "effect": effect,
            "std": std,
            "low": effect - z * std,
            "high": effect + z * std,
        }
        self._simulate(check_random_state(random_state))
        self._warn_separated()

    def _fit(self, design: Any) -> tuple[Bunch, Array]:
        """The maximum, and the covariance of its coefficients."""
        judged = self._judged

        def evidence(one: Bunch) -> float:  # up to a constant
            log_det = 2 * np.log(one.factor[0].diagonal()).sum()
            return float(one.value - 0.5 * log_det + 0.5 * np.log(one.ridge).sum())

        fits = (_maximise(judged, design, judged.weight, one) for one in design.candidates)
        best = max(fits, key=evidence)
        p = expit(best.d)
        inverse = cho_solve(best.factor, np.eye(len(best.H)))
        self._n_groups = int(judged.group.max()) + 1
        if design.prior:
            return best, inverse
        # Residuals as without the judgement itself (HC3): items of few judgements are overfitted.
        n = design.rows.shape[1]
        spread = inverse[judged.h, judged.h] + inverse[judged.j, judged.j]
        spread -= 2 * inverse[judged.h, judged.j]
        if best.C.shape[1]:
            cross = inverse[:n, n:]
            spread += 2 * ((cross[judged.h] - cross[judged.j]) * best.C).sum(axis=1)
            spread += ((best.C @ inverse[n:, n:]) * best.C).sum(axis=1)
        leverage = np.minimum(judged.weight * p * (1 - p) * spread, 0.99)
        residual = judged.weight * (judged.y - p) / (1 - leverage)
        if judged.groups is None:
            meat = judged.gram(design.rows, best.C, residual**2)
        else:
            U = judged.group_sums(design.rows, best.C, residual)
            meat = U.T @ U
        meat *= self._n_groups / max(self._n_groups - 1, 1)
        return best, inverse @ meat @ inverse

    def _quantile(self) -> float:
        """Quantile of a studentised rating: Student's t with one degree less than groups."""
        level = 0.5 + self.confidence / 2
        if self._design.prior:
            return float(norm.ppf(level))
        return float(t.ppf(level, max(self._n_groups - 1, 1)))

    def _simulate(self, rng: np.random.RandomState) -> None:
        """Sets of ranks by simultaneous bounds of all differences, and P(best), by random draws."""
        n, V = len(self.items_), self.covariance_
        values, vectors = np.linalg.eigh(V)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        draws = rng.standard_normal((N_DRAWS, n)) @ root.T
        self.p_best_ = np.bincount(np.argmax(self.ratings_ + draws, axis=1), minlength=n) / N_DRAWS
        if not self._design.prior:  # few groups: the variance is uncertain, too
            freedom = max(self._n_groups - 1, 1)
            draws /= np.sqrt(rng.chisquare(freedom, size=(N_DRAWS, 1)) / freedom)
        variance = V.diagonal()[:, None] + V.diagonal() - 2 * V
        std = np.sqrt(np.maximum(variance, np.finfo(float).tiny))
        largest = np.zeros(N_DRAWS)
        step = max(1, MAX_CELLS // n)
        for start in range(0, N_DRAWS, step):
            part, most = draws[start : start + step].T.copy(), largest[start : start + step]
            for i in range(n - 1):
                difference = np.abs(part[i + 1 :] - part[i]) / std[i + 1 :, i : i + 1]
                np.maximum(most, difference.max(axis=0), out=most)
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
        if self._design.prior:
            return
        wins, total = self._wins()
        always = np.flatnonzero((wins == total) | (wins == 0))
        if len(always):
            names = ", ".join(repr(str(name)) for name in self.items_[always][:5])
            warn(
                f"{names}{', …' * (len(always) > 5)} won or lost all judgements, so the ratings "
                "have no finite maximum likelihood; these ratings and their intervals say no more "
                "than first or last"
            )

    def _wins(self) -> tuple[Array, Array]:
        """Weighted wins, a tie counting half, and weighted judgements of each item."""
        judged, n = self._judged, len(self.items_)
        won = np.bincount(judged.h, judged.weight * judged.y, minlength=n)
        won += np.bincount(judged.j, judged.weight * (1 - judged.y), minlength=n)
        total = np.bincount(judged.h, judged.weight, minlength=n)
        total += np.bincount(judged.j, judged.weight, minlength=n)
        return won[self._order], total[self._order]

    @property
    def n_judgements_(self) -> int:
        """Number of judgements."""
        return len(self._judged.y)

    @property
    def n_groups_(self) -> int | None:
        """Number of groups; None if judgements are taken as independent."""
        return None if self._judged.groups is None else self._n_groups

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
        won, total = self._wins()
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

    def _number(self, name: Any) -> int:
        found = [i for i, item in enumerate(self.items_) if item == name or str(item) == str(name)]
        if not found:
            raise ValueError(f"{name!r} is not an item of this leaderboard")
        return found[0]

    def probability(self, a: Any, b: Any) -> float:
        """Probability that item ``a`` is preferred to item ``b``, with all controls at zero."""
        return float(expit(self.ratings_[self._number(a)] - self.ratings_[self._number(b)]))

    def judges(self) -> dict[str, Array]:
        """Agreement of every group with the ratings by all other groups.

        Returns
        -------
        dict of ndarray of shape (n_groups,)
            group, n_judgements, agreement (share of its judgements without ties whose preferred
            item is rated higher by the others), expected (the same if it judged as the model says)
            and p_value (of so low an agreement, by the normal distribution), the smallest first.

        Notes
        -----
        Ratings without a group are those after one step from the ratings of all groups, which is
        accurate to first order in the share of the group.
        """
        judged, fitted = self._judged, self._fitted
        if judged.groups is None:
            raise ValueError("the judgements have no groups; pass groups=, the column of judges")
        residual = judged.weight * (judged.y - expit(fitted.d))
        n_groups, rows = self._n_groups, self._design.rows
        scores = judged.group_sums(rows, fitted.C, residual)
        without = fitted.b - cho_solve(fitted.factor, scores.T).T
        n, group = rows.shape[1], judged.group
        f = (rows @ without[:, :n].T).T
        d = f[group, judged.h] - f[group, judged.j]
        d += (fitted.C * without[group, n:]).sum(axis=1)
        counted = judged.weight * (judged.y == 1)
        sure = expit(np.abs(d))
        total, agreed, expected, variance = (
            np.bincount(judged.group, counted * part, minlength=n_groups)
            for part in (1.0, (d > 0) + 0.5 * (d == 0), sure, sure * (1 - sure))
        )
        used = np.flatnonzero(total > 0)
        z = (agreed[used] - expected[used]) / np.sqrt(np.maximum(variance[used], 1e-12))
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

        The variance after a judgement of i and j with a = e_i − e_j and w = p(1 − p) is
        V − Vaaᵀ V w/(1 + w aᵀVa). Pairs are chosen one after the other, each at most once.
        """
        V, n = self.covariance_.copy(), len(self.items_)
        p = expit(self.ratings_[:, None] - self.ratings_)
        w, pairs = p * (1 - p), []
        for _ in range(min(k, n * (n - 1) // 2)):
            squares = (V**2).sum(axis=0)
            gain = squares[:, None] + squares - 2 * (V @ V)
            spread = V.diagonal()[:, None] + V.diagonal() - 2 * V
            gain = np.triu(w * gain / (1 + w * np.maximum(spread, 0.0)), 1)
            i, j = np.unravel_index(int(np.argmax(gain)), gain.shape)
            pairs.append(self.items_[[i, j]].tolist())
            u = V[:, i] - V[:, j]
            V -= np.outer(u, u) * (w[i, j] / (1 + w[i, j] * max(u[i] - u[j], 0.0)))
            w[i, j] = 0.0
        return pairs

    def plot(self, *, ax: Any = None, scale: str = "log-odds") -> Any:
        """Draw ratings with intervals, and the set of ranks of every item; returns the axes."""
        from rankrls._resources import pyplot

        table = self.table(scale)
        n = len(self.items_)
        if ax is None:
            _, ax = pyplot().subplots(figsize=(7, 1 + 0.3 * n), layout="constrained")
        y = np.arange(n)
        error = [table["rating"] - table["low"], table["high"] - table["rating"]]
        ax.errorbar(table["rating"], y, xerr=error, fmt="o", color="#0072B2", capsize=3)
        ax.set_yticks(y, [str(name) for name in self.items_])
        ax.invert_yaxis()
        ax.set_xlabel(f"rating ({scale}), {self.confidence:.0%} interval")
        right = ax.secondary_yaxis("right")
        ranks = [f"{low}–{high}" if low < high else f"{low}" for low, high in self.ranks_]
        right.set_yticks(y, ranks)
        right.set_ylabel("set of ranks")
        return ax

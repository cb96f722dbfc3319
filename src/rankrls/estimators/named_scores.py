"""Scores and rankings of a relation with the names of its objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._calls import explained
from rankrls._frames import (
    column_names,
    labels_in_order,
    labels_of,
    names_anything,
    row_names,
    table_frame,
)
from rankrls._relation_labels import EdgeList, read_labels
from rankrls._validation import show
from rankrls.rankings import RankTable, as_labels

__all__ = ["NamedScores"]

Array = NDArray[Any]


class NamedScores:
    """What conditional rankers tell with names: `predict_frame` and `rank`."""

    condition_on: str
    predict: Callable[..., Array]

    @explained(qid="the objects that rankings are conditioned on take the place of queries")
    def predict_frame(
        self, X: Any, Z: Any = None, *, row_names: Any = None, column_names: Any = None
    ) -> Any:
        """Scores of all pairs as a data frame, with the names of the objects.

        Parameters
        ----------
        X, Z : as for `predict`
        row_names : array-like of shape (p',), optional
            Names of the objects of X. None: the index of X, if it is a pandas frame; otherwise
            their numbers.
        column_names : array-like of shape (g',), optional
            The same of the objects of Z (of X without Z).

        Returns
        -------
        pandas.DataFrame of shape (p', g')
        """
        scores = self.predict(X, Z)
        rows, columns = _both_names(X, Z, row_names, column_names, scores.shape)
        return table_frame(scores, rows, columns)

    @explained(qid="the objects that rankings are conditioned on take the place of queries")
    def rank(
        self,
        X: Any,
        Z: Any = None,
        *,
        k: int | None = None,
        seen: Any = None,
        row_names: Any = None,
        column_names: Any = None,
    ) -> RankTable:
        """The ranked objects of every conditioning object, the best first, with names.

        Parameters
        ----------
        X, Z : as for `predict`
        k : int, optional
            Keep the first ``k`` of every list. None: all.
        seen : array-like, data frame or sparse matrix of shape (p', g'), optional
            Labels as for ``fit``: pairs that have one are left out, such as what a user has rated
            already. If it has names, as X and Z have, labels of other objects are of no concern.
        row_names : array-like of shape (p',), optional
            Names of the objects of X. None: the index of X, if it is a pandas frame; otherwise
            their numbers.
        column_names : array-like of shape (g',), optional
            The same of the objects of Z (of X without Z).

        Returns
        -------
        RankTable
            Columns query (the conditioning object), rank, id and score; ``to_frame()`` makes a
            data frame of them. Objects of equal scores keep their order.

        See Also
        --------
        rankrls.datasets.load_relations : Labels of named pairs, with ``row_names`` and
            ``column_names``.

        Examples
        --------
        >>> import numpy as np
        >>> from rankrls import ConditionalRankRLS
        >>> from rankrls.datasets import load_relations
        >>> ratings = {"user": ["ann", "ann", "bob", "bob", "eve"],
        ...            "film": ["Alien", "Heat", "Alien", "Jaws", "Heat"], "stars": [5, 1, 4, 5, 2]}
        >>> data = load_relations(ratings)
        >>> users, films = np.eye(3), np.eye(3)
        >>> model = ConditionalRankRLS(loss="regression", fit_offsets=True, kernel=["identity",
        ...     "profile"]).fit(users, data.target, films)
        >>> new = model.rank(users, films, k=1, seen=data.target, row_names=data.row_names,
        ...     column_names=data.column_names)
        >>> dict(zip(new.query.tolist(), new.id.tolist()))
        {'ann': 'Jaws', 'bob': 'Heat', 'eve': 'Alien'}
        """
        scores = self.predict(X, Z)
        lists, ranked = _both_names(X, Z, row_names, column_names, scores.shape)
        left_out = None if seen is None else _mask(seen, X, Z, scores.shape)
        if self.condition_on == "columns":
            scores, lists, ranked = scores.T, ranked, lists
            left_out = None if left_out is None else left_out.T
        return RankTable.from_lists(scores, lists, ranked, k=k, left_out=left_out)


def _both_names(
    X: Any, Z: Any, rows: Any, columns: Any, shape: tuple[int, ...]
) -> tuple[Array, Array]:
    """Names of the rows and of the columns of a table of scores."""
    made = []
    for argument, given, data, n in (
        ("row_names", rows, X, shape[0]),
        ("column_names", columns, X if Z is None else Z, shape[1]),
    ):
        own = row_names(data)
        if given is not None:
            names = as_labels(given)
            if names.shape != (n,):
                raise ValueError(
                    f"{argument} must be {n} names, one for each object; got {show(given)}"
                )
        else:
            names = np.asarray(own) if names_anything(own) else np.arange(n)
        made.append(names)
    return made[0], made[1]


def _mask(seen: Any, X: Any, Z: Any, shape: tuple[int, ...]) -> Array:
    """Which pairs have a label."""
    one = Z is None
    own = row_names(X)
    other = own if one else row_names(Z)
    named = column_names(seen) is not None or hasattr(seen, "row_names")
    if named and names_anything(own) and names_anything(other):
        seen = labels_of(seen, own, other)
    else:
        seen = labels_in_order(seen, own, other, one_domain=one)
    labels = read_labels(seen, "seen")
    if labels.shape != shape:
        raise ValueError(f"seen has shape {labels.shape} for scores of shape {shape}")
    if not isinstance(labels, EdgeList):
        return ~np.isnan(labels)
    mask = np.zeros(shape, dtype=bool)
    mask[labels.rows, labels.cols] = True
    return mask

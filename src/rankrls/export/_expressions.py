"""Export of linear models as an SQL expression or a Vespa rank profile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from rankrls._validation import check_option
from rankrls.export._fold import fold
from rankrls.export._names import check_feature_names
from rankrls.export._output_files import write_bytes
from rankrls.export._steps import Imputation, Parts, take_apart

__all__ = ["to_sql", "to_vespa"]

#: Maximum number of terms in one pair of parentheses: SQLite limits the expression depth to 1000.
TERMS = 50

#: Quotes around column names, and the escape of a quote inside a name.
QUOTES = {'"': ('"', '"', '""'), "`": ("`", "`", "``"), "[": ("[", "]", "]]")}

#: A rank feature of Vespa: bm25(title), attribute(age), matches, fieldMatch(title).proximity.
_RANK_FEATURE = re.compile(r"[A-Za-z_]\w*(\.\w+)*(\([\w\s,.:*-]*\)(\.\w+)*)?", re.ASCII)

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def to_sql(
    estimator: Any,
    feature_names: Any = None,
    *,
    quote: str = '"',
    output: int | None = None,
    path: Any = None,
) -> str:
    """Export a linear model as an SQL expression that computes the score of a row.

    Parameters
    ----------
    estimator : fitted estimator with a linear kernel
        As for `linear_scores`. Scalers in a pipeline are folded into the weights; a SimpleImputer
        as its first step becomes ``COALESCE``.
    feature_names : sequence of str, optional
        Names of the columns in the table. If None, the column names of the data frame that the
        estimator was fitted to are used.
    quote : {'"', "`", "["}, default='"'
        Quote around names: standard SQL uses ``"name"``, MySQL and BigQuery use backticks, SQL
        Server uses ``[name]``.
    output : int, optional
        Index of the output to export, for a model with several.
    path : str or path, optional
        File to which the expression is written.

    Returns
    -------
    str
        The expression, without ``SELECT``.

    Notes
    -----
    The scores equal those of ``predict``, including the constant, up to rounding. Numbers are
    written with an exponent so that databases read them as double precision and not as fixed-point
    decimals. Columns of weight zero are omitted. A missing value (NULL) makes the score NULL unless
    the model has an imputer. NaN, which some databases have in addition to NULL, stays NaN.
    Parentheses keep the sums of wide models within the expression depth that databases allow.

    SQLite reads a double-quoted name that is not a column as text, and text as 0; with
    ``quote="["`` a misspelt name raises an error there.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.export import to_sql
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0]])
    >>> print(to_sql(RankRLS().fit(X, [0, 1, 2, 3]), ["bm25", "age"]))
    9.1...E-01 * "bm25" + 6.2...E-02 * "age"
    """
    check_option("quote", quote, QUOTES)
    parts = take_apart(estimator)
    names = check_feature_names(feature_names, parts.feature_names, parts.n_features)
    first, last, inner = QUOTES[quote]
    columns = [first + name.replace(last, inner) + last for name in names]
    parts, filled = _without_imputers(parts)
    for column, (missing, value) in filled.items():
        known = (
            columns[column]
            if np.isnan(missing)
            else (f"NULLIF({columns[column]}, {_literal(missing)})")
        )
        columns[column] = f"COALESCE({known}, {_literal(value)})"
    text = _expression(parts, columns, output, "the one expression")
    write_bytes(path, (text + "\n").encode("utf-8"))
    return text


def to_vespa(
    estimator: Any,
    feature_names: Any = None,
    name: str = "rankrls",
    *,
    output: int | None = None,
    path: Any = None,
) -> str:
    """Export a linear model as a Vespa rank profile.

    Parameters
    ----------
    estimator : fitted estimator with a linear kernel
        As for `linear_scores`. Scalers in a pipeline are folded into the weights.
    feature_names : sequence of str, optional
        Vespa rank features in the order of the columns of X, such as ``bm25(title)`` and
        ``attribute(popularity)``, or names of functions of the profile. If None, the column names
        of the data frame that the estimator was fitted to are used. They must be the names in
        Vespa's ``matchfeatures``.
    name : str, default="rankrls"
        Name of the profile.
    output : int, optional
        Index of the output to export, for a model with several.
    path : str or path, optional
        File to which the profile is written.

    Returns
    -------
    str
        The text of a ``rank-profile``, for a schema or its ``.profile`` file. The profile has a
        function that computes the score and uses it in the second phase.

    Notes
    -----
    The scores equal those of ``predict``, including the constant, up to rounding. Features of
    weight zero are omitted.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.export import to_vespa
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0]])
    >>> ranker = RankRLS().fit(X, [0, 1, 2, 3])
    >>> print(to_vespa(ranker, ["bm25(title)", "attribute(age)"], "films"))
    rank-profile films inherits default {
        function films_score() {
            expression {
                9.1...E-01 * bm25(title) + 6.2...E-02 * attribute(age)
            }
        }
        second-phase {
            expression: films_score()
        }
    }
    """
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        raise ValueError(
            f"name must consist of letters, digits and '_' and begin with a letter; got {name!r}"
        )
    parts = take_apart(estimator)
    names = check_feature_names(feature_names, parts.feature_names, parts.n_features)
    for i, feature in enumerate(names):
        if not _RANK_FEATURE.fullmatch(feature):
            raise ValueError(
                f"feature_names[{i}] is {feature!r}, which is not a rank feature of Vespa; write, "
                "for "
                "example, bm25(title) or attribute(age)"
            )
    expression = _expression(parts, names, output, "the expression of a rank profile")
    text = (
        f"rank-profile {name} inherits default {{\n"
        f"    function {name}_score() {{\n"
        "        expression {\n"
        f"            {expression}\n"
        "        }\n"
        "    }\n"
        "    second-phase {\n"
        f"        expression: {name}_score()\n"
        "    }\n"
        "}"
    )
    write_bytes(path, (text + "\n").encode("utf-8"))
    return text


def _without_imputers(parts: Parts) -> tuple[Parts, dict[int, tuple[float, float]]]:
    """Replace leading imputers by fill values of columns, and keep the other steps.

    Returns
    -------
    Parts
    dict of column → (marker of a missing value, fill value)
    """
    steps = list(parts.steps)
    filled: dict[int, tuple[float, float]] = {}
    if steps and isinstance(steps[0], Imputation):
        first = steps[0]
        columns = range(parts.n_features) if first.columns is None else first.columns
        values = zip(columns, first.values.tolist(), strict=True)
        filled = {int(column): (first.missing, value) for column, value in values}
        steps[0] = first.affine
    return Parts(steps, parts.ranker, parts.n_features, parts.feature_names), filled


def _expression(parts: Parts, names: Sequence[str], output: int | None, target: str) -> str:
    """Write the weighted sum of named features, plus the constant."""
    scores = fold(parts, output=output, target=target)
    if not scores.weights.any():
        raise ValueError(
            "every weight is zero: all rows would have the same score. Check that the features "
            "differ within queries, and that alpha is not huge"
        )
    used = np.flatnonzero(scores.weights).tolist()
    terms = [(float(scores.weights[i]), f" * {names[i]}") for i in used]
    if scores.constant:
        terms.append((scores.constant, ""))
    words = [_term(number, rest, first=i % TERMS == 0) for i, (number, rest) in enumerate(terms)]
    return _summed(words)


def _term(number: float, rest: str, *, first: bool) -> str:
    sign = "-" if number < 0 else "+"
    if first:
        return _literal(number) + rest
    return f" {sign} {_literal(abs(number))}{rest}"


def _summed(words: list[str]) -> str:
    """Join terms in nested groups of limited size, each in parentheses."""
    groups = ["".join(words[i : i + TERMS]) for i in range(0, len(words), TERMS)]
    while len(groups) > 1:
        groups = [" + ".join(f"({group})" for group in groups[i : i + TERMS])
                  for i in range(0, len(groups), TERMS)]  # fmt: skip
    return groups[0]


def _literal(number: float) -> str:
    """Format a number so that it is read back as the same double."""
    digits = next(d for d in range(17) if float(f"{number:.{d}E}") == number or d == 16)
    return f"{number:.{digits}E}" if digits else f"{number:.1E}"

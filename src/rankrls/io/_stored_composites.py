"""Records of pipelines, column transformers and feature unions, and the probe of all estimators.

`probe` predicts or transforms a row, so that a model whose parts do not fit together is refused
when it is saved or loaded, instead of a later failure. Each step of a composite gets rows of its
own, and its number of output columns is compared with what the next step was fitted to.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from rankrls._validation import show
from rankrls.io._kinds import (
    ANY,
    DATA,
    FINITE,
    FLAG,
    TEXT,
    Kind,
    listing,
    mapping,
    maybe,
    require,
    tuple_of,
)
from rankrls.io._records import SEEN, Record, record_of
from rankrls.io._stored_rankers import OUTPUT
from rankrls.io._values import what_can_be_saved

#: Numbers of features above which rows of a probe are sparse, if a step takes these.
WIDE = 10_000


def probe(model: Any, charge: Callable[[int, str], None]) -> None:
    """Raise a ``ValueError`` unless the model can predict, or transform, a row."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        _width(model, charge)


def _width(step: Any, charge: Callable[[int, str], None]) -> int | None:
    """Return the number of output columns of an estimator, None if unknown or a predictor."""
    if hasattr(step, "steps"):
        width, before = None, ""
        for i, (name, part) in enumerate(step.steps):
            if part is None or part == "passthrough":
                continue
            _require_width(name, part, width, f"{before!r} gives")
            last = i == len(step.steps) - 1
            require(last or hasattr(part, "transform"), f"step {name!r} is no transformer")
            width, before = _width(part, charge), name
        return width
    if hasattr(step, "transformer_list"):
        parts = [part for _, part in step.transformer_list if not isinstance(part, str)]
        sizes = {n for part in parts if (n := _n_in(part)) is not None}
        require(len(sizes) <= 1, f"a FeatureUnion of transformers of {sorted(sizes)} features")
        return _total(parts, charge)
    if hasattr(step, "transformers_"):
        total: int | None = 0
        for name, part, columns in step.transformers_:
            indices = _indices(step, columns)
            if isinstance(part, str) or not len(indices):
                continue
            _require_width(name, part, len(indices), "it gets")
            slices = step.output_indices_[name]
            width = _total([part], charge)
            good = width is None or slices == slice(slices.start, slices.start + width)
            require(good, f"{name!r} gives {width} columns, which are not those of {slices}")
            total = None if total is None or width is None else total + width
        return total
    n = getattr(step, "n_features_in_", 0)
    wide = n > WIDE and step.__sklearn_tags__().input_tags.sparse
    if not wide:
        charge(64 * n, "a row of features")
    record = record_of(step)
    assert record is not None
    try:
        if record.probe is not None:
            return record.probe(step)
        return step.transform(sparse.csr_array((1, n)) if wide else np.ones((1, n))).shape[1]
    except MemoryError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        text = text if len(text) <= 300 else text[:299] + "…"
        raise ValueError(f"not a valid {record.name}, it cannot take a row ({text})") from error


def _total(parts: list[Any], charge: Callable[[int, str], None]) -> int | None:
    for part in parts:
        require(hasattr(part, "transform"), f"a {type(part).__name__} is no transformer")
    widths = [_width(part, charge) for part in parts]
    return None if None in widths else sum(widths)  # type: ignore[arg-type]


def _require_width(name: str, part: Any, given: int | None, giver: str) -> None:
    taken = _n_in(part)
    require(
        given is None or taken is None or given == taken,
        f"step {name!r} was fitted to {taken} features, and {giver} {given}: fit all steps again",
    )


def _n_in(step: Any) -> int | None:
    """Return the number of features a step was fitted to; None if it takes any number, or text."""
    inner = getattr(step, "steps", getattr(step, "transformer_list", None))
    if inner is None:
        return getattr(step, "n_features_in_", None)
    parts = [part for _, part in inner if not isinstance(part, str | None)]
    parts = parts[:1] if hasattr(step, "steps") else parts
    return next((n for part in parts if (n := _n_in(part)) is not None), None)


# -- pipelines and unions ---------------------------------------------------------------------


def _check_names(owner: str, parts: Sequence[Any], words: tuple[Any, ...]) -> None:
    """Raise an error unless names are unique, and parts are estimators or one of the words."""
    names = [part[0] for part in parts]
    require(len(set(names)) == len(names) > 0, f"a {owner} with two steps of the same name")
    for name, part, *_ in parts:
        record = record_of(part)
        known = (record is not None and record.params is not None) or part in words
        text = f"step {name!r} of a {owner} is {show(part)}, no transformer"
        if hasattr(part, "get_params"):
            kind = type(part).__name__
            text = f"step {name!r} is a {kind}, which cannot be saved; {what_can_be_saved()}"
        require(known, text)


def _check_union(union: Any) -> None:
    _check_names("FeatureUnion", union.transformer_list, ("drop", "passthrough"))
    names = {name for name, _ in union.transformer_list}
    require(set(union.transformer_weights or {}) <= names, "weights of no transformer")


# -- column transformers ----------------------------------------------------------------------


def _plain(columns: Any) -> Any:
    """Return columns as text, an integer, a slice or a list of these."""
    if isinstance(columns, str | int | slice | np.integer):
        return columns.item() if isinstance(columns, np.generic) else columns
    return np.asarray(columns).tolist()


def _indices(transformer: Any, columns: Any) -> Sequence[int]:
    """Return the indices of columns; raise a ``ValueError`` if a column does not exist."""
    columns, n = _plain(columns), transformer.n_features_in_
    names = getattr(transformer, "feature_names_in_", None)
    numbers = {} if names is None else {str(name): i for i, name in enumerate(names)}

    def number(column: Any) -> int:
        known = column in numbers if type(column) is str else type(column) is int
        require(known, f"a column {show(column)} of no table")
        index = numbers[column] if type(column) is str else column
        require(-n <= index < n, f"column {show(column)} out of {n}")
        return index % n

    if isinstance(columns, slice):
        start, stop, step = columns.start, columns.stop, columns.step
        require(step is None or type(step) is int, f"a slice of steps {show(step)}")
        start = number(start) if isinstance(start, str) else start
        stop = number(stop) + 1 if isinstance(stop, str) else stop
        return range(n)[start:stop:step]
    if type(columns) is not list:
        return [number(columns)]
    if columns and all(type(column) is bool for column in columns):
        require(len(columns) == n, f"{len(columns)} columns are chosen or not, out of {n}")
        return [i for i, chosen in enumerate(columns) if chosen]
    return [number(column) for column in columns]


def _pack_columns(transformer: Any) -> dict[str, Any]:
    """Return the fitted transformers with their columns; those without columns were not fitted."""
    fitted = [
        (name, part if len(_indices(transformer, columns)) else "drop", _plain(columns))
        for name, part, columns in transformer.transformers_
    ]
    return {"transformers_": fitted}


def _pack_given(transformer: Any) -> dict[str, Any]:
    """Return which transformers were given as text; others are clones of the fitted ones."""
    fitted = {name: part for name, part, _ in _pack_columns(transformer)["transformers_"]}

    def word(name: str, part: Any) -> str | None:
        if isinstance(part, str):
            return part
        return "drop" if isinstance(fitted.get(name, "drop"), str) else None

    return {
        "transformers": [(name, word(name, part)) for name, part, _ in transformer.transformers],
        "remainder": word("remainder", transformer.remainder),
    }


def _finish_columns(transformer: Any) -> None:
    """Restore the transformers as given by the user, as clones of the fitted ones."""
    given, fitted = transformer.transformers, transformer.transformers_
    names = [name for name, _ in given]
    good = [part[0] for part in fitted] in (names, [*names, "remainder"])
    require(good, "a ColumnTransformer of other transformers")
    _check_names("ColumnTransformer", fitted, ("drop",))
    _, rest, columns = fitted[-1] if len(fitted) > len(given) else ("", "drop", [])
    transformer.transformers = [
        (name, clone(part) if word is None else word, columns)
        for (_, word), (name, part, columns) in zip(given, fitted, strict=False)
    ]
    if transformer.remainder is None:
        transformer.remainder = clone(rest)
    transformer._columns = [columns for _, _, columns in transformer.transformers]
    transformer._remainder = ("remainder", transformer.remainder, columns)
    transformer._transformer_to_input_indices = {"remainder": []} | {
        name: list(_indices(transformer, columns)) for name, _, columns in fitted
    }


def _check_columns(transformer: Any) -> None:
    parts = transformer.transformers_
    _check_names("ColumnTransformer", parts, ("drop", "passthrough"))
    names, weights = {part[0] for part in parts}, set(transformer.transformer_weights or {})
    good = weights <= names <= set(transformer.output_indices_)
    require(good, "weights or columns of other transformers")


# -- table ------------------------------------------------------------------------------------

_STEPS = listing(tuple_of(TEXT, ANY))
_COMMON = {"transformer_weights": maybe(mapping(FINITE))}

RECORDS = (
    Record(
        "Pipeline",
        "sklearn.pipeline",
        {},
        params={"steps": _STEPS},
        dropped=("memory",),  # a directory on the machine where the model was fitted
        check=lambda pipe: _check_names("pipeline", pipe.steps, (None, "passthrough")),
    ),
    Record(
        "FeatureUnion",
        "sklearn.pipeline",
        OUTPUT,
        params={"transformer_list": _STEPS, **_COMMON},
        check=_check_union,
    ),
    Record(
        "ColumnTransformer",
        "sklearn.compose",
        {
            **SEEN,
            **OUTPUT,
            "transformers_": listing(tuple_of(TEXT, ANY, DATA)),
            "sparse_output_": FLAG,
            "output_indices_": mapping(Kind(lambda v, axes: isinstance(v, slice), "a slice")),
        },
        params={
            "transformers": listing(tuple_of(TEXT, maybe(TEXT))),
            "remainder": maybe(TEXT),
            **_COMMON,
        },
        derived=(
            *("_columns", "_transformer_to_input_indices", "_remainder"),
            "_transformers_feature_names_out",
        ),
        advice={
            "verbose_feature_names_out": "it only names columns, so call "
            "set_params(verbose_feature_names_out=True) before saving"
        },
        pack=_pack_columns,
        pack_params=_pack_given,
        # Column indices of slices use no space in the file.
        cost=lambda fields: sum(
            9 * fields["n_features_in_"]
            for _, _, columns in fields["transformers_"]
            if isinstance(columns, slice)
        ),
        finish=_finish_columns,
        check=_check_columns,
    ),
)

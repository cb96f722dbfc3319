"""Records of composite estimators: pipelines, column transformers and feature unions.

The number of output features of each step is compared with the number of features that the next
step was fitted to. A file with inconsistent steps is rejected when it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from sklearn.base import clone

from rankrls._validation import show
from rankrls.io._kinds import (
    ANY,
    FINITE,
    FLAG,
    TEXT,
    Kind,
    either,
    listing,
    mapping,
    maybe,
    require,
    tuple_of,
)
from rankrls.io._records import SKOPS, EstimatorRecord
from rankrls.io._stored_auto import AUTO
from rankrls.io._stored_encoders import ENCODERS
from rankrls.io._stored_estimators import ESTIMATORS, OUTPUT, SEEN, check_seen
from rankrls.io._stored_relations import CONDITIONAL
from rankrls.io._stored_steps import STEPS
from rankrls.io._stored_text import VECTORIZERS

__all__ = ["COMPOSITES"]

#: Values that skip a step.
SKIPPED = (None, "passthrough")

_NAMED = listing(tuple_of(TEXT, ANY))


def _is_skipped(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step in ("passthrough", "drop"))


def _check_parts(owner: str, parts: Any, n_entries: int = 2) -> None:
    """Raise an error unless parts are (name, estimator, …) with unique names and known classes."""
    require(type(parts) is list and bool(parts), f"a {owner} without steps")
    names = []
    for part in parts:
        good = isinstance(part, tuple) and len(part) == n_entries and isinstance(part[0], str)
        require(good, f"a {owner} whose steps are not (name, estimator)")
        kind = type(part[1]).__name__
        require(
            _is_skipped(part[1]) or (kind in PARTS and type(part[1]) is PARTS[kind].cls),
            f"step {show(part[0])} is a {kind}, which cannot be saved; these can: "
            f"{', '.join(sorted(PARTS))}. {SKOPS}",
        )
        names.append(part[0])
    require(len(set(names)) == len(names), f"a {owner} with two steps of the same name")


def _n_in(step: Any) -> int | None:
    """Return the number of features a step was fitted to; None if it takes any number, or text."""
    inner = _parts(step)
    if inner is None:
        return getattr(step, "n_features_in_", None)
    if hasattr(step, "steps"):  # a pipeline takes the features of its first step
        inner = inner[:1]
    return next((n for part in inner if (n := _n_in(part)) is not None), None)


def _n_out(step: Any) -> int | None:
    """Return the number of output features of a step, or None if unknown."""
    record = PARTS.get(type(step).__name__)
    return None if record is None or record.n_out is None else record.n_out(step)


def _parts(step: Any) -> list[Any] | None:
    """Return the steps of a pipeline or the transformers of a union."""
    pairs = getattr(step, "steps", getattr(step, "transformer_list", None))
    return None if pairs is None else [part for _, part in pairs if not _is_skipped(part)]


# -- pipelines --------------------------------------------------------------------------------


def _check_pipeline(pipeline: Any) -> None:
    _check_parts("pipeline", pipeline.steps)
    given, giver = None, ""
    for name, step in pipeline.steps:
        require(not isinstance(step, str) or step in SKIPPED, f"a step {show(step)}")
        if _is_skipped(step):
            continue
        taken = _n_in(step)
        require(
            given is None or taken is None or given == taken,
            f"step {name!r} was fitted to {taken} features, and {giver!r} gives {given}: fit the "
            "pipeline again",
        )
        transforms = hasattr(step, "transform") or step is pipeline.steps[-1][1]
        require(transforms, f"step {name!r} is a {type(step).__name__}, which is no transformer")
        given, giver = _n_out(step), name


def _n_out_of_pipeline(pipeline: Any) -> int | None:
    inner = _parts(pipeline)
    return _n_out(inner[-1]) if inner else None


PIPELINE = EstimatorRecord(
    "Pipeline",
    "sklearn.pipeline",
    fields={},
    check=_check_pipeline,
    params={
        "steps": _NAMED,
        "transform_input": maybe(either(Kind(lambda v, axes: v == [], "[]"), listing(TEXT))),
        "verbose": FLAG,
    },
    dropped=("memory",),  # a directory on the machine where the model was fitted
    n_out=_n_out_of_pipeline,
)

# -- unions -----------------------------------------------------------------------------------


def _check_union(union: Any) -> None:
    _check_parts("FeatureUnion", union.transformer_list)
    inner = _parts(union) or []
    require(None not in dict(union.transformer_list).values(), "a FeatureUnion of nothing")
    sizes = {n for part in inner if (n := _n_in(part)) is not None}
    require(len(sizes) <= 1, f"a FeatureUnion of transformers of {sorted(sizes)} features")
    require(all(hasattr(part, "transform") for part in inner), "a FeatureUnion of other things")
    names = {name for name, _ in union.transformer_list}
    require(set(union.transformer_weights or {}) <= names, "weights of no transformer")


def _sum_of_widths(parts: list[Any]) -> int | None:
    widths = [_n_out(part) for part in parts]
    return None if None in widths else sum(width for width in widths if width is not None)


WEIGHTS = maybe(mapping(FINITE))

UNION = EstimatorRecord(
    "FeatureUnion",
    "sklearn.pipeline",
    fields=OUTPUT,
    check=_check_union,
    params={
        "transformer_list": _NAMED,
        "transformer_weights": WEIGHTS,
        "verbose": FLAG,
        "verbose_feature_names_out": FLAG,
    },
    dropped=("n_jobs",),
    n_out=lambda union: _sum_of_widths(_parts(union) or []),
)

# -- column transformers ----------------------------------------------------------------------


def _pack_columns(transformer: Any) -> dict[str, Any]:
    """Return the fitted transformers with their columns."""
    _check_parts("ColumnTransformer", transformer.transformers_, 3)
    fitted = [
        (name, part if _n_selected(columns) else "drop", _plain(columns))
        for name, part, columns in transformer.transformers_
    ]
    return {name: value for name, value in vars(transformer).items() if name not in DERIVED} | {
        "transformers_": fitted
    }


def _pack_given(transformer: Any) -> dict[str, Any]:
    """Return which transformers were given as text; others are clones of the fitted ones."""
    selected = {name: _n_selected(columns) for name, _, columns in transformer.transformers_}
    given = [(name, part, selected[name]) for name, part, _ in transformer.transformers]
    remainder = transformer.remainder
    return {
        "transformers": [(name, _word(part, n)) for name, part, n in given],
        "remainder": _word(remainder, selected.get("remainder", 0)),
    }


def _word(part: Any, n_selected: int) -> str | None:
    if isinstance(part, str):
        return part
    return None if n_selected else "drop"  # never fitted


def _n_selected(columns: Any) -> int:
    """Return 0 if no columns are selected: scikit-learn then does not fit the transformer."""
    if isinstance(columns, str | slice) or not hasattr(columns, "__len__"):
        return 1
    return sum(column is not False for column in np.asarray(columns).tolist())


def _plain(columns: Any) -> Any:
    """Return columns as text, an integer, a slice or a list of these."""
    if isinstance(columns, np.integer):
        return int(columns)
    if isinstance(columns, str | int | slice):
        return str(columns) if isinstance(columns, str) else columns
    return np.asarray(columns).tolist()


def _indices(columns: Any, n: int, names: list[str] | None) -> Sequence[int]:
    """Return the indices of the columns; raise a ``ValueError`` if a column does not exist."""

    def number(column: Any) -> int:
        if type(column) is str:
            require(names is not None and column in names, f"a column {show(column)} of no table")
            assert names is not None
            return names.index(column)
        good = type(column) is int and -n <= column < n
        require(good, f"column {show(column)} out of {n}")
        return column % n

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
    if names is not None and len(columns) > 8:
        known = {name: i for i, name in enumerate(names)}
        if all(type(column) is str and column in known for column in columns):
            return [known[column] for column in columns]
    return [number(column) for column in columns]


def _selections(transformer: Any) -> Iterator[tuple[str, Any, Any, Sequence[int]]]:
    """Iterate over name, transformer, columns and column indices."""
    n = transformer.n_features_in_
    names = getattr(transformer, "feature_names_in_", None)
    listed = None if names is None else names.tolist()
    for name, part, columns in transformer.transformers_:
        plain = _plain(columns)
        yield name, part, plain, _indices(plain, n, listed)


def _check_columns(transformer: Any) -> None:
    check_seen(transformer)
    _check_parts("ColumnTransformer", transformer.transformers_, 3)
    slices = transformer.output_indices_
    for name, part, _, indices in _selections(transformer):
        known = slices.get(name)
        require(part is not None and part != "passthrough", f"{name!r} is no transformer")
        good = isinstance(known, slice) and known.step is None
        require(good, f"a ColumnTransformer that does not know the columns of {name!r}")
        if _is_skipped(part) or not len(indices):
            continue
        require(hasattr(part, "transform"), f"{name!r} is no transformer")
        taken, width = _n_in(part), _n_out(part)
        require(
            taken is None or taken == len(indices),
            f"{name!r} was fitted to {taken} columns, and gets {len(indices)}",
        )
        ends = (known.start, known.stop)
        good = all(type(end) is int or isinstance(end, np.integer) for end in ends)
        require(
            good and (width is None or known.stop - known.start == width),
            f"{name!r} gives {width} columns, which are not those of {known}",
        )
    fitted = [name for name, _, _ in transformer.transformers_]
    given = [part[0] for part in transformer.transformers]
    extra = fitted[len(given) :]
    require(fitted[: len(given)] == given and extra in ([], ["remainder"]), "other transformers")
    weighted = set(transformer.transformer_weights or {})
    require(weighted <= set(fitted), "weights of no transformer")
    words = [part[1] for part in transformer.transformers] + [transformer.remainder]
    good = all(word in ("drop", "passthrough") for word in words if isinstance(word, str))
    require(good, f"transformers that are {show(words)}")


def _finish_columns(transformer: Any) -> None:
    """Restore the transformers as given by the user, as clones of the fitted ones."""
    parts, transformer._columns, numbers = [], [], {}
    words = [word for _, word in transformer.transformers]
    remaining: Any = []
    for i, (name, part, columns, indices) in enumerate(_selections(transformer)):
        numbers[name] = list(indices)
        if i < len(words):
            parts.append((name, clone(part) if words[i] is None else words[i], columns))
            transformer._columns.append(columns)
        else:
            remaining = columns
            if transformer.remainder is None:
                transformer.remainder = clone(part)
    transformer.remainder = transformer.remainder or "drop"
    transformer.transformers = parts
    transformer._remainder = ("remainder", transformer.remainder, remaining)
    transformer._transformer_to_input_indices = {
        **numbers,
        "remainder": numbers.get("remainder", []),
    }


def _cost_of_columns(fields: dict[str, Any]) -> int:
    """Return the memory of the column indices of slices, which use no space in the file."""
    n = fields["n_features_in_"]
    slices = [part[2] for part in fields["transformers_"] if isinstance(part[2], slice)]
    return sum(9 * len(range(n)[_without_text(part)]) for part in slices)


def _without_text(columns: slice) -> slice:
    return slice(None) if {type(columns.start), type(columns.stop)} & {str} else columns


#: Attributes that are recomputed from the others.
DERIVED = (
    *("_columns", "_transformer_to_input_indices", "_remainder"),
    *("_transformers_feature_names_out",),
)

COLUMNS = EstimatorRecord(
    "ColumnTransformer",
    "sklearn.compose",
    fields={
        **SEEN,
        **OUTPUT,
        "transformers_": listing(tuple_of(TEXT, ANY, ANY)),
        "sparse_output_": FLAG,
        "output_indices_": mapping(Kind(lambda v, axes: isinstance(v, slice), "a slice")),
    },
    derived=DERIVED,
    pack=_pack_columns,
    pack_params=_pack_given,
    cost=_cost_of_columns,
    check=_check_columns,
    params={
        "transformers": listing(tuple_of(TEXT, maybe(TEXT))),
        "remainder": maybe(TEXT),
        "transformer_weights": WEIGHTS,
        "verbose": FLAG,
        "verbose_feature_names_out": either(FLAG, TEXT),
        "sparse_threshold": FINITE,
    },
    advice={
        "verbose_feature_names_out": "it only names columns, so call "
        "set_params(verbose_feature_names_out=True) before saving"
    },
    dropped=("n_jobs",),
    finish=_finish_columns,
    n_out=lambda transformer: _sum_of_widths(
        [
            part
            for _, part, _, indices in _selections(transformer)
            if not _is_skipped(part) and len(indices)
        ]
    ),
)

COMPOSITES = (PIPELINE, UNION, COLUMNS)

#: Records of the estimators that composites can contain.
PARTS: dict[str, EstimatorRecord] = {
    record.name: record
    for record in chain(ESTIMATORS, AUTO, CONDITIONAL, STEPS, ENCODERS, VECTORIZERS, COMPOSITES)
}

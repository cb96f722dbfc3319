"""Records of scikit-learn's encoders of categories (strings, numbers or both) and of bins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankrls._validation import show
from rankrls.io._hashes import check_hashes
from rankrls.io._kinds import (
    COUNT,
    FLAG,
    INDICES,
    INTEGER,
    ITEMS,
    LISTING,
    NUMBER_TYPE,
    TEXT,
    Kind,
    array,
    either,
    instance,
    listing,
    maybe,
    optional,
    require,
    within,
)
from rankrls.io._stored_steps import step

__all__ = ["ENCODERS"]

Array = NDArray[Any]


def _is_categories(value: Any, axes: dict[str, int]) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "OUiufb"


CATEGORIES = listing(Kind(_is_categories, "a 1-D array of categories"))

#: Categories as users pass them.
GIVEN = either(TEXT, either(LISTING, ITEMS))


def _check_encoder(encoder: Any) -> None:
    n = encoder.n_features_in_
    kind = type(encoder).__name__
    require(len(encoder.categories_) == n, f"a {kind} of other than {n} features")
    for categories in encoder.categories_:
        _check_categories(categories)
    infrequent = getattr(encoder, "_infrequent_indices", None)
    wanted = encoder._infrequent_enabled
    require(wanted == (encoder.max_categories is not None or encoder.min_frequency is not None),
            f"a {kind} of other categories")  # fmt: skip
    require((infrequent is not None) == wanted, f"a {kind} that groups rare categories or not")
    for i, indices in enumerate(infrequent or []):
        good = i < n and (indices is None or _is_group(indices, _n_present(encoder, i)))
        require(good, f"a {kind} whose rare categories are not among its categories")
    require(infrequent is None or len(infrequent) == n, f"a {kind} of other features")
    if kind == "OrdinalEncoder":
        _check_ordinal(encoder)


def _check_categories(categories: Array) -> None:
    """Raise an error unless categories are unique and in the order that lookups require."""
    require(len(categories) > 0, "a feature without categories")
    if categories.dtype.kind == "O":
        labels = [None if value != value else value for value in categories.tolist()]
        check_hashes(labels)
        n_gaps = sum(label is None for label in labels)
        distinct = len(set(labels)) + max(n_gaps - 1, 0)  # None and NaN are two categories
        require(n_gaps <= 2 and distinct == len(labels), "a category that occurs twice")
        return
    if categories.dtype.kind == "U":
        require(len(set(categories.tolist())) == len(categories), "a category that occurs twice")
        return
    with np.errstate(invalid="ignore"):
        ascending = categories[:-1] < categories[1:]
    if categories.dtype.kind == "f" and np.isnan(categories[-1]):
        ascending = ascending[:-1]
    require(bool(ascending.all()), "categories that are not in order")


def _is_group(indices: Any, n: int) -> bool:
    good = isinstance(indices, np.ndarray) and indices.ndim == 1 and indices.dtype.kind == "i"
    return good and len(indices) > 0 and within(indices, n, distinct=True)


def _is_gap(value: Any) -> bool:
    return isinstance(value, float | np.floating) and value != value


def _n_present(encoder: Any, i: int) -> int:
    """Return the number of categories that can be grouped; OrdinalEncoder keeps NaN separate."""
    categories = encoder.categories_[i]
    apart = type(encoder).__name__ == "OrdinalEncoder" and _is_gap(categories[-1])
    return len(categories) - apart


def _check_ordinal(encoder: Any) -> None:
    unknown = encoder.unknown_value
    for name in ("unknown_value", "encoded_missing_value"):
        value = getattr(encoder, name)
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        require(number or (value is None and name == "unknown_value"), f"{name} {show(value)}")
        whole = value is None or value != value or float(value).is_integer()
        require(bool(whole), f"{name} {show(value)} is not a whole number")
    needed = encoder.handle_unknown == "use_encoded_value"
    require((unknown is not None) == needed, "unknown_value without its use, or the reverse")


def _finish_encoder(encoder: Any) -> None:
    """Recompute the indices of categories after grouping rare ones, as scikit-learn does."""
    if encoder._infrequent_enabled:
        encoder._default_to_infrequent_mappings = [
            None if indices is None else _mapping(indices, _n_present(encoder, i))
            for i, indices in enumerate(encoder._infrequent_indices)
        ]
    if type(encoder).__name__ == "OneHotEncoder":
        encoder._set_drop_idx()
        encoder._n_features_outs = encoder._compute_n_features_outs()
    else:
        encoder._missing_indices = {
            i: len(categories) - 1
            for i, categories in enumerate(encoder.categories_)
            if _is_gap(categories[-1])
        }


def _mapping(indices: Array, n: int) -> Array:
    """Return the index of every category: frequent ones in order, then one for all rare ones."""
    mapping = np.empty(n, dtype=np.int64)
    frequent = np.setdiff1d(np.arange(n), indices)
    mapping[frequent] = np.arange(len(frequent))
    mapping[indices] = len(frequent)
    return mapping


def _pack_choices(encoder: Any) -> dict[str, Any]:
    """Return the categories given by the user as lists."""
    given: dict[str, Any] = {}
    if not isinstance(encoder.categories, str):
        given["categories"] = [np.asarray(part).tolist() for part in encoder.categories]
    drop = getattr(encoder, "drop", None)
    if drop is not None and not isinstance(drop, str):
        given["drop"] = np.asarray(drop, dtype=object).tolist()
    return given


# -- bins -------------------------------------------------------------------------------------


def _pack_bins(bins: Any) -> dict[str, Any]:
    return vars(bins) | {"bin_edges_": list(bins.bin_edges_)}


def _check_bins(bins: Any) -> None:
    n, sizes = bins.n_features_in_, bins.n_bins_.tolist()
    edges = [np.asarray(part) for part in bins.bin_edges_]
    good = len(edges) == n and [len(part) - 1 for part in edges] == sizes and min(sizes) >= 1
    require(good, f"a KBinsDiscretizer of other than {n} features")
    ascending = all(bool((part[1:] >= part[:-1]).all()) for part in edges)
    require(ascending, "a KBinsDiscretizer whose edges are not in order")
    encoder = getattr(bins, "_encoder", None)
    require((encoder is not None) == (bins.encode != "ordinal"), "a KBinsDiscretizer of other bins")
    if encoder is not None:
        numbers = [len(part) for part in encoder.categories_]
        same = numbers == sizes and encoder.drop is None and not encoder._infrequent_enabled
        plain = all(part.tolist() == list(range(len(part))) for part in encoder.categories_)
        require(same and plain, "a KBinsDiscretizer that encodes other bins")
        dense = not encoder.sparse_output
        require(
            dense == (bins.encode == "onehot-dense"), "a KBinsDiscretizer that encodes otherwise"
        )


def _finish_bins(bins: Any) -> None:
    edges = np.empty(len(bins.bin_edges_), dtype=object)
    edges[:] = bins.bin_edges_
    bins.bin_edges_ = edges


def _n_bins(bins: Any) -> int:
    return bins.n_features_in_ if bins.encode == "ordinal" else int(bins.n_bins_.sum())


BINS = step(
    "KBinsDiscretizer",
    "preprocessing",
    {
        "bin_edges_": listing(array("f", "edges", empty=False)),
        "n_bins_": array("i", "n"),
        "_encoder": optional(instance("OneHotEncoder")),
    },
    params={
        "n_bins": either(COUNT, INDICES),
        "dtype": maybe(NUMBER_TYPE),
        "random_state": maybe(either(INTEGER, instance("RandomState"))),
    },
    check=_check_bins,
    pack=_pack_bins,
    finish=_finish_bins,
    n_out=_n_bins,
)

_FIELDS = {
    "categories_": CATEGORIES,
    "_infrequent_enabled": FLAG,
    "_infrequent_indices": optional(LISTING),
}

ENCODERS = (
    step(
        "OneHotEncoder",
        "preprocessing",
        _FIELDS,
        params={
            "categories": GIVEN,
            "drop": maybe(GIVEN),
            "dtype": NUMBER_TYPE,
            "feature_name_combiner": TEXT,
        },
        check=_check_encoder,
        derived=(
            *("_default_to_infrequent_mappings", "_drop_idx_after_grouping"),
            *("drop_idx_", "_n_features_outs"),
        ),
        pack_params=_pack_choices,
        finish=_finish_encoder,
        n_out=lambda encoder: int(sum(encoder._n_features_outs)),
    ),
    step(
        "OrdinalEncoder",
        "preprocessing",
        _FIELDS,
        params={"categories": GIVEN, "dtype": NUMBER_TYPE},
        check=_check_encoder,
        derived=("_default_to_infrequent_mappings", "_missing_indices"),
        pack_params=_pack_choices,
        finish=_finish_encoder,
    ),
    BINS,
)

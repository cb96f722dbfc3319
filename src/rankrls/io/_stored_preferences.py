"""Records of the parts of preferences: statistics, groups of rows, factors of L."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rankrls.core.preferences.laplacian import Factor
from rankrls.io._kinds import (
    COUNT,
    FINITE,
    FLAG,
    NUMBER,
    SIZE,
    Kind,
    array,
    instance,
    optional,
    require,
    rows,
    within,
)
from rankrls.io._records import Record

__all__ = ["FACTOR", "PREFERENCES"]

FACTOR = instance(
    "ScatterFactor",
    "PooledFactor",
    "IncidenceFactor",
    "GroundedFactor",
    "StackedFactor",
)


def _check_groups(groups: Any) -> None:
    require(len(groups.total) == groups.n_groups, "groups without a total weight")
    require(bool((groups.weight >= 0).all()), "rows of negative weight")
    require(within(groups.codes, groups.n_groups), "rows in groups that do not exist")


def _pack_factor(factor: Any) -> dict[str, Any]:
    """Return the fields without ``owner`` and attributes derived by SciPy's ``LinearOperator``."""
    inherited = set(vars(Factor(0, np.empty(0, dtype=np.int64)))) - {"owner"}
    own = {name: value for name, value in vars(factor).items() if name not in inherited}
    return {"n_rows": factor.shape[0], **own}


def _unpack_factor(cls: type[Any], values: dict[str, Any]) -> Any:
    factor = object.__new__(cls)
    Factor.__init__(factor, values.pop("n_rows"), values.pop("owner"))
    vars(factor).update(values)
    return factor


def _factor(name: str, fields: dict[str, Kind], fits: Callable[[Any], bool]) -> Record:
    """Return the record of a factor; ``fits(factor)`` checks the sizes of its parts."""

    def check(factor: Any) -> None:
        require(within(factor.owner, factor.shape[0]), f"a {name} with columns of no row")
        require(factor.t.shape[1] >= 1, f"a {name} without targets")
        require(fits(factor), f"a {name} whose parts do not fit together")

    common = {"n_rows": SIZE, "owner": array("i", "p"), "t": array("f", "p k")}
    return Record(
        name,
        "rankrls.core.preferences.laplacian",
        common | fields,
        pack=_pack_factor,
        unpack=_unpack_factor,
        check=check,
    )


def _scatter_fits(factor: Any) -> bool:
    return factor.shape == (len(factor.groups), len(factor.groups))


def _pooled_fits(factor: Any) -> bool:
    levels = (factor.groups.n_groups, factor.embedding.shape[1])
    same = factor.within.shape == factor.shape and factor.between.shape == levels
    return same and _scatter_fits(factor)


def _incidence_fits(factor: Any) -> bool:
    return factor.incidence.shape == factor.shape


def _grounded_fits(factor: Any) -> bool:
    m = factor.shape[0]
    return len(factor.grounded) == m and within(factor.grounded, m) and within(factor.free, m)


def _stacked_fits(factor: Any) -> bool:
    (m, p), (n, q) = factor.first.shape, factor.second.shape
    return m == n and factor.shape == (m, p + q)


def _unpack_statistics(cls: type[Any], values: dict[str, Any]) -> Any:
    if values.pop("noise", None) is not None:  # written by version 0.1
        values["largest"] = values["gram"].diagonal().copy()
    return cls(**values)


PREFERENCES = (
    Record(
        "Statistics",
        "rankrls.core.preferences.statistics",
        {
            "outputs": array("i", "k"),
            "gram": array("f", "n n"),
            "cross": array("f", "n k"),
            "mean": array("f", "n"),
            "mass": FINITE,
            "energy": array("f", "k"),
            "n_pairs": COUNT,
            "log_weight": FINITE,
            "largest": optional(array("f", "n")),
            "largest_energy": optional(array("f", "k")),
            "rounding": optional(FINITE),
            "noise": optional(NUMBER),
        },
        unpack=_unpack_statistics,
    ),
    Record(
        "Groups",
        "rankrls.core.preferences.query_weights",
        {
            "codes": array("i", "m"),
            "n_groups": SIZE,
            "weighted": FLAG,
            "weight": array("f", "m"),
            "total": array("f", "g"),
        },
        derived=("share", "averaging", "isometry"),
        check=_check_groups,
    ),
    _factor(
        "ScatterFactor", {"groups": instance("Groups"), "root": array("f", "p 1")}, _scatter_fits
    ),
    _factor(
        "PooledFactor",
        {
            "groups": instance("Groups"),
            "between": FACTOR,
            "within": instance("ScatterFactor"),
            "embedding": rows("p q"),
        },
        _pooled_fits,
    ),
    _factor("IncidenceFactor", {"incidence": rows("m p")}, _incidence_fits),
    _factor(
        "GroundedFactor",
        {"grounded": array("i", "m"), "free": array("i", "p"), "R": array("f", "p p")},
        _grounded_fits,
    ),
    _factor("StackedFactor", {"first": FACTOR, "second": FACTOR}, _stacked_fits),
)

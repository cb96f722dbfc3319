"""Registry of the classes that can be stored, by name. Files cannot refer to other classes."""

from __future__ import annotations

from typing import Any

from rankrls._validation import show
from rankrls.io._records import EstimatorRecord, Record
from rankrls.io._stored_auto import AUTO, AUTO_PARTS
from rankrls.io._stored_composites import COMPOSITES
from rankrls.io._stored_encoders import ENCODERS
from rankrls.io._stored_estimators import (
    CALIBRATION,
    ESTIMATORS,
    PROJECTION,
    RANDOM_STATE,
    SEEN_QUERIES,
)
from rankrls.io._stored_models import KERNELS, MODELS, SOLVERS
from rankrls.io._stored_preferences import PREFERENCES
from rankrls.io._stored_relations import CONDITIONAL, KERNEL_SUM, OBJECTS, OBSERVATIONS
from rankrls.io._stored_steps import STEPS
from rankrls.io._stored_text import VECTORIZERS

__all__ = ["RECORDS", "record_named", "record_of", "trusted_types", "what_can_be_saved"]

ALL = (
    *ESTIMATORS,
    *STEPS,
    *ENCODERS,
    *VECTORIZERS,
    *COMPOSITES,
    *AUTO,
    *AUTO_PARTS,
    *CONDITIONAL,
    OBJECTS,
    OBSERVATIONS,
    KERNEL_SUM,
    SEEN_QUERIES,
    PROJECTION,
    CALIBRATION,
    RANDOM_STATE,
    *MODELS,
    *SOLVERS,
    *KERNELS,
    *PREFERENCES,
)

RECORDS: dict[str, Record] = {record.name: record for record in ALL}

#: Names in files of classes that have been renamed, by the current name.
STORED_NAMES = {record.class_name: record.name for record in ALL if record.class_name is not None}


def record_of(value: Any) -> Record | None:
    """Return the record of an object's class, or None; records do not apply to subclasses."""
    name = type(value).__name__
    record = RECORDS.get(STORED_NAMES.get(name, name))
    return record if record is not None and type(value) is record.cls else None


def record_named(name: Any) -> Record:
    """Return the record with this name."""
    if type(name) is not str or name not in RECORDS:
        raise ValueError(f"it holds an object of an unknown type, {show(name)}")
    return RECORDS[name]


def what_can_be_saved() -> str:
    """Return the names of the supported estimators, for messages."""
    names = [record.name for record in RECORDS.values() if isinstance(record, EstimatorRecord)]
    return ", ".join(sorted(names))


def trusted_types() -> list[str]:
    """List the types that `skops <https://skops.readthedocs.io>`_ must trust to load a ranker.

    Use ``skops.io.dump`` to save an estimator that `save_model` does not support, and
    ``skops.io.load(path, trusted=trusted_types())`` to load it. skops rejects all other types that
    it does not trust by default. Add types of your own only if you trust the source of the file.

    Returns
    -------
    list of str
        Names of the classes of this package that fitted estimators consist of, and of four types of
        NumPy, SciPy and Python that hold their data. None of them executes code from a file.

    See Also
    --------
    save_model

    Examples
    --------
    >>> from rankrls.io import trusted_types
    >>> "rankrls.estimators.rankrls.RankRLS" in trusted_types()
    True
    """
    classes = [record.cls for record in ALL if record.module.startswith("rankrls.")]
    names = {f"{cls.__module__}.{cls.__qualname__}" for cls in classes}
    data = ("builtins.frozenset", "numpy.dtype", "scipy.sparse._csr.csr_array")
    return sorted({*names, *data, "scipy.sparse._csr.csr_matrix"})

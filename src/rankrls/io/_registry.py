"""All classes that can be stored, by name. A file can name these and nothing else."""

from __future__ import annotations

from typing import Any

from rankrls._validation import show
from rankrls.io._records import EstimatorRecord, Record
from rankrls.io._stored_auto import AUTO, RANDOM_TREES
from rankrls.io._stored_composites import COMPOSITES
from rankrls.io._stored_encoders import ENCODERS
from rankrls.io._stored_estimators import (
    CALIBRATION,
    CHECKSUM,
    ESTIMATORS,
    LEDGER,
    RANDOM_STATE,
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
    RANDOM_TREES,
    *CONDITIONAL,
    OBJECTS,
    OBSERVATIONS,
    KERNEL_SUM,
    LEDGER,
    CHECKSUM,
    CALIBRATION,
    RANDOM_STATE,
    *MODELS,
    *SOLVERS,
    *KERNELS,
    *PREFERENCES,
)

RECORDS: dict[str, Record] = {record.name: record for record in ALL}

#: Names in files, by the names of classes that were renamed since.
STORED_NAMES = {record.class_name: record.name for record in ALL if record.class_name is not None}


def record_of(value: Any) -> Record | None:
    """The record of an object's class, if it has one; subclasses do not count."""
    name = type(value).__name__
    record = RECORDS.get(STORED_NAMES.get(name, name))
    return record if record is not None and type(value) is record.cls else None


def record_named(name: Any) -> Record:
    """The record of this name."""
    if type(name) is not str or name not in RECORDS:
        raise ValueError(f"it holds an object of an unknown type, {show(name)}")
    return RECORDS[name]


def what_can_be_saved() -> str:
    """The estimators, for messages."""
    names = [record.name for record in RECORDS.values() if isinstance(record, EstimatorRecord)]
    return ", ".join(sorted(names))


def trusted_types() -> list[str]:
    """Types that `skops <https://skops.readthedocs.io>`_ has to trust to load a ranker of rankrls.

    Save an estimator that `save_model` does not take by ``skops.io.dump``, and load it by
    ``skops.io.load(path, trusted=trusted_types())``. skops refuses what is neither in this list nor
    known to it; add a type of your own if the file is from somebody whom you trust.

    Returns
    -------
    list of str
        Names of classes of this package that fitted estimators consist of, and four of NumPy,
        SciPy and Python that hold their data. None of them executes anything that a file says.

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

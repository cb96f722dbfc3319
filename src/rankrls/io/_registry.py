"""All classes that can be stored, by name. A file can name these and nothing else."""

from __future__ import annotations

from typing import Any

from rankrls._validation import show
from rankrls.io._records import EstimatorRecord, Record
from rankrls.io._stored_auto import AUTO, RANDOM_TREES
from rankrls.io._stored_estimators import CALIBRATION, ESTIMATORS, LEDGER, RANDOM_STATE
from rankrls.io._stored_models import KERNELS, MODELS, SOLVERS
from rankrls.io._stored_preferences import PREFERENCES
from rankrls.io._stored_relations import CONDITIONAL, KERNEL_SUM, OBJECTS

__all__ = ["RECORDS", "record_named", "record_of", "what_can_be_saved"]

ALL = (
    *ESTIMATORS,
    *AUTO,
    RANDOM_TREES,
    *CONDITIONAL,
    OBJECTS,
    KERNEL_SUM,
    LEDGER,
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

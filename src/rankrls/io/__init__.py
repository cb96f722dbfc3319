"""Model files that contain only data and are safe to load from any source.

A file holds numbers, text and arrays (`rankrls.io._archive`), never code. Loading a file only
creates objects of the classes of `rankrls.io._records.SCHEMA`, checks the kinds and shapes of all
their attributes, and predicts a row. To make another class storable, add its fields to the table of
one of the files ``_stored_….py``.
"""

from rankrls.io._model_files import describe_model, load_model, save_model, trusted_types
from rankrls.io._records import register_function

__all__ = ["describe_model", "load_model", "register_function", "save_model", "trusted_types"]

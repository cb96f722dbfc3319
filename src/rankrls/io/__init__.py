"""Models in files: one file, data only, safe to load from anywhere.

A file holds numbers, text and arrays (`rankrls.io._archive`), never code: loading one can only make
objects of the classes that `rankrls.io._registry` lists, with attributes that were checked. To make
another class storable, add a record of its fields to one of the files ``_stored_….py``.
"""

from rankrls.io._functions import register_function
from rankrls.io._model_files import describe_model, load_model, save_model
from rankrls.io._registry import trusted_types

__all__ = ["describe_model", "load_model", "register_function", "save_model", "trusted_types"]

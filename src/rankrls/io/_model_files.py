"""``save_model``, ``load_model``, ``describe_model`` and ``trusted_types``."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy
import sklearn

from rankrls import __version__
from rankrls._atomic import atomic_file
from rankrls._validation import show
from rankrls.io import _stored_rankers, _stored_steps  # noqa: F401 (they fill `SCHEMA`)
from rankrls.io._archive import JSON_FACTOR, ArchiveReader, Budget, write_archive
from rankrls.io._kinds import require
from rankrls.io._records import SCHEMA, is_estimator
from rankrls.io._values import Decoder, Encoder, tag_of, what_can_be_saved

__all__ = ["describe_model", "load_model", "save_model", "trusted_types"]

#: Version of the file format. A file of another version is refused.
FORMAT = 2

Path = str | os.PathLike[str]


def save_model(estimator: Any, path: Path, *, uncertainty: bool = True) -> None:
    """Write a fitted estimator to a file.

    The file is replaced only when the new one is complete. Saving the same estimator always gives
    the same bytes.

    Parameters
    ----------
    estimator : fitted estimator
        A ranker or transformer of this package, or a scikit-learn ``Pipeline`` of these and of
        scikit-learn's usual transformers (the user guide has the list), nested up to eight deep.
        Functions are stored by name only (`register_function`). For other estimators use skops
        with `trusted_types`.
    path : str or path
        Path of the file. By convention it ends in ``.rankrls``.
    uncertainty : bool, default=True
        Whether to store what only ``predict(return_std=True)``, ``preference_proba``,
        ``log_marginal_likelihood``, ``partial_fit`` and ``forget`` need: n_features × n_features
        numbers and the query labels for a linear model, n_rows × n_rows numbers for a kernel model.

    Notes
    -----
    A kernel model contains its training rows, a Nyström model its basis vectors.

    Examples
    --------
    >>> import os, tempfile
    >>> from rankrls import RankRLS
    >>> from rankrls.io import load_model, save_model
    >>> ranker = RankRLS(alpha=0.1).fit([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]], [0, 1, 2])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.rankrls")
    >>> save_model(ranker, path)
    >>> load_model(path).predict([[3.0, 1.0]]) == ranker.predict([[3.0, 1.0]])
    array([ True])
    """
    kind = type(estimator).__name__
    if not is_estimator(estimator):
        advice = ""
        if hasattr(estimator, "best_estimator_"):
            advice = "; save its best_estimator_"
        elif hasattr(estimator, "to_local"):
            advice = "; save what its to_local() gives"
        raise ValueError(f"{kind} cannot be saved{advice}; {what_can_be_saved()}")
    encoder = Encoder(uncertainty=uncertainty)
    packages = {"rankrls": __version__, "python": platform.python_version()}
    packages |= {"numpy": np.__version__, "scipy": scipy.__version__}
    manifest = {
        "format": "rankrls",
        "format_version": FORMAT,
        "versions": packages | {"scikit-learn": sklearn.__version__},
        "model": encoder.encode(estimator, kind),
    }
    text = json.dumps(manifest, allow_nan=False).encode("ascii")
    # What is written can be loaded: the same checks, without reading the file.
    budget = Budget(len(text) + sum(array.nbytes for array in encoder.arrays))
    budget.charge(JSON_FACTOR * len(text), "the manifest")
    _rebuild(manifest["model"], encoder.arrays.__getitem__, budget)
    with atomic_file(os.fspath(path)) as file:
        if file.seekable():
            write_archive(file, text, encoder.arrays)
            return
        with tempfile.TemporaryFile() as whole:  # sizes precede the data: a pipe cannot seek back
            write_archive(whole, text, encoder.arrays)
            whole.seek(0)
            shutil.copyfileobj(whole, file)


def load_model(path: Path) -> Any:
    """Load an estimator written by `save_model`.

    Nothing in the file is executed, imported or unpickled, so that files from untrusted sources can
    be opened. Loading a file of n bytes uses at most 1 MiB + 64 n bytes of memory.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    estimator
        The fitted estimator. On the same machine, its predictions are bit-identical to those of the
        saved estimator. ``n_jobs`` is None.

    Raises
    ------
    ValueError
        If the file is no model file, damaged, or of another version of the format.
    """
    with _reader(path) as reader:
        return _rebuild(reader.manifest["model"], reader.array, reader.budget)


def _rebuild(tree: Any, array: Any, budget: Budget) -> Any:
    decoder = Decoder(array, budget.charge)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            model = decoder.decode(tree)
        require(is_estimator(model), f"it holds {show(model)}, which is not a model")
        return model
    except ValueError as error:
        if not decoder.where:
            raise
        place = ".".join(repr(name[:40])[1:-1] for name in decoder.where)
        raise ValueError(f"{error} (in {place})") from error


def describe_model(path: Path) -> dict[str, Any]:
    """Describe the contents of a model file without loading it.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    dict
        ``type``, ``parameters``, ``summary`` (results of training), ``feature_names`` if there are
        any, ``steps`` of a pipeline (each described in the same way), ``format_version``, and
        ``versions`` of the packages that wrote the file. Arrays are described by text.
    """
    with _reader(path) as reader:
        manifest = reader.manifest
        return {
            **_describe(manifest["model"], reader),
            "format_version": manifest["format_version"],
            "versions": manifest["versions"],
        }


def _describe(tree: Any, reader: ArchiveReader) -> dict[str, Any]:
    """Describe parameters, public attributes and feature names, for each step of a pipeline."""
    known = type(tree) is dict and tag_of(tree) == "object" and type(tree["object"]) is str
    require(known, "a model that is no object")
    params, fields = dict(tree.get("params", {})), tree.get("fields", {})
    description: dict[str, Any] = {"type": tree["object"]}
    if tree["object"] == "Pipeline":
        steps = (step["tuple"] for step in params.pop("steps"))
        description["steps"] = {
            name: None if part in (None, "passthrough") else _describe(part, reader)
            for name, part in steps
        }
    description["parameters"] = {name: _sketch(value, reader) for name, value in params.items()}
    # Fitted attributes end in an underscore, private ones begin with it.
    public = [name for name in fields if name.endswith("_") and not name.startswith("_")]
    description["summary"] = summary = {name: _sketch(fields[name], reader) for name in public}
    if "_model" in fields:
        summary["uncertainty"] = bool(fields["_model"].get("fields", {}).get("solvers"))
    if "feature_names_in_" in summary:
        description["feature_names"] = summary.pop("feature_names_in_")
    source = _sketch(fields.get("_source"), reader)
    if isinstance(source, dict):
        description |= {"history": source.pop("history", []), "columns": source}
    for name in ("feature_names", "history", "steps"):
        texts = description.get(name, "")
        is_list = type(texts) in (list, dict) and all(type(text) is str for text in texts)
        require(type(texts) is str or is_list, f"its {name} are not text")
    return description


def _sketch(tree: Any, reader: ArchiveReader) -> Any:
    """Return plain data unchanged and a short text for anything else."""
    if type(tree) is list:
        return [_sketch(item, reader) for item in tree]
    if type(tree) is not dict:
        return tree
    tag = tag_of(tree)
    value = tree[tag]
    if tag == "array":
        return "{} array of shape {}".format(*reader.type_and_shape(value))
    if tag == "dict":
        return {name: _sketch(item, reader) for name, item in value.items()}
    if tag in ("tuple", "items", "scalar"):
        return _sketch(tree.get("value", value), reader)
    return float(value) if tag == "float" else f"{tag} {value}"


def trusted_types() -> list[str]:
    """List the types that `skops <https://skops.readthedocs.io>`_ must trust to load a ranker.

    Use ``skops.io.dump`` to save an estimator that `save_model` does not support, and
    ``skops.io.load(path, trusted=trusted_types())`` to load it. None of the types executes code
    from a file.
    """
    own = [record.cls for record in SCHEMA.values() if record.module.startswith("rankrls.")]
    names = {f"{cls.__module__}.{cls.__qualname__}" for cls in own}
    data = ("builtins.frozenset", "numpy.dtype", "scipy.sparse._csr.csr_array")
    return sorted({*names, *data, "scipy.sparse._csr.csr_matrix"})


@contextmanager
def _reader(path: Path) -> Iterator[ArchiveReader]:
    """Open a model file; raise a ``ValueError`` that names the file if it is invalid."""
    name = os.fspath(path)
    with open(name, "rb") as file:
        try:
            reader = ArchiveReader(file, _check_manifest)
            yield reader
        except MemoryError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno != errno.EINVAL:
                raise  # EINVAL is raised for an invalid position in the file
            # Damage, or data that rankrls has not written and that no check rejects. Messages,
            # also those of other libraries, can repeat what is in the file.
            text = str(error)
            if not isinstance(error, ValueError):
                text = f"not a valid model ({type(error).__name__}: {text[:200]})"
            text = text if len(text) <= 1000 else f"{text[:500]} … {text[-500:]}"
            raise ValueError(f"{name} cannot be loaded: {text}") from error


def _check_manifest(manifest: Any) -> None:
    require(manifest.get("format") == "rankrls", "its manifest is not that of a rankrls model")
    version: Any = manifest.get("format_version")
    versions: Any = manifest.get("versions")
    require(type(version) is int and version >= 1, f"it has the format {show(version)}")
    good = type(versions) is dict and all(type(v) is str for v in versions.values())
    require(good, "its manifest does not say what wrote it")
    require(
        version == FORMAT,
        f"it was written by rankrls {show(versions.get('rankrls', '?'))} in format {version}; "
        f"rankrls {__version__} reads format {FORMAT}: "
        f"{'install a newer rankrls' if version > FORMAT else 'fit the model again'}",
    )
    require("model" in manifest, "its manifest has no model")

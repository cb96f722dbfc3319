"""``save_model``, ``load_model`` and ``describe_model``."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy
import sklearn

from rankrls import __version__
from rankrls._atomic import atomic_file
from rankrls._validation import show
from rankrls.io._archive import ArchiveReader, write_archive
from rankrls.io._describe import describe
from rankrls.io._kinds import require
from rankrls.io._migrations import FORMAT, migrate
from rankrls.io._records import SKOPS, EstimatorRecord
from rankrls.io._registry import record_of, what_can_be_saved
from rankrls.io._values import Decoder, Encoder

__all__ = ["describe_model", "load_model", "save_model"]

Path = str | os.PathLike[str]


def save_model(estimator: Any, path: Path, *, uncertainty: bool = True) -> None:
    """Write a fitted estimator to a file.

    The file appears as a whole: it is written under another name, flushed to the disk and then
    renamed. If anything goes wrong, what was at ``path`` before is still there.

    Parameters
    ----------
    estimator : fitted estimator
        `AutoRanker`, `RankRLS`, `RankRLSCV`, `RankSVM`, `GreedyRankRLS`, `ConditionalRankRLS`,
        `ConditionalRankRLSCV`, `QueryScaler`, or a scikit-learn ``Pipeline`` of these and of
        scikit-learn's usual transformers (imputers, scalers, encoders, vectorizers, selectors,
        ``PCA``, ``ColumnTransformer``, ``FeatureUnion``; the guide has the list), up to eight
        inside one another. Functions cannot be stored as data: a kernel must be given by name or
        precomputed, the function of a ``FunctionTransformer`` must have a name
        (`register_function`). For other estimators use skops, with `trusted_types`.
    path : str or path
        By convention it ends in ``.rankrls``.
    uncertainty : bool, default=True
        Whether to keep what only ``predict(return_std=True)``, ``preference_proba``,
        ``log_marginal_likelihood``, ``partial_fit`` and ``forget`` need: for a linear model
        n_features × n_features numbers and the labels of the queries, for a kernel model a
        triangle of n_rows × n_rows (and, if the kernel is linear, the training rows). Without it
        they raise an error; scores are the same.

    See Also
    --------
    load_model, describe_model, register_function, trusted_types

    Notes
    -----
    A kernel model holds the training rows, a Nyström model its basis vectors, and `RankRLS` the
    labels of the queries that it has learned from (unless ``uncertainty=False``): who has the
    file has them. The same estimator always gives the same bytes.

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
    if not isinstance(record_of(estimator), EstimatorRecord):
        advice = ""
        if hasattr(estimator, "best_estimator_"):
            advice = "; save its best_estimator_"
        elif hasattr(estimator, "to_local"):
            advice = "; save what its to_local() gives"
        known = what_can_be_saved()
        raise ValueError(f"{kind} cannot be saved{advice}; these can: {known}. {SKOPS}")
    encoder = Encoder(uncertainty=uncertainty)
    manifest = {
        "format": "rankrls",
        "format_version": FORMAT,
        "versions": {
            "rankrls": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "model": encoder.encode(estimator, kind),
    }
    with atomic_file(os.fspath(path)) as file:
        if file.seekable():
            write_archive(file, manifest, encoder.arrays)
            return
        with tempfile.TemporaryFile() as whole:  # sizes stand before the data: not for a pipe
            write_archive(whole, manifest, encoder.arrays)
            whole.seek(0)
            shutil.copyfileobj(whole, file)


def load_model(path: Path) -> Any:
    """Read an estimator that `save_model` has written.

    Nothing in the file is executed, imported or unpickled, so that a file from anywhere may be
    opened. A file of n bytes takes at most 1 MiB + 32 n bytes of memory to load: arrays take what
    they take in the file, query labels and names of features more.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    estimator
        Fitted. Its predictions are those of the estimator that was saved, to the last bit on the
        same machine. ``n_jobs`` is None: how many threads this machine starts is not for a file to
        say.

    Raises
    ------
    ValueError
        If it is not a model file, is damaged, holds something that this version of rankrls does
        not know, or was written in a newer format.
    """
    with _reader(path) as reader:
        decoder = Decoder(reader.array, reader.budget.charge)
        try:
            model = decoder.decode(reader.manifest["model"])
        except ValueError as error:
            if not decoder.where:
                raise
            place = ".".join(repr(name[:40])[1:-1] for name in decoder.where)
            raise ValueError(f"{error} (in {place})") from error
        if not isinstance(record_of(model), EstimatorRecord):
            raise ValueError(f"it holds {show(model)}, which is not a model")
        return model


def describe_model(path: Path) -> dict[str, Any]:
    """What a model file holds, without loading it.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    dict
        ``type``, ``parameters``, ``summary`` (what training found: solver, counts, chosen alpha,
        whether uncertainties are available), ``feature_names`` if there are any, ``steps`` of a
        pipeline (each described in the same way), ``format_version``, and ``versions`` of the
        packages that wrote it. Only numbers, text, lists and dicts; arrays are described.

    Examples
    --------
    >>> import os, tempfile
    >>> from rankrls import RankRLS
    >>> from rankrls.io import describe_model, save_model
    >>> ranker = RankRLS(alpha=0.1).fit([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]], [0, 1, 2])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.rankrls")
    >>> save_model(ranker, path)
    >>> about = describe_model(path)
    >>> about["type"], about["parameters"]["alpha"], about["summary"]["n_pairs_"]
    ('RankRLS', 0.1, 3)
    """
    with _reader(path) as reader:
        return describe(reader)


@contextmanager
def _reader(path: Path) -> Iterator[ArchiveReader]:
    """Open a model file; whatever is wrong with it becomes a ``ValueError`` that names it."""
    name = os.fspath(path)
    with open(name, "rb") as file:
        try:
            reader = ArchiveReader(file, _check_manifest)
            reader.manifest = migrate(reader.manifest)
            yield reader
        except MemoryError:
            raise
        except ValueError as error:
            raise ValueError(f"{name} cannot be loaded: {error}") from error
        except OSError as error:
            if error.errno != errno.EINVAL:  # which is what an absurd position in the file gives
                raise
            raise ValueError(f"{name} cannot be loaded: the file is damaged") from error
        except zipfile.BadZipFile as error:
            raise ValueError(
                f"{name} cannot be loaded: the file is damaged ({_cut(error)})"
            ) from error
        except Exception as error:
            # The last line of defence: data that no rankrls has written, in a shape that no
            # check above foresaw.
            text = f"it is not as a model should be ({type(error).__name__}: {_cut(error)})"
            raise ValueError(f"{name} cannot be loaded: {text}") from error


def _cut(error: Exception) -> str:
    """The message of an error of another library, which may repeat bytes of the file."""
    text = str(error)
    return text if len(text) <= 200 else text[:199] + "…"


def _check_manifest(manifest: dict[str, Any]) -> None:
    require(manifest.get("format") == "rankrls", "its manifest is not that of a rankrls model")
    version = manifest.get("format_version")
    require(type(version) is int and version >= 1, f"it has the format {show(version)}")
    assert isinstance(version, int)
    versions = manifest.get("versions")
    good = type(versions) is dict and all(type(v) is str for v in versions.values())
    require(good, "its manifest does not say what wrote it")
    assert isinstance(versions, dict)
    if version > FORMAT:
        writer = show(versions.get("rankrls", "?"))
        raise ValueError(
            f"it was written by rankrls {writer} in format {version}; rankrls {__version__} reads "
            f"formats up to {FORMAT}: install a newer rankrls"
        )
    require("model" in manifest, "its manifest has no model")

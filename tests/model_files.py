"""Model files taken apart and put together again, rightly or wrongly."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np


def members(path):
    """Names and contents, in the order of the file."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path, contents, compression=zipfile.ZIP_STORED):
    """Write (name, content) pairs, twice the same name if asked for."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in contents:
            archive.writestr(zipfile.ZipInfo(name), content, compression)


def manifest_of(path):
    return json.loads(members(path)["manifest.json"])


def edit(path, change, target=None):
    """Rewrite the manifest by ``change(manifest)``, which may return a new one; check sums fit."""
    contents = members(path)
    manifest = json.loads(contents["manifest.json"])
    changed = change(manifest)
    manifest = manifest if changed is None else changed
    contents["manifest.json"] = json.dumps(manifest).encode()
    write(target or path, contents.items())


def forge(path, change):
    """Rewrite a file by ``change(manifest, add)``; ``add(array)`` gives the tree of a new array."""
    contents = members(path)
    manifest = json.loads(contents["manifest.json"])

    def add(array):
        number = len(manifest["arrays"])
        manifest["arrays"].append({"dtype": array.dtype.name, "shape": list(array.shape)})
        stream = io.BytesIO()
        np.save(stream, array)
        contents[f"arrays/{number}.npy"] = stream.getvalue()
        return {"array": number}

    change(manifest, add)
    contents["manifest.json"] = json.dumps(manifest, separators=(",", ":")).encode()
    write(path, contents.items())

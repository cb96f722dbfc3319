"""Every stored field of every kind of model, damaged in every way: refused, or it still answers."""

import functools
import inspect
import json
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from model_files import ARRAYS, MODELS, VALUES, Stored, answers, changed, places
from rankrls.io import trusted_types
from rankrls.io._records import SCHEMA

#: Some of the models are of features of very different scales.
pytestmark = pytest.mark.filterwarnings(
    "ignore::rankrls.exceptions.FeatureScaleWarning",
    "ignore:the best alpha",
    "ignore:early stopping reached",
)

#: Damages after which scores may overflow.
OVERFLOW = ("smallest", "largest")


@functools.cache
def stored(name):
    """The file of one of `MODELS`, and rows to predict; fitted and written once."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, new = MODELS[name]()
        return Stored(model, Path(folder, "model.rankrls")), new


@functools.cache
def chosen():
    """Places and arrays to change in each model: each field of a class in one model."""
    seen, chosen = Counter(), {}
    for name in MODELS:
        fields = [f for f in fields_of(stored(name)[0].tree) if not seen[f[2]]]
        is_array = [isinstance(value, dict) and value.keys() == {"array"} for _, value, _ in fields]
        numbers = [
            value["array"] for (_, value, _), is_it in zip(fields, is_array, strict=True) if is_it
        ]
        chosen[name] = [where for where, _, _ in fields], sorted(set(numbers))
        seen.update({field for _, _, field in fields})
    return chosen


@pytest.fixture
def quick_signatures(monkeypatch):
    """Parameters of a class, which loading looks up many times, are found once."""
    monkeypatch.setattr(inspect, "signature", functools.cache(inspect.signature))


def fields_of(tree):
    """All values of a tree with their paths, and the class and the field that each is of."""
    for where in places(tree):
        inner, owner = tree, ""
        for key in where:
            owner = inner["object"] if isinstance(inner, dict) and "object" in inner else owner
            owner = f"{owner}.{key}" if isinstance(key, str) else owner
            inner = inner[key]
        yield where, inner, owner


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("quick_signatures")
def test_arrays_that_are_wrong(name):
    file, new = stored(name)
    assert answers(file.load(), new, finite=True)
    refused = 0
    for number in chosen()[name][1]:
        values = file.arrays[number]
        for damage, change in ARRAYS.items():
            wrong = change(values) if values.size else None
            if wrong is None:
                continue
            arrays = [*file.arrays[:number], wrong, *file.arrays[number + 1 :]]
            loaded = file.load(arrays=arrays)
            refused += loaded is None
            if loaded is not None:
                assert damage not in ("half precision", "no columns"), number
                answers(loaded, new, finite=damage not in OVERFLOW)
    assert refused >= 3 * len(chosen()[name][1])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("quick_signatures")
def test_values_that_are_wrong(name):
    """Each value of the manifest in turn; which of the wrong values is drawn for each place."""
    file, new = stored(name)
    numbers = [{"array": number} for number in range(len(file.arrays))]
    choices = np.random.default_rng(len(name))
    refused = total = 0
    for where in chosen()[name][0]:
        for i in choices.integers(len(VALUES) + 2, size=2):
            value = VALUES[i] if i < len(VALUES) else numbers[choices.integers(len(numbers))]
            total += 1
            loaded = file.load(changed(file.tree, where, value))
            if loaded is None:
                refused += 1
            else:
                answers(loaded, new, finite=False)
    assert refused >= total / 3


@pytest.mark.parametrize("name", MODELS)
def test_skops_stores_all_of_them(name):
    sio = pytest.importorskip("skops.io")
    model, new = MODELS[name]()
    new = new if isinstance(new, tuple) else (new,)
    content = sio.dumps(model)
    others = {"sklearn.feature_selection._univariate_selection.f_classif"}
    unknown = set(sio.get_untrusted_types(data=content)) - set(trusted_types())
    assert unknown == (others if name == "numbers" else set())
    loaded = sio.loads(content, trusted=[*trusted_types(), *unknown])
    options = {"qid": [0] * len(new[0])} if name == "automatic_trees" else {}
    np.testing.assert_array_equal(loaded.predict(*new, **options), model.predict(*new, **options))


def test_all_classes_are_among_the_models():
    found = set()
    for model in MODELS:
        text = json.dumps(stored(model)[0].tree)
        found |= {name for name in SCHEMA if f'"object": "{name}"' in text}
    assert found == set(SCHEMA)

"""Orders of rows by packed keys, and their distribution into parts."""

import numpy as np
import pytest

from rankrls._sorting import argsort_within, stable_argsort
from rankrls._validation import encode_qid

rng = np.random.default_rng(0)
N = 1000
VALUES = {
    "normal": rng.normal(size=N),
    "levels": rng.integers(-3, 3, N) / 3,
    "zeros of both signs": np.where(rng.random(N) < 0.5, -0.0, 0.0) * rng.integers(0, 2, N),
    "one value": np.full(N, -2.5),
    "last bits": 1 + np.arange(N)[::-1] * 2.0**-52,
    "last bits and far": np.append(1 - rng.permutation(N - 2) * 2.0**-53, [-1e300, 1e300]),
    "all magnitudes": rng.choice([-1, 1], N) * 10.0 ** rng.uniform(-320, 308, N),
    "extremes": rng.choice([-1, 1], N) * np.finfo(float).max,
    "descending": -np.arange(N, dtype=float),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("n_codes", [None, 1, 7, 2**20, 2**45])
@pytest.mark.parametrize("n", [0, 1, N])
def test_argsort_within(values, n_codes, n):
    values = values[:n]
    codes = None if n_codes is None else rng.integers(0, n_codes, n)
    order = argsort_within(values, codes, n_codes or 1)
    assert sorted(order) == list(range(n))
    expected = np.lexsort((values,) if codes is None else (values, codes))
    np.testing.assert_array_equal(values[order], values[expected])
    if codes is not None:
        np.testing.assert_array_equal(codes[order], codes[expected])


def test_stable_argsort():
    codes = rng.integers(0, 20, N)
    np.testing.assert_array_equal(stable_argsort(codes, 20), np.argsort(codes, kind="stable"))
    np.testing.assert_array_equal(stable_argsort(codes, 2**60), np.argsort(codes, kind="stable"))


INTEGERS = [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("n", [1, 2, 5, 300])
def test_query_numbers_of_integers(dtype, n):
    info = np.iinfo(dtype)
    for low, high in ((0, 3), (-128, 127), (info.min, info.max), (info.max - 3, info.max)):
        ends = np.array([max(low, info.min), min(high, info.max)], dtype=dtype)
        qid = rng.choice(ends, n) - (rng.random(n) < 0.3).astype(dtype) * (ends[1] > ends[0] + 3)
        encoded = encode_qid(qid.astype(dtype), n)
        labels, codes = np.unique(qid.astype(dtype), return_inverse=True)
        np.testing.assert_array_equal(encoded.codes, codes)
        np.testing.assert_array_equal(encoded.labels, labels)
        assert encoded.codes.dtype == np.int64
        assert encoded.labels.dtype == dtype

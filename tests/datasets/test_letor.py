"""Readers and writer of LETOR files: round trips, hostile files, and both parsers alike."""

import functools
import gzip
import io
import os
import tracemalloc
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse as sp
from sklearn.datasets import load_svmlight_file

from rankrls.datasets import dump_letor, formats, iter_letor, load_letor

SMALL = b"""\
# a comment alone

2 qid:10 1:0.5 3:-2e1 # doc = a
0 qid:10 1:1 2:.25 #doc=b # more
1.5 qid:-3 2:7.
"""


def load(text, **options):
    return load_letor(io.BytesIO(text), **options)


def dense(data):
    return data.toarray() if sp.issparse(data) else data


# What is read


@pytest.mark.parametrize("n", [1, 7, 1 << 20])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_small_file(n, ending, monkeypatch):
    monkeypatch.setattr(formats, "_BLOCK_BYTES", n)
    for text in (
        SMALL.replace(b"\n", ending),
        b"\xef\xbb\xbf" + SMALL.rstrip(),
        SMALL.replace(b" 1", b" \t 1").replace(b" qid", b"\tqid"),
    ):
        letor = load(text)
        assert_array_equal(dense(letor.data), [[0.5, 0, -20], [1, 0.25, 0], [0, 7, 0]])
        assert_array_equal(letor.target, [2, 0, 1.5])
        assert_array_equal(letor.qid, [10, 10, -3])
        assert letor.qid.dtype == np.int64
        assert letor.comments == ["doc = a", "doc=b # more", ""]


def test_equals_scikit_learn(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 12)) * 10.0 ** rng.integers(-8, 8, size=(50, 12))
    path = tmp_path / "data.txt"
    dump_letor(X, np.arange(50) % 3, path, qid=np.arange(50) // 5)
    expected, y, qid = load_svmlight_file(path, query_id=True, zero_based=False)
    letor = load_letor(path)
    assert_array_equal(letor.data, expected.toarray())
    assert_array_equal(letor.data, X)
    assert_array_equal(letor.target, y)
    assert_array_equal(letor.qid, qid)


def test_query_ids():
    assert load(b"1 qid:a-1 1:2\n0 qid:7 1:3\n").qid.tolist() == ["a-1", "7"]
    assert load("1 qid:ä 1:2\n".encode()).qid.tolist() == ["ä"]
    assert load(b"1 qid:007 1:2\n1 qid:8 1:2").qid.tolist() == ["007", "8"]  # as written
    assert load(b"1 qid:-7 1:2\n1 qid:0 1:2").qid.tolist() == [-7, 0]
    assert load(b"1 qid:07 1:2\n1 qid:7 1:2").qid.tolist() == ["07", "7"]
    assert load(b"1 qid:9223372036854775807 1:2").qid.tolist() == [2**63 - 1]
    assert load(b"1 qid:9223372036854775808 1:2").qid.tolist() == ["9223372036854775808"]


def test_zero_based():
    assert_array_equal(load(b"1 0:5 2:6", zero_based=True).data, [[5, 0, 6]])
    with pytest.raises(ValueError, match=r"<stream>:2: feature id 0 in '0:5'.*zero_based=True"):
        load(b"1 1:2\n1 0:5 2:6")


def test_n_features():
    assert load(SMALL, n_features=9).data.shape == (3, 9)
    with pytest.raises(
        ValueError, match=r":3: feature id in '3:-2e1' is too large.*allows ids up to 2"
    ):
        load(SMALL, n_features=2)
    for bad in (0, -1, 2.0, True, 2**31):
        with pytest.raises(ValueError, match="n_features must be"):
            load(SMALL, n_features=bad)


def test_dense_or_sparse():
    quarter, less = b"1 4:1\n1 1:1\n", b"1 5:1\n1 1:1\n"
    assert isinstance(load(quarter).data, np.ndarray)
    assert sp.issparse(load(less).data)
    assert sp.issparse(load(quarter, sparse=True).data)
    assert isinstance(load(less, sparse=False).data, np.ndarray)
    with pytest.raises(ValueError, match="sparse must be"):
        load(less, sparse="no")


def test_sparse_letor_stores_nan():
    text = b"1 qid:1 3:NULL\n0 qid:1 900:2\n1 qid:1 1:0 7:\n"
    data = load(text, missing="nan").data
    assert sp.issparse(data)
    assert data.indices.tolist() == [2, 899, 0, 6]
    assert_array_equal(data.data, [np.nan, 2, 0, np.nan])


# What is refused


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"good qid:1 1:2", "label 'good' is not a finite number"),
        (b"label,qid,f1", r"label 'label,qid,f1' is not a finite number \(a table\? load_csv"),
        (b"1_0 qid:1 1:2", "label '1_0' is not a finite number"),
        (b"1 qid:1 1:2 3", "'3' is no feature id:value"),
        (b"1 qid:1 1:2 :3", "':3' is no feature id:value with an integer >= 1"),
        (b"1 qid:1 1:nan", "value in '1:nan' is not a finite number"),
        (b"1 qid:1 1:-inf", "value in '1:-inf' is not a finite number"),
        (b"1 qid:1 1:1e999", "value in '1:1e999' is too large"),
        (b"1 qid:1 1:1_0", "value in '1:1_0' is not a finite number"),
        (b"1 qid:1 1:0x10", "value in '1:0x10' is not a finite number"),
        (b"1 qid:1 1.0:2", "'1.0:2' is no feature"),
        (b"1 qid:1 2:2 1:3 2:4", "feature '2:4' is given twice"),
        (b"1 qid:1 01:2 1:4", "feature '1:4' is given twice"),
        (b"1 qid:1 2147483648:1", "too large: ids up to 2147483647"),
        (b"1 qid: 1:1", "'qid:' has no valid query id"),
        (b"1 1:1", "no query id, unlike .*:1: give all"),
        (b"1 qid:1 qid:2 1:1", "'qid:2' is no feature .*second word"),
        (b"1 qid:\xff 1:1", "is not UTF-8"),
        (b"\x89PNG\r\x00\x1a", "is not a finite number"),
    ],
)
def test_bad_line(tmp_path, line, message):
    path = tmp_path / "file.txt"
    path.write_bytes(b"1 qid:0 1:2\n\n" + line + b"\n0 qid:2 1:3\n")
    with pytest.raises(ValueError, match=message) as caught:
        load_letor(path)
    assert str(caught.value).startswith(f"{path}:3: ")


@pytest.mark.parametrize("text", [b"", b"\n\n", b"# nothing\n", b"#"])
def test_empty(text):
    with pytest.raises(ValueError, match="<stream>: no data"):
        load(text)
    with pytest.raises(ValueError, match="<stream>: no data"):
        list(iter_letor(io.BytesIO(text)))
    with pytest.raises(ValueError, match="<stream>: no data"):
        load(gzip.compress(text))


# The quick parser against the careful one

words = st.one_of(
    st.builds("{}:{}".format, st.integers(0, 30), st.floats(allow_nan=False)),
    st.builds("{}:{}".format, st.integers(1, 9), st.decimals(allow_nan=False).map(str)),
    st.text(alphabet="0123456789:.-+eE_ \t#qid", max_size=12),
    st.sampled_from(["1:1", "2:-3.50", "3:1e5", "4:.5", "05:6", "qid:3", "1:", ":", "2:1-2"]),
)
some_lines = st.lists(
    st.tuples(
        st.sampled_from(["0", "1.5", "-2", "+3", "x", "1e2"]),
        st.sampled_from(["qid:1", "qid:b", ""]),
        st.lists(words, max_size=4),
        st.sampled_from([" ", "  ", "\t"]),
    ).map(lambda t: t[3].join([t[0], t[1], *t[2]])),
    max_size=4,
)


def outcome(read):
    try:
        rows = read()
    except ValueError as error:
        return str(error)
    return rows and [dense(rows.data).tolist(), rows.target.tolist(), rows.comments,
                     None if rows.qid is None else rows.qid.tolist()]  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(some_lines, st.booleans())
def test_ways_to_read_agree(lines, zero_based):
    """By pyarrow, and word by word."""
    text = "\n".join(lines).encode()
    read = functools.partial(load, text, zero_based=zero_based, n_features=40)
    expected = outcome(read)
    with mock.patch.dict("sys.modules", {"pyarrow": None}):
        assert outcome(read) == expected


# Width and batches

WIDE = b"1 qid:1 1:1 2:2\n0 qid:2 1:3 9:4\n1 qid:1 3:5\n"


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_features_beyond_are_dropped_with_one_warning(block, monkeypatch):
    monkeypatch.setattr(formats, "_BLOCK_BYTES", block)
    with pytest.warns(UserWarning, match="<stream>:2: feature 9 is beyond the first 2") as told:
        read = load(WIDE, n_features=2, beyond="drop")
    assert len(told) == 1
    assert_array_equal(read.data, [[1, 2], [3, 0], [0, 0]])
    with pytest.warns(UserWarning, match="feature 9 is beyond the first 8"):
        read = load(WIDE, n_features=8, beyond="drop", sparse=True)
    assert sp.issparse(read.data)
    assert read.data.nnz == 4
    assert load(WIDE, n_features=11, beyond="drop").data.shape == (3, 11)
    with pytest.raises(ValueError, match="beyond must be one of"):
        load(WIDE, beyond="keep")


@pytest.mark.skipif(os.name != "posix", reason="needs pipes with names")
def test_streams_and_pipes_need_n_features(tmp_path):
    read, write = os.pipe()
    os.write(write, b"1 qid:1 1:1\n")
    os.close(write)
    with open(read, "rb") as pipe:
        with pytest.raises(ValueError, match="n_features is needed"):
            iter_letor(pipe)
        assert [b.data.tolist() for b in iter_letor(pipe, n_features=2)] == [[[1, 0]]]
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ValueError, match="n_features is needed"):
        iter_letor(tmp_path / "fifo")


def test_memory_is_flat(monkeypatch):
    monkeypatch.setattr(formats, "_BLOCK_BYTES", 1 << 14)
    features = " ".join(f"{j}:{j / 7:.3f}" for j in range(1, 21))
    text, peaks = (
        b"".join(b"1 qid:%d %b\n" % (i // 5, features.encode()) for i in range(25_000)),
        [],
    )
    for _ in range(3):  # the least: threads of other tests may allocate memory as well
        tracemalloc.start()
        for _ in iter_letor(io.BytesIO(text), rows=100, n_features=20):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert min(peaks) < len(text) / 2


# Writing

numbers = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(st.data(), st.integers(1, 6), st.integers(1, 4))
def test_round_trip(tmp_path_factory, data, n, d):
    row = st.lists(numbers, min_size=d, max_size=d)
    X = np.array(data.draw(st.lists(row, min_size=n, max_size=n)))
    y = data.draw(st.lists(numbers, min_size=n, max_size=n))
    ids = st.one_of(
        st.none(), st.just(st.integers(-(2**63), 2**63 - 1)), st.just(st.sampled_from("aäß7"))
    )
    each = data.draw(ids)
    qid = None if each is None else data.draw(st.lists(each, min_size=n, max_size=n))
    note = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=5)
    comments = data.draw(st.lists(note.map(lambda t: " ".join(t.split())), min_size=n, max_size=n))
    # White space at the ends is dropped by the reader, which knows that of ASCII only.
    sparse, zero_based = data.draw(st.booleans()), data.draw(st.booleans())
    path = tmp_path_factory.getbasetemp() / data.draw(st.sampled_from(["a.txt", "a.gz"]))
    given_X = sp.csr_array(X) if sparse else X
    dump_letor(given_X, y, path, qid=qid, comments=comments, zero_based=zero_based)
    letor = load_letor(path, n_features=d, zero_based=zero_based)
    assert_array_equal(dense(letor.data), X)
    assert_array_equal(letor.target, y)
    assert letor.comments == comments
    assert [str(q) for q in letor.qid] == [str(q) for q in qid] if qid else letor.qid is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": [1]}, "y has 1 entries for 2 rows"),
        ({"y": [1, np.nan]}, "NaN"),
        ({"qid": ["a b", "c"]}, "words without white space and #"),
        ({"qid": ["a#b", "c"]}, "words without white space and #"),
        ({"qid": ["", "c"]}, "words without white space and #"),
        ({"qid": [1.5, 2.0]}, "integers, or words"),
        ({"comments": ["a\nb", "c"]}, "line break"),
        ({"comments": ["a"]}, "comments has 1 entries"),
    ],
)
def test_dump_errors(tmp_path, options, message):
    arguments = {"X": [[1.0], [2.0]], "y": [0, 1], "path": tmp_path / "f", **options}
    with pytest.raises(ValueError, match=message):
        dump_letor(**arguments)
    assert not list(tmp_path.iterdir())

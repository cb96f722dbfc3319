"""Missing values in files of every kind: an error that names the remedy, or NaN."""

import io
import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse as sp
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from rankrls import RankRLS
from rankrls.cli import main
from rankrls.datasets import (
    _source,
    iter_csv,
    iter_letor,
    iter_parquet,
    iter_ranking,
    load_csv,
    load_letor,
    load_ranking,
)

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

WORDS = ["NULL", "NA", "N/A", "NaN", "null", "None", "nan", "", "none"]
REMEDY = r"pass missing='nan', and fill them by sklearn.impute.SimpleImputer .*--missing mean"


def holes(seed=0, m=60, n=4):
    """Features with NaN, labels, and query ids."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)).round(3)
    X[rng.random(X.shape) < 0.3] = np.nan
    return X, rng.integers(0, 3, m), np.sort(rng.integers(0, 9, m))


def words(X, seed=1):
    rng = np.random.default_rng(seed)
    return [[rng.choice(WORDS) if np.isnan(v) else repr(float(v)) for v in row] for row in X]


def letor_text(X, y, qid):
    rows = zip(words(X), y, qid, strict=True)
    lines = [
        f"{label} qid:{q} " + " ".join(f"{j}:{v}" for j, v in enumerate(row, 1)) + " # x"
        for row, label, q in rows
    ]
    return "\n".join(lines).encode()


def csv_text(X, y, qid):
    rows = zip(words(X), y, qid, strict=True)
    header = ",".join(["qid", "label", *(f"f{j}" for j in range(X.shape[1]))])
    return "\n".join([header, *(",".join([str(q), str(v), *row]) for row, v, q in rows)]).encode()


def parquet_file(path, X, y, qid):
    columns = {f"f{j}": pa.array(X[:, j], from_pandas=j % 2 == 0) for j in range(X.shape[1])}
    pq.write_table(pa.table({"qid": qid, "label": y, **columns}), path, row_group_size=7)
    return path


@pytest.fixture(params=["letor", "csv", "parquet"])
def readers(request, tmp_path):
    """Data with holes, and every reader of a format as a function of its options."""
    data = holes()
    columns = {"target": "label", "qid": "qid"}
    if request.param == "parquet":
        path = parquet_file(tmp_path / "t.parquet", *data)
        found = [
            lambda **o: list(iter_parquet(path, rows=25, **columns, **o)),
            lambda **o: [load_ranking(path, **o)],
            lambda **o: list(iter_ranking(path, rows=25, **o)),
        ]
    else:
        text = {"letor": letor_text, "csv": csv_text}[request.param](*data)
        one, many = {"letor": (load_letor, iter_letor), "csv": (load_csv, iter_csv)}[request.param]
        options = {} if request.param == "letor" else columns
        found = [
            lambda **o: [one(io.BytesIO(text), **options, **o)],
            lambda **o: list(many(io.BytesIO(text), rows=25, **options, **o)),
            lambda **o: [load_ranking(io.BytesIO(text), **o)],
            lambda **o: list(iter_ranking(io.BytesIO(text), rows=25, **o)),
        ]
    return data, found


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_missing_values_become_nan(readers, dtype):
    (X, y, qid), found = readers
    for read in found:
        batches = read(missing="nan", dtype=dtype)
        assert_array_equal(np.concatenate([b.data for b in batches]), X.astype(dtype))
        assert_array_equal(np.concatenate([b.target for b in batches]), y)
        assert_array_equal(np.concatenate([b.qid for b in batches]), qid)


def test_the_error_names_place_and_remedy(readers):
    (X, *_), found = readers
    for read in found:
        with pytest.raises(ValueError, match=rf"(:\d+|row \d+): .*{REMEDY}") as caught:
            read()
        place = re.search(r"(stream>:|row )(\d+):", str(caught.value))
        first = {"row ": 0, "stream>:": 1 + ("column" in str(caught.value))}[place[1]]
        assert np.isnan(X[int(place[2]) - first]).any()
        with pytest.raises(ValueError, match="missing must be one of 'error', 'nan'; got 'zero'"):
            read(missing="zero")


def test_sparse_letor_stores_nan():
    text = b"1 qid:1 3:NULL\n0 qid:1 900:2\n1 qid:1 1:0 7:\n"
    data = load_letor(io.BytesIO(text), missing="nan").data
    assert sp.issparse(data)
    assert data.indices.tolist() == [2, 899, 0, 6]
    assert_array_equal(data.data, [np.nan, 2, 0, np.nan])


@pytest.mark.parametrize("n_bytes", [1, 30, 1 << 20])
def test_both_parsers_of_letor_agree(monkeypatch, n_bytes):
    """One line with something that only the careful parser reads changes nothing else."""
    monkeypatch.setattr(_source, "_BLOCK_BYTES", n_bytes)
    X, y, qid = holes(3)
    text = letor_text(X, y, qid)
    careful = text + b"\n0 qid:99 0001:1 00000000000000000004:5"
    expected = np.vstack([X, [1, 0, 0, 5]])
    assert_array_equal(load_letor(io.BytesIO(careful), missing="nan").data, expected)
    assert_array_equal(load_letor(io.BytesIO(text), missing="nan").data, X)


@pytest.mark.parametrize(
    "value", ["inf", "-inf", "1e999", "nil", "?", "nan5", "NULLs", "1NA", "-nan"]
)
def test_what_is_not_missing_stays_an_error(value):
    with pytest.raises(ValueError, match=f"1: value in '2:{re.escape(value)}'"):
        load_letor(io.BytesIO(f"1 qid:1 1:NULL 2:{value}\n".encode()), missing="nan")
    text = f"qid,label,a,b\n1,1,NULL,{value}\n".encode()
    message = f":2: column 'b' is '{re.escape(value)}', not a finite number"
    with pytest.raises(ValueError, match=message):
        load_csv(io.BytesIO(text), target="label", qid="qid", missing="nan")


def test_labels_weights_and_queries_are_never_missing(tmp_path):
    for label in (b"NULL", b"nan"):
        with pytest.raises(ValueError, match=r":1: label .* is not a number$"):
            load_letor(io.BytesIO(label + b" qid:1 1:1\n"), missing="nan")
    for column in ("label", "weight"):
        row = {"qid": "1", "label": "1", "weight": "1", "a": "2", column: "NA"}
        text = "\n".join([",".join(row), ",".join(row.values())]).encode()
        options = {"target": "label", "qid": "qid", "sample_weight": "weight", "missing": "nan"}
        with pytest.raises(
            ValueError, match=f":2: column '{column}' is 'NA', not a finite number$"
        ):
            load_csv(io.BytesIO(text), **options)
        table = {"qid": [1], "label": [1.0], "weight": [1.0], "a": [2.0], column: [None]}
        types = [("qid", pa.int64()), *((name, pa.float64()) for name in ("label", "weight", "a"))]
        pq.write_table(pa.table(table, schema=pa.schema(types)), tmp_path / "t.parquet")
        with pytest.raises(ValueError, match=f"row 0: column '{column}' is null; every row needs"):
            list(iter_parquet(tmp_path / "t.parquet", **options))
    with pytest.raises(ValueError, match=":2: column 'qid' is empty; every row needs an id"):
        load_csv(io.BytesIO(b"qid,label,a\n,1,2\n"), target="label", qid="qid", missing="nan")


def test_nulls_of_every_arrow_type(tmp_path):
    columns = {
        "integers": pa.array([1, None, 3]),
        "booleans": pa.array([None, True, False]),
        "decimals": pa.array([None, 2, 3], pa.decimal128(5, 2)),
        "codes": pa.array([5.0, None, 5.0]).dictionary_encode(),
        "nothing": pa.nulls(3),
        "lists": pa.array([None, [1.0, None], [3.0, float("nan")]]),
        "fixed": pa.array([[1.0, 2.0], None, [None, 4.0]], pa.list_(pa.float32(), 2)),
    }
    try:
        pq.write_table(pa.table({"label": [1, 0, 1], **columns}), tmp_path / "t.parquet")
    except pa.ArrowNotImplementedError as error:  # fixed-size lists with nulls, pyarrow < 22 or so
        pytest.skip(f"this pyarrow cannot write the file: {error}")
    (batch,) = iter_parquet(tmp_path / "t.parquet", target="label", missing="nan")
    nan = np.nan
    expected = [
        [1, nan, nan, 5, nan, nan, nan, 1, 2],
        [nan, 1, 2, nan, nan, 1, nan, nan, nan],
        [3, 0, 3, 5, nan, 3, nan, nan, 4],
    ]
    assert_array_equal(batch.data, expected)
    columns["fixed"] = pa.array([[1.0, 2.0], None, [None, np.inf]], pa.list_(pa.float32(), 2))
    pq.write_table(pa.table({"label": [1, 0, 1], **columns}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="row 2: column 'fixed' is inf; every cell needs"):
        list(iter_parquet(tmp_path / "t.parquet", target="label", missing="nan"))


@pytest.mark.parametrize("quote", ["", '"'])
def test_true_and_false_are_one_and_zero(quote):
    cells = [["True", "false", "2"], ["FALSE", "TRUE", "0.5"], ["true", "False", "1"]]
    lines = [",".join(f"{quote}{cell}{quote}" for cell in row) for row in cells]
    text = "\n".join(["label,a,b", *lines]).encode()
    table = load_csv(io.BytesIO(text), target="label")
    assert_array_equal(table.target, [1, 0, 1])
    assert_array_equal(table.data, [[0, 2], [1, 0.5], [0, 1]])
    with pytest.raises(ValueError, match=r"column 'b' is 'yes', .* out by drop='b'"):
        load_csv(io.BytesIO(text + b"\n1,true,yes"), target="label")


def test_the_remedy_works():
    letor = load_letor(io.BytesIO(letor_text(*holes())), missing="nan")
    model = make_pipeline(SimpleImputer(), RankRLS())
    model.fit(letor.data, letor.target, rankrls__qid=letor.qid)
    assert np.isfinite(model.predict(letor.data)).all()


@pytest.mark.parametrize("how", ["mean", "zero"])
def test_a_column_without_values_is_told(tmp_path, capsys, how):
    path = tmp_path / "t.csv"
    path.write_text("qid,label,a,b,c d\n1,0,1,,\n1,1,2,,\n2,0,3,,\n2,1,5,,\n")
    words = ["fit", str(path), "-m", str(tmp_path / "model"), "--alpha", "1", "--missing", how]
    assert main(words) == 0
    told = "columns 'b', 'c d' have no value in any row; zeros are filled in: leave them out by"
    assert f"{told} --drop b --drop 'c d'" in capsys.readouterr().err
    assert main([*words, "--drop", "b", "--drop", "c d"]) == 0
    assert "no value" not in capsys.readouterr().err

"""Missing values in files of every kind: an error that names the remedy, or NaN."""

import io
import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse as sp

from rankrls.datasets import iter_parquet, load_csv, load_letor

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def test_sparse_letor_stores_nan():
    text = b"1 qid:1 3:NULL\n0 qid:1 900:2\n1 qid:1 1:0 7:\n"
    data = load_letor(io.BytesIO(text), missing="nan").data
    assert sp.issparse(data)
    assert data.indices.tolist() == [2, 899, 0, 6]
    assert_array_equal(data.data, [np.nan, 2, 0, np.nan])


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


def test_labels_and_weights_are_never_missing():
    for label in (b"NULL", b"nan"):
        with pytest.raises(ValueError, match=r":1: label .* is not a finite number$"):
            load_letor(io.BytesIO(label + b" qid:1 1:1\n"), missing="nan")
    for column in ("label", "weight"):
        row = {"label": "1", "weight": "1", "a": "2", column: "NA"}
        text = "\n".join([",".join(row), ",".join(row.values())]).encode()
        options = {"target": "label", "sample_weight": "weight", "missing": "nan"}
        with pytest.raises(
            ValueError, match=f":2: column '{column}' is 'NA', not a finite number$"
        ):
            load_csv(io.BytesIO(text), **options)


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

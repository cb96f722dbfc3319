"""Columns of text in CSV and Parquet files, kept as they are."""

import io

import numpy as np
import pandas as pd
import pytest

from rankrls.datasets import iter_ranking, load_ranking
from rankrls.preprocessing import TableEncoder

CSV = b"""qid,label,price,brand,sold,size,note
a,1,5.5,acme,true,38,
a,0,,bolt,False,M,"two, quoted"
b,2,7,,true,40,x
b,0,1e3,acme,TRUE,38,
"""


def read(text="auto", data=CSV, **options):
    return load_ranking(io.BytesIO(data), format="csv", text=text, missing="nan", **options)


@pytest.fixture
def parquet(tmp_path):
    frame = pd.DataFrame(
        {
            "qid": ["a", "a", "b", "b"],
            "label": [1, 0, 2, 0],
            "price": [5.5, None, 7, 1e3],
            "brand": pd.Categorical(["acme", "bolt", None, "acme"]),
            "sold": [True, False, True, True],
            "size": ["38", "M", "40", "38"],
            "note": [None, "two, quoted", "x", None],
        }
    )
    path = tmp_path / "rows.parquet"
    frame.to_parquet(path)
    return path


def check(table):
    assert list(table.columns) == ["price", "brand", "sold", "size", "note"]
    assert table.shape == (4, 5)
    np.testing.assert_array_equal(table["price"], [5.5, np.nan, 7, 1e3])
    np.testing.assert_array_equal(table["sold"], [1, 0, 1, 1])
    assert table["brand"].tolist() == ["acme", "bolt", None, "acme"]
    assert table["size"].tolist() == ["38", "M", "40", "38"]
    assert table["note"].tolist() == [None, "two, quoted", "x", None]


def test_csv():
    rows = read()
    check(rows.data)
    np.testing.assert_array_equal(rows.target, [1, 0, 2, 0])
    assert rows.feature_names == list(rows.data.columns)


def test_parquet(parquet):
    check(load_ranking(parquet, text="auto", missing="nan").data)
    batches = list(iter_ranking(parquet, text="auto", missing="nan", rows=2))
    assert [len(batch.data) for batch in batches] == [2, 2]
    assert batches[1].data["size"].tolist() == ["40", "38"]


def test_words_for_missing_numbers_are_text_in_text(tmp_path):
    """CSV and Parquet files give the same table; in numbers, the words are missing values."""
    words = ["NA", "none", "null", "n/a", "NaN", "x", None]
    frame = pd.DataFrame({"label": [1.0, 0, 2, 0, 1, 0, 1], "qid": 1, "word": words})
    frame["number"] = [1.0, None, 3, 4, 5, 6, 7]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    for name in ("rows.csv", "rows.parquet"):
        for text in ("auto", ["word"]):
            table = load_ranking(tmp_path / name, text=text, missing="nan").data
            assert table["word"].tolist() == words
    data = b"qid,label,number,word\n1,1,2,\n1,0,NA,x\n1,0,null,  \n"
    table = read(data=data).data
    np.testing.assert_array_equal(table["number"], [2, np.nan, np.nan])
    assert table["word"].tolist() == [None, "x", None]
    encoder = TableEncoder().fit(read(data=b"qid,label,word\n" + b"1,0,NA\n1,1,x\n1,0,\n" * 2).data)
    assert encoder.get_feature_names_out().tolist() == ["word=NA", "word=x"]


def test_named_columns_are_text_whatever_they_hold(parquet):
    numbers = b"qid,label,size\na,1,38\na,0,40\n"
    assert read(["size"], numbers).data["size"].tolist() == ["38", "40"]
    np.testing.assert_array_equal(read(data=numbers).data["size"], [38, 40])
    batches = list(
        iter_ranking(io.BytesIO(numbers), format="csv", text=["size"], rows=1, by_query=False)
    )
    assert [batch.data["size"].tolist() for batch in batches] == [["38"], ["40"]]
    table = load_ranking(
        parquet, text=["brand", "size", "note", "sold"], missing="nan", features=None
    ).data
    assert table["sold"].tolist() == ["true", "false", "true", "true"]


def test_text_found_late_in_a_long_file(monkeypatch):
    """A column is text in all chunks if it is in one."""
    monkeypatch.setattr("rankrls.datasets.formats._BLOCK_BYTES", 30)
    lines = [f'{i // 4},{i % 3},{i},"{i}"' for i in range(20)]
    lines[17] = '4,1,17,"x"'
    rows = read(data="\n".join(["qid,label,a,b", *lines]).encode())
    np.testing.assert_array_equal(rows.data["a"], np.arange(20))
    assert rows.data["b"].tolist() == [str(i) if i != 17 else "x" for i in range(20)]


def test_batches_of_csv_need_names():
    with pytest.raises(ValueError, match="text='auto' looks at all rows of a CSV file"):
        iter_ranking(io.BytesIO(CSV), format="csv", text="auto")
    with pytest.raises(ValueError, match="text must be names of columns"):
        read(3)


def test_dates_in_parquet_are_text_or_refused(tmp_path):
    days = pd.to_datetime(["2024-01-01 00:00", "2024-12-31 10:30"])
    frame = pd.DataFrame({"qid": [1, 1], "label": [0, 1], "day": days.astype("datetime64[s]")})
    frame.assign(brand=["a", "b"]).to_parquet(tmp_path / "days.parquet")
    for text in ("auto", ["day", "brand"]):
        table = load_ranking(tmp_path / "days.parquet", text=text, missing="nan").data
        assert table["day"].tolist() == ["2024-01-01 00:00:00.000", "2024-12-31 10:30:00.000"]
    with pytest.raises(ValueError, match=r"column 'day' is not numeric .* \(drop='day',"):
        load_ranking(tmp_path / "days.parquet", text=["brand"], missing="nan")
    with pytest.raises(
        ValueError, match=r"column 'day' is not numeric .* \(drop=\['day', 'brand'\]"
    ):
        load_ranking(tmp_path / "days.parquet")

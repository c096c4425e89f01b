"""Parquet files of strangers: what takes up nothing on disk must not take up gigabytes in memory."""

import pyarrow
import pyarrow.parquet
import pytest

import cascader
from cascader.errors import DataError
from cascader.storage import parquet_columns, read_parquet
from tests.run_mutations import sign

SHORT, LONG = pyarrow.array(["a"]), pyarrow.array(["a" * 1000])


def write(path, text, rows, groups=1):
    """Write a file of equal rows, each with the same text."""
    codes = pyarrow.array([0]).take(pyarrow.array([0] * rows))
    table = pyarrow.table({"head": pyarrow.DictionaryArray.from_arrays(codes, text)})
    with pyarrow.parquet.ParquetWriter(path, table.schema, compression="zstd", store_schema=False) as writer:
        for _ in range(groups):
            writer.write_table(table)
    return path


@pytest.mark.parametrize("read", [parquet_columns, read_parquet])
def test_more_rows_than_its_size_can_stand_for_are_refused(tmp_path, read):
    path = write(tmp_path / "train.parquet", SHORT, 1_000_000, groups=17)
    size = f"{path.stat().st_size:,}"
    found = (
        f"train.parquet has 17,000,000 values in {size} bytes, expected at most 10 in each.* bomb.* convert it to TSV"
    )
    with pytest.raises(DataError, match=found):
        read(path)


def test_text_that_shrinks_to_nothing_is_refused(tmp_path):
    path = write(tmp_path / "train.parquet", pyarrow.array(["a" * (65 << 20)]), rows=1)
    with pytest.raises(DataError, match=r"has 68,\d+,\d+ uncompressed bytes in [\d,]+ bytes, expected at most 200 in"):
        parquet_columns(path)


@pytest.mark.parametrize("read", [parquet_columns, read_parquet])
def test_a_text_of_many_rows_is_in_memory_once(tmp_path, read):
    column = read(write(tmp_path / "train.parquet", LONG, 1_000_000))["head"]  # a gigabyte, were it copied
    values = column if read is read_parquet else column.values()
    assert len(values) == 1_000_000 and len(set(map(id, values))) == 1


def test_columns_are_as_they_were_written(tmp_path):
    categories = pyarrow.DictionaryArray.from_arrays(pyarrow.array([1, None, 0, 1], pyarrow.int8()), ["p", "q"])
    written = {
        "plain": ["u", "v", None, "u"],
        "large": pyarrow.array(["", None, "x", ""], pyarrow.large_string()),
        "categories": categories,
        "bytes": [b"a", b"b", None, b"a"],
        "a.b": [1, None, 2, 3],
        "none": pyarrow.array([None] * 4, pyarrow.string()),
    }
    nested = {"lists": [["u"], [], None, ["w", "u"]]}  # which nothing that reads tables takes
    table = pyarrow.table({**written, **nested})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    assert read_parquet(tmp_path / "x.parquet") == table.drop_columns("lists").to_pydict()
    columns = parquet_columns(tmp_path / "x.parquet")
    found = {
        name: (column.texts, column.codes.tolist()) for name, column in columns.items() if hasattr(column, "codes")
    }
    assert found == {
        "plain": (["u", "v", ""], [0, 1, 2, 0]),
        "large": (["", "x"], [0, 0, 1, 0]),
        "categories": (["q", "", "p"], [0, 1, 2, 0]),
        "none": ([""], [0, 0, 0, 0]),
    }
    assert columns["bytes"] == written["bytes"] and columns["a.b"] == written["a.b"]


def test_a_run_with_such_a_file_is_refused_though_it_is_signed(toy, tmp_path):
    cascader.fit(toy, tmp_path / "run", tiers="similarity")
    path = tmp_path / "run" / "graph" / "train.parquet"
    write(path, SHORT, 1_000_000, groups=17)
    sign(tmp_path / "run")
    with pytest.raises(DataError, match=r"graph/train.parquet has 17,000,000 values in"):
        cascader.load_run(tmp_path / "run")

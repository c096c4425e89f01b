"""Files of a run: JSON with a schema and its own sum, and the sums of all others."""

from dataclasses import dataclass

import pytest

from cascader.errors import DataError
from cascader.records import Count, Share, TierName, check_sums, is_tier_name, read_record, sums_of, write_record
from cascader.storage import write_text


@dataclass(frozen=True)
class Kept:
    share: Share
    counts: tuple[Count, ...]
    tiers: dict[TierName, str]


GOOD = {"format": 1, "share": 0.5, "counts": [1, 2], "tiers": {"kge": "complex"}}


def test_a_record_comes_back_as_it_was_written(tmp_path):
    write_record(tmp_path / "kept.json", GOOD)
    assert read_record(tmp_path / "kept.json", Kept, 1, "Delete it.") == Kept(0.5, (1, 2), {"kge": "complex"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share": 1.5}, "has share 1.5; expected less than or equal to 1. Delete it"),
        ({"share": "0.5"}, "has share '0.5'; expected a valid number. Delete it"),
        ({"share": True}, "has share True; expected a valid number. Delete it"),
        ({"counts": [1, -2]}, "has counts.1 -2; expected greater than or equal to 0. Delete it"),
        ({"counts": {"0": 1}}, r"has counts {'0': 1}; expected a valid array. Delete it"),
        ({"tiers": {"../kge": "complex"}}, "has tiers.../kge.* '../kge'; expected a tier name. Delete it"),
        ({"format": 2}, "has format 2, expected 1. It was written by another version of cascader"),
    ],
)
def test_a_record_of_other_types_or_ranges_is_refused_even_with_the_right_sum(tmp_path, change, message):
    write_record(tmp_path / "kept.json", {**GOOD, **change})
    with pytest.raises(DataError, match=f"kept.json {message}"):
        read_record(tmp_path / "kept.json", Kept, 1, "Delete it.")


def test_what_is_missing_is_named(tmp_path):
    write_record(tmp_path / "kept.json", {name: value for name, value in GOOD.items() if name != "share"})
    with pytest.raises(DataError, match="kept.json has no share. Delete it."):
        read_record(tmp_path / "kept.json", Kept, 1, "Delete it.")


def test_a_record_that_was_changed_is_refused(tmp_path):
    path = tmp_path / "kept.json"
    write_record(path, GOOD)
    path.write_text(path.read_text().replace("0.5", "0.6"))
    with pytest.raises(DataError, match="is not as it was written: its content does not match the sha256 in it. Del"):
        read_record(path, Kept, 1, "Delete it.")


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "1" + 30 * "0", "1" + 9999 * "0"])
def test_a_number_that_nothing_can_hold_is_refused(tmp_path, number):
    (tmp_path / "kept.json").write_text(f'{{"format": 1, "share": {number}}}')
    with pytest.raises(DataError, match="kept.json is not JSON: .*Run the command that wrote it again"):
        read_record(tmp_path / "kept.json", Kept, 1, "Delete it.")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\\b", "kge+dual", "a b", "-x", "x" * 101, "a\n"])
def test_a_name_that_could_lead_elsewhere_is_no_name_of_a_tier(name):
    assert not is_tier_name(name)


@pytest.mark.parametrize("name", ["kge", "kge2", "my_tier", "my-tier", "späť"])
def test_names_of_tiers(name):
    assert is_tier_name(name)


def test_the_sums_of_a_folder_know_names_and_contents_and_leave_out_what_they_are_told_to(tmp_path):
    write_text(tmp_path / "inner" / "x.txt", "x")
    first = sums_of(tmp_path)
    assert list(first) == ["inner/x.txt"]
    write_text(tmp_path / "checkpoint", "half")
    write_text(tmp_path / ".lock", "1")
    assert sums_of(tmp_path, without=("checkpoint",)) == first != sums_of(tmp_path)
    (tmp_path / "inner" / "x.txt").rename(tmp_path / "inner" / "y.txt")
    assert sums_of(tmp_path, without=("checkpoint",)) != first


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: write_text(folder / "x.txt", "y"), "x.txt is damaged: its 1 bytes have the sha256 "),
        (lambda folder: (folder / "x.txt").unlink(), "x.txt is missing. Copy it again."),
        (lambda folder: write_text(folder / "y.txt", ""), "y.txt is not among the files of this run. Remove it. Copy"),
    ],
)
def test_a_file_that_is_damaged_lost_or_added_is_named(tmp_path, change, message):
    write_text(tmp_path / "x.txt", "x")
    expected = sums_of(tmp_path)
    check_sums(tmp_path, sums_of(tmp_path), expected, "Copy it again.")
    change(tmp_path)
    with pytest.raises(DataError, match=message):
        check_sums(tmp_path, sums_of(tmp_path), expected, "Copy it again.")

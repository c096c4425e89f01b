"""An archive may say what it likes: nothing is ever written outside the folder it is unpacked into."""

import io
import tarfile
import zipfile

import pytest

from cascader.datasets import archives, load_graph
from cascader.errors import DataError


def zip_of(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def tar_of(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def tar_member(name, **attributes):
    member = tarfile.TarInfo(name)
    for attribute, value in attributes.items():
        setattr(member, attribute, value)
    return member


OUTSIDE = ["../evil.tsv", "/evil.tsv", "a/../../evil.tsv", "..\\evil.tsv", "C:\\evil.tsv", "C:/evil.tsv"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_zip_member_that_points_outside(tmp_path, name):
    path = zip_of(tmp_path / "g.zip", {name: "a\tr\tb\n"})
    with pytest.raises(DataError, match="points outside its folder. Do not trust this archive"):
        load_graph(path)
    assert not list(tmp_path.rglob("evil*"))


def test_a_zip_member_without_a_name(tmp_path):
    path = zip_of(tmp_path / "g.zip", {"train.tsv": "a\tr\tb\n", zipfile.ZipInfo(""): "a\tr\tb\n"})
    with pytest.raises(DataError, match="g.zip has a file without a name. Unpack it yourself"):
        load_graph(path)


def test_a_zip_of_too_many_files_is_refused_before_any_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 100)
    path = zip_of(tmp_path / "g.zip", {f"{number}.tsv": "" for number in range(101)})
    (tmp_path / "here").mkdir()
    with pytest.raises(DataError, match="has more than 100 files. Unpack it yourself"):
        archives.unpack(path, tmp_path / "here")
    assert not list((tmp_path / "here").iterdir())


@pytest.mark.parametrize(
    ("last", "said"), [("100.tsv", "has more than 100 files"), ("../evil.tsv", "points outside its folder")]
)
def test_a_tar_that_is_refused_for_its_last_file_is_refused_before_any_is_unpacked(tmp_path, monkeypatch, last, said):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 100)
    names = [*(f"{number}.tsv" for number in range(100 if last == "100.tsv" else 99)), last]
    path = tar_of(tmp_path / "g.tar.gz", [(tar_member(name), b"") for name in names])
    (tmp_path / "here").mkdir()
    with pytest.raises(DataError, match=said):
        archives.unpack(path, tmp_path / "here")
    assert not list((tmp_path / "here").iterdir())


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_tar_member_that_points_outside(tmp_path, name):
    path = tar_of(tmp_path / "g.tar.gz", [(tar_member(name), b"a\tr\tb\n")])
    with pytest.raises(DataError, match="points outside its folder"):
        load_graph(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_tar_member_that_is_no_plain_file(tmp_path, kind):
    path = tar_of(tmp_path / "g.tar.gz", [(tar_member("train.tsv", type=kind, linkname="/etc/passwd"), b"")])
    with pytest.raises(DataError, match="is a link or a device, expected regular files"):
        load_graph(path)


def test_a_zip_member_that_is_a_link(tmp_path):
    info = zipfile.ZipInfo("train.tsv")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "g.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="is a link or a device"):
        load_graph(tmp_path / "g.zip")


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_a_decompression_bomb_is_stopped_while_it_unpacks(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(archives, "_ALWAYS_FINE_BYTES", 1 << 20)
    bomb = b"\n" * (32 << 20)
    path = tmp_path / f"bomb{suffix}"
    if suffix == ".zip":
        zip_of(path, {"train.tsv": bomb})
    else:
        tar_of(path, [(tar_member("train.tsv"), bomb)])
    assert path.stat().st_size < len(bomb) / 500
    with pytest.raises(DataError, match="it looks like a decompression bomb. If you trust it, unpack it yourself"):
        load_graph(path)


def test_a_bomb_in_the_headers_of_a_tar_is_stopped_too(tmp_path, monkeypatch):
    """GNU tar keeps a long name in a member of its own, which tarfile reads whole before anyone sees it."""
    monkeypatch.setattr(archives, "_ALWAYS_FINE_BYTES", 1 << 20)
    path = tmp_path / "bomb.tar.gz"
    tar_of(
        path, [(tar_member("././@LongLink", type=tarfile.GNUTYPE_LONGNAME), b"a" * (32 << 20)), (tar_member("x"), b"")]
    )
    with pytest.raises(DataError, match="it looks like a decompression bomb") as caught:
        load_graph(path)
    assert len(str(caught.value)) < 1000


def test_a_file_that_stands_twice(tmp_path):
    path = tar_of(tmp_path / "g.tar.gz", [(tar_member("train.tsv"), b"a\tr\tb\n"), (tar_member("train.tsv"), b"")])
    with pytest.raises(DataError, match="contains 'train.tsv' twice"):
        load_graph(path)


def test_errors_name_the_archive_and_not_a_temporary_folder(tmp_path):
    path = zip_of(tmp_path / "g.zip", {"train.tsv": "a\tr\tb\na\tr\n"})
    with pytest.raises(DataError, match="g.zip/train.tsv:2: found 2 columns"):
        load_graph(path)


def test_upper_case_suffixes_and_folders_in_folders(tmp_path):
    path = zip_of(tmp_path / "G.ZIP", {"outer/inner/TRAIN.TSV": "a\tr\tb\n", "outer/inner/valid.tsv": "b\tr\ta\n"})
    assert len(load_graph(path).train) == 1


@pytest.mark.parametrize("damage", ["pax path with NUL", "lzma"])
def test_odd_archives_are_errors_and_no_tracebacks(tmp_path, damage):
    if damage == "lzma":
        with zipfile.ZipFile(tmp_path / "g.zip", "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("train.tsv", "a\tr\tb\n" * 1000)
        content = bytearray((tmp_path / "g.zip").read_bytes())
        content[60:90] = bytes(30)
        (tmp_path / "g.zip").write_bytes(content)
    else:
        tar_of(tmp_path / "g.tar.gz", [(tar_member("x", pax_headers={"path": "a\0b"}), b"")])
    with pytest.raises(DataError):
        load_graph(next(tmp_path.glob("g.*")))


def test_an_archive_of_very_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    path = zip_of(tmp_path / "g.zip", {f"{i}.tsv": "" for i in range(5)})
    with pytest.raises(DataError, match="has more than 3 files"):
        load_graph(path)


@pytest.mark.parametrize("name", ["g.zip", "g.tar.gz"])
def test_a_file_that_is_no_archive(tmp_path, name):
    (tmp_path / name).write_bytes(b"not an archive at all")
    with pytest.raises(DataError, match="cannot unpack .*Is it a complete .zip or .tar.gz file"):
        load_graph(tmp_path / name)


def test_an_archive_that_was_cut_off(tmp_path):
    whole = tar_of(tmp_path / "whole.tar.gz", [(tar_member("train.tsv"), bytes(range(256)) * 4000)]).read_bytes()
    (tmp_path / "g.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cannot unpack"):
        load_graph(tmp_path / "g.tar.gz")

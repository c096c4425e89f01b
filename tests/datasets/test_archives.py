"""An archive may say what it likes: nothing is ever written outside the folder it is unpacked into."""

import io
import tarfile
import zipfile

import pytest

from cascader.datasets import archives, read_graph
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
    with pytest.raises(DataError, match="points outside its folder. Nothing was unpacked; do not trust this archive"):
        read_graph(path)
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_tar_member_that_points_outside(tmp_path, name):
    path = tar_of(tmp_path / "g.tar.gz", [(tar_member(name), b"a\tr\tb\n")])
    with pytest.raises(DataError, match="points outside its folder"):
        read_graph(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_tar_member_that_is_no_plain_file(tmp_path, kind):
    path = tar_of(tmp_path / "g.tar.gz", [(tar_member("train.tsv", type=kind, linkname="/etc/passwd"), b"")])
    with pytest.raises(DataError, match="is a link or a device, expected plain files"):
        read_graph(path)


def test_a_zip_member_that_is_a_link(tmp_path):
    info = zipfile.ZipInfo("train.tsv")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "g.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="is a link or a device"):
        read_graph(tmp_path / "g.zip")


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
        read_graph(path)


def test_an_archive_of_very_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    path = zip_of(tmp_path / "g.zip", {f"{i}.tsv": "" for i in range(5)})
    with pytest.raises(DataError, match="holds more than 3 files"):
        read_graph(path)


@pytest.mark.parametrize("name", ["g.zip", "g.tar.gz"])
def test_a_file_that_is_no_archive(tmp_path, name):
    (tmp_path / name).write_bytes(b"not an archive at all")
    with pytest.raises(DataError, match="cannot unpack .*Is it a whole .zip or .tar.gz file"):
        read_graph(tmp_path / name)


def test_an_archive_that_was_cut_off(tmp_path):
    whole = tar_of(tmp_path / "whole.tar.gz", [(tar_member("train.tsv"), bytes(range(256)) * 4000)]).read_bytes()
    (tmp_path / "g.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cannot unpack"):
        read_graph(tmp_path / "g.tar.gz")

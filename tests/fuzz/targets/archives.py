"""Zip and tar archives of a graph: members with any names, kinds and contents, and damaged on top."""

import io
import tarfile
import warnings
import zipfile
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.fuzz.case import CommandLine
from tests.fuzz.material import Material
from tests.fuzz.mutations import damaged, damages, texts

_NAMES = (
    "train.tsv",
    "graph/train.tsv",
    "graph/",
    "graph",
    "",
    ".",
    "/",
    "./train.tsv",
    "../evil.tsv",
    "graph/../../evil.tsv",
    "/evil.tsv",
    "..\\evil.tsv",
    "C:evil.tsv",
    "train.tsv/inner.tsv",
    "a" * 300 + ".tsv",
    "a/" * 600 + "train.tsv",
    "__MACOSX/train.tsv",
    ".hidden",
    "valid.zip",
    "con.tsv",
)
_ZIP_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_TAR_KINDS = (
    tarfile.REGTYPE,
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.FIFOTYPE,
    tarfile.CHRTYPE,
    tarfile.CONTTYPE,
    tarfile.GNUTYPE_SPARSE,
    tarfile.GNUTYPE_LONGNAME,
    b"?",
)
_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True)
class _Member:
    name: str
    content: bytes
    kind: int  # of those that its format has; 0: a regular file, not compressed
    mode: int


def cases(material: Material) -> st.SearchStrategy[CommandLine]:
    """Draw an archive and a command that reads it."""
    return st.builds(_command, _archives(material), st.sampled_from(_SUFFIXES), damages(2))


def _command(archive: bytes, suffix: str, changes: list) -> CommandLine:
    return CommandLine(("data", "check", f"graph{suffix}"), {f"graph{suffix}": damaged(archive, changes)})


@st.composite
def _archives(draw: st.DrawFn, material: Material) -> bytes:
    good = [_Member(name, content, 0, 0o644) for name, content in material.graphs["tsv"].items()]
    members = good if draw(st.booleans()) else good[:1]
    members = draw(st.permutations(members + draw(st.lists(_members(), max_size=3))))
    make = draw(st.sampled_from([_zipped, _zipped, _tarred, _gzipped]))
    return make(members)


def _members() -> st.SearchStrategy[_Member]:
    names = st.one_of(st.sampled_from(_NAMES), texts())
    contents = st.one_of(st.just(b"a\tr\tb\n"), st.just(b""), st.binary(max_size=30), st.just(bytes(1 << 20)))
    modes = st.sampled_from([0o644, 0, 0o120777, 0o100644, 0o10644, 0o40755, 0o4777])
    return st.builds(_Member, names, contents, st.integers(0, 9), modes)


def _zipped(members: list[_Member]) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")  # a name twice
        for member in members:
            info = zipfile.ZipInfo("x")
            info.filename = member.name.encode(errors="replace").decode()[:60_000]
            info.external_attr = member.mode << 16
            info.compress_type = _ZIP_KINDS[member.kind % len(_ZIP_KINDS)]
            archive.writestr(info, member.content)
    return out.getvalue()


def _tarred(members: list[_Member], mode: str = "w") -> bytes:
    out = io.BytesIO()
    form = (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)[sum(member.kind for member in members) % 2]
    with tarfile.open(fileobj=out, mode=mode, format=form, errors="surrogatepass") as archive:
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.type, info.mode, info.linkname = _TAR_KINDS[member.kind], member.mode & 0o7777, "../neighbor.txt"
            info.size = len(member.content)
            archive.addfile(info, io.BytesIO(member.content))
    return out.getvalue()


def _gzipped(members: list[_Member]) -> bytes:
    return _tarred(members, "w:gz")

"""Questions to a run: names that are almost right or hostile, new entities, and files of questions and triples."""

from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from tests.fuzz.case import CommandLine
from tests.fuzz.material import Material
from tests.fuzz.mutations import argument_texts, damaged, damages, mostly, texts

_HEADERS = (["entity", "relation", "side"], ["anchor", "relation"], ["head", "relation", "tail"], ["id", "name"])
_FORMATS = ("table", "tsv", "csv", "jsonl", "parquet", "nt")


@dataclass(frozen=True)
class OnRun(CommandLine):
    """A command with a copy of the run beside it, called `run`."""

    material: Material | None = None

    def prepare(self, folder: Path) -> None:
        """Write the files and the run."""
        assert self.material is not None
        self.material.copy_run(folder / "run")
        super().prepare(folder)


def cases(material: Material) -> st.SearchStrategy[CommandLine]:
    """Draw a question, a file of questions, or a file of triples."""
    return st.one_of(_asked(material), _new(material), _in_files(material))


def _almost(names: list[str]) -> st.SearchStrategy[str]:
    """A name, mostly as it is, or mistyped, or another text altogether."""
    damage = st.builds(lambda name, changes: damaged(name.encode(), changes), st.sampled_from(names), damages(2))
    mistyped = damage.map(lambda raw: raw[:100_000].decode(errors="surrogateescape").replace("\0", ""))
    return mostly(st.sampled_from(names), st.one_of(mistyped, argument_texts()))


@st.composite
def _output(draw: st.DrawFn) -> tuple[str, ...]:
    """How the answers are printed or written."""
    options = draw(st.lists(st.sampled_from(["--why", "--known", "--top=3", "--side=head"]), unique=True))
    if draw(st.booleans()):
        form = draw(st.sampled_from(_FORMATS))
        options += ["--format", form]
        options += ["--out", f"answers.{form}"] if form == "parquet" else []
    return tuple(options)


@st.composite
def _asked(draw: st.DrawFn, material: Material) -> OnRun:
    entity, relation = draw(_almost(material.entities)), draw(_almost(material.relations))
    return OnRun(("predict", *draw(_output()), "--", "run", entity, relation), material=material)


@st.composite
def _new(draw: st.DrawFn, material: Material) -> OnRun:
    new = draw(st.one_of(argument_texts(), st.builds("{}:{}".format, argument_texts(), argument_texts())))
    relation = draw(_almost(material.relations))
    return OnRun(("predict", *draw(_output()), f"--new={new}", "--", "run", relation), material=material)


_LABELS = st.sampled_from([b"1", b"0", b"yes", b"false", b"label", b"", b"\xff"])


@st.composite
def _in_files(draw: st.DrawFn, material: Material) -> OnRun:
    """A table of questions or triples: rows by name, some of them bad, with a header or without."""
    is_triples = draw(st.booleans())
    third = st.sampled_from(material.entities) if is_triples else st.sampled_from(["head", "tail", ""])
    columns = [_cells(material.entities), _cells(material.relations), mostly(third, texts())]
    width = draw(mostly(st.just(3 if is_triples else 2), st.integers(1, 3)))
    rows = [list(row) for row in draw(st.lists(st.tuples(*columns[:width]), max_size=5))]
    rows = draw(mostly(st.just([]), st.sampled_from(_HEADERS).map(lambda header: [header[:width]]))) + rows
    suffix, mark = draw(st.sampled_from([(".tsv", "\t"), (".csv", ","), (".txt", "\t")]))
    content = "".join(mark.join(row) + "\n" for row in rows).encode(errors="surrogatepass")
    content = damaged(content, draw(mostly(st.just([]), damages(1))))
    options = ("--keep-going",) if draw(st.booleans()) else ()
    if is_triples and draw(st.booleans()):
        labels = b"".join(
            line.rstrip(b"\n") + mark.encode() + draw(_LABELS) + b"\n" for line in content.splitlines(keepends=True)
        )
        return OnRun(("calibrate", "run", f"rows{suffix}", *options), {f"rows{suffix}": labels}, material)
    if is_triples:
        return OnRun(("classify", "run", f"rows{suffix}", *options), {f"rows{suffix}": content}, material)
    arguments = ("predict", "run", "--file", f"rows{suffix}", *options, *draw(_output()))
    return OnRun(arguments, {f"rows{suffix}": content}, material)


def _cells(names: list[str]) -> st.SearchStrategy[str]:
    return mostly(st.sampled_from(names), texts())

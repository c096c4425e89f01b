"""Graphs and tables of texts in every format, damaged or made up, given to the commands that read graphs."""

import io
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
from hypothesis import strategies as st

from tests.fuzz.case import CommandLine, UnexpectedError, called
from tests.fuzz.material import Files, Material
from tests.fuzz.mutations import damaged, damages, mostly, texts

_HEADERS = (
    ["head", "relation", "tail"],
    ["id", "name", "description", "type"],
    ["subject", "predicate", "object", "weight"],
    ["Head Entity", "label", "to"],
    ["id", "id"],
)
_STEMS = ("train", "valid", "test", "triples", "entities", "relations", "dev", "notes", "TRAIN")
_FORMATS = ("tsv", "csv", "parquet", "ntriples", "turtle")
_KEEP_SPLITS = ("--valid", "0", "--test", "0")


@dataclass(frozen=True)
class Conversion(CommandLine):
    """A graph that is written in another format: what is read again must be the same graph."""

    def perform(self, folder: Path) -> str:
        """Convert it, and compare the hashes of both."""
        refused = super().perform(folder)
        if not refused:
            found = [called(("data", "check", graph, *_KEEP_SPLITS)) for graph in (self.arguments[2], "converted")]
            before, after = (_hash_in(out) for _, out, _ in found)
            if before != after:
                raise UnexpectedError(f"the graph was {before}, and is {after} after converting it: {found[1][2]}")
        return refused


def _hash_in(printed: str) -> str:
    """The hash in the first row of a table."""
    rows = [line.split() for line in printed.splitlines()]
    return next((row[-1] for row in rows if len(row) > 6 and row[-1] != "sha256"), printed)


def cases(material: Material) -> st.SearchStrategy[CommandLine]:
    """Draw the files of a graph, and a command that reads them."""
    return _files(material).flatmap(_commands)


def _files(material: Material) -> st.SearchStrategy[Files]:
    return st.one_of(_damaged_graphs(material), _made_up_graphs(), _made_up_parquet())


@st.composite
def _damaged_graphs(draw: st.DrawFn, material: Material) -> Files:
    """A good graph with some of its files damaged."""
    files = dict(material.graphs[draw(st.sampled_from(sorted(material.graphs)))])
    for name in draw(st.lists(st.sampled_from(sorted(files)), min_size=1, max_size=2, unique=True)):
        files[name] = damaged(files[name], draw(damages()))
    return files


@st.composite
def _made_up_graphs(draw: st.DrawFn) -> Files:
    """Files whose cells are any texts, with their names and marks as people write them, or not."""
    files = {}
    for _ in range(draw(st.integers(1, 3))):
        width = draw(st.sampled_from([3, 3, 3, 2, 4, 1, 5]))
        cells = mostly(st.sampled_from("abcdef"), texts())
        rows = draw(st.lists(st.lists(cells, min_size=width, max_size=width), max_size=6))
        if draw(st.booleans()):
            rows.insert(0, draw(st.sampled_from(_HEADERS))[:width])
        suffix, mark = draw(st.sampled_from([(".tsv", "\t"), (".csv", ","), (".txt", "\t"), (".csv", ";")]))
        suffix = draw(st.sampled_from([suffix] * 5 + [".nt", ".ttl", ".parquet", ".zip"]))
        content = "".join(mark.join(row) + "\n" for row in rows).encode(errors="surrogatepass")
        files[draw(st.sampled_from(_STEMS)) + suffix] = content
    return files


_UTF8 = texts().map(lambda text: text.encode(errors="replace").decode())
_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    _UTF8,
    st.binary(max_size=8),
    st.dates(),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-1000, max_value=1000),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 3), min_size=1, max_size=2),
)


@st.composite
def _made_up_parquet(draw: st.DrawFn) -> Files:
    """A Parquet file with columns of any types, which may be damaged on top."""
    count = draw(st.integers(0, 4))
    names = list(draw(st.sampled_from(_HEADERS))) + draw(st.lists(_UTF8, max_size=1))
    arrays = [_array(draw, count) for _ in names]
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, names=names), out)
    return {f"{draw(st.sampled_from(_STEMS))}.parquet": damaged(out.getvalue(), draw(damages(2)))}


def _array(draw: st.DrawFn, count: int) -> pyarrow.Array:
    """A column: texts more often than not."""
    cells = draw(mostly(st.just(st.sampled_from("abcdef")), st.just(_VALUES)))
    values = draw(st.lists(cells, min_size=count, max_size=count))
    try:
        array = pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError, TypeError):  # of mixed types
        array = pyarrow.array([str(value).encode(errors="replace").decode() for value in values])
    return array.dictionary_encode() if draw(st.integers(0, 4)) == 0 and pyarrow.types.is_string(array.type) else array


@st.composite
def _commands(draw: st.DrawFn, files: Files) -> CommandLine:
    """A command that reads the files as a folder, or one of them alone, or beside a table of texts."""
    graph = draw(st.sampled_from(["graph", "graph", *(f"graph/{name}" for name in files)]))
    options = draw(
        st.sampled_from([(), (), _KEEP_SPLITS, ("--allow-unseen",), ("--valid", "0.4", "--split-seed", "3")])
    )
    if draw(st.integers(0, 4)) == 0:
        options = (*options, "--entities", f"graph/{draw(st.sampled_from(sorted(files)))}")
    case = CommandLine((), {f"graph/{name}": content for name, content in files.items()})
    match draw(st.sampled_from(["check", "show", "convert", "convert", "baseline"])):
        case "convert":
            form = draw(st.sampled_from(_FORMATS))
            arguments = ("data", "convert", graph, "--to", form, "--out", "converted", *_KEEP_SPLITS)
            return Conversion(arguments, case.files)
        case "baseline":
            return replace(case, arguments=("baseline", graph, "--out", "results", *options))
        case word:
            return replace(case, arguments=("data", word, graph, *options))

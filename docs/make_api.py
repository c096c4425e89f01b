"""Write docs/api.md from the docstrings: `python docs/make_api.py`. A test fails if it is out of date."""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import cascader
from cascader.models.embeddings.embedding import Embedding, EmbeddingSettings
from cascader.models.plausibility import PlausibilitySettings
from cascader.models.rules import RulesSettings
from cascader.models.settings import Settings
from cascader.models.similarity import SimilaritySettings
from cascader.models.text.settings import ContextSettings, CrossSettings, DualSettings, LateSettings, PooledSettings
from cascader.models.text.text_model import TextModel

PAGE = Path(__file__).with_name("api.md")
_STRUCTURE, _EMBEDDINGS, _LANGUAGE_MODELS = "What the structure says", "Embeddings", "Language models"
#: The public names of each chapter, in the order of the page.
CHAPTERS = {
    "Graphs": (
        "load_graph",
        "save_graph",
        "graph_from_frames",
        "graph_from_networkx",
        "graph_from_pykeen",
        "to_networkx",
        "to_pykeen",
        "Split",
        "KnowledgeGraph",
        "Entity",
        "Relation",
    ),
    "Runs and predictions": (
        "fit",
        "Run",
        "load_run",
        "save_run",
        "reproduce",
        "Predictor",
        "Predictions",
        "Prediction",
        "Verdict",
        "Review",
        "Link",
        "Decisions",
        "Decision",
        "Reason",
        "Event",
        "to_frame",
    ),
    "Evaluation": ("evaluate", "Evaluation", "Metrics", "compare", "Comparison"),
    _STRUCTURE: ("Plausibility", "Rules", "Similarity"),
    _EMBEDDINGS: ("ComplEx", "RESCAL", "RotatE", "TransE"),
    "Embeddings trained elsewhere": ("read_embedding", "PyKEENScorer"),
    _LANGUAGE_MODELS: ("DualEncoder", "ContextEncoder", "LateInteraction", "PooledEncoder", "CrossEncoder"),
    "The cascade": ("Cascade", "Alpha", "Fusion"),
    "Pruners": ("TopK", "StaticTopK", "DynamicTopK", "BudgetedTopK", "ConformalTopK"),
    "Tuning and budgets": ("tune", "tune_alpha", "Budget"),
    "A tier of your own": ("Model", "register", "Scorer", "Queries", "Candidates", "KnownAnswers", "Side", "Frequency"),
    "Where work runs": ("LocalEngine", "RayEngine", "using_device"),
    "Errors": (
        "CascaderError",
        "DataError",
        "EngineError",
        "MissingExtraError",
        "NotFittedError",
        "SettingsError",
        "StorageError",
        "TrainingError",
        "UnknownNameError",
    ),
}
#: What all models of a chapter can do, described once at its end.
BASES = {_EMBEDDINGS: Embedding, _LANGUAGE_MODELS: TextModel}
SETTINGS = {
    _STRUCTURE: [PlausibilitySettings, RulesSettings, SimilaritySettings],
    _EMBEDDINGS: [EmbeddingSettings],
    _LANGUAGE_MODELS: [DualSettings, ContextSettings, LateSettings, PooledSettings, CrossSettings],
}
OPENING = """# The API

All public names of `cascader`, with their signatures and examples, which are run as tests. This page is generated from
the docstrings by `python docs/make_api.py`.
"""
Definition = ast.FunctionDef | ast.ClassDef


def render() -> str:
    """The whole page."""
    difference = set(cascader.__all__) ^ {name for names in CHAPTERS.values() for name in names}
    if difference:
        raise LookupError(f"{sorted(difference)} are public or in CHAPTERS, but not both. Update CHAPTERS.")
    parts = [OPENING]
    for title, names in CHAPTERS.items():
        parts.append(f"## {title}\n")
        parts += [_entry(name) for name in names]
        if title in BASES:
            parts.append(f"### What all of these can do\n\n{_text(BASES[title])}\n{_listed(BASES[title])}")
        parts += [_settings(settings) for settings in SETTINGS.get(title, [])]
    return "\n".join(parts)


def _entry(name: str) -> str:
    """A public name: its signature, its docstring and its methods."""
    thing = getattr(cascader, name)
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return f"### {name}\n\n`{str(thing).replace('typing.', '')}`\n"
    node = _definition(thing)
    if isinstance(node, ast.FunctionDef):
        return f"### {name}\n\n{_code(_call(name, node))}\n{_text(thing)}"
    methods = _listed(thing)
    return f"### {name}\n\n{_code(_constructor(thing))}\n{_text(thing)}" + (f"\n{methods}" if methods else "")


def _definition(thing: Any) -> Definition:  # noqa: ANN401 - a class or a function
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)  # noqa: S101 - never the source of anything else
    return node


def _call(name: str, node: ast.FunctionDef) -> str:
    arguments = ast.unparse(node.args)
    arguments = re.sub(r"^(self|cls)(, )?", "", arguments)
    arguments = re.sub(r"(?<=\S)=(?=\S)", " = ", arguments)
    if node.returns is None or node.name == "__init__":
        return f"{name}({arguments})"
    returned = ast.unparse(node.returns).replace("'", "")  # forward references are quoted
    return f"{name}({arguments}) -> {returned}"


def _constructor(thing: type) -> str:
    """The signature of a class: of its __init__, or the fields of a dataclass or named tuple."""
    if "__signature__" in vars(thing):  # a model: its settings are keywords
        return f"{thing.__name__}{inspect.signature(thing)}"
    for base in thing.__mro__[:-1]:
        if base.__module__.startswith("cascader"):
            node = _definition(base)
            made = next((each for each in node.body if getattr(each, "name", "") == "__init__"), None)
            if isinstance(made, ast.FunctionDef):
                return _call(thing.__name__, made)
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and _is_field(thing, each)]
            if fields:
                return f"{thing.__name__}({', '.join(_field(each) for each in fields)})"
    return thing.__name__


def _is_field(thing: type, node: ast.AnnAssign) -> bool:
    is_record = dataclasses.is_dataclass(thing) or hasattr(thing, "_fields")
    return is_record and "ClassVar" not in ast.unparse(node.annotation)


def _field(node: ast.AnnAssign) -> str:
    default = "" if node.value is None else f" = {ast.unparse(node.value)}"
    return f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}{default}"


def _listed(thing: type) -> str:
    """Its public methods, one per line, without those that all models of the chapter have."""
    common = [base for base in BASES.values() if issubclass(thing, base) and thing is not base]
    own = [method for method in _methods(thing) if not any(hasattr(base, method.name) for base in common)]
    return "".join(_method(thing, method) for method in own)


def _methods(thing: type) -> Iterator[ast.FunctionDef]:
    for each in _definition(thing).body:
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
            yield each


def _method(thing: type, node: ast.FunctionDef) -> str:
    """One line for a method or a property."""
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    call = node.name if decorators & {"property", "cached_property"} else _call(node.name, node)
    said = (inspect.getdoc(inspect.getattr_static(thing, node.name)) or "").split("\n\n")[0]
    return f"- `.{call}`: {' '.join(said.split())}\n"


def _code(text: str) -> str:
    if len(text) > 110:  # one parameter per line, split at commas outside brackets
        opening, inside = text.split("(", 1)
        arguments, returns = inside.rsplit(")", 1)
        parts = re.split(r", (?![^\[\]()]*[\])])", arguments)
        text = f"{opening}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"
    return f"```text\n{text}\n```\n"


def _text(thing: Any) -> str:  # noqa: ANN401 - a class or a function
    """The docstring as Markdown, with its examples as code blocks."""
    written = []
    for paragraph in (inspect.getdoc(thing) or "").split("\n\n"):
        is_example = paragraph.lstrip().startswith(">>>")
        written.append(f"```pycon\n{paragraph}\n```\n" if is_example else f"{paragraph}\n")
    return "\n".join(written)


def _settings(settings: type[Settings]) -> str:
    """The settings of a model as a table: name, type, default and comment."""
    lines = [line for base in settings.__mro__[:-1] for line in inspect.getsource(base).splitlines()]
    rows, kinds = [], settings.kinds()
    for field in dataclasses.fields(settings):
        line = next(line for line in lines if line.strip().startswith(f"{field.name}:"))
        said = line.partition("#:")[2].strip()
        kind = ", ".join(map(str, get_args(kinds[field.name]))) or kinds[field.name].__name__
        rows.append(f"| `{field.name}` | {kind} | `{field.default!r}` | {said} |")
    return (
        f"### Settings: {settings.__name__}\n\n{_text(settings)}\n| name | kind | default | |\n|---|---|---|---|\n"
        + ("\n".join(rows) + "\n")
    )


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")

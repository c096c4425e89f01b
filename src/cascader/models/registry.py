"""The kinds of models by name; one of your own joins with `register`."""

import inspect
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from cascader.errors import DataError, SettingsError
from cascader.graph import KnowledgeGraph
from cascader.models.files import read_model_json
from cascader.models.model import Model

#: The built-in models, imported when they are first asked for: most need torch, and some transformers.
_BUILT_IN = {
    "frequency": "cascader.models.frequency:Frequency",
    "plausibility": "cascader.models.plausibility:Plausibility",
    "similarity": "cascader.models.similarity:Similarity",
    "rules": "cascader.models.rules.model:Rules",
    "rescal": "cascader.models.embeddings.interactions:RESCAL",
    "transe": "cascader.models.embeddings.interactions:TransE",
    "complex": "cascader.models.embeddings.interactions:ComplEx",
    "rotate": "cascader.models.embeddings.interactions:RotatE",
    "dual": "cascader.models.text.dual_encoder:DualEncoder",
    "context": "cascader.models.text.context_encoder:ContextEncoder",
    "late": "cascader.models.text.late_interaction:LateInteraction",
    "pooled": "cascader.models.text.pooled_encoder:PooledEncoder",
    "cross": "cascader.models.text.cross_encoder:CrossEncoder",
}
_REGISTERED: dict[str, type[Model]] = {}

_VARIABLES = {"name": str, "tier": str, "reads_pairs": bool, "needs_texts": bool}
_ATTRIBUTES = {"settings": "Settings", "history_": "TrainingHistory", "parameter_count": "int"}
#: The methods of a model, and the parameters that each must accept.
_METHODS = {
    "fit": ("kg", "folder", "time_limit", "earlier"),
    "score_all": ("queries",),
    "score": ("queries", "candidates"),
    "save": ("folder",),
    "load": ("folder", "kg"),
    "for_new_entities": ("entities", "kg", "nearness"),
    "describe": (),
    "dry_run": ("kg", "earlier"),
}

AnyModel = TypeVar("AnyModel", bound=type[Model])


def register(model: AnyModel) -> AnyModel:
    """Add a kind of model under its `name`, after checking that it keeps the contract of `Model`.

    It can be used as a decorator. Afterwards a run can have a tier of that kind, which is fitted, saved, loaded, served
    and reported like any other.

    >>> from cascader import Frequency, register
    >>> @register
    ... class Popularity(Frequency):
    ...     "Frequency under another name."
    ...
    ...     name = tier = "popularity"
    >>> model_class("popularity")()
    Popularity()
    """
    problems = contract_violations(model)
    if problems:
        raise SettingsError(f"{model.__name__} cannot be registered as a model: {'; '.join(problems)}.")
    taken = _REGISTERED.get(model.name)
    if model.name in _BUILT_IN or (taken is not None and _path(taken) != _path(model)):
        owner = _BUILT_IN.get(model.name) or _path(_REGISTERED[model.name])
        raise SettingsError(f"{model.__name__} is named {model.name!r}, but {owner} is already. Choose another name.")
    _REGISTERED[model.name] = model
    return model


def model_names() -> tuple[str, ...]:
    """The names of all kinds of models: the built-in ones, then those that were registered."""
    return (*_BUILT_IN, *_REGISTERED)


def model_class(name: str) -> type[Model]:
    """The class of a kind of model.

    >>> model_class("frequency")().name
    'frequency'
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in _BUILT_IN:
        raise SettingsError(f"there is no model {name!r}. {_known()}")
    module, _, cls = _BUILT_IN[name].partition(":")
    found: type[Model] = getattr(import_module(module), cls)
    return found


def load_model(folder: str | Path, kg: KnowledgeGraph) -> Model:
    """Load a model of any kind; `model.json` in its folder says which."""
    folder = Path(folder)
    name = read_model_json(folder).model
    if name not in model_names():
        raise DataError(f"{folder} holds a model of the kind {name!r}, which is not registered. {_known()}")
    return model_class(name).load(folder, kg)


def contract_violations(cls: type) -> list[str]:
    """What a class lacks to be a `Model`, each with what was expected; empty if it lacks nothing."""
    variables = [
        f"{name} is {getattr(cls, name, None)!r}, expected a class variable of type {kind.__name__}"
        for name, kind in _VARIABLES.items()
        if not isinstance(getattr(cls, name, None), kind)
    ]
    declared = {name for base in cls.__mro__ for name in (*vars(base), *base.__dict__.get("__annotations__", {}))}
    attributes = [
        f"{name} is missing, expected an attribute or property of type {kind}, declared in the class"
        for name, kind in _ATTRIBUTES.items()
        if name not in declared
    ]
    methods = [problem for name in _METHODS for problem in _method_violations(cls, name)]
    return [*variables, *attributes, *methods]


def _method_violations(cls: type, name: str) -> list[str]:
    expected = f"{name}({', '.join(_METHODS[name])})"
    method = getattr(cls, name, None)
    if not callable(method) or getattr(method, "__isabstractmethod__", False):
        return [f"{name} is missing, expected the method {expected}"]
    accepted = inspect.signature(method).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())
    lacking = [parameter for parameter in _METHODS[name] if parameter not in accepted]
    if lacking and not takes_any:
        return [f"{name} does not take {', '.join(lacking)}, expected {expected}"]
    return []


def _path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _known() -> str:
    return (
        f"The registered names are: {', '.join(model_names())}. The module that registers another must be imported "
        "first."
    )

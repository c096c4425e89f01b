"""The contract of a tier, `Model`, and what the built-in models share.

A tier is a scorer that can be fitted, saved and loaded. One without epochs inherits `ClosedFormModel`; one that
trains in epochs inherits `TrainedModel`.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from cascader.durations import parse_duration
from cascader.errors import DataError, NotFittedError
from cascader.graph import Candidates, Entity, FloatArray, KnowledgeGraph, Queries
from cascader.models.checkpoints import CHECKPOINT, Checkpoint
from cascader.models.files import FORMAT, MODEL_JSON, MODEL_TENSORS, naming_damage, read_model_json
from cascader.models.history import Schedule, TrainingHistory
from cascader.models.settings import Settings
from cascader.models.training import Trainable, TrainingCost, train
from cascader.scoring.scorer import Scorer
from cascader.storage import read_tensors, write_json, write_tensors

if TYPE_CHECKING:
    from torch import Tensor

#: Settings that may be raised when a training is resumed; changing any other makes it a different training.
_MAY_GROW = ("epochs", "rounds", "patience")


class Model(Scorer, Protocol):
    """A tier: a scorer that can be fitted to a graph, saved and loaded.

    A class of your own need not inherit anything: `register` checks that it has all of this, and names what is missing.

    >>> from cascader import Frequency, KnowledgeGraph
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "pain")])
    >>> model: Model = Frequency().fit(kg)
    >>> model.name, model.tier, model.reads_pairs, model.needs_texts
    ('frequency', 'frequency', False, False)
    """

    name: ClassVar[str]  #: the kind of model: "complex", "dual", "cross", "frequency"
    tier: ClassVar[str]  #: what its tier in a run is called by default: "kge", "dual", "cross", "frequency"
    reads_pairs: ClassVar[bool]  #: it scores each candidate together with its question, so it must only see a few
    needs_texts: ClassVar[bool]  #: it reads the names and descriptions of entities
    history_: TrainingHistory

    @property
    def settings(self) -> Settings:
        """The settings it was built with."""
        ...

    @property
    def parameter_count(self) -> int:
        """How many numbers it consists of."""
        ...

    def fit(
        self,
        kg: KnowledgeGraph,
        *,
        folder: str | Path | None = None,
        time_limit: float | str | None = None,
        earlier: Scorer | None = None,
    ) -> Self:
        """Learn from the train split.

        With a `folder`, an interrupted training resumes from the checkpoint there. `time_limit` is a number of seconds
        or a string such as "30m". `earlier` is the tiers before this one, for models that learn to complement them.
        """
        ...

    def save(self, folder: str | Path) -> None:
        """Write `model.json`, `model.safetensors` and whatever else `load` needs."""
        ...

    @classmethod
    def load(cls, folder: str | Path, kg: KnowledgeGraph) -> Self:
        """Read a model that `save` has written."""
        ...

    def for_new_entities(self, entities: Sequence[Entity], kg: KnowledgeGraph, nearness: FloatArray | None) -> Scorer:
        """A scorer whose anchors are new entities, by position, and whose answers are those of the graph.

        `nearness` is how similar each new entity is to each of the graph, (new entities, entities), if that is known.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """What belongs beside a result: the model, its settings, and how the training went."""
        ...

    def dry_run(self, kg: KnowledgeGraph, earlier: Scorer | None = None) -> TrainingCost:
        """Train for a moment and estimate the rest; the model can score afterwards, but has learned next to nothing."""
        ...


class FittedModel(ABC):
    """What all built-in models share: settings, `repr`, history, saving and loading.

    A subclass needs `score_all`, `score`, `_tensors` and `_take_tensors`, and the four class variables.
    """

    name: ClassVar[str]
    tier: ClassVar[str]
    reads_pairs: ClassVar[bool] = False
    needs_texts: ClassVar[bool] = False
    settings_class: ClassVar[type[Settings]] = Settings
    #: Defaults of this model that differ from those of its settings class.
    defaults: ClassVar[Mapping[str, Any]] = {}

    settings: Settings
    history_: TrainingHistory

    def __init_subclass__(cls, **options: object) -> None:
        """Give the class the signature that `inspect` and `help` show: one keyword for each setting."""
        super().__init_subclass__(**options)
        values = cls.default_settings().as_dict()
        cls.__signature__ = Signature(
            [
                Parameter(name, Parameter.KEYWORD_ONLY, default=values[name], annotation=kind)
                for name, kind in cls.settings_class.kinds().items()
            ]
        )

    __signature__: ClassVar[Signature]

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - subclasses name the types of their settings
        self.settings = self.settings_class.of({**self.defaults, **settings})
        self.history_ = TrainingHistory()

    def __repr__(self) -> str:
        defaults = self.default_settings().as_dict()
        changed = [f"{name}={v!r}" for name, v in self.settings.as_dict().items() if v != defaults[name]]
        return f"{type(self).__name__}({', '.join(changed)})"

    @classmethod
    def default_settings(cls) -> Settings:
        """The settings of a model that is built without any."""
        return cls.settings_class.of(cls.defaults)

    # Scoring.

    @abstractmethod
    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""

    @abstractmethod
    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""

    def for_new_entities(self, entities: Sequence[Entity], kg: KnowledgeGraph, nearness: FloatArray | None) -> Scorer:
        """Refuse: most models can only answer questions about entities that they were trained on."""
        raise DataError(
            f"{self.name} cannot answer questions about entities that {kg.name} does not have, such as "
            f"{entities[0].name!r}. Add them to the graph and fit again, or use a model that reads texts."
        )

    # Saving and loading.

    @property
    def parameter_count(self) -> int:
        """How many numbers the model consists of."""
        return sum(tensor.numel() for tensor in self._tensors().values())

    def describe(self) -> dict[str, Any]:
        """What belongs beside a result: the model, its settings, and how the training went."""
        return {"model": self.name, "settings": self.settings.as_dict(), "training": self.history_.summary()}

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder; `model.json` comes last, so where it is, the model is complete."""
        folder = Path(folder)
        self._save_files(folder)
        write_tensors(folder / MODEL_TENSORS, self._tensors())
        about = {"settings": self.settings.as_dict(), "history": self.history_.as_dict()}
        write_json(folder / MODEL_JSON, {"format": FORMAT, "model": self.name, **about})

    @classmethod
    def load(cls, folder: str | Path, kg: KnowledgeGraph) -> Self:
        """Read a model that `save` has written; `kg` must be the graph it was fitted to."""
        folder = Path(folder)
        saved = read_model_json(folder)
        if saved.model != cls.name:
            raise DataError(f"{folder} holds the model {saved.model!r}, expected {cls.name!r}.")
        with naming_damage(folder):
            model = cls(**saved.settings)
            model.history_ = saved.history
            model._take_tensors(read_tensors(folder / MODEL_TENSORS)[0], kg, folder)
        return model

    @abstractmethod
    def _tensors(self) -> "dict[str, Tensor]":
        """What was learned."""

    @abstractmethod
    def _take_tensors(self, tensors: "Mapping[str, Tensor]", kg: KnowledgeGraph, folder: Path) -> None:
        """Restore what `_tensors` gave, and raise a DataError if it does not fit the graph."""

    def _save_files(self, folder: Path) -> None:  # noqa: B027 - optional
        """Write what does not fit into named tensors; most models have no such thing."""

    def _not_fitted(self) -> NotFittedError:
        return NotFittedError(f"{self.name} has not been fitted. Call fit(kg), or load it from a folder.")


class ClosedFormModel(FittedModel):
    """A model that learns in one go: there is nothing to resume, and no earlier tier to complement."""

    def fit(
        self,
        kg: KnowledgeGraph,
        *,
        folder: str | Path | None = None,
        time_limit: float | str | None = None,
        earlier: Scorer | None = None,
    ) -> Self:
        """Learn from the train split, within the limit where the model has a cheaper way."""
        self._fit(kg, parse_duration(time_limit))
        return self

    @abstractmethod
    def _fit(self, kg: KnowledgeGraph, seconds: float) -> None:
        """Learn from the train split; `seconds` are infinite without a limit."""

    def dry_run(self, kg: KnowledgeGraph, earlier: Scorer | None = None) -> TrainingCost:
        """Fit the model, and say how long that took."""
        started = time.perf_counter()
        self.fit(kg)
        seconds = time.perf_counter() - started
        return TrainingCost(seconds, epoch=0.0, look=0.0, epochs=1, valid_every=1, parameters=self.parameter_count)


class TrainedModel(FittedModel):
    """A model that trains in epochs, resumes from checkpoints, and keeps the weights that were best on valid."""

    def fit(
        self,
        kg: KnowledgeGraph,
        *,
        folder: str | Path | None = None,
        time_limit: float | str | None = None,
        earlier: Scorer | None = None,
    ) -> Self:
        """Train on the graph; with a `folder`, an interrupted training resumes from the checkpoint there."""
        schedule = self._schedule(parse_duration(time_limit))
        self._check_trainable(kg)
        started = time.monotonic()
        training = self._prepare(kg, earlier)
        with self._helped(training, kg):
            preparing_seconds = time.monotonic() - started
            self.history_ = train(training, schedule, self._checkpoint(kg, folder, earlier), preparing_seconds)
        self._finish(training)
        return self

    def _helped(self, training: Trainable, kg: KnowledgeGraph) -> AbstractContextManager[None]:
        """Where other processes help with the training, if its batches can be shared with them."""
        return nullcontext()

    def _check_trainable(self, kg: KnowledgeGraph) -> None:
        """Refuse a graph that there is nothing to learn from."""
        if len(kg.train) == 0:
            raise DataError(f"{kg.name} has no train triples to learn from. Add some, or hold out fewer.")

    @abstractmethod
    def _schedule(self, time_limit: float) -> Schedule:
        """How long the settings say to train, for at most `time_limit` seconds."""

    @abstractmethod
    def _prepare(self, kg: KnowledgeGraph, earlier: Scorer | None) -> Trainable:
        """Do what is done once, and return what the loop is to train."""

    @abstractmethod
    def _finish(self, training: Trainable) -> None:
        """Make the model ready to score, now that the best weights are restored."""

    def _checkpoint(self, kg: KnowledgeGraph, folder: str | Path | None, earlier: Scorer | None) -> Checkpoint | None:
        if folder is None:
            return None
        settings = {name: value for name, value in self.settings.as_dict().items() if name not in _MAY_GROW}
        identity = {"model": self.name, "data hash": kg.data_hash, "has earlier": earlier is not None, **settings}
        return Checkpoint(Path(folder) / CHECKPOINT, identity)

"""A dual encoder that reads an entity's facts beside its text: for graphs where text decides, and facts are few.

As in any dual encoder (Section 2.2 of the paper), questions and entities are encoded apart, and a score is a dot
product. The upper layers of the language model are tuned, over kept states of the lower ones.
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar, Unpack
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cascader.cascade.alphas import best_sum
from cascader.errors import DataError, SettingsError
from cascader.evaluation.protocol import mean_reciprocal_rank
from cascader.graph import Candidates, Entity, FloatArray, IntArray, KnowledgeGraph, KnownAnswers, Queries
from cascader.models.device import current_device, forked_rng, to_device
from cascader.models.files import array_of
from cascader.models.history import Schedule
from cascader.models.settings import Settings
from cascader.models.text.base_model import BaseModel, load_base_model, load_held_model, save_held_model
from cascader.models.text.context_towers import ContextTowers, Facts, Neighbors, Texts, scaled
from cascader.models.text.context_training import ContextTraining
from cascader.models.text.dry_run import BlankEncoder, load_timed
from cascader.models.text.reading import FrozenLayers, RecentStates
from cascader.models.text.settings import ContextOptions, ContextSettings
from cascader.models.text.split_encoder import States, token_batches
from cascader.models.text.text_encoder import TextEncoder
from cascader.models.text.text_model import GraphTexts, TextModel, under_prefix, with_prefix
from cascader.models.training import Trainable, TrainingCost, seconds_for, seconds_per_step
from cascader.scoring.scorer import Scorer

#: With the tokens of the facts.
_TOKENS_AT_ONCE = 16_384
_PAIRS_AT_ONCE = 200_000
#: A validation during training need not use all of valid.
_VALID_TRIPLES = 1000


class ContextEncoder(TextModel):
    """Scores an answer by the similarity of its text and facts to the question's.

    Its settings are those of `ContextSettings`. `fit(kg, earlier=kge)` stops when the sum with the earlier tiers no
    longer improves on valid. A question is read with the facts that are known when it is asked; the entities that it is
    compared with, with those of train.

    >>> from cascader import Entity, KnowledgeGraph, Relation
    >>> entities = Entity("d", "aspirin", "a drug against pain"), Entity("s", "pain", "a feeling that hurts")
    >>> kg = KnowledgeGraph("drugs", entities, (Relation("r", "treats"),), [[0, 0, 1]], [], [])
    >>> ContextEncoder(epochs=1).fit(kg).score_all(kg.query("aspirin", "treats")).shape
    (1, 2)
    """

    name = "context"
    tier = "dual"
    settings_class: ClassVar[type[Settings]] = ContextSettings
    settings: ContextSettings

    entities_: Tensor  # (entities, coordinates) unit vectors

    def __init__(self, **settings: Unpack[ContextOptions]) -> None:
        super().__init__(**settings)

    # Learning.

    def _schedule(self, time_limit: float) -> Schedule:
        return Schedule(self.settings.epochs, self.settings.valid_every, self.settings.patience, time_limit)

    def _prepare(self, kg: KnowledgeGraph, earlier: Scorer | None) -> Trainable:
        base = load_base_model(self.settings.base).to(current_device())
        texts = GraphTexts.of(kg, base, self.settings.max_tokens)
        self._split(base)
        whole = TextEncoder(base, texts, trainable_layers=0)
        lower = TextEncoder(base, texts, self.settings.trainable_layers)
        return self._training(kg, base, texts, whole, lower, earlier)

    def prepare_helping(self, kg: KnowledgeGraph) -> Trainable:
        """What computes gradients for another process."""
        return self._prepare(kg, None)

    def _training(
        self,
        kg: KnowledgeGraph,
        base: BaseModel,
        texts: GraphTexts,
        whole: TextEncoder,
        lower: TextEncoder,
        earlier: Scorer | None,
    ) -> ContextTraining:
        everything = torch.arange(len(texts.entities)), torch.arange(len(texts.relations))
        self._take_graph(kg, base, texts, (whole.entities(everything[0]), whole.relations(everything[1])))
        states = States(lower.states.offsets, lower.states.rows.half())
        train = Facts(kg.known(("train",)))
        valid = Queries.from_triples(kg.sample("valid", _VALID_TRIPLES, self.settings.seed))
        valid = valid.with_known(kg.known_before("valid"))

        def encode_entities() -> Tensor:
            return self._encode_entities(lambda _: states, train)

        def validate(entities: Tensor) -> float | None:
            if len(valid) == 0:
                return None
            self.entities_ = entities
            if earlier is None:
                return mean_reciprocal_rank(self, valid, kg.known())
            return best_sum(earlier, self, kg, valid).mrr

        return ContextTraining(
            self._towers, states, (self._vectors, self._phrases), self.settings, kg, encode_entities, validate
        )

    def _take_graph(
        self, kg: KnowledgeGraph, base: BaseModel, texts: GraphTexts, vectors: tuple[Tensor, Tensor]
    ) -> None:
        """Build untrained towers for a graph, and keep what questions about it are read with."""
        self._text_vectors, self._relation_count = tuple(some.to(base.device) for some in vectors), len(kg.relations)
        self._vectors, self._phrases = (scaled(some) for some in self._text_vectors)
        self._train = kg.known(("train",))
        self._facts: WeakKeyDictionary[KnownAnswers, Facts] = WeakKeyDictionary()
        with forked_rng(base.device):
            torch.manual_seed(self.settings.seed)
            self._towers = ContextTowers(base, len(kg.relations), self.settings).to(base.device)
        self._towers.requires_grad_(True).eval()
        self._load_base: Callable[[], BaseModel] = lambda: base
        self._anchors = _Anchors(cache(lambda: RecentStates(self._lower(base), texts.entities)), self._vectors, True)

    def _lower(self, base: BaseModel) -> FrozenLayers:
        return FrozenLayers(base, self._split(base))

    def _split(self, base: BaseModel) -> int:
        if self.settings.trainable_layers > base.layer_count:
            raise SettingsError(
                f"trainable_layers is {self.settings.trainable_layers}, but {base.name} has {base.layer_count} layers. "
                f"Choose from 1 to {base.layer_count}."
            )
        return base.layer_count - self.settings.trainable_layers

    def _finish(self, training: Trainable) -> None:
        self._towers.eval()
        assert isinstance(training, ContextTraining)  # noqa: S101 - what _prepare has made
        self.entities_ = training.entities()

    def dry_run(self, kg: KnowledgeGraph, earlier: Scorer | None = None) -> TrainingCost:
        """Train for a moment and estimate the rest; the model can score afterwards, but has learned next to nothing."""
        self._check_trainable(kg)
        settings = self.settings
        base, loading = load_timed(settings.base, current_device())
        texts = GraphTexts.of(kg, base, settings.max_tokens)
        self._split(base)
        whole = BlankEncoder(base, texts, 0)
        lower = BlankEncoder(base, texts, settings.trainable_layers)
        training = self._training(kg, base, texts, whole, lower, earlier)
        started = time.perf_counter()
        self.entities_ = training.entities()
        encoding = time.perf_counter() - started
        step = seconds_per_step(training.steps(1))
        self._towers.eval()
        valid = kg.sample("valid", _VALID_TRIPLES, settings.seed)

        def validate(count: int) -> None:
            best_sum(earlier or self, self, kg, Queries.from_triples(valid[:count]))

        return TrainingCost(
            preparing=loading + lower.reading_seconds + whole.reading_seconds,
            epoch=step * training.step_count + encoding,
            look=seconds_for(validate, len(valid)),
            epochs=settings.epochs,
            valid_every=settings.valid_every,
            parameters=self.parameter_count,
        )

    @torch.no_grad()
    def _encode_entities(self, states: Callable[[IntArray], States], facts: Facts) -> Tensor:
        """The vectors of all entities with the current towers; shape (entities, coordinates)."""
        everyone = np.arange(len(self._vectors))
        lengths = states(everyone).counts + self.settings.neighbors
        vectors = self._vectors.new_empty(len(everyone), self.settings.dim)
        for some in token_batches(lengths, _TOKENS_AT_ONCE):
            neighbors = facts.of(some, self.settings.neighbors)
            texts = Texts.of(states(some), self._vectors, some)
            vectors[torch.from_numpy(some)] = self._towers.entities(
                texts, neighbors, self._vectors[torch.from_numpy(neighbors.ids)]
            )
        return vectors

    # Scoring.

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        with torch.inference_mode():
            return (self._questions(queries) @ self.entities_.T).cpu().numpy()

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        with torch.inference_mode():
            questions = self._questions(queries)
            rows, ids = torch.from_numpy(candidates.rows), torch.from_numpy(candidates.ids).long()
            scores = questions.new_empty(len(ids))
            for start in range(0, len(ids), _PAIRS_AT_ONCE):
                some = slice(start, start + _PAIRS_AT_ONCE)
                scores[some] = (questions[rows[some]] * self.entities_[ids[some]]).sum(dim=1)
            return scores.cpu().numpy()

    def _questions(self, queries: Queries) -> Tensor:
        """The vectors of questions, scaled by the inverse temperature; shape (queries, coordinates)."""
        if not hasattr(self, "entities_"):
            raise self._not_fitted()
        distinct, question_of = queries.unique()
        found = self.entities_.new_empty(len(distinct), self.settings.dim)
        lengths = self._anchors.lengths(distinct.anchors) + self.settings.neighbors
        for some in token_batches(lengths, _TOKENS_AT_ONCE):
            found[torch.from_numpy(some)] = self._some_questions(distinct[some])
        return self._towers.log_scale.exp() * found[torch.from_numpy(question_of)]

    def _some_questions(self, queries: Queries) -> Tensor:
        neighbors = self._neighbors(queries)
        relations = to_device(queries.directed_relations(self._relation_count), self.entities_.device)
        ids = torch.from_numpy(neighbors.ids)
        return self._towers.questions(
            relations,
            self._phrases[relations],
            self._anchors.texts(queries.anchors),
            neighbors,
            (self._vectors[ids], self.entities_[ids]),
        )

    def _neighbors(self, queries: Queries) -> Neighbors:
        if not self._anchors.have_facts:
            return Neighbors.none()
        known = queries.known or self._train
        if known not in self._facts:
            self._facts[known] = Facts(known)
        return self._facts[known].of(queries.anchors, 2 * self.settings.neighbors)

    def for_new_entities(
        self, entities: Sequence[Entity], kg: KnowledgeGraph, nearness: FloatArray | None
    ) -> "ContextEncoder":
        """The same model with the new entities as anchors: their texts are read, and no facts."""
        scorer = copy.copy(self)
        base, new = self._base_model(), _graph_of(entities, kg)
        texts = GraphTexts.of(new, base, self.settings.max_tokens)
        states = RecentStates(self._lower(base), texts.entities)
        scorer._anchors = _Anchors(lambda: states, scaled(self._new_vectors(entities, kg)), False)
        return scorer

    def nearness(self, entities: Sequence[Entity], kg: KnowledgeGraph) -> FloatArray:
        """The cosine similarity of new entities' texts to those of the graph; shape (new entities, entities)."""
        with torch.inference_mode():
            new = normalize(self._new_vectors(entities, kg), dim=1)
            return (new @ normalize(self._text_vectors[0], dim=1).T).cpu().numpy()

    def _new_vectors(self, entities: Sequence[Entity], kg: KnowledgeGraph) -> Tensor:
        base, new = self._base_model(), _graph_of(entities, kg)
        encoder = TextEncoder(base, GraphTexts.of(new, base, self.settings.max_tokens), trainable_layers=0)
        return encoder.entities(torch.arange(len(entities)))

    def _base_model(self) -> BaseModel:
        if not hasattr(self, "_load_base"):
            raise self._not_fitted()
        return self._load_base()

    def _heads(self) -> tuple[nn.Module, ...]:
        return (self._towers,)

    # Saving and loading.

    def _save_files(self, folder: Path) -> None:
        save_held_model(self._base_model(), folder, is_trained=False)

    def _tensors(self) -> dict[str, Tensor]:
        entities, relations = self._text_vectors
        return {
            "entities": self.entities_,
            "texts/entities": entities,
            "texts/relations": relations,
            **with_prefix("towers/", self._towers.state_dict()),
        }

    def _take_tensors(self, tensors: Mapping[str, Tensor], kg: KnowledgeGraph, folder: Path) -> None:
        vectors = tensors["texts/entities"], tensors["texts/relations"]
        expected = {"entities": len(kg.entities), "relations": 2 * len(kg.relations)}
        for some, (part, count) in zip(vectors, expected.items(), strict=True):
            if len(some) != count:
                raise DataError(
                    f"this context encoder has texts for {len(some):,} {part}, but {kg.name} needs {count:,}. "
                    "It was trained on another graph."
                )
        base = load_held_model(self.settings.base, folder, is_trained=False).to(current_device())
        self._take_graph(kg, base, GraphTexts.of(kg, base, self.settings.max_tokens), vectors)
        self._towers.load_state_dict(under_prefix("towers/", tensors))
        array_of(tensors, "entities", (len(kg.entities), None))
        self.entities_ = tensors["entities"].to(base.device)


class _Anchors:
    """The texts of the entities that questions are about, read when they are needed."""

    def __init__(self, load: Callable[[], RecentStates], vectors: Tensor, have_facts: bool) -> None:
        self._load, self._vectors, self.have_facts = load, vectors, have_facts

    def lengths(self, anchors: IntArray) -> IntArray:
        """How many tokens each text has; shape (anchors,)."""
        counts: IntArray = self._load().counts[anchors]
        return counts

    def texts(self, anchors: IntArray) -> Texts:
        """The texts of anchors."""
        vectors = self._vectors.index_select(0, to_device(anchors, self._vectors.device).long())
        return Texts.of(self._load().of(anchors), vectors, np.arange(len(anchors)))


def _graph_of(entities: Sequence[Entity], kg: KnowledgeGraph) -> KnowledgeGraph:
    """A graph of these entities, without facts."""
    nothing = np.empty((0, 3), dtype=np.int32)
    return KnowledgeGraph(kg.name, tuple(entities), kg.relations, nothing, nothing, nothing)

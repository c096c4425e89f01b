"""Tier 2: a dual encoder. It reads every text once; all answers to a question are then one matrix product."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from cascader.cascade.alphas import best_sum
from cascader.errors import DataError, NotFittedError
from cascader.evaluation.protocol import known_splits, mean_reciprocal_rank
from cascader.graph import Candidates, Entity, FloatArray, KnowledgeGraph, Queries
from cascader.models.embeddings.embedding import directed
from cascader.models.text.base_model import BaseModel, load_base_model
from cascader.models.text.dual_training import DualTraining
from cascader.models.text.sampling import sampled
from cascader.models.text.settings import DualSettings
from cascader.models.text.text_encoder import CachedEncoder, Reader, TextEncoder
from cascader.models.text.text_model import LanguageTier, under_prefix, with_prefix
from cascader.models.text.texts import GraphTexts
from cascader.models.text.towers import Towers, build_towers
from cascader.models.training import Trainable
from cascader.scoring.scorer import Scorer

_ENTITIES_AT_ONCE = 1024
_PAIRS_AT_ONCE = 200_000
#: A look at valid while training need not be at all of it.
VALID_TRIPLES = 1000


class DualEncoder(LanguageTier[DualSettings]):
    """Scores an answer by how near its text is to the question's.

    The settings are those of `DualSettings`. `fit(kg, earlier=kge)` trains for the sum with an earlier tier: it stops
    when the sum no longer gains on valid, and can take its hard negatives from there.

    >>> from cascader import Entity, KnowledgeGraph, Relation
    >>> entities = Entity("d", "aspirin", "a drug against pain"), Entity("s", "pain", "a feeling that hurts")
    >>> kg = KnowledgeGraph("drugs", entities, (Relation("r", "treats"),), [[0, 0, 1]], [], [])
    >>> DualEncoder(epochs=1).fit(kg).score_all(kg.query("aspirin", "treats")).shape
    (1, 2)
    """

    name = "dual"
    beside_earlier = "for a sum"
    entities_: Tensor  # (entities, coordinates)

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - the settings of DualSettings, by name
        super().__init__(DualSettings.of(settings))

    # Learning.

    def _prepare(self, kg: KnowledgeGraph, earlier: Scorer | None) -> Trainable:
        self._trained = self._text_reader(self.settings.base, kg)
        self._build(self._trained.base.width, kg)
        queries = Queries.from_triples(sampled(kg.valid, VALID_TRIPLES, self.settings.seed))

        def judge() -> float | None:
            """How good the towers are now, in the sum if there is one."""
            if len(queries) == 0:
                return None
            self._take(self._trained)
            if earlier is None:
                return mean_reciprocal_rank(self, queries, kg.known(known_splits("valid")))
            return best_sum(earlier, self, kg, queries).mrr

        return DualTraining(self._towers, self._trained, self.settings, kg, earlier, judge)

    def _length(self) -> int:
        return self.settings.epochs

    def _finish(self, training: Trainable) -> None:
        base = self._trained.base
        self._load_base: Callable[[], BaseModel] = lambda: base
        self._towers.eval()
        self._take(self._fixed(self._trained.eval()))

    def _text_reader(self, base: str, kg: KnowledgeGraph) -> TextEncoder:
        model = load_base_model(base)
        return TextEncoder(model, GraphTexts.of(kg, model, self.settings.max_tokens), self.settings.trainable_layers)

    def _build(self, width: int, kg: KnowledgeGraph) -> None:
        self._relation_count, self._entity_count = len(kg.relations), len(kg.entities)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.seed)
            self._towers: Towers = build_towers(width, len(kg.relations), self.settings)

    @torch.no_grad()
    def _take(self, reader: Reader) -> None:
        """Compute the vectors of all entities anew, with what is learnt so far."""
        self._reader = reader
        places = torch.split(torch.arange(self._entity_count), _ENTITIES_AT_ONCE)
        self.entities_ = torch.cat([self._towers.entity_vectors(reader, some) for some in places])

    @torch.no_grad()
    def _fixed(self, reader: TextEncoder) -> CachedEncoder:
        """Read all texts a last time: from now on their vectors stay as they are."""
        places = torch.split(torch.arange(self._entity_count), _ENTITIES_AT_ONCE)
        entities = torch.cat([reader.entities(some) for some in places])
        return CachedEncoder(entities, reader.relations(torch.arange(2 * self._relation_count)), lambda: reader)

    # Scoring.

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        with torch.inference_mode():
            return (self._questions(queries) @ self.entities_.T).numpy()

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        with torch.inference_mode():
            questions = self._questions(queries)
            rows, ids = torch.from_numpy(candidates.rows), torch.from_numpy(candidates.ids).long()
            scores = torch.empty(len(ids))
            for start in range(0, len(ids), _PAIRS_AT_ONCE):
                some = slice(start, start + _PAIRS_AT_ONCE)
                scores[some] = (questions[rows[some]] * self.entities_[ids[some]]).sum(dim=1)
            return scores.numpy()

    def _questions(self, queries: Queries) -> Tensor:
        """Vectors of questions, each distinct one read once; shape (queries, coordinates)."""
        if not hasattr(self, "entities_"):
            raise NotFittedError("the dual encoder has not been fitted. Call fit(kg), or load it from a folder.")
        distinct, question_of = queries.unique()
        anchors = torch.from_numpy(distinct.anchors).long()
        relations = torch.from_numpy(directed(distinct, self._relation_count))
        return self._towers.question_vectors(self._reader, anchors, relations)[torch.from_numpy(question_of)]

    def about_new(self, entities: Sequence[Entity], kg: KnowledgeGraph) -> "NewAnchors":
        """What answers questions about entities that the graph does not have: only their texts are read."""
        base, nothing = self._language_model(), np.empty((0, 3), dtype=np.int32)
        of_new = KnowledgeGraph(kg.name, tuple(entities), kg.relations, nothing, nothing, nothing)
        texts = GraphTexts.of(of_new, base, self.settings.max_tokens)
        reader = TextEncoder(base, texts, self.settings.trainable_layers).eval()
        scorer = copy.copy(self)
        scorer._reader = reader
        with torch.inference_mode():
            new = normalize(reader.entities(torch.arange(len(entities))), dim=1)
            of_graph = normalize(self._reader.entities(torch.arange(self._entity_count)), dim=1)
            return NewAnchors(scorer, (new @ of_graph.T).numpy())

    def _language_model(self) -> BaseModel:
        """One that was saved is only now loaded, and then stays."""
        if not hasattr(self, "_load_base"):
            raise NotFittedError("the dual encoder has not been fitted. Call fit(kg), or load it from a folder.")
        return self._load_base()

    # Keeping.

    @property
    def parameter_count(self) -> int:
        """How many numbers it consists of, the language model's among them."""
        modules = self._language_model().encoder, self._towers
        return sum(parameter.numel() for module in modules for parameter in module.parameters())

    def _encoder(self) -> BaseModel:
        """The language model itself; one that was saved is only now loaded."""
        if not isinstance(self._reader, CachedEncoder):
            raise NotFittedError("the dual encoder is still being trained.")
        return self._reader.model.base

    def _save_encoder(self, folder: Path) -> None:
        if self.settings.trainable_layers:
            self._encoder().save(folder / "encoder")

    def _tensors(self) -> dict[str, Tensor]:
        return {
            "entities": self.entities_,
            "texts/entities": self._reader.entities(torch.arange(self._entity_count)),
            "texts/relations": self._reader.relations(torch.arange(2 * self._relation_count)),
            **with_prefix("towers/", self._towers.state_dict()),
        }

    def _take_tensors(self, tensors: Mapping[str, Tensor], kg: KnowledgeGraph, folder: Path) -> None:
        texts = under_prefix("texts/", tensors)
        expected = {"entities": len(kg.entities), "relations": 2 * len(kg.relations)}
        for part, vectors in texts.items():
            if len(vectors) != expected[part]:
                raise DataError(
                    f"this dual encoder has texts for {len(vectors):,} {part}, but {kg.name} needs {expected[part]:,}. "
                    "It was trained on another graph."
                )
        self._build(texts["entities"].shape[1], kg)
        self._towers.load_state_dict(under_prefix("towers/", tensors))
        self._towers.eval()
        self.entities_ = tensors["entities"]
        base = str(folder / "encoder") if self.settings.trainable_layers else self.settings.base
        self._load_base = cache(lambda: load_base_model(base))
        self._reader = CachedEncoder(texts["entities"], texts["relations"], lambda: self._text_reader(base, kg).eval())


@dataclass(frozen=True, eq=False)
class NewAnchors:
    """A dual encoder whose questions are about new entities, by their places; its answers are those of the graph."""

    scorer: DualEncoder
    nearness: FloatArray  # (new, entities) the cosines of their texts


def load_dual_encoder(folder: str | Path, kg: KnowledgeGraph) -> DualEncoder:
    """Read a dual encoder back that `save` has written."""
    return DualEncoder.load(folder, kg)

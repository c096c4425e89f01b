"""Late interaction (after ColBERT), the hybrid of both encoders that the paper's conclusion names.

Like a dual encoder, it reads questions and entities separately, so that all entities are read once. Like a cross
encoder, it compares them token by token: each token of a question counts by its best match in a candidate's text.
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from cascader.cascade.alphas import best_sum
from cascader.errors import DataError
from cascader.evaluation.protocol import mean_reciprocal_rank
from cascader.graph import Candidates, Entity, FloatArray, IntArray, KnowledgeGraph, Queries
from cascader.models.device import current_device, forked_rng, to_device
from cascader.models.history import Schedule
from cascader.models.plausibility import Plausibility
from cascader.models.settings import Settings
from cascader.models.text.base_model import BaseModel, load_base_model, load_held_model, save_held_model
from cascader.models.text.dry_run import load_timed, seconds_for_hard_negatives, seconds_to_read
from cascader.models.text.late_tokens import LateTexts, QuestionTokens, TokenMatcher, TokenRows, best_matches, by_length
from cascader.models.text.late_training import LateTraining
from cascader.models.text.reading import FrozenLayers
from cascader.models.text.settings import LateOptions, LateSettings
from cascader.models.text.text_model import TextModel, phrase_of, text_of, under_prefix, with_prefix
from cascader.models.text.words import MatchedWords, words_of
from cascader.models.training import Trainable, TrainingCost, seconds_for, seconds_per_step
from cascader.scoring.scorer import Reason, Scorer

_QUESTIONS_AT_ONCE = 256
#: A validation during training need not use all of valid.
_VALID_TRIPLES = 1000


class LateInteraction(TextModel):
    """Scores an answer by the words of the question that find a match among its own.

    Its settings are those of `LateSettings`. `fit(kg, earlier=tiers)` trains for the sum with the earlier tiers:
    training stops when the sum no longer improves on valid, and hard negatives can come from them.

    >>> from cascader import Entity, KnowledgeGraph, Relation
    >>> entities = Entity("d", "aspirin", "a drug against pain"), Entity("s", "pain", "a feeling that hurts")
    >>> kg = KnowledgeGraph("drugs", entities, (Relation("r", "treats"),), [[0, 0, 1]], [], [])
    >>> LateInteraction(epochs=1).fit(kg).score_all(kg.query("aspirin", "treats")).shape
    (1, 2)
    """

    name = "late"
    tier = "late"
    settings_class: ClassVar[type[Settings]] = LateSettings
    settings: LateSettings

    entities_: TokenRows  # the vectors of entities' tokens, (tokens, dim) in float16
    anchors_: TokenRows  # the features of anchors' tokens, (tokens, dim + 1) in float16
    relations_: TokenRows  # those of relations, inverse ones after the others

    def __init__(self, **settings: Unpack[LateOptions]) -> None:
        super().__init__(**settings)

    # Learning.

    def _schedule(self, time_limit: float) -> Schedule:
        return Schedule(self.settings.epochs, self.settings.valid_every, self.settings.patience, time_limit)

    def _prepare(self, kg: KnowledgeGraph, earlier: Scorer | None) -> Trainable:
        base = load_base_model(self.settings.base).to(current_device())
        lower = FrozenLayers(base, self.settings.layer)
        states = LateTexts.of(kg, base, self.settings.max_tokens).read(lower)
        return self._training(kg, base, states, earlier)

    def prepare_helping(self, kg: KnowledgeGraph) -> Trainable:
        """What computes gradients for another process."""
        return self._prepare(kg, None)

    def _training(
        self, kg: KnowledgeGraph, base: BaseModel, states: tuple[TokenRows, TokenRows], earlier: Scorer | None
    ) -> LateTraining:
        self._build(base.width, kg)
        entities, relations = (some.to(base.device) for some in states)
        self._load_base: Callable[[], BaseModel] = lambda: base
        queries = Queries.from_triples(kg.sample("valid", _VALID_TRIPLES, self.settings.seed))
        beside = earlier or (Plausibility().fit(kg) if self.settings.prior_weight else None)

        def validate() -> float | None:
            """The MRR with the current weights, in the sum with what it is to complement."""
            if len(queries) == 0:
                return None
            self._project(entities, relations)
            if beside is None:
                return mean_reciprocal_rank(self, queries, kg.known())
            return best_sum(beside, self, kg, queries).mrr

        return LateTraining(self._matcher, (entities, relations), self.settings, kg, earlier, validate)

    def _finish(self, training: Trainable) -> None:
        assert isinstance(training, LateTraining)  # noqa: S101 - it is the one that was prepared
        self._project(*training.states)

    def dry_run(self, kg: KnowledgeGraph, earlier: Scorer | None = None) -> TrainingCost:
        """Train for a moment and estimate the rest; the model can score afterwards, but has learned next to nothing."""
        self._check_trainable(kg)
        settings = self.settings
        base, loading = load_timed(settings.base, current_device())
        lower = FrozenLayers(base, settings.layer)
        started = time.perf_counter()
        texts = LateTexts.of(kg, base, settings.max_tokens)
        tokenizing = time.perf_counter() - started
        reading = seconds_to_read(lower, texts.entities) + seconds_to_read(lower, texts.relations)
        training = self._training(kg, base, texts.blank(base.width), None)
        step = seconds_per_step(training.steps(1))
        started = time.perf_counter()
        self._project(*training.states)
        projecting = time.perf_counter() - started
        valid = kg.sample("valid", _VALID_TRIPLES, settings.seed)

        def validate(count: int) -> None:
            best_sum(earlier or self, self, kg, Queries.from_triples(valid[:count]))

        hard = seconds_for_hard_negatives(earlier, kg, settings.hard_negatives)
        return TrainingCost(
            preparing=loading + tokenizing + reading + hard,
            epoch=step * training.step_count,
            look=projecting + seconds_for(validate, len(valid)),
            epochs=settings.epochs,
            valid_every=settings.valid_every,
            parameters=self.parameter_count,
        )

    def _build(self, width: int, kg: KnowledgeGraph) -> None:
        self._kg, self._anchors_of = kg, kg.entities
        with forked_rng(current_device()):
            torch.manual_seed(self.settings.seed)
            self._matcher = TokenMatcher(width, len(kg.relations), self.settings).to(current_device())

    @torch.no_grad()
    def _project(self, entities: TokenRows, relations: TokenRows) -> None:
        """Compute all that scoring needs of the tokens with the current weights."""
        self._matcher.eval()
        self._take_entities(entities.mapped(self._matcher.entity_vectors))
        self.anchors_ = entities.mapped(self._matcher.features)
        self.relations_ = relations.mapped(self._matcher.features)

    def _take_entities(self, vectors: TokenRows) -> None:
        self.entities_ = vectors
        self._groups = [
            (group, vectors.rows[torch.from_numpy(group.rows)].float().T.contiguous())
            for group in by_length(vectors, np.arange(len(vectors)))
        ]

    # Scoring.

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        distinct, question_of = queries.unique()
        with torch.inference_mode():
            scores = torch.empty(len(distinct), len(self._entities()), device=self._device)
            for start in range(0, len(distinct), _QUESTIONS_AT_ONCE):
                some = slice(start, start + _QUESTIONS_AT_ONCE)
                vectors = self._asked(distinct[some]).vectors
                for group, tokens in self._groups:
                    scores[some, torch.from_numpy(group.places)] = best_matches(vectors, tokens, len(group.places))
            return scores.cpu().numpy()[question_of]

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        entities = self._entities()
        scores = np.empty(len(candidates.ids), dtype=np.float32)
        with torch.inference_mode():
            for start in range(0, len(queries), _QUESTIONS_AT_ONCE):
                block = queries[start : start + _QUESTIONS_AT_ONCE]
                vectors = self._asked(block).vectors
                for row in range(len(block)):
                    first, last = candidates.offsets[start + row : start + row + 2]
                    scores[first:last] = _scores_of(vectors[row : row + 1], entities, candidates.ids[first:last])
        return scores

    def _asked(self, queries: Queries) -> QuestionTokens:
        relations = queries.directed_relations(len(self._kg.relations))
        segments = [(self.relations_, relations), (self.anchors_, queries.anchors)]
        return self._matcher.question_tokens(segments, to_device(relations, self._device))

    @property
    def _device(self) -> torch.device:
        return self._matcher.log_scale.device

    def _entities(self) -> TokenRows:
        if not hasattr(self, "entities_"):
            raise self._not_fitted()
        return self.entities_

    def explain(self, question: Queries, answer: int) -> list[Reason]:
        """Say which words of the question and of the answer's text matched."""
        base, entities, limit = self._base_model(), self._entities(), self.settings.max_tokens
        relation = self._kg.relations[int(question.relations[0])].name
        phrase = words_of(phrase_of(relation, bool(question.predicts_tail[0])), base)
        anchor = words_of(text_of(self._anchors_of[int(question.anchors[0])]), base, limit)
        candidate = words_of(text_of(self._kg.entities[answer]), base, limit)
        with torch.inference_mode():
            asked = self._asked(question)
            each = asked.vectors[0][:, None]  # every token as a question by itself
            usual = torch.cat([best_matches(each, tokens, len(group.places)) for group, tokens in self._groups], dim=1)
            products = asked.vectors[0] @ entities.take(np.array([answer])).rows.float().T
        words = [[*phrase, *anchor][place] for place in asked.places[0].tolist()]
        return MatchedWords(words, candidate, products, usual.mean(dim=1)).reasons()

    def for_new_entities(
        self, entities: Sequence[Entity], kg: KnowledgeGraph, nearness: FloatArray | None
    ) -> "LateInteraction":
        """The same model with the new entities as anchors: only their texts are read."""
        base, scorer = self._base_model(), copy.copy(self)
        nothing = np.empty((0, 3), dtype=np.int32)
        new = KnowledgeGraph(kg.name, tuple(entities), kg.relations, nothing, nothing, nothing)
        states, _ = LateTexts.of(new, base, self.settings.max_tokens).read(FrozenLayers(base, self.settings.layer))
        with torch.no_grad():
            scorer.anchors_ = states.to(self._device).mapped(self._matcher.features)
        scorer._anchors_of = new.entities
        return scorer

    def _base_model(self) -> BaseModel:
        """The pretrained model; after `load`, it is only loaded when something new must be read."""
        if not hasattr(self, "_load_base"):
            raise self._not_fitted()
        return self._load_base()

    def _heads(self) -> tuple[nn.Module, ...]:
        return (self._matcher,)

    # Saving and loading.

    def _save_files(self, folder: Path) -> None:
        save_held_model(self._base_model(), folder, is_trained=False)

    def _tensors(self) -> dict[str, Tensor]:
        return {
            **with_prefix("entities/", self._entities().tensors()),
            **with_prefix("relations/", self.relations_.tensors()),
            "anchors": self.anchors_.rows,
            **with_prefix("matcher/", self._matcher.state_dict()),
        }

    def _take_tensors(self, tensors: Mapping[str, Tensor], kg: KnowledgeGraph, folder: Path) -> None:
        entities, relations = (
            TokenRows.of_tensors(under_prefix(f"{part}/", tensors)).to(current_device())
            for part in ("entities", "relations")
        )
        found, expected = (len(entities), len(relations)), (len(kg.entities), 2 * len(kg.relations))
        if found != expected:
            raise DataError(
                f"this late interaction has texts for {found[0]:,} entities and {found[1]:,} directed relations, but "
                f"{kg.name} needs {expected[0]:,} and {expected[1]:,}. It was trained on another graph."
            )
        matcher = under_prefix("matcher/", tensors)
        self._build(matcher["entity_projection.weight"].shape[1], kg)
        self._matcher.load_state_dict(matcher)
        self._matcher.eval()
        self._take_entities(entities)
        self.anchors_, self.relations_ = entities.with_rows(tensors["anchors"].to(self._device)), relations
        device = self._device
        self._load_base = cache(lambda: load_held_model(self.settings.base, folder, is_trained=False).to(device))


def _scores_of(question: Tensor, entities: TokenRows, candidates: IntArray) -> FloatArray:
    """The scores of some candidates of one question, whose vectors are (1, tokens, dim); shape (candidates,)."""
    scores = np.empty(len(candidates), dtype=np.float32)
    for group in by_length(entities, candidates):
        tokens = entities.rows[torch.from_numpy(group.rows)].float()
        scores[group.places] = best_matches(question, tokens.T, len(group.places))[0].cpu().numpy()
    return scores

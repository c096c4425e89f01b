"""What training an embedding will take: a few batches and a few questions of valid, timed."""

import time
from dataclasses import replace

import numpy as np

from cascader.evaluation import evaluate
from cascader.graph import KnowledgeGraph, Queries
from cascader.models.costs import Cost, seconds_for, seconds_per_step
from cascader.models.embeddings.embedding import Embedding
from cascader.models.embeddings.training import Training, check_trainable

#: Of a large graph a sample is enough: a batch is no slower for the triples that are not in it.
_TRIPLES = 20_000


def time_embedding(model: Embedding, kg: KnowledgeGraph) -> Cost:
    """Train `model` for a moment, and foretell the rest; it can score afterwards, but has learnt next to nothing."""
    check_trainable(model, kg)
    settings, sample = model.settings, _sample(kg)
    started = time.perf_counter()
    training = Training(model, sample)
    preparing = (time.perf_counter() - started) * len(kg.train) / len(sample.train)
    step = seconds_per_step(training.steps(1))
    model.entities_, model.relations_ = model.entities_.detach(), model.relations_.detach()

    def look(count: int) -> None:
        evaluate(model, replace(sample, valid=sample.valid[:count]), "valid")

    return Cost(
        preparing=preparing,
        epoch=step * -(-_row_count(model, kg) // settings.batch_size),
        look=seconds_for(look, len(kg.valid)),
        epochs=settings.epochs,
        valid_every=settings.valid_every,
        parameters=model.parameter_count,
    )


def _sample(kg: KnowledgeGraph) -> KnowledgeGraph:
    if len(kg.train) <= _TRIPLES:
        return kg
    return replace(kg, train=np.random.default_rng(0).permutation(kg.train)[:_TRIPLES])


def _row_count(model: Embedding, kg: KnowledgeGraph) -> int:
    """How many rows an epoch has: a question with its answers, or with as many as share a row."""
    facts = Queries.from_triples(kg.train)
    if model.settings.loss == "negative-sampling":
        return len(facts)
    answers = np.bincount(facts.unique()[1])
    return int(np.ceil(answers / model.settings.answers_per_row).sum())

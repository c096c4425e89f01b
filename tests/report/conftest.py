"""A small graph with three tiers of every kind, tuned, measured and analysed once for all tests."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from cascader.cascade import Cascade, MeteredCascade, TopK
from cascader.evaluation import evaluate
from cascader.graph import KnowledgeGraph
from cascader.models import Frequency
from cascader.models.embeddings import ComplEx
from cascader.models.text import CrossEncoder
from cascader.report import analyze
from cascader.scoring import StoredScorer
from cascader.tuning import split_valid, tune
from cascader.tuning.calibration import calibrate
from tests.evaluation.test_evaluate import random_graph

EVIL = "<script>alert(1)</script> $x$ & ümlaut"


@pytest.fixture(scope="session")
def kg() -> KnowledgeGraph:
    kg = random_graph(seed=1, entities=30, triples=500)
    entities = tuple(entity._replace(name=f"{entity.name} {EVIL}") for entity in kg.entities)
    relations = tuple(relation._replace(name=f"{relation.name} {EVIL}") for relation in kg.relations)
    return KnowledgeGraph(f"{EVIL} graph", entities, relations, kg.train, kg.valid, kg.test)


@pytest.fixture(scope="session")
def tiers(kg, tiny_model):
    """The first and second score everyone, the third reads pairs."""
    embedding = ComplEx(dim=8, epochs=5).fit(kg)
    cross = CrossEncoder(base=tiny_model, rounds=1, queries_per_round=8, split_layer=0).fit(kg)
    return {"kge": embedding, "frequency": Frequency().fit(kg), "cross": cross}


@pytest.fixture(scope="session")
def material(kg, tiers):
    """What `analyze` takes, by name."""
    scorers = {**tiers, "cross": StoredScorer(tiers["cross"], kg)}
    cascade = Cascade(scorers["kge"], name="kge").then(scorers["frequency"], alpha=0.5, name="frequency")
    tuned = tune(cascade.then(scorers["cross"], alpha=0.5, keep=TopK(1), name="cross"), kg, read_top=8)
    best = MeteredCascade(tuned.best)
    costed = evaluate(best, kg, name="cascade")
    evaluations = [
        evaluate(scorers["kge"], kg, name="kge-complex", about=tiers["kge"].describe()),
        evaluate(scorers["frequency"], kg, "valid", name="frequency"),
        replace(costed, about={"costs": {tier: asdict(cost) for tier, cost in best.usage.tiers.items()}}),
    ]
    models = {
        name: {**tiers[name].describe(), "parameters": tiers[name].parameter_count, "bytes": 1000}
        for name in ("kge", "cross")
    }
    calibration = calibrate(tuned.best, kg, np.concatenate(split_valid(kg, seed=0)))
    return {
        "kg": kg,
        "scorers": scorers,
        "tuned": tuned,
        "evaluations": evaluations,
        "models": models,
        "calibration": calibration,
    }


@pytest.fixture(scope="session")
def analyses(material):
    return analyze(**material)

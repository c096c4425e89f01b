"""Each interaction is a model, and scores as PyKEEN does."""

import warnings

import numpy as np
import pytest
import torch

from cascader.graph import Queries
from cascader.models.embeddings import EMBEDDINGS, RESCAL, ComplEx, RotatE, TransE
from tests.contracts import ModelContract


class TestRESCAL(ModelContract):
    def make(self, kg):
        return RESCAL(dim=8, epochs=1).fit(kg)


class TestTransE(ModelContract):
    def make(self, kg):
        return TransE(dim=8, epochs=1).fit(kg)


class TestComplEx(ModelContract):
    def make(self, kg):
        return ComplEx(dim=8, epochs=1).fit(kg)


class TestRotatE(ModelContract):
    def make(self, kg):
        return RotatE(dim=8, epochs=1).fit(kg)


def with_random_vectors(kind, kg, **settings):
    model = kind(dim=16, init_std=0.5, **settings)
    entities, relations = model.initial(torch.Generator().manual_seed(1), len(kg.entities), len(kg.relations))
    return model.load_vectors({"entities": entities, "relations": model.with_inverses(relations)}, kg)


def as_complex(vectors):
    real, imaginary = vectors.chunk(2, dim=1)
    return torch.complex(real, imaginary)


@pytest.fixture(scope="module")
def interactions():
    """Those of PyKEEN, which takes seconds to load."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyKEEN's own imports warn
        return pytest.importorskip("pykeen.nn.modules", reason="pykeen is not installed")


def said_by_pykeen(interactions, model, heads, relations, tails):
    if isinstance(model, RESCAL):
        dim = model.settings.dim
        return interactions.RESCALInteraction()(heads, relations.view(-1, dim, dim), tails)
    if isinstance(model, TransE):
        return interactions.TransEInteraction(p=model.settings.norm)(heads, relations, tails)
    if isinstance(model, ComplEx):
        return interactions.ComplExInteraction()(*map(as_complex, (heads, relations, tails)))
    turns = torch.polar(torch.ones_like(relations), relations)
    return interactions.RotatEInteraction()(as_complex(heads), turns, as_complex(tails))


CASES = [*((kind, {}) for kind in EMBEDDINGS.values()), (TransE, {"norm": 1})]


@pytest.mark.parametrize(("kind", "settings"), CASES, ids=lambda case: getattr(case, "name", str(case)))
def test_scores_are_those_of_pykeen(interactions, kind, settings, toy):
    model = with_random_vectors(kind, toy, **settings)
    queries = Queries.from_triples(toy.train, side="tail")
    scores = model.score_all(queries)
    for i in range(len(queries)):
        heads = model.entities_[queries.anchors[i]].expand(len(toy.entities), -1)
        relations = model.relations_[queries.relations[i]].expand(len(toy.entities), -1)
        theirs = said_by_pykeen(interactions, model, heads, relations, model.entities_)
        np.testing.assert_allclose(scores[i], theirs.numpy(), atol=1e-5)


def test_rescal_learns_one_matrix_for_both_sides_of_a_relation(toy, tmp_path):
    model, count = RESCAL(dim=3, epochs=2).fit(toy), len(toy.relations)
    assert torch.equal(model.relations_[count:], model.reversed(model.relations_[:count]))
    assert model.parameter_count == 3 * len(toy.entities) + 9 * count
    model.save(tmp_path)
    assert torch.equal(RESCAL.load(tmp_path, toy).relations_, model.relations_)


@pytest.mark.parametrize("kind", EMBEDDINGS.values(), ids=list(EMBEDDINGS))
def test_a_reversed_relation_gives_the_same_score_from_the_other_end(kind, toy):
    model = with_random_vectors(kind, toy)
    model.relations_[len(toy.relations) :] = model.reversed(model.relations_[: len(toy.relations)])
    both = Queries.from_triples(toy.train)
    scores = model.score_all(both)[np.arange(len(both)), both.golds]
    np.testing.assert_allclose(scores[: len(toy.train)], scores[len(toy.train) :], atol=1e-4)


def test_complex_scores_relations_as_it_scores_answers(toy):
    model = with_random_vectors(ComplEx, toy)
    heads, relations, tails = (torch.from_numpy(np.array(column, dtype=np.int64)) for column in toy.train.T)
    of_relations = model.relation_scores(model.entities_[heads], model.entities_[tails], model.relations_)
    expected = model.score_all(Queries.from_triples(toy.train, side="tail"))[np.arange(len(tails)), tails]
    np.testing.assert_allclose(of_relations[torch.arange(len(tails)), relations].numpy(), expected, atol=1e-5)

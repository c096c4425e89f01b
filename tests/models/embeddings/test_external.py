import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cascader.errors import DataError
from cascader.graph import Queries
from cascader.models.embeddings import EMBEDDINGS, ComplEx, PyKEENScorer, read_embedding
from tests.contracts import ScorerContract


def write_ids(path, ids):
    path.write_text("".join(f"{i}\t{id_}\n" for i, id_ in enumerate(ids)))
    return path


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
@pytest.mark.parametrize("model", EMBEDDINGS)
def test_arrays_with_mapping_files_score_like_the_model_they_came_from(model, suffix, toy, tmp_path):
    """In any order of their own; relations that were trained without a reversed half are turned round."""
    original = EMBEDDINGS[model](dim=4, epochs=1).fit(toy)
    forward = original.relations_[: len(toy.relations)]
    original.relations_ = torch.cat([forward, original.reversed(forward)])
    order = np.random.default_rng(0).permutation(len(toy.entities))
    for name, tensor in (("entities", original.entities_[order]), ("relations", forward)):
        if suffix == ".npy":
            np.save(tmp_path / f"{name}.npy", tensor.numpy())
        else:
            save_file({name: tensor.contiguous()}, tmp_path / f"{name}.safetensors")
    read = read_embedding(
        model,
        toy,
        tmp_path / f"entities{suffix}",
        tmp_path / f"relations{suffix}",
        write_ids(tmp_path / "entities.tsv", [toy.entities[i].id for i in order]),
        write_ids(tmp_path / "relations.tsv", [relation.id for relation in toy.relations]),
    )
    queries = Queries.from_triples(toy.test)
    np.testing.assert_allclose(read.score_all(queries), original.score_all(queries), atol=1e-6)


class TestBadArrays:
    @pytest.fixture
    def files(self, toy, tmp_path):
        model = ComplEx(dim=4, epochs=1).fit(toy)
        np.save(tmp_path / "e.npy", model.entities_.numpy())
        np.save(tmp_path / "r.npy", model.relations_[: len(toy.relations)].numpy())
        write_ids(tmp_path / "e.tsv", [entity.id for entity in toy.entities])
        write_ids(tmp_path / "r.tsv", [relation.id for relation in toy.relations])
        return tmp_path

    def read(self, toy, files):
        return read_embedding("complex", toy, *(files / name for name in ("e.npy", "r.npy", "e.tsv", "r.tsv")))

    def test_pickles_are_refused(self, toy, files):
        np.save(files / "e.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
        with pytest.raises(DataError, match="cannot read .*e.npy.* Expected a .npy file without pickled objects"):
            self.read(toy, files)

    def test_a_missing_entity_is_named(self, toy, files):
        write_ids(files / "e.tsv", ["other", *(entity.id for entity in toy.entities[1:])])
        with pytest.raises(DataError, match="1 of the graph's ids have no entity vector, the first: 'aspirin'"):
            self.read(toy, files)

    def test_as_many_vectors_as_ids(self, toy, files):
        write_ids(files / "e.tsv", ["only one"])
        with pytest.raises(DataError, match="there are 8 entity vectors and 1 ids"):
            self.read(toy, files)

    def test_an_array_that_is_no_matrix(self, toy, files):
        np.save(files / "e.npy", np.zeros(8))
        with pytest.raises(DataError, match=r"holds float64 of shape \(8,\), expected a matrix of numbers"):
            self.read(toy, files)


def pykeen_model(kg):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = pytest.importorskip("pykeen.models", reason="pykeen is not installed")
        from pykeen.triples import TriplesFactory

        labels = [(kg.entities[h].id, kg.relations[r].id, kg.entities[t].id) for h, r, t in kg.triples().tolist()]
        factory = TriplesFactory.from_labeled_triples(np.array(labels))
        return models.TransE(triples_factory=factory, embedding_dim=8, random_seed=0), factory


class TestPyKEENScorer(ScorerContract):
    def make(self, kg):
        model, factory = pykeen_model(kg)
        return PyKEENScorer(model, kg, factory.entity_to_id, factory.relation_to_id)


def test_pykeens_ids_are_matched_with_ours(toy):
    model, factory = pykeen_model(toy)
    scorer = PyKEENScorer(model, toy, factory.entity_to_id, factory.relation_to_id)
    ours = scorer.score_all(toy.query("aspirin", "treats"))[0, toy.entity_index("fever")]
    numbers = [[factory.entity_to_id["aspirin"], factory.relation_to_id["treats"], factory.entity_to_id["fever"]]]
    assert ours == pytest.approx(model.score_hrt(torch.tensor(numbers)).item(), rel=1e-5)


def test_an_entity_that_the_model_does_not_know_is_named(toy):
    model, factory = pykeen_model(toy)
    known = {id_: number for id_, number in factory.entity_to_id.items() if id_ != "aspirin"}
    with pytest.raises(DataError, match="does not know 1 of the graph's entity ids, the first: 'aspirin'"):
        PyKEENScorer(model, toy, known, factory.relation_to_id)

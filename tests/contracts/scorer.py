"""What every scorer must do, be it a model, a sum or a cascade, and what every model must also do."""

import json
from contextlib import suppress
from typing import ClassVar

import numpy as np
import pytest

from cascader.errors import DataError
from cascader.graph import Candidates, Entity, KnowledgeGraph, Queries
from cascader.models import Frequency, load_model
from cascader.models.device import using_device
from cascader.models.registry import contract_violations
from cascader.scoring.scorer import Scorer
from tests.contracts.device import FAKE_DEVICE, devices_of


class ScorerContract:
    """What every scorer must do; subclasses implement `make`, which fits the scorer once for all tests."""

    #: A sum of float32 numbers depends slightly on the order of addition.
    close: ClassVar[dict[str, float]] = {"rtol": 1e-5, "atol": 1e-6}

    def make(self, kg: KnowledgeGraph) -> Scorer:
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def scorer(cls, toy):
        return cls().make(toy)

    @pytest.fixture(scope="class")
    @classmethod
    def queries(cls, toy):
        return Queries.from_triples(toy.triples())

    def test_scores_every_entity_in_float32_without_nan(self, scorer, toy, queries):
        scores = scorer.score_all(queries)
        assert scores.shape == (len(queries), len(toy.entities))
        assert scores.dtype == np.float32
        assert not np.isnan(scores).any()

    def test_scores_a_question_the_same_alone_and_in_a_block(self, scorer, queries):
        together = scorer.score_all(queries)
        for row in range(len(queries)):
            np.testing.assert_allclose(scorer.score_all(queries[row : row + 1])[0], together[row], **self.close)

    def test_scores_candidates_as_it_scores_all_entities(self, scorer, toy, queries):
        rng = np.random.default_rng(0)
        lists = [rng.choice(len(toy.entities), size=row % 4, replace=False).tolist() for row in range(len(queries))]
        candidates = Candidates.from_lists(lists)
        expected = scorer.score_all(queries)[candidates.rows, candidates.ids]
        np.testing.assert_allclose(scorer.score(queries, candidates), expected, **self.close)

    def test_scores_no_candidates_as_nothing(self, scorer, queries):
        assert scorer.score(queries, Candidates.from_lists([[] for _ in range(len(queries))])).shape == (0,)

    def test_gives_the_same_scores_twice_and_leaves_its_input_alone(self, scorer, queries):
        anchors = queries.anchors.copy()
        first = scorer.score_all(queries).copy()
        np.testing.assert_array_equal(scorer.score_all(queries), first)
        np.testing.assert_array_equal(queries.anchors, anchors)


class DeviceContract:
    """What a model must do on a device other than the CPU: the same, with the same files."""

    def on_the_device(self, scorer, toy, **options):
        earlier = Frequency().fit(toy) if scorer.reads_pairs else None
        with using_device(FAKE_DEVICE):
            return type(scorer)(**scorer.settings.as_dict()).fit(toy, earlier=earlier, **options)

    def test_another_device_computes_what_the_cpu_computes(self, scorer, toy, queries, tmp_path):
        there = self.on_the_device(scorer, toy)
        candidates = Candidates.from_lists([[row % 3, 3] for row in range(len(queries))])
        assert ("fake" in devices_of(there)) == bool(devices_of(scorer))
        np.testing.assert_allclose(there.score_all(queries), scorer.score_all(queries), **self.close)
        np.testing.assert_allclose(there.score(queries, candidates), scorer.score(queries, candidates), **self.close)

    def test_a_training_on_another_device_goes_on_from_its_checkpoint(self, scorer, toy, queries, tmp_path):
        self.on_the_device(scorer, toy, folder=tmp_path, time_limit=1e-9)
        there = self.on_the_device(scorer, toy, folder=tmp_path)
        np.testing.assert_allclose(there.score_all(queries), scorer.score_all(queries), **self.close)

    def test_a_model_is_the_same_on_whatever_device_it_is_loaded_and_saved(self, scorer, toy, queries, tmp_path):
        scorer.save(tmp_path / "saved")
        load_model(tmp_path / "saved", toy).save(tmp_path / "here")
        with using_device(FAKE_DEVICE):
            there = load_model(tmp_path / "saved", toy)
        assert ("fake" in devices_of(there)) == bool(devices_of(scorer))
        np.testing.assert_allclose(there.score_all(queries), scorer.score_all(queries), **self.close)
        there.save(tmp_path / "there")
        assert "fake" not in devices_of(load_model(tmp_path / "there", toy))
        assert files_of(tmp_path / "there") == files_of(tmp_path / "here")

    def test_what_else_a_model_does_works_on_another_device(self, scorer, toy, queries, tmp_path, monkeypatch):
        scorer.save(tmp_path)
        with using_device(FAKE_DEVICE):
            there = load_model(tmp_path, toy)
        new, question = [Entity("n", "a new drug", "against headache")], queries[:1]
        with suppress(DataError):  # not every model can
            nearness = getattr(scorer, "nearness", lambda *_: np.ones((1, len(toy.entities)), dtype=np.float32))
            np.testing.assert_allclose(getattr(there, "nearness", nearness)(new, toy), nearness(new, toy), **self.close)
            answers = [
                model.for_new_entities(new, toy, nearness(new, toy)).score_all(question) for model in (there, scorer)
            ]
            np.testing.assert_allclose(*answers, **self.close)
        if hasattr(there, "explain"):
            assert there.explain(question, 1) == scorer.explain(question, 1)
        monkeypatch.setattr("cascader.models.training._SECONDS_TIMED", 0)
        with using_device(FAKE_DEVICE):
            type(scorer)(**scorer.settings.as_dict()).dry_run(toy)


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class ModelContract(DeviceContract, ScorerContract):
    """What every registered model must do: it is a scorer that can be saved, loaded and described."""

    def test_has_all_that_a_model_needs(self, scorer):
        assert contract_violations(type(scorer)) == []

    def test_scores_the_same_after_save_and_load(self, scorer, toy, queries, tmp_path):
        scorer.save(tmp_path)
        loaded = load_model(tmp_path, toy)
        assert type(loaded) is type(scorer)
        assert (loaded.settings, loaded.history_) == (scorer.settings, scorer.history_)
        np.testing.assert_allclose(loaded.score_all(queries), scorer.score_all(queries), **self.close)

    def test_saved_again_after_loading_it_is_the_same_to_the_bit(self, scorer, toy, queries, tmp_path):
        scorer.save(tmp_path)
        loaded = load_model(tmp_path, toy)
        loaded.save(tmp_path / "again")
        again = load_model(tmp_path / "again", toy)
        np.testing.assert_array_equal(again.score_all(queries), loaded.score_all(queries))

    def test_describes_itself_in_json(self, scorer):
        described = json.loads(json.dumps(scorer.describe()))
        assert described["model"] == scorer.name
        assert described["settings"] == scorer.settings.as_dict()
        assert described["training"] == scorer.history_.summary()

    def test_has_parameters(self, scorer):
        assert scorer.parameter_count > 0

    def test_its_repr_builds_the_same_settings_again(self, scorer):
        assert eval(repr(scorer), {type(scorer).__name__: type(scorer)}).settings == scorer.settings

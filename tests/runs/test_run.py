"""Runs that are made in Python."""

import sys

import pytest

import cascader
from cascader import Cascade, Frequency, KnowledgeGraph, Similarity
from cascader.errors import DataError, SettingsError
from cascader.models.model import TrainedModel


@pytest.fixture(scope="module")
def kge(toy):
    return cascader.ComplEx(dim=4, epochs=2).fit(toy)


@pytest.fixture(scope="module")
def two_tiers(toy, kge, tiny_model, tmp_path_factory):
    """A run with a tier that reads texts."""
    dual = cascader.DualEncoder(base=tiny_model, epochs=2, dim=4).fit(toy, earlier=kge)
    return cascader.save_run(tmp_path_factory.mktemp("two-tiers") / "run", toy, {"kge": kge, "dual": dual})


def test_a_run_that_was_saved_answers_as_before_when_it_is_loaded(toy, kge, tmp_path):
    saved = cascader.save_run(tmp_path / "run", toy, {"kge": kge})
    loaded = cascader.load_run(tmp_path / "run")
    assert saved.kg.data_hash == loaded.kg.data_hash == toy.data_hash
    assert loaded.predict("aspirin", "treats") == saved.predict("aspirin", "treats")


def test_a_finished_run_is_not_overwritten(toy, kge, tmp_path):
    cascader.save_run(tmp_path / "run", toy, {"kge": kge})
    with pytest.raises(SettingsError, match="already holds a run. Choose another folder"):
        cascader.save_run(tmp_path / "run", toy, {"kge": kge})


@pytest.mark.parametrize(
    ("tier", "message"),
    [
        ("my tier", "'my tier' cannot name a tier: use letters, digits and underscores, as in kge or dual."),
        (None, "a run needs at least one tier."),
    ],
)
def test_tiers_must_be_there_and_have_names_that_folders_can_have(toy, kge, tmp_path, tier, message):
    with pytest.raises(SettingsError, match=message):
        cascader.save_run(tmp_path / "run", toy, {} if tier is None else {tier: kge})
    assert not (tmp_path / "run").exists()


def test_a_part_of_a_run_answers_and_is_tuned_without_the_other_tiers(two_tiers):
    part = two_tiers.only(["kge"])
    assert list(part.cascade_tiers) == ["kge"]
    assert {trial.tiers for trial in part.tuned().trials} == {("kge",)}
    assert [trial.tiers for trial in two_tiers.tuned().trials] == [("kge",), ("kge", "dual")]
    assert part.tuning_folder() == two_tiers.folder.path / "parts" / "kge" / "tuned"
    with pytest.raises(SettingsError, match="has no tier 'rules'. It has: kge, dual"):
        two_tiers.only(["rules"])


def test_a_part_with_all_tiers_is_the_run_itself(two_tiers):
    assert two_tiers.only(["dual", "kge"]).tuning_folder() == two_tiers.folder.path


def test_a_tier_that_stands_apart_can_be_measured_but_is_no_part_of_the_cascade(toy, two_tiers, tmp_path):
    run = two_tiers.save(tmp_path / "run")
    kinds = {name: model.name for name, model in run.tiers.items()}
    run.folder.mark_complete(toy, "none", kinds, apart=["dual"])
    apart = cascader.load_run(tmp_path / "run")
    assert list(apart.cascade_tiers) == ["kge"]
    assert apart.evaluate(tiers=["dual"]).name == "dual-contrastive"
    assert apart.evaluate().mrr == apart.evaluate(tiers=["kge"]).mrr


class TestNewEntities:
    """`predict_new`: the graph does not have them, their text is all there is."""

    def test_the_best_answers_to_a_question_about_a_new_entity(self, toy, two_tiers):
        answers = two_tiers.predict_new("zinc: a metal that some take against colds", "treats", top=3)
        assert [answer.rank for answer in answers] == [1, 2, 3]
        assert {(answer.anchor.name, answer.relation.id, answer.side) for answer in answers} == {
            ("zinc", "treats", "tail")
        }
        assert {answer.id for answer in answers} < {entity.id for entity in toy.entities}
        assert [answer.score for answer in answers] == sorted((answer.score for answer in answers), reverse=True)
        assert {answer.probability for answer in answers} == {None}
        assert not any(answer.is_known for answer in answers)

    def test_it_can_be_the_tail(self, toy, two_tiers):
        answers = two_tiers.predict_new("a cold", "treats", side="head", top=100)
        assert len(answers) == len(toy.entities)  # of a new entity nothing is known
        assert all(answer.triple[1:] == ("treats", "new:a cold") for answer in answers)

    def test_its_text_decides(self, two_tiers):
        first, again, other = (
            [(answer.id, answer.score) for answer in two_tiers.predict_new(text, "treats", top=8)]
            for text in ("zinc: a metal", "zinc: a metal", "Zoe: somebody who writes")
        )
        assert first == again != other

    def test_the_run_answers_about_its_own_entities_as_before(self, two_tiers):
        before = two_tiers.predict("aspirin", "treats")
        two_tiers.predict_new("zinc: a metal", "treats")
        assert two_tiers.predict("aspirin", "treats") == before

    def test_a_run_that_reads_no_texts_refuses(self, toy, kge, tmp_path):
        run = cascader.save_run(tmp_path / "run", toy, {"kge": kge})
        with pytest.raises(DataError, match="has no dual encoder to read it"):
            run.predict_new("zinc: a metal", "treats")

    def test_a_relation_that_is_not_there_is_named(self, two_tiers):
        with pytest.raises(cascader.UnknownNameError, match="no relation is called 'cures'"):
            two_tiers.predict_new("zinc: a metal", "cures")


def test_a_tier_that_reads_pairs_learns_from_few_candidates_of_the_last_tier_before_it(tiny_model, monkeypatch):
    names, fitting = [f"abc {letter}" for letter in "abcdefgh"], sys.modules["cascader.runs.fit"]
    facts = [(head, "likes", tail) for head in names for tail in names if head != tail]
    kg = KnowledgeGraph.from_triples(facts[:-6], valid=facts[-6:])
    weighed = Cascade(Frequency().fit(kg)).then(Similarity().fit(kg), alpha=0.5)
    monkeypatch.setattr(fitting, "best_weighted_sum", lambda scorers, kg: weighed)
    monkeypatch.setattr(fitting, "_MINED_TOP", 5)
    learned_from, learn = {}, TrainedModel.fit

    def fit(model, *arguments, **options):
        learned_from[model.name] = options["earlier"]
        return learn(model, *arguments, **options)

    monkeypatch.setattr(TrainedModel, "fit", fit)
    settings = {
        "dual": {"base": tiny_model, "epochs": 1},
        "cross": {"base": tiny_model, "split_layer": 0, "rounds": 1, "queries_per_round": 4, "precision": "float32"},
    }
    cascader.fit(kg, tiers=["frequency", "similarity", "dual", "cross"], settings=settings)
    assert str(learned_from["cross"].tiers[-1].keep) == "the best 5"
    assert learned_from["dual"].tiers[-1].keep is None

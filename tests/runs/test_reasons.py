"""Why an answer stands where it does: rules, similar entities, texts, rivals, and the ranks."""

import json
from dataclasses import replace

import numpy as np
import pytest

import cascader
from cascader.cascade import Cascade, Trace
from cascader.graph import Entity, KnowledgeGraph, Relation
from cascader.models import Frequency
from cascader.models.plausibility import Plausibility
from cascader.models.rules import Rules
from cascader.models.similarity import Similarity
from cascader.models.text import DualEncoder
from cascader.runs import Predictor, TierReason, for_new_entities, parse_entity
from cascader.scoring import Reason

EVIL = "capital <script>alert(1)</script>\nof [bold]evil"


def countries() -> KnowledgeGraph:
    """Ten countries, each with a capital that lies in it; the capital of the last one is to be found."""
    facts = [(f"land {i}", "has the capital", f"town {i}") for i in range(9)]
    facts += [(f"town {i}", "lies in", f"land {i}") for i in range(10)]
    facts += [(f"person {i}", "lives in", f"town {i % 10}") for i in range(20)]
    kg = KnowledgeGraph.from_triples(facts, valid=[("land 9", "has the capital", "town 9")], name="countries")
    names = {"town 9": EVIL}
    entities = tuple(
        Entity(
            entity.id, names.get(entity.id, entity.name), f"a famous {entity.id.split()[0]} by the river number {i % 3}"
        )
        for i, entity in enumerate(kg.entities)
    )
    relations = tuple(Relation(relation.id, relation.name) for relation in kg.relations)
    return KnowledgeGraph("countries", entities, relations, kg.train, kg.valid, kg.test)


@pytest.fixture(scope="module")
def kg():
    return countries()


@pytest.fixture(scope="module")
def tiers(kg, tiny_model):
    return {
        "plausibility": Plausibility().fit(kg),
        "rules": Rules().fit(kg),
        "similarity": Similarity().fit(kg),
        "dual": DualEncoder(base=tiny_model, epochs=1, dim=4).fit(kg),
    }


def sum_of(tiers, *names):
    """The tiers, each with the same weight."""
    cascade = Cascade(tiers[names[0]], name=names[0])
    for count, name in enumerate(names[1:], start=1):
        cascade = cascade.then(tiers[name], alpha=count / (count + 1), name=name)
    return cascade


def capital(predictor):
    """The answer that the only rule proposes."""
    answers = predictor.predict("land 9", "has the capital", top=40, with_known=True)
    return next(answer for answer in answers if answer.id == "town 9")


@pytest.fixture(scope="module")
def found(kg, tiers):
    predictor = Predictor(kg, sum_of(tiers, "plausibility", "rules", "similarity", "dual"))
    return predictor.predict("land 9", "has the capital", top=4, with_known=True)


def test_rules_come_first_with_the_facts_that_they_rest_on(found):
    best = found[0]
    first = best.reasons[0]
    assert best.id == "town 9"
    assert (first.tier, first.speaks_for, first.rival) == ("rules", True, None)
    assert [(fact.head.id, fact.relation.id, fact.tail.id) for fact in first.facts] == [("town 9", "lies in", "land 9")]
    assert "\n" not in first.text
    assert "\n" not in str(first.facts[0])


def test_reasons_keep_their_order_and_are_few(found):
    order = ["rules", "similarity", "plausibility", "dual"]
    for answer in found:
        own = [reason.tier for reason in answer.reasons if reason.rival is None]
        assert own == sorted(own, key=order.index)
        rivals = [reason.rival is not None for reason in answer.reasons]
        assert rivals == sorted(rivals)
        assert len(answer.reasons) <= 9


def test_what_spoke_against_the_next_candidates_names_them(found):
    rivals = [reason for reason in found[0].reasons if reason.rival is not None]
    assert rivals
    assert {reason.rival.id for reason in rivals} <= {answer.id for answer in found[1:]}
    for reason in rivals:
        assert not reason.speaks_for
        assert f"against {reason.rival.name} below: " in reason.in_words()


def test_texts_that_were_read_are_named_with_the_content_words_they_share(found):
    (texts,) = (reason for reason in found[0].reasons if reason.tier == "dual")
    assert texts.text.startswith("has read both texts, which share: ")
    words = texts.text.split("share: ")[1].split(", ")
    assert {"famous", "river", "number"} >= set(words) != set()


def test_the_sentences_end_with_the_ranks_and_what_each_tier_counts_for(found):
    lines = found[0].why()
    assert lines[-4:] == [trace.in_words() for trace in found[0].trace]
    assert all(line.endswith("(counts for 25 %)") for line in lines[-4:])


def test_a_tier_without_weight_gives_evidence_that_is_marked_as_such(kg, tiers):
    predictor = Predictor(kg, sum_of(tiers, "similarity"), evidence=tiers)
    reasons = capital(predictor).reasons
    assert {reason.share for reason in reasons if reason.tier == "rules"} == {0.0}
    assert all(r.in_words().startswith("rules, without weight here: ") for r in reasons if r.tier == "rules")
    assert {reason.tier for reason in reasons} <= {"rules", "similarity"}  # the others had no say


def test_a_weight_of_zero_is_no_say(kg, tiers):
    cascade = Cascade(tiers["rules"], name="rules").then(tiers["plausibility"], alpha=1.0, name="plausibility")
    answer = capital(Predictor(kg, cascade))
    assert {reason.tier for reason in answer.reasons} == {"rules"}
    assert answer.trace[1].in_words() == "rank 1 after plausibility (does not count here)"


def test_tiers_are_asked_only_when_reasons_are_read_and_only_once(kg):
    class Asked(Frequency):
        times = 0

        def explain(self, question, answer):
            type(self).times += 1
            return [Reason("it is frequent")]

    answer = Predictor(kg, Cascade(Asked().fit(kg), name="mine")).predict("land 9", "has the capital", top=1)[0]
    assert Asked.times == 0
    assert answer.why()[0] == "mine: it is frequent"
    times = Asked.times
    assert (answer.reasons[0].share, Asked.times) == (1.0, times)


def test_reasons_as_json_have_ids_and_names(found):
    told = json.loads(json.dumps(found[0].why_as_dict()))
    first = told["reasons"][0]
    assert first.keys() == {"tier", "text", "facts", "strength", "speaks_for", "share", "rival"}
    assert first["facts"][0]["head"] == {"id": "town 9", "name": EVIL}
    assert [step["share"] for step in told["trace"]] == pytest.approx([0.25] * 4)


def test_a_notebook_shows_a_reason_for_each_answer_and_no_markup_of_the_graph(found):
    shown = found._repr_html_()
    assert "<th>why</th>" in shown
    assert "<script>" not in shown
    assert "lies in" in found[0].brief_reason()
    assert len(found[0].brief_reason()) <= 100


def test_the_brief_reason_is_the_first_of_a_tier_that_counts(found):
    idle, against, counting = (
        TierReason("rules", "an idle rule", share=0.0),
        TierReason("plausibility", "too many capitals", speaks_for=False, share=0.4),
        TierReason("similarity", "a similar land", share=0.6),
    )
    told = replace(found[0], explain=lambda: (idle, against, counting))
    assert told.brief_reason() == "a similar land"
    assert replace(told, explain=lambda: (idle,)).brief_reason() == ""


def test_equal_answers_are_equal_whoever_explains_them(kg, tiers):
    predictor = Predictor(kg, sum_of(tiers, "rules", "similarity"))
    one, other = (predictor.predict("land 9", "has the capital", top=2) for _ in range(2))
    assert one == other


def test_a_new_entity_gets_the_reasons_that_need_no_facts_and_no_crash(kg, tiers):
    zinc = parse_entity("zincland: a famous land by the river")
    for names in (["rules", "plausibility", "similarity", "dual"], ["plausibility", "rules"], ["rules"]):
        cascade = for_new_entities(sum_of(tiers, *names), tiers, [zinc], kg)
        predictor = Predictor(kg, cascade, None, new=(zinc,))
        question = kg.query("land 0", "has the capital")
        (answers,) = predictor.answer(type(question)(np.zeros(1, np.int32), question.relations, question.predicts_tail))
        assert "rules" not in [trace.tier for trace in answers[0].trace]
        assert all("rules" not in reason.tier for answer in answers for reason in answer.reasons)
        assert answers[0].why()


def test_what_similar_texts_know_counts_for_a_new_entity(kg, tiers):
    zinc = parse_entity("zincland: a famous land by the river")
    cascade = for_new_entities(sum_of(tiers, "similarity"), tiers, [zinc], kg)
    question = kg.query("land 0", "has the capital")
    asked = type(question)(np.zeros(1, np.int32), question.relations, question.predicts_tail)
    (answers,) = Predictor(kg, cascade, None, new=(zinc,)).answer(asked)
    assert answers[0].score > answers[-1].score


@pytest.mark.parametrize("facts", [[("a", "r", "b")], [("a", "r", "a")], [("a", "r", "b"), ("b", "r", "a")]])
def test_tiny_graphs_have_answers_and_reasons_or_none(facts):
    tiny = KnowledgeGraph.from_triples(facts)
    models = {"plausibility": Plausibility(), "rules": Rules(), "similarity": Similarity()}
    fitted = {name: model.fit(tiny) for name, model in models.items()}
    for answer in Predictor(tiny, sum_of(fitted, *fitted)).predict("a", "r", with_known=True):
        assert len(answer.why()) >= 3


def test_a_small_share_is_not_rounded_to_nothing():
    assert Trace("rules", 0.0, 0.0, 2, share=0.001).in_words() == "rank 2 after rules (counts for less than 1 %)"


def test_a_run_gives_the_evidence_of_all_its_tiers(kg, tiers, tmp_path):
    run = cascader.save_run(tmp_path / "run", kg, {name: tiers[name] for name in ("similarity", "rules")})
    assert capital(run).reasons[0].tier == "rules"

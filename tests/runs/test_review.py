"""Decisions: kept, undone, shared by several reviewers, and what the next answers make of them."""

import json
import multiprocessing
import os
import shutil
import signal
import sys
from dataclasses import replace

import pytest

import cascader
from cascader.errors import DataError, SettingsError, StorageError, UnknownNameError
from cascader.models.optimization import hard_negatives
from cascader.models.plausibility import Plausibility
from cascader.models.rules import Rules
from cascader.models.similarity import Similarity
from cascader.runs import WorkList
from tests.processes import Forked

TIERS = {"plausibility": Plausibility, "rules": Rules, "similarity": Similarity}


def drugs(without=(), more=()):
    """Drugs that treat diseases; a link of a kind nobody has written down, (d2, treats, x2), suggests itself."""
    facts = [(f"d{a}", "treats", f"x{b}") for a in range(8) for b in range(8) if (a * b) % 3 != 1]
    facts += [(f"p{a}", "prescribes", f"d{b}") for a in range(4) for b in range(8) if (a * b) % 4 == 1]
    facts = [fact for fact in facts if not set(fact) & set(without)] + list(more)
    return cascader.KnowledgeGraph.from_triples(
        [fact for i, fact in enumerate(facts) if i % 6], valid=facts[::6], name="drugs"
    )


def saved(folder, kg):
    return cascader.save_run(folder, kg, {name: kind().fit(kg) for name, kind in TIERS.items()})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    run = saved(tmp_path_factory.mktemp("review") / "run", drugs())
    run.predictor()
    return run.folder.path


@pytest.fixture
def run(made, tmp_path):
    return cascader.load_run(shutil.copytree(made, tmp_path / "run"))


def names(run, entity="d2", relation="treats", **options):
    return [answer.name for answer in run.predict(entity, relation, top=20, **options)]


# What follows from a decision.


def test_an_accepted_link_is_known_at_once_and_a_rejected_one_is_never_proposed(run):
    assert {"x2", "x5"} <= set(names(run))
    run.review.accept("d2", "treats", "x2", reviewer="ann")
    run.review.reject("d2", "treats", "x5", reviewer="ann")
    assert not {"x2", "x5"} & set(names(run))
    assert "d2" not in names(run, "x2", side="head")
    assert "d2" not in names(run, "x5", side="head")
    with_known = {answer.name: answer for answer in run.predict("d2", "treats", top=20, with_known=True)}
    assert with_known["x2"].is_known
    assert "x5" not in with_known
    (verdict,) = run.classify([("d2", "treats", "x2")])
    assert verdict.is_known
    again = cascader.load_run(run.folder.path)  # another process, another day
    assert not {"x2", "x5"} & set(names(again))
    assert not {("d2", "treats", "x2"), ("d2", "treats", "x5")} & {link.triple for link in again.review.links()}


def test_the_next_answers_rest_on_accepted_facts(run):
    before = {answer.name: answer.score for answer in run.predict("d5", "treats", top=20)}
    for drug, disease in (("d2", "x2"), ("d2", "x5"), ("d2", "p1")):
        run.review.accept(drug, "treats", disease, reviewer="ann")
    found = run.predict("d5", "treats", top=20)
    assert {answer.name: answer.score for answer in found} != before
    for tier in TIERS:
        question = run.review.informed(run.predictor()).facts
        asked = run.kg.query("d5", "treats")
        scores = [run.tiers[tier].score_all(asked.with_known(known)) for known in (run.kg.known(), question)]
        assert (scores[0] != scores[1]).any(), tier
    told = [str(fact) for answer in found for reason in answer.reasons for fact in reason.facts]
    assert any(fact in told for fact in ("d2 treats x2", "d2 treats x5"))


def test_figures_do_not_change_with_decisions(run):
    before = run.evaluate("valid").mrr
    run.review.accept("d2", "treats", "x2", reviewer="ann")
    assert run.evaluate("valid").mrr == before


def test_the_anchor_itself_is_proposed_only_where_facts_link_things_to_themselves(run, tmp_path):
    assert "d2" not in names(run)
    assert all(link.head != link.tail for link in run.review.links())
    loops = [(f"x{i}", "resembles", f"x{i}") for i in range(6)] + [("x6", "resembles", "x5")]
    other = saved(tmp_path / "loops", drugs(more=loops))
    assert "x6" in names(other, "x6", "resembles")


# The work list.


def test_a_link_is_listed_once_with_what_both_questions_say(run):
    links = run.review.links(top=20)
    triples = [link.triple for link in links]
    assert len(set(triples)) == len(triples) > 20
    assert not set(triples) & {
        (run.kg.entities[h].id, run.kg.relations[r].id, run.kg.entities[t].id) for h, r, t in run.kg.triples()
    }
    probabilities = [link.probability for link in links]
    assert probabilities == sorted(probabilities, reverse=True)
    link = next(link for link in links if link.triple == ("d2", "treats", "x2"))
    asked = run.for_open_questions(run.predictor())
    sides = [
        next(answer.probability for answer in asked.predict(anchor, "treats", side, top=20) if answer.name == name)
        for anchor, side, name in (("d2", "tail", "x2"), ("x2", "head", "d2"))
    ]
    odds = [each / (1 - each) for each in sides]
    assert link.probability == pytest.approx(1 / (1 + (odds[0] * odds[1]) ** -0.5), abs=1e-4)
    row = link.as_row()
    assert list(row)[:6] == ["head", "relation", "tail", "head_name", "relation_name", "tail_name"]
    assert 0 < len(row["reason"]) <= 100


def test_the_same_probability_whether_a_link_is_found_from_one_side_or_both(run):
    """What is not among the first answers on one side is asked for there."""
    few, many = ({link.triple: link for link in run.review.links(top=top)} for top in (1, 20))
    assert set(few) < set(many)
    for triple, link in few.items():
        assert link.probability == pytest.approx(many[triple].probability), triple


def test_the_list_can_be_of_one_relation_or_of_what_is_probable(run):
    everything = run.review.links()
    least = everything[len(everything) // 2].probability
    probable = run.review.links(min_probability=least)
    assert [link.triple for link in probable] == [link.triple for link in everything if link.probability >= least]
    prescribed = run.review.links(relation="prescribes")
    assert {link.relation.id for link in prescribed} == {"prescribes"}
    with pytest.raises(UnknownNameError):
        run.review.links(relation="prescribe it")


def test_without_probabilities_the_list_goes_by_rank(tmp_path):
    kg = drugs()
    bare = cascader.KnowledgeGraph("bare", kg.entities, kg.relations, kg.train, kg.valid[:0], kg.test)
    links = saved(tmp_path / "bare", bare).review.links(top=2)
    assert {link.probability for link in links} == {None}
    assert [link.found.rank for link in links] == sorted(link.found.rank for link in links)


# Deciding.


def test_undo_takes_back_the_last_of_the_same_reviewer_also_from_an_earlier_session(run):
    run.review.accept("d2", "treats", "x2", reviewer="ann")
    run.review.reject("d2", "treats", "x5", reviewer="ann")
    run.review.accept("d5", "treats", "x2", reviewer="bob")
    again = cascader.load_run(run.folder.path)
    assert again.review.undo(reviewer="ann").triple == ("d2", "treats", "x5")
    assert again.review.undo(reviewer="ann").triple == ("d2", "treats", "x2")
    assert again.review.undo(reviewer="ann") is None
    assert [each.reviewer for each in run.review.decisions] == ["bob"]
    assert {"x2", "x5"} <= set(names(run))


def test_when_two_disagree_the_later_counts_until_it_is_undone(run):
    run.review.accept("d2", "treats", "x2", reviewer="ann")
    run.review.reject("d2", "treats", "x2", reviewer="bob")
    assert repr(run.review.decisions) == "Decisions(0 accepted, 1 rejected)"
    assert run.review.decisions.disagreements == [("d2", "treats", "x2")]
    assert "1 link accepted by one reviewer and rejected by another" in run.review.decisions.notes("")[-1]
    run.review.undo(reviewer="bob")
    assert repr(run.review.decisions) == "Decisions(1 accepted, 0 rejected)"
    assert run.review.decisions.disagreements == []


def test_what_one_has_skipped_the_other_is_still_asked(run):
    links = run.review.links()
    first = links[0]
    run.review.skip(*first.triple, reviewer="ann")
    assert first not in run.review.waiting(links, "ann")
    assert first in run.review.waiting(links, "bob")
    assert run.review.waiting(links, "ann", skipped=True) == [first]
    assert run.review.decisions.skipped_by("ann") == 1


def test_what_cannot_be_decided_is_said(run, monkeypatch):
    head, relation, tail = (run.kg.entities[0].id, run.kg.relations[0].id, run.kg.entities[1].id)
    with pytest.raises(DataError, match="is a fact of the graph already"):
        run.review.accept(head, relation, tail)
    with pytest.raises(UnknownNameError, match="no entity is called 'd99'"):
        run.review.accept("d99", "treats", "x2")
    for name in ("", " ", "a\nb", "x" * 101, "\udcff"):
        with pytest.raises(SettingsError, match="cannot name a reviewer"):
            run.review.accept("d2", "treats", "x2", reviewer=name)
    monkeypatch.setattr(type(run.folder), "is_read_only", True)
    with pytest.raises(StorageError, match="is read-only, so it keeps no decisions. Review a copy of it"):
        run.review.accept("d2", "treats", "x2")


# The log.


def decide_some(folder, reviewer, rows):
    review = cascader.load_run(folder, verify=False).review
    for a, b in rows:
        review.decide([((f"d{a}", "treats", f"x{b}"), "accepted")], reviewer)


def test_two_reviewers_at_once_lose_nothing(run):
    context = multiprocessing.get_context("fork")
    parts = {"ann": [(a, 2) for a in range(25)], "bob": [(a, 5) for a in range(25)]}
    workers = [context.Process(target=decide_some, args=(run.folder.path, *part)) for part in parts.items()]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    lines = [json.loads(line) for line in run.review.path.read_text().splitlines()]
    for reviewer, rows in parts.items():
        assert [(line["head"], line["tail"]) for line in lines if line["reviewer"] == reviewer] == [
            (f"d{a}", f"x{b}") for a, b in rows
        ]


def test_a_line_that_a_kill_cut_short_is_no_decision_and_the_next_one_takes_its_place(run):
    run.review.accept("d2", "treats", "x2", reviewer="ann")
    whole = run.review.path.read_bytes()
    run.review.path.write_bytes(whole + whole[:-20])
    assert len(run.review.decisions) == 1
    run.review.reject("d2", "treats", "x5", reviewer="ann")
    assert run.review.path.read_bytes().startswith(whole)
    assert len(cascader.load_run(run.folder.path).review.decisions) == 2


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda line: line.replace(b"accepted", b"rejected"), "does not match the sha256 in it"),
        (lambda line: b"[1]\n", "is a JSON list, expected an object"),
        (lambda line: b"{nothing\n", "is not JSON"),
        (lambda line: b"\xff" + line, "is not JSON"),
    ],
)
def test_a_damaged_line_is_named(run, damage, found):
    run.review.accept("d2", "treats", "x2", reviewer="ann")
    run.review.path.write_bytes(damage(run.review.path.read_bytes()))
    with pytest.raises(DataError, match=found) as error:
        cascader.load_run(run.folder.path).predict("d2", "treats")
    assert "decisions.jsonl:1 is" in str(error.value)
    assert "Delete that line" in str(error.value)


def test_a_full_disk_leaves_the_log_as_it_was(run, monkeypatch):
    run.review.accept("d2", "treats", "x2", reviewer="ann")
    before = run.review.path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"decisions\.jsonl: No space left on device"):
        run.review.accept("d2", "treats", "x5", reviewer="ann")
    assert run.review.path.read_bytes() == before


def decide_on_and_on(folder):
    review = cascader.load_run(folder, verify=False).review
    for i in range(100000):
        review.decide([((f"d{i}", "treats", "x2"), "accepted")], "ann")
        sys.stdout.write(f"{i}\n")
        sys.stdout.flush()


@pytest.mark.slow
def test_what_was_said_to_be_kept_survives_a_kill(run):
    """A process that decides as fast as it can is killed: every decision that it has told of is there."""
    with Forked(decide_on_and_on, run.folder.path) as process:
        told = [process.stdout.readline() for _ in range(30)]
        process.kill()
        told += process.stdout.read().splitlines()
        assert process.wait() == -signal.SIGKILL
    kept = [json.loads(line)["head"] for line in run.review.path.read_text().split("\n")[:-1]]
    assert kept[: len(told)] == [f"d{int(i)}" for i in told]
    run.review.accept("d2", "treats", "x5", reviewer="ann")
    assert len(cascader.load_run(run.folder.path).review.decisions.gone) >= 1  # d99 and the like


# A run that has learned from decisions.


def decided(run, accepted, rejected):
    """Accept the first links that a run proposes, and reject the next ones."""
    links = [link.triple for link in run.review.links()]
    run.review.decide([(link, "accepted") for link in links[:accepted]], "ann")
    run.review.decide([(link, "rejected") for link in links[accepted : accepted + rejected]], "ann")
    return links[: accepted + rejected]


def updated(run, folder):
    return cascader.fit(drugs(), folder, tiers="plausibility,rules", update=run.folder.path)


def test_verdicts_of_an_updated_run_do_not_learn_from_what_its_tiers_were_trained_on(run, tmp_path):
    decided(run, accepted=9, rejected=9)
    again = updated(run, tmp_path / "again")
    assert again.with_threshold(again.predictor()).calibration.verdicts.labels == 0
    rows = [(*decision.triple, decision.outcome == "accepted") for decision in run.review.decisions]
    with pytest.raises(cascader.DataError, match=r"found 9 labelled .* Not counted: 9 labels of facts of train"):
        again.calibrate(rows)
    assert run.calibrate(rows).labels == 18  # whose tiers have never seen them


def test_labels_of_train_are_left_out_and_counted(run):
    kg = run.kg
    rows = [
        (kg.entities[h].id, kg.relations[r].id, kg.entities[t].id, True) for h, r, t in [*kg.train[:5], *kg.valid[:4]]
    ]
    rows += [(f"x{i}", "treats", f"d{i}", False) for i in range(8)]
    found = run.calibrate(rows)
    assert (found.labels, found.left_out) == (12, 5)
    assert "Not counted: 5 labels of facts of train. The tiers have learned these" in found.in_words()


def test_a_language_tier_is_given_rejected_links_as_negatives(run, tmp_path, tiny_model, monkeypatch):
    run.review.reject("d2", "treats", "x5", reviewer="ann")
    kg = drugs()
    kg = replace(kg, entities=tuple(each._replace(description=f"a text of {each.id}") for each in kg.entities))
    given = {}

    def watched(earlier, questions, known, count):
        found = hard_negatives(earlier, questions, known, count)
        given.update(
            {
                (int(a), bool(t)): ids.tolist()
                for a, t, ids in zip(questions.anchors, questions.predicts_tail, found, strict=True)
            }
        )
        return found

    monkeypatch.setattr("cascader.models.text.towers.hard_negatives", watched)
    settings = {"dual": {"base": tiny_model, "epochs": 1, "hard_negatives": 2}}
    cascader.fit(kg, tmp_path / "again", tiers="rules,dual", settings=settings, update=run.folder.path)
    drug, disease = kg.entity_index("d2"), kg.entity_index("x5")
    assert given[drug, True][0] == disease
    assert given[disease, False][0] == drug


# A run that was fitted again.


def test_decisions_outlive_a_fit_by_their_ids_and_those_whose_ids_are_gone_are_named(run, tmp_path):
    for disease in ("x2", "x5"):
        run.review.accept("d2", "treats", disease, reviewer="ann")
    run.review.reject("d4", "treats", "x7", reviewer="bob")
    assert run.review.decisions.notes(run.review.identity) == []
    other = saved(tmp_path / "again", drugs(without=["x5"]))
    shutil.copytree(run.folder.path / "review", other.folder.path / "review")
    again = cascader.load_run(other.folder.path)
    kept, gone = again.review.decisions.notes(again.review.identity)
    assert kept == "2 decisions from before this run was fitted: valid by id, and kept."
    assert gone == "1 decision left out, of ids that this graph lacks: d2 treats x5."
    assert repr(again.review.decisions) == "Decisions(1 accepted, 1 rejected)"
    assert "x2" not in names(again)
    assert [row["tail"] for row in again.review.rows()] == ["x2", "x7"]


def test_a_list_of_steps_can_be_made_piece_by_piece(run):
    work = WorkList(run.for_open_questions(run.predictor()), top=2)
    steps = sum(1 for _ in work.steps())
    assert steps >= 1
    assert work.done == len(work.questions)
    assert [link.triple for link in work.links] == [link.triple for link in run.review.links(top=2)]

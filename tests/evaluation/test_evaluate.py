import json
import re
import tracemalloc

import numpy as np
import pytest

from cascader.errors import DataError, SettingsError, StorageError
from cascader.evaluation import METRICS, Evaluation, Metrics, compare, evaluate
from cascader.graph import KnowledgeGraph, Queries
from cascader.models import Frequency
from cascader.records import write_record
from cascader.storage import read_parquet, write_parquet


class Oracle:
    """Knows the answers: it scores the entities that complete a known triple, plus a little noise."""

    def __init__(self, kg, noise=0.0):
        self.known = kg.known()
        self.noise = noise
        self.questions_asked = 0
        self.largest_block = 0

    def score_all(self, queries):
        self.questions_asked += len(queries)
        self.largest_block = max(self.largest_block, len(queries))
        answers = self.known.of(queries)
        scores = np.zeros((len(queries), self.known.entity_count), dtype=np.float32)
        scores[answers.rows, answers.ids] = 1
        return scores + self.noise * np.random.default_rng(0).normal(size=scores.shape).astype(np.float32)

    def score(self, queries, candidates):
        return self.score_all(queries)[candidates.rows, candidates.ids]


def random_graph(seed=0, entities=60, triples=400):
    rng = np.random.default_rng(seed)
    rows = {(f"e{h}", f"r{r}", f"e{t}") for h, r, t in rng.integers([entities, 4, entities], size=(triples, 3))}
    rows = sorted(rows)
    rng.shuffle(rows)
    rows = [tuple(row) for row in rows]
    return KnowledgeGraph.from_triples(rows[100:], rows[:50], rows[50:100], name="random")


def change(path, **changes):
    """Write a result anew, with a sum that is right: as a stranger would."""
    saved = {name: value for name, value in json.loads(path.read_text()).items() if name != "sha256"}
    write_record(path, {**saved, **changes})


def test_a_scorer_that_knows_the_answers_has_mrr_one(toy):
    assert evaluate(Oracle(toy), toy).mrr == 1


def test_each_distinct_question_is_asked_once():
    kg = random_graph()
    oracle = Oracle(kg)
    evaluate(oracle, kg)
    assert oracle.questions_asked == len(Queries.from_triples(kg.test).unique()[0])


def test_ranks_do_not_depend_on_the_size_of_a_block(monkeypatch):
    kg = random_graph()
    whole = evaluate(Frequency().fit(kg), kg)
    monkeypatch.setattr("cascader.evaluation.protocol._BLOCK_QUESTIONS", 7)
    in_blocks = evaluate(Frequency().fit(kg), kg)
    np.testing.assert_array_equal(whole.ranks.filtered.mean, in_blocks.ranks.filtered.mean)
    np.testing.assert_array_equal(whole.ranks.raw.mean, in_blocks.ranks.raw.mean)


def test_a_block_shrinks_as_the_graph_grows():
    from cascader.evaluation.protocol import _block_size

    assert _block_size(100) == 1024
    assert _block_size(10**6) * 10**6 * 4 <= 64 << 20
    assert _block_size(10**9) == 1


def test_ranks_stand_in_the_order_of_the_triples(toy):
    evaluation = evaluate(Frequency().fit(toy), toy)
    assert evaluation.triples[0] == ("aspirin", "treats", "pain")
    assert evaluation.sides == ["tail"] * 3 + ["head"] * 3


def test_answers_of_test_compete_with_those_of_valid_only_if_filtering_is_strict():
    kg = KnowledgeGraph.from_triples(
        train=[("a", "r", "x"), ("b", "r", "y"), ("c", "r", "y")], valid=[("a", "r", "z")], test=[("a", "r", "y")]
    )

    class Favourites:
        def score_all(self, queries):
            order = ["y", "z", "x", "a", "b", "c"]
            scores = np.array([-order.index(entity.id) for entity in kg.entities], dtype=np.float32)
            return np.tile(scores, (len(queries), 1))

    standard, strict = (evaluate(Favourites(), kg, "valid", filtering=way) for way in ("standard", "strict"))
    assert strict.ranks.filtered.mean[0] == 2  # y, a test answer, stands before z
    assert standard.ranks.filtered.mean[0] == 1
    assert evaluate(Favourites(), kg, "test", filtering="strict").ranks.filtered.mean[0] == 1
    with pytest.raises(DataError, match="the first has filtering standard, the second strict"):
        compare(standard, strict)
    with pytest.raises(SettingsError, match="filtering is 'loose', expected one of: standard, strict"):
        evaluate(Favourites(), kg, "valid", filtering="loose")


def test_an_empty_split_is_an_error():
    kg = KnowledgeGraph.from_triples([("a", "r", "b")])
    with pytest.raises(DataError, match="graph has no test triples to evaluate on"):
        evaluate(Frequency().fit(kg), kg)


def test_scores_of_a_wrong_shape_are_an_error(toy):
    class Transposed:
        def score_all(self, queries):
            return np.zeros((len(toy.entities), len(queries)), dtype=np.float32)

    with pytest.raises(DataError, match=r"scores of shape \(\d+, \d+\), expected \(\d+, \d+\)"):
        evaluate(Transposed(), toy)


class TestSlices:
    def test_every_way_to_cut_covers_all_queries(self, toy):
        evaluation = evaluate(Frequency().fit(toy), toy)
        assert set(evaluation.slices) == {"side", "relation", "relation_kind", "gold_degree", "seen_in_train"}
        for labels in evaluation.slices.values():
            assert sum(metrics.queries for metrics in labels.values()) == 6

    def test_the_mean_over_slices_is_the_whole(self, toy):
        evaluation = evaluate(Frequency().fit(toy), toy)
        for labels in evaluation.slices.values():
            total = sum(metrics["mrr"] * metrics.queries for metrics in labels.values())
            assert total / 6 == pytest.approx(evaluation.mrr)

    def test_entities_that_train_never_shows_stand_apart(self, toy):
        slices = evaluate(Frequency().fit(toy), toy).slices
        assert {label: m.queries for label, m in slices["seen_in_train"].items()} == {
            "both": 4,
            "anchor only": 1,
            "gold only": 1,
        }
        assert slices["gold_degree"]["0"].queries == 1

    def test_relation_kinds_follow_the_answers_a_question(self):
        from cascader.evaluation import relation_kinds

        pairs = {
            "1-1": [("a", "A"), ("b", "B")],
            "1-n": [("a", "A"), ("a", "B"), ("b", "C"), ("b", "D")],
            "n-1": [("a", "A"), ("b", "A"), ("c", "B"), ("d", "B")],
            "n-n": [("a", "A"), ("a", "B"), ("b", "A"), ("b", "B")],
        }
        train = [(head, kind, tail) for kind, rows in pairs.items() for head, tail in rows]
        kg = KnowledgeGraph.from_triples(train, test=[("a", "new", "A")])
        assert dict(zip([r.id for r in kg.relations], relation_kinds(kg).tolist(), strict=True)) == {
            **{kind: kind for kind in pairs},
            "new": "not in train",
        }


class TestFiles:
    def test_a_saved_evaluation_comes_back_whole(self, toy, tmp_path):
        evaluation = evaluate(Frequency().fit(toy), toy, seed=3)
        loaded = Evaluation.load(evaluation.save(tmp_path))
        assert loaded.as_dict() == evaluation.as_dict()
        np.testing.assert_array_equal(loaded.ranks.raw.mean, evaluation.ranks.raw.mean)

    def test_the_figures_can_be_recomputed_from_the_ranks_alone(self, toy, tmp_path):
        path = evaluate(Frequency().fit(toy), toy).save(tmp_path)
        columns = read_parquet(tmp_path / "frequency.ranks.parquet")
        assert list(columns)[:5] == ["head", "relation", "tail", "side", "rank"]
        saved = json.loads(path.read_text())
        assert Metrics.of(np.array(columns["rank"])).as_dict().items() <= saved.items()

    def test_the_json_says_what_the_figures_were_made_with(self, toy, tmp_path):
        saved = json.loads(evaluate(Frequency().fit(toy), toy, seed=3).save(tmp_path).read_text())
        assert saved["seed"] == 3
        assert saved["data_hash"] == toy.data_hash
        assert saved["versions"]["cascader"]
        assert saved["peak_memory_bytes"] > 0
        assert saved["seconds"] > 0
        assert saved["intervals"]["mrr"][0] <= saved["mrr"] <= saved["intervals"]["mrr"][1]

    def test_figures_that_do_not_follow_from_the_ranks_are_refused(self, toy, tmp_path):
        path = evaluate(Frequency().fit(toy), toy).save(tmp_path)
        change(path, mrr=0.99)
        with pytest.raises(DataError, match=r"has mrr 0.99, but its ranks give 0\.\d+"):
            Evaluation.load(path)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("{", "is not JSON"),
            ("[]", "contains a JSON list, expected an object"),
            ('{"format": 99}', "has format 99, expected 2"),
        ],
    )
    def test_a_file_that_is_no_evaluation_is_an_error(self, tmp_path, content, message):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(DataError, match=message):
            Evaluation.load(tmp_path / "x.json")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"dataset": None}, "has dataset None"),
            ({"slices": []}, r"has slices \[\]"),
            ({"slices": {"side": 3}}, r"has slices \{'side': 3\}"),
            ({"slices": {"side": {"head": {"mrr": "x"}}}}, "has no metrics for side head"),
            ({"slices": {}}, "has other slices by side than its ranks give"),
            ({"mrr": "x"}, "has no metrics for all queries"),
            ({"raw": None}, "has no metrics for raw"),
            ({"seed": "x"}, "has seed 'x'"),
            ({"seed": -1}, "seed -1"),
            ({"split": "dev"}, "has split 'dev'"),
        ],
    )
    def test_a_changed_field_is_an_error(self, toy, tmp_path, changes, message):
        path = evaluate(Frequency().fit(toy), toy).save(tmp_path)
        change(path, **changes)
        with pytest.raises(DataError, match=message):
            Evaluation.load(path)

    def test_a_result_is_as_it_was_written(self, toy, tmp_path):
        path = evaluate(Frequency().fit(toy), toy, seed=3).save(tmp_path)
        path.write_text(path.read_text().replace('"seed": 3', '"seed": 4'))
        with pytest.raises(DataError, match=r"is not as it was written: .* sha256 in it. Evaluate again"):
            Evaluation.load(path)

    def test_a_result_from_before_results_had_a_sum_is_loaded(self, toy, tmp_path):
        evaluation = evaluate(Frequency().fit(toy), toy)
        path = evaluation.save(tmp_path)
        path.write_text(json.dumps(evaluation.as_dict()))
        assert Evaluation.load(path).as_dict() == evaluation.as_dict()

    def test_a_result_from_before_a_metric_was_added_is_loaded_with_it(self, toy, tmp_path, monkeypatch):
        path = evaluate(Frequency().fit(toy), toy).save(tmp_path)
        monkeypatch.setitem(METRICS, "hits@2", lambda ranks: (ranks <= 2).astype(float))
        loaded = Evaluation.load(path)
        expected = (loaded.ranks.filtered.mean <= 2).mean()
        assert loaded.metrics["hits@2"] == loaded.as_dict()["hits@2"] == expected
        assert "hits@2" in loaded.slices["side"]["head"].values
        assert "hits@2" not in loaded.slices["gold_degree"].popitem()[1].values  # needs the graph

    def test_a_changed_slice_is_refused(self, toy, tmp_path):
        path = evaluate(Frequency().fit(toy), toy).save(tmp_path)
        slices = json.loads(path.read_text())["slices"]
        slices["side"]["head"]["mrr"] = 0.99
        change(path, slices=slices)
        with pytest.raises(DataError, match="has side head mrr 0.99, but its ranks give"):
            Evaluation.load(path)

    @pytest.mark.parametrize("change", [{"rank": 1.0}, {"rank": "1"}, {"optimistic_rank": 0.5}, {"head": 7}])
    def test_a_changed_rank_is_refused(self, toy, tmp_path, change):
        path = evaluate(Frequency().fit(toy), toy).save(tmp_path)
        ranks = tmp_path / "frequency.ranks.parquet"
        columns = read_parquet(ranks)
        write_parquet(ranks, {**columns, **{name: [value] * 6 for name, value in change.items()}})
        with pytest.raises(DataError, match="Evaluate again"):
            Evaluation.load(path)

    def test_a_name_with_slashes_writes_nowhere(self, toy, tmp_path):
        with pytest.raises(DataError, match="is not a file name"):
            evaluate(Frequency().fit(toy), toy, name="../../escape").save(tmp_path)

    def test_one_very_long_id_costs_its_own_length_only(self):
        train = [(f"e{i}", "r", f"e{i + 1}") for i in range(3000)]
        kg = KnowledgeGraph.from_triples(
            [*train, ("x" * 100_000, "r", "e0")], test=[(f"e{i}", "s", "e0") for i in range(3000)]
        )
        tracemalloc.start()
        evaluate(Frequency().fit(kg), kg).as_dict()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 500e6

    def test_a_missing_or_broken_ranks_file_is_an_error(self, toy, tmp_path):
        path = evaluate(Frequency().fit(toy), toy).save(tmp_path)
        ranks = tmp_path / "frequency.ranks.parquet"
        write_parquet(ranks, {"head": ["a"]})
        with pytest.raises(DataError, match="has no text column relation. Evaluate again"):
            Evaluation.load(path)
        ranks.write_bytes(b"PAR1 not really")
        with pytest.raises(DataError, match="is not a Parquet file"):
            Evaluation.load(path)
        ranks.unlink()
        with pytest.raises(DataError, match="cannot read .*ranks.parquet"):
            Evaluation.load(path)

    def test_a_folder_that_cannot_be_written_is_an_error_and_leaves_nothing(self, toy, tmp_path):
        (tmp_path / "results").write_text("a file where a folder should be")
        with pytest.raises(StorageError, match="cannot write"):
            evaluate(Frequency().fit(toy), toy).save(tmp_path / "results")
        assert [path.name for path in tmp_path.iterdir()] == ["results"]


class TestDisplay:
    @pytest.fixture
    def hostile(self):
        kg = random_graph()
        return evaluate(Frequency().fit(kg), kg, name="<script>alert(1)</script>")

    def test_an_evaluation_is_one_line(self, toy):
        evaluation = evaluate(Frequency().fit(toy), toy)
        assert repr(evaluation) == str(evaluation)
        assert re.fullmatch(r"frequency on toy test: mrr 0\.\d{4}, hits@1 .* \(6 queries\)", repr(evaluation))

    def test_metrics_are_one_line(self):
        expected = "Metrics(mrr 0.6250, hits@1 0.5000, hits@3 0.5000, hits@10 1.0000, mean_rank 2.5000, 2 queries)"
        assert repr(Metrics.of(np.array([1.0, 4.0]))) == expected
        assert "<td>0.6250</td>" in Metrics.of(np.array([1.0, 4.0]))._repr_html_()

    def test_a_comparison_is_a_table_with_a_row_per_metric(self, hostile):
        lines = repr(compare(hostile, hostile)).splitlines()
        assert lines[0].split() == ["metric", *["<script>alert(1)</script>"] * 2, "difference", "95%", "interval", "p"]
        assert [line.split()[0] for line in lines[1:]] == list(METRICS)
        assert lines[1].split()[3:] == ["+0.0000", "+0.0000", "to", "+0.0000", "1.0000"]

    def test_in_html_every_text_is_escaped(self, hostile):
        for shown in (hostile, compare(hostile, hostile)):
            assert "&lt;script&gt;" in shown._repr_html_()
            assert "<script>" not in shown._repr_html_()

import numpy as np

from cascader.graph import Candidates, Queries
from cascader.models import Frequency
from cascader.scoring import ScoreStore, StoredScorer
from cascader.serve.budget_levels import CountingScorer


def test_new_pairs_are_counted_and_the_scorer_that_was_given_keeps_its_store(toy, tmp_path):
    store = ScoreStore(tmp_path / "scores" / "kge", {"model": "m", "data": "d"})
    stored = StoredScorer(Frequency().fit(toy), toy, store)
    counting = CountingScorer(stored, toy)
    asked = Queries(np.array([1], dtype=np.int32), np.array([0], dtype=np.int32), np.array([True]))
    for candidates, new in (([0, 2], 2), ([0, 2, 3], 1), ([3], 0)):
        counting.new_pairs.clear()
        counting.score(asked, Candidates.from_lists([candidates]))
        assert counting.new_pairs.total() == new
    assert stored.store is store
    assert np.isnan(store.find(counting.numbering.of(asked, Candidates.from_lists([[0]])))).all()
    counting.write()
    assert not np.isnan(store.find(counting.numbering.of(asked, Candidates.from_lists([[0, 2, 3]])))).any()

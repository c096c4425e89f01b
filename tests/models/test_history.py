"""What is kept of a training."""

from pathlib import Path

from cascader.models.history import Int8Check, PartialEpoch, TrainingHistory
from cascader.records import conforming


def test_a_history_is_the_same_after_json():
    history = TrainingHistory(3, [2.0, 1.5, 1.0], {2: 0.25, 3: 0.5}, 1.5, 0.25, int8=Int8Check(0.5, 0.499, True))
    history.partial = PartialEpoch(7, 70, 0.1 + 0.2)
    assert conforming(history.as_dict(), TrainingHistory, Path("model.json"), "") == history
    assert conforming(TrainingHistory().as_dict(), TrainingHistory, Path("model.json"), "") == TrainingHistory()


def test_a_summary_is_empty_only_for_a_model_without_epochs():
    assert TrainingHistory().summary() == {}
    summary = {"epochs": 3, "best_epoch": 3, "valid_mrr": 0.5, "seconds": 1.5, "preparing_seconds": 0.2}
    history = TrainingHistory(3, [2.0, 1.5, 1.0], {3: 0.5}, 1.54, 0.25)
    assert history.summary() == summary
    history.partial = PartialEpoch(4, 40, 0.5)
    assert history.summary() == {**summary, "steps_of_next_epoch": 4}

"""How long a training lasts, by a clock of its own."""

import json

import torch

from cascader.models.training import Int8Check, Schedule, TrainingHistory, train


class Counting:
    """Trains nothing, but takes its time on its own clock; its weights are how often it was trained."""

    def __init__(self, seconds=0.0):
        self.seconds, self.trained, self.validated, self.now = seconds, torch.zeros(1), [], 0.0

    def clock(self):
        return self.now

    def train_epoch(self, epoch):
        self.now += self.seconds
        self.trained += 1
        return 0.0

    def validate(self):
        self.validated.append(int(self.trained))
        return float(self.trained)

    def weights(self):
        return {"trained": self.trained}

    def optimizer_state(self):
        return {}

    def load(self, weights, optimizer_state):
        self.trained.copy_(weights["trained"])


def test_one_epoch_is_always_trained_and_validated():
    training = Counting(seconds=1.0)
    history = train(training, Schedule(10, valid_every=5, time_limit=1e-9), clock=training.clock)
    assert (history.epochs, training.validated) == (1, [1])


def test_the_last_epoch_before_the_time_is_up_is_validated_and_kept():
    training = Counting(seconds=5.0)
    history = train(training, Schedule(1000, valid_every=1000, time_limit=26.0), clock=training.clock)
    assert history.epochs == 5
    assert training.validated == [history.epochs] == [history.best_epoch]


def test_no_epoch_is_started_that_would_not_fit():
    training = Counting(seconds=20.0)
    history = train(training, Schedule(1000, valid_every=1000, time_limit=50.0), clock=training.clock)
    assert (history.epochs, history.seconds) == (2, 40.0)


def test_the_time_before_the_loop_counts():
    training = Counting(seconds=1.0)
    history = train(training, Schedule(1000, time_limit=60.0), preparing_seconds=60.0, clock=training.clock)
    assert history.epochs == 1


def test_without_a_limit_it_trains_until_valid_no_longer_improves():
    class Level(Counting):
        def validate(self):
            return 1.0

    assert train(Level(), Schedule(1000, valid_every=2, patience=3)).epochs == 8
    assert train(Counting(), Schedule(7)).epochs == 7


def test_a_history_is_the_same_after_json():
    history = TrainingHistory(3, [2.0, 1.5, 1.0], {2: 0.25, 3: 0.5}, 1.5, 0.25, Int8Check(0.5, 0.499, True))
    assert TrainingHistory.from_dict(json.loads(json.dumps(history.as_dict()))) == history
    assert TrainingHistory.from_dict(json.loads(json.dumps(TrainingHistory().as_dict()))) == TrainingHistory()


def test_a_summary_is_empty_only_for_a_model_without_epochs():
    assert TrainingHistory().summary() == {}
    assert TrainingHistory(3, [2.0, 1.5, 1.0], {3: 0.5}, 1.54, 0.25).summary() == {
        "epochs": 3,
        "best_epoch": 3,
        "valid_mrr": 0.5,
        "seconds": 1.5,
        "preparing_seconds": 0.2,
    }

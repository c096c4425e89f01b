"""How long a training lasts."""

import time

import torch

from cascader.models.training import Schedule, train


class Counting:
    """Trains nothing, but takes its time; its weights are how often it was trained."""

    def __init__(self, seconds=0.0):
        self.seconds, self.trained, self.looks = seconds, torch.zeros(1), []

    def train_epoch(self, epoch):
        time.sleep(self.seconds)
        self.trained += 1
        return 0.0

    def validate(self):
        self.looks.append(int(self.trained))
        return float(self.trained)

    def weights(self):
        return {"trained": self.trained}

    def optimizer_state(self):
        return {}

    def load(self, weights, optimizer_state):
        self.trained.copy_(weights["trained"])


def test_one_epoch_is_always_trained_and_looked_at():
    training = Counting()
    history = train(training, Schedule(10, valid_every=5, max_minutes=0.0))
    assert (history.epoch, training.looks) == (1, [1])


def test_what_is_trained_when_the_time_is_up_is_looked_at_and_kept():
    training = Counting(seconds=0.05)
    history = train(training, Schedule(1000, valid_every=1000, max_minutes=0.25 / 60))
    assert 2 <= history.epoch <= 5
    assert training.looks == [history.epoch] == [history.best_epoch]


def test_no_epoch_is_started_that_would_not_fit():
    history = train(Counting(seconds=0.2), Schedule(1000, valid_every=1000, max_minutes=0.5 / 60))
    assert history.epoch == 2
    assert history.seconds < 0.5


def test_the_time_before_the_loop_counts():
    history = train(Counting(), Schedule(1000, max_minutes=1.0), preparing_seconds=60.0)
    assert history.epoch == 1


def test_without_a_limit_it_trains_until_valid_no_longer_gains():
    class Level(Counting):
        def validate(self):
            return 1.0

    assert train(Level(), Schedule(1000, valid_every=2, patience=3)).epoch == 8
    assert train(Counting(), Schedule(7)).epoch == 7

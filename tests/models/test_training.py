"""How long a training lasts, by a clock of its own, and where it goes on."""

import pytest
import torch

from cascader.errors import TrainingError
from cascader.models.checkpoints import Checkpoint
from cascader.models.history import Schedule
from cascader.models.training import train


class Counting:
    """Trains nothing, but takes its time on its own clock; its weights are how many steps it was trained.

    `kill_at` is the step, in this process, after which nothing more happens.
    """

    def __init__(self, seconds=0.0, step_count=1, validating=0.0, kill_at=None):
        self.seconds, self.step_count, self.validating, self.kill_at = seconds, step_count, validating, kill_at
        self.trained, self.validated, self.began, self.now = torch.zeros(1), [], [], 0.0
        self.state = None

    def clock(self):
        return self.now

    def steps(self, epoch, done=0, state=None):
        self.began.append((epoch, done))
        self.state = torch.zeros(1) if state is None else state["drawn"]
        for _ in range(done, self.step_count):
            self.now += self.seconds
            self.trained += 1
            self.state += epoch
            if self.kill_at is not None and self.trained >= self.kill_at:
                raise Killed
            yield float(self.state), 2

    def epoch_state(self):
        return {"drawn": self.state}

    def validate(self):
        self.now += self.validating
        self.validated.append(int(self.trained))
        return float(self.trained)

    def weights(self):
        return {"trained": self.trained}

    def optimizer_state(self):
        return {}

    def load(self, weights, optimizer_state):
        self.trained.copy_(weights["trained"])


class Killed(BaseException):
    """Ends a training where it stands, as kill -9 does."""


def until(epochs, steps):
    """Save checkpoints up to a step of an epoch, and nothing after that."""
    save = Checkpoint.save

    def save_and_end(self, tensors, progress):
        save(self, tensors, progress)
        if (progress["epochs"], (progress["partial"] or {}).get("steps")) == (epochs, steps):
            raise Killed

    return save_and_end


class TestTimeLimits:
    def test_one_step_is_always_trained_and_kept_although_nothing_was_validated(self):
        training = Counting(seconds=1.0, step_count=100)
        history = train(training, Schedule(10, valid_every=5, time_limit=1e-9), clock=training.clock)
        assert (history.epochs, history.partial.steps, history.cut_at) == (0, 1, 1e-9)
        assert (training.validated, history.valid, int(training.trained)) == ([], {}, 1)

    def test_an_epoch_of_seven_hours_ends_at_the_step_that_reaches_the_limit(self):
        training = Counting(seconds=1.0, step_count=7 * 3600)
        history = train(training, Schedule(10, time_limit=120.0), clock=training.clock)
        assert (history.epochs, history.partial.steps, training.now) == (0, 120, 120.0)
        assert int(training.trained) == 120

    def test_the_time_of_a_validation_is_left_for_it_and_what_was_cut_short_is_validated(self):
        training = Counting(seconds=1.0, step_count=10, validating=3.0)
        history = train(SlowerAndSlower(training), Schedule(10, time_limit=30.0), clock=training.clock)
        assert 30.0 <= training.now <= 32.0  # 13 s for an epoch, 14 s for seven steps of the next, 3 s for a validation
        assert (history.epochs, history.partial.steps, history.best_epoch) == (1, 7, 2)
        assert training.validated == [10, 17]
        assert int(training.trained) == 17

    def test_the_last_epoch_before_the_time_is_up_is_validated_and_kept(self):
        training = Counting(seconds=5.0)
        history = train(training, Schedule(1000, valid_every=1000, time_limit=26.0), clock=training.clock)
        assert history.epochs == 5
        assert training.validated == [history.epochs] == [history.best_epoch]

    def test_no_epoch_is_started_that_would_not_fit(self):
        training = Counting(seconds=20.0)
        history = train(training, Schedule(1000, valid_every=1000, time_limit=50.0), clock=training.clock)
        assert (history.epochs, history.seconds) == (2, 40.0)

    def test_the_time_before_the_loop_counts(self):
        training = Counting(seconds=1.0, step_count=9)
        history = train(training, Schedule(1000, time_limit=60.0), preparing_seconds=60.0, clock=training.clock)
        assert (history.epochs, history.partial.steps) == (0, 1)

    def test_the_best_weights_are_kept_where_later_ones_could_not_be_validated(self):
        training = Counting(seconds=1.0, step_count=10)
        slower = SlowerAndSlower(training)
        history = train(slower, Schedule(1000, time_limit=25.0), clock=training.clock)
        assert (history.valid, history.partial.steps) == ({1: 10.0}, 8)
        assert int(training.trained) == 10

    def test_without_a_limit_it_trains_until_valid_no_longer_improves(self):
        class Level(Counting):
            def validate(self):
                return 1.0

        assert train(Level(), Schedule(1000, valid_every=2, patience=3)).epochs == 8
        history = train(Counting(), Schedule(7))
        assert (history.epochs, history.cut_at) == (7, None)

    @pytest.mark.parametrize("jump", [-1e6, -5.0])
    def test_a_clock_that_goes_back_makes_no_time(self, jump):
        training = Counting(seconds=1.0, step_count=100)
        real, training.clock = training.clock, lambda: real() + (jump if training.now > 10 else 0)
        history = train(training, Schedule(10, time_limit=30.0), clock=training.clock)
        assert history.seconds == 30.0
        assert training.now <= 32.0

    def test_a_clock_that_jumps_ahead_ends_it_in_good_order(self):
        training = Counting(seconds=1.0, step_count=100)
        real, training.clock = training.clock, lambda: real() + (1e9 if training.now > 10 else 0)
        history = train(training, Schedule(10, time_limit=30.0), clock=training.clock)
        assert (history.partial.steps, int(training.trained), history.cut_at) == (11, 11, 30.0)


class SlowerAndSlower:
    """Each epoch takes twice the time of the one before, so that it is longer than expected."""

    def __init__(self, training):
        self._training = training

    def __getattr__(self, name):
        return getattr(self._training, name)

    def steps(self, epoch, done=0, state=None):
        self._training.seconds = 2.0 ** (epoch - 1)
        return self._training.steps(epoch, done, state)


class TestGoingOn:
    @pytest.fixture
    def checkpoint(self, tmp_path):
        return Checkpoint(tmp_path / "checkpoint.safetensors", {})

    @pytest.mark.parametrize("kill_at", range(1, 31, 4))
    def test_killed_at_any_step_it_ends_as_if_it_had_not_been(self, kill_at, checkpoint, monkeypatch):
        monkeypatch.setattr("cascader.models.training._SECONDS_BETWEEN_CHECKPOINTS", 3)
        schedule, whole = Schedule(3, valid_every=2), Counting(seconds=1.0, step_count=10)
        expected = train(whole, schedule, clock=whole.clock)
        killed = Counting(seconds=1.0, step_count=10, kill_at=kill_at)
        with pytest.raises(Killed):
            train(killed, schedule, checkpoint, clock=killed.clock)
        resumed = Counting(seconds=1.0, step_count=10)
        history = train(resumed, schedule, checkpoint, clock=resumed.clock)
        assert (history.losses, history.valid, history.partial) == (expected.losses, expected.valid, None)
        assert torch.equal(resumed.trained, whole.trained)
        lost = kill_at - (30 - resumed.now)
        assert 0 <= lost <= 4

    def test_killed_in_an_epoch_of_hours_it_loses_less_than_two_minutes(self, checkpoint):
        killed = Counting(seconds=7.0, step_count=10_000, kill_at=101)
        with pytest.raises(Killed):
            train(killed, Schedule(3), checkpoint, clock=killed.clock)
        resumed = Counting(seconds=7.0, step_count=10_000, kill_at=102)
        with pytest.raises(Killed):
            train(resumed, Schedule(3), checkpoint, clock=resumed.clock)
        (_, done), *_ = resumed.began
        assert 101 - 120 / 7 < done <= 100

    @pytest.mark.parametrize("limit", [5.0, 10.5, 14.0, 23.0])
    def test_cut_short_and_given_more_time_it_ends_as_if_there_had_been_no_limit(self, limit, checkpoint):
        whole = Counting(seconds=1.0, step_count=10)
        expected = train(whole, Schedule(4, valid_every=3), clock=whole.clock)
        training = Counting(seconds=1.0, step_count=10)
        history = train(training, Schedule(4, valid_every=3, time_limit=limit), checkpoint, clock=training.clock)
        assert history.cut_at == limit
        resumed = Counting(seconds=1.0, step_count=10)
        history = train(resumed, Schedule(4, valid_every=3), checkpoint, clock=resumed.clock)
        assert (history.losses, history.valid, history.cut_at) == (expected.losses, expected.valid, None)
        assert torch.equal(resumed.trained, whole.trained)

    def test_large_checkpoints_are_written_less_often(self, checkpoint, monkeypatch):
        saved = []
        training = Counting(seconds=1.0, step_count=1000)

        def save(self, tensors, progress):
            saved.append(progress["partial"]["steps"])
            training.now += 4.0

        monkeypatch.setattr(Checkpoint, "save", save)
        train(training, Schedule(1, time_limit=500.0), checkpoint, clock=training.clock)
        assert saved[:3] == [20, 100, 180]  # the first after 20 s, then four times less often

    def test_a_loss_that_is_no_number_stops_at_its_step(self):
        class Diverging(Counting):
            def steps(self, epoch, done=0, state=None):
                yield 1.0, 1
                yield float("nan"), 1
                raise AssertionError("went on after a loss that is no number")

        with pytest.raises(TrainingError, match="the loss became nan in epoch 1. Lower learning_rate"):
            train(Diverging(step_count=3), Schedule(2))

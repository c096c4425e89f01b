"""What every engine must do, wherever it runs its shards."""

import pytest

from cascader.errors import EngineError, SettingsError
from cascader.scoring.engine import Call, Engine, Task
from tests.scoring.work import load, refuse, writing


class EngineContract:
    """What every engine must do; subclasses implement `make`, which makes the engine."""

    def make(self) -> Engine:
        raise NotImplementedError

    @pytest.fixture
    def engine(self):
        engine = self.make()
        yield engine
        engine.close()

    def test_does_every_shard_once_and_says_which(self, engine, tmp_path):
        assert sorted(engine.run(writing(tmp_path), list("abcde"))) == [0, 1, 2, 3, 4]
        done = {path.name: path.read_text() for path in tmp_path.glob("done-*")}
        assert done == {f"done-{shard}": "model\n" for shard in "abcde"}

    def test_a_shard_is_done_when_its_place_is_given(self, engine, tmp_path):
        shards = list("abcde")
        for place in engine.run(writing(tmp_path), shards):
            assert (tmp_path / f"done-{shards[place]}").exists()

    def test_no_shards_are_done_at_once(self, engine, tmp_path):
        assert list(engine.run(writing(tmp_path), [])) == []

    def test_another_model_is_loaded_for_another_task(self, engine, tmp_path):
        assert list(engine.run(writing(tmp_path, "first"), ["a"])) == [0]
        assert list(engine.run(writing(tmp_path, "second"), ["b"])) == [0]
        assert [(tmp_path / f"done-{shard}").read_text() for shard in "ab"] == ["first\n", "second\n"]

    def test_an_error_of_the_work_arrives_as_it_is_and_the_next_run_is_not_hurt(self, engine, tmp_path):
        with pytest.raises(SettingsError, match="model cannot do [ab]"):
            list(engine.run(Task(Call(refuse), Call(load, (tmp_path, "model"))), list("ab")))
        assert sorted(engine.run(writing(tmp_path), list("ab"))) == [0, 1]

    def test_a_model_that_cannot_be_loaded_is_an_error(self, engine, tmp_path):
        with pytest.raises((EngineError, FileNotFoundError), match="No such file or directory"):
            list(engine.run(writing(tmp_path / "nowhere"), list("ab")))

"""Texts in shards: the same states whoever reads them, and whoever goes on where another was stopped."""

import platform
import shutil

import pytest
import torch

import cascader
from cascader.errors import DataError
from cascader.graph import KnowledgeGraph
from cascader.models.readers import reading_with
from cascader.models.text.base_model import load_base_model, load_held_model, save_held_model
from cascader.models.text.reading import FrozenLayers, StateCache, load_layers
from cascader.models.text.text_model import Tokens
from cascader.scoring.engine import LocalEngine
from tests.conftest import make_tiny_model

TEXTS = ["a b c", "", "d e f g h i", "j", "k l m n", "o p", "q r s", "t u v w x", "y", "z a b"]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    for module in ("reading", "late_tokens"):
        monkeypatch.setattr(f"cascader.models.text.{module}.TOKENS_AT_ONCE", 12)
    monkeypatch.setattr("cascader.models.text.reading.SHARD_TEXTS", 4)


@pytest.fixture
def lower(tiny_model):
    return FrozenLayers(load_base_model(tiny_model), 1)


@pytest.fixture
def tokens(lower):
    return Tokens.of(TEXTS, lower.base, 99)


class Counting:
    """An engine that counts its shards, and can be stopped after some of them."""

    def __init__(self, stop_after=None):
        self.inner, self.count, self.stop_after = LocalEngine(), 0, stop_after

    def run(self, task, shards, loaded=None):
        for place in self.inner.run(task, shards, loaded):
            yield place
            self.count += 1
            if self.count == self.stop_after:
                raise KeyboardInterrupt

    def dismiss(self):
        self.inner.dismiss()


def read_with(engine, folder, lower, tokens, **how):
    with reading_with(engine, str(folder), "dual"):
        return lower.read(tokens, **how)


def interrupted(folder, lower, tokens, after=2):
    """Read so many shards, and return the files of these."""
    with pytest.raises(KeyboardInterrupt):
        read_with(Counting(after), folder, lower, tokens)
    return sorted((folder / "reading").rglob("*.safetensors"))


@pytest.mark.parametrize("kept", ["float32", "float16", "mean"])
def test_states_that_were_kept_are_those_that_were_not(lower, tokens, tmp_path, kept):
    engine, alone = Counting(), lower.read(tokens, kept=kept)
    found = read_with(engine, tmp_path, lower, tokens, kept=kept)
    assert engine.count == 3
    assert torch.equal(found.rows, alone.rows)
    assert found.rows.dtype == alone.rows.dtype == (torch.float16 if kept == "float16" else torch.float32)
    assert found.offsets.tolist() == alone.offsets.tolist()


def test_means_are_those_of_the_states(lower, tokens):
    assert torch.equal(lower.read(tokens, kept="mean").rows, lower.read(tokens).means())


def test_texts_one_by_one_are_in_shards_too(lower, tokens, tmp_path):
    alone, engine, everything = StateCache(lower, tokens), Counting(), range(len(TEXTS))
    with reading_with(engine, str(tmp_path), "dual"):
        found = StateCache(lower, tokens).of(torch.tensor(everything).numpy())
    assert engine.count == 3
    assert torch.equal(found.rows, alone.of(torch.tensor(everything).numpy()).rows)


def test_what_was_read_is_kept_until_the_tier_is_saved(lower, tokens, tmp_path):
    assert len(interrupted(tmp_path, lower, tokens)) == 2
    engine = Counting()
    assert torch.equal(read_with(engine, tmp_path, lower, tokens).rows, lower.read(tokens).rows)
    assert engine.count == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_another_process_reads_the_same(lower, tokens, tmp_path):
    interrupted(tmp_path, lower, tokens)
    with LocalEngine(processes=2) as engine:
        assert torch.equal(read_with(engine, tmp_path, lower, tokens).rows, lower.read(tokens).rows)


@pytest.mark.parametrize("damage", [lambda whole: b"", lambda whole: whole[:-4], lambda whole: b"\x00" * 64])
def test_a_damaged_shard_is_read_again(lower, tokens, tmp_path, damage):
    first, _ = interrupted(tmp_path, lower, tokens)
    first.write_bytes(damage(first.read_bytes()))
    engine = Counting()
    assert torch.equal(read_with(engine, tmp_path, lower, tokens).rows, lower.read(tokens).rows)
    assert engine.count == 2


def test_shards_of_other_texts_layers_or_forms_are_left_alone(lower, tokens, tmp_path, tiny_model):
    for layers, texts, how in (
        (FrozenLayers(load_base_model(tiny_model), 2), tokens, {}),
        (lower, Tokens.of([*TEXTS[:-1], "z a c"], lower.base, 99), {}),
        (lower, tokens, {"kept": "float16"}),
    ):
        shutil.rmtree(tmp_path / "reading", ignore_errors=True)
        interrupted(tmp_path, lower, tokens)
        engine = Counting()
        assert torch.equal(read_with(engine, tmp_path, layers, texts, **how).rows, layers.read(texts, **how).rows)
        assert engine.count == 3


def test_a_model_that_a_tier_holds_is_loaded_by_no_other_process(lower, tokens, tmp_path):
    save_held_model(lower.base, tmp_path, is_trained=True)
    held = FrozenLayers(load_held_model("someone/else", tmp_path, is_trained=True), 1)
    found = read_with(None, tmp_path / "run", held, tokens)
    assert torch.equal(found.rows, lower.read(tokens).rows)

    class Refusing(Counting):
        def run(self, task, shards, loaded=None):
            raise AssertionError

    assert torch.equal(read_with(Refusing(), tmp_path / "run", held, tokens).rows, found.rows)


class TestBadInput:
    def test_a_machine_without_the_language_model(self, lower, tmp_path):
        with pytest.raises(DataError) as refused:
            load_layers(str(tmp_path / "absent"), 1, lower.fingerprint(), "cpu")
        assert f"the machine {platform.node()} cannot read texts with {tmp_path}/absent: cannot load" in str(
            refused.value
        )
        assert "Every machine that reads texts needs the same: put it there, or name a folder" in str(refused.value)

    def test_a_machine_with_another_language_model_of_that_name(self, lower, tmp_path):
        other = make_tiny_model(str(tmp_path / "model"), layer_count=3)
        model = load_base_model(other)
        torch.nn.init.zeros_(model.layers[0].output.dense.weight)
        model.save(tmp_path / "model")
        with pytest.raises(DataError, match=r"has another language model as .*: its layers have the sha256 .* Every"):
            load_layers(other, 1, lower.fingerprint(), "cpu")

    def test_a_machine_whose_language_model_has_fewer_layers(self, lower, tiny_model):
        with pytest.raises(DataError, match="cannot read texts with .*: the encoder would be split at layer 3, but"):
            load_layers(tiny_model, 3, lower.fingerprint(), "cpu")


SETTINGS = {
    "dual": {"trainable_layers": 1, "dim": 8, "hidden": 16, "epochs": 1},
    "late": {"layer": 1, "dim": 8, "epochs": 1},
}


def test_a_fit_that_is_stopped_while_it_reads_goes_on_to_the_same_tiers(tiny_model, tmp_path, monkeypatch):
    rows = [(f"abc {a}", "likes", f"xyz {b}") for a in "abcdef" for b in "uvwx"]
    kg = KnowledgeGraph.from_triples(rows[:20], valid=rows[20:], name="likes")
    settings = {tier: {"base": tiny_model, **of_tier} for tier, of_tier in SETTINGS.items()}

    def fitted(folder, engine=None):
        """Whether it came to its end."""
        try:
            cascader.fit(kg, folder, tiers=list(settings), settings=settings, engine=engine)
        except KeyboardInterrupt:
            return False
        return True

    with monkeypatch.context() as patch:
        patch.setattr("cascader.models.text.reading.SHARD_TEXTS", 10**6)
        assert fitted(tmp_path / "whole")
    # Each tier reads three shards, and none of them twice.
    stopped = tmp_path / "stopped"
    assert [fitted(stopped, Counting(stop_after=2)) for _ in range(4)] == [False, False, False, True]
    for path in (tmp_path / "whole" / "tiers").rglob("*.safetensors"):
        assert path.read_bytes() == (stopped / path.relative_to(tmp_path / "whole")).read_bytes(), path
    assert not (stopped / "reading").exists()

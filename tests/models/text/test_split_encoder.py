"""Lower and upper layers: together they are the encoder itself."""

import numpy as np
import pytest
import torch

from cascader.errors import DataError, SettingsError
from cascader.models.text.base_model import load_base_model
from cascader.models.text.reading import FrozenLayers, RecentStates
from cascader.models.text.split_encoder import encode_cls, join, run_layers
from cascader.models.text.text_encoder import TextEncoder, VectorStore
from cascader.models.text.text_model import GraphTexts, Tokens

TEXTS = ["a b c", "", "d e f g h i"]


@pytest.fixture
def base(tiny_model):
    return load_base_model(tiny_model)


def whole(base, text):
    """All layers of transformers' own model on one text."""
    ids = [base.tokenizer.cls_token_id, *Tokens.of([text], base, 99)[0].tolist(), base.tokenizer.sep_token_id]
    with torch.inference_mode():
        return base.encoder(input_ids=torch.tensor([ids])).last_hidden_state[0]


@pytest.mark.parametrize("split", [0, 1, 2])
def test_split_anywhere_a_text_alone_is_read_as_by_the_whole_encoder(base, split):
    states = FrozenLayers(base, split).read(Tokens.of(TEXTS, base, 99))
    joined, mask, _ = join([(states, np.arange(3))], torch.device("cpu"))
    with torch.inference_mode():
        read = run_layers(base.layers[split:], joined, mask)
    for row, text in enumerate(TEXTS):
        torch.testing.assert_close(read[row][mask[row]], whole(base, text), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("split", [0, 1, 2])
def test_the_first_token_alone_is_read_as_among_the_others(base, split):
    states = FrozenLayers(base, split).read(Tokens.of(TEXTS, base, 99))
    joined, mask, _ = join([(states, np.arange(3))], torch.device("cpu"))
    with torch.inference_mode():
        first = encode_cls(base.layers[split:], joined, mask)
    for row, text in enumerate(TEXTS):
        torch.testing.assert_close(first[row], whole(base, text)[0], rtol=1e-4, atol=1e-5)


def test_the_mean_of_a_text_does_not_see_its_padding(base):
    states = FrozenLayers(base, 2).read(Tokens.of(TEXTS, base, 99))
    for row, text in enumerate(TEXTS):
        torch.testing.assert_close(states.means()[row], whole(base, text).mean(dim=0), rtol=1e-4, atol=1e-5)


def test_joined_parts_stand_one_after_the_other_with_their_numbers(base):
    states = FrozenLayers(base, 1).read(Tokens.of(TEXTS, base, 99))
    joined, mask, numbers = join([(states, np.array([0, 1])), (states, np.array([1, 2]))], torch.device("cpu"))
    assert numbers[0][mask[0]].tolist() == [0] * 5 + [1] * 2
    assert numbers[1][mask[1]].tolist() == [0] * 2 + [1] * 8
    torch.testing.assert_close(joined[0][:5], states.rows[:5])
    torch.testing.assert_close(joined[1][2:10], states.rows[7:15])


def test_the_default_model_reads_as_sentence_transformers_does():
    from sentence_transformers import SentenceTransformer

    base = load_base_model()
    texts = ["aspirin: a drug that relieves pain", "headache"]
    ours = FrozenLayers(base, base.layer_count).read(Tokens.of(texts, base, 64)).means()
    theirs = SentenceTransformer(base.encoder.config._name_or_path).encode(texts)
    np.testing.assert_allclose(torch.nn.functional.normalize(ours).numpy(), theirs, atol=1e-5)


class TestStore:
    def test_only_what_is_new_is_read(self, tmp_path):
        asked = []

        def read(places):
            asked.append(places.tolist())
            return torch.tensor([[float(place), 0.0] for place in places])

        keys = ["aa" * 32, "bb" * 32, "aa" * 32]
        first = VectorStore(tmp_path / "v.safetensors", 2).fetch(keys, read)
        again = VectorStore(tmp_path / "v.safetensors", 2).fetch(["cc" * 32, *keys], read)
        assert asked == [[0, 1], [0]]
        torch.testing.assert_close(again[1:], first)

    @pytest.mark.parametrize("content", [b"", b"not safetensors", b"\x00" * 64])
    def test_a_damaged_file_is_made_anew(self, tmp_path, content):
        path = tmp_path / "v.safetensors"
        path.write_bytes(content)
        for _ in range(2):
            found = VectorStore(path, 1).fetch(["aa" * 32], lambda places: torch.ones(len(places), 1))
            assert found.tolist() == [[1.0]]

    def test_a_changed_entity_is_read_again_and_no_other(self, toy, base, monkeypatch):
        from dataclasses import replace

        texts = GraphTexts.of(toy, base, 9)
        TextEncoder(base, texts, 0)
        changed = toy.entities[0]._replace(name="another name")
        kg = replace(toy, entities=(changed, *toy.entities[1:]))
        read = []
        original = FrozenLayers.read

        def counted(self, tokens, **how):
            read.append(len(tokens))
            return original(self, tokens, **how)

        monkeypatch.setattr(FrozenLayers, "read", counted)
        TextEncoder(base, GraphTexts.of(kg, base, 9), 0)
        assert read == [1]


class TestBadInput:
    def test_a_folder_without_a_tokenizer(self, tiny_model, tmp_path):
        import shutil

        shutil.copytree(tiny_model, tmp_path / "model")
        (tmp_path / "model" / "tokenizer_config.json").unlink()
        with pytest.raises(DataError, match=r"has no tokenizer_config.json, expected a tokenizer"):
            load_base_model(str(tmp_path / "model"))

    def test_a_model_of_the_hub_without_a_network(self, monkeypatch):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the variable is only read on import
        with pytest.raises(DataError, match="cannot load the language model 'nobody/no-model'.*use the default"):
            load_base_model("nobody/no-model")

    def test_a_split_that_there_is_not(self, base):
        with pytest.raises(SettingsError, match="has 2 layers. Choose from 0 to 2"):
            FrozenLayers(base, 5)


def read_alone(base, text):
    return FrozenLayers(base, 1).read(Tokens.of([text], base, 99)).rows.half()


def test_texts_that_are_asked_for_in_any_order_are_read_alone_and_once(base, monkeypatch):
    recent = RecentStates(FrozenLayers(base, 1), Tokens.of(TEXTS, base, 99))
    states = recent.of(np.array([2, 0, 2]))
    assert torch.equal(states.rows, torch.cat([read_alone(base, TEXTS[place]) for place in (2, 0, 2)]))
    assert states.counts.tolist() == recent.counts[[2, 0, 2]].tolist()
    again = read_alone(base, TEXTS[0])
    monkeypatch.setattr(FrozenLayers, "read", None)
    assert torch.equal(recent.of(np.array([0])).rows, again)


def test_texts_that_were_asked_for_take_no_more_memory_than_they_may(base):
    tokens = Tokens.of(TEXTS, base, 99)
    longest = int(tokens.counts.max()) + 2
    recent = RecentStates(FrozenLayers(base, 1), tokens, most_bytes=(longest + 2) * base.width * 2)
    before = recent._rows
    for place in (2, 1, 0, 2, 1):  # the last two do not fit beside what was read before
        assert torch.equal(recent.of(np.array([place])).rows, read_alone(base, TEXTS[place]))
    assert recent._rows is before
    assert len(before) == longest + 2


def test_a_batch_that_does_not_fit_beside_older_texts_is_read_as_a_whole(base):
    tokens = Tokens.of(TEXTS, base, 99)
    recent = RecentStates(FrozenLayers(base, 1), tokens, most_bytes=int(tokens.counts[1:].sum() + 4) * base.width * 2)
    recent.of(np.array([0, 1]))
    both = recent.of(np.array([1, 2]))
    assert torch.equal(both.rows, torch.cat([read_alone(base, TEXTS[place]) for place in (1, 2)]))

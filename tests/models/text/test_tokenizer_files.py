"""The tokenizer of a run is a stranger's: one that would make gigabytes of a word is refused before it is built."""

import base64
import json
import shutil

import pytest

from cascader.errors import DataError
from cascader.models.text.base_model import load_base_model, load_held_model
from cascader.models.text.tokenizer_files import check_tokenizer

MORE = {"type": "Replace", "pattern": {"String": "e"}, "content": "ee"}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<unk>", "<pad>", "<mask>", "a", "b"]


def charsmap(*pieces):
    """What SentencePiece compiles: a trie behind its size, and what it leads to."""
    trie = bytes(1024)
    return len(trie).to_bytes(4, "little") + trie + b"".join(piece.encode() + b"\0" for piece in pieces)


def compiled(*pieces):
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap(*pieces)).decode()}


def sequence(of, *parts):
    return {"type": "Sequence", of: list(parts)}


@pytest.fixture
def tier(tiny_model, tmp_path):
    """The folder of a tier that holds its model."""
    shutil.copytree(tiny_model, tmp_path / "encoder")
    return tmp_path


def change(tier, file, **changes):
    path = tier / "encoder" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("role", "part", "message"),
    [
        ("normalizer", {"type": "Prepend", "prepend": "e"}, "normalizer.type 'Prepend'; expected 'BertNormalizer', "),
        ("normalizer", {"prepend": "e"}, "has no normalizer.type"),
        ("normalizer", MORE, "a normalizer replaces 'e' by 2 characters, expected no more than it takes"),
        ("normalizer", sequence("normalizers", MORE, MORE), "a normalizer replaces 'e' by 2 characters"),
        ("normalizer", {**MORE, "content": "e" * 1000}, "normalizer.content 'e.*…; expected at most 100 characters"),
        ("normalizer", {**MORE, "pattern": {"Regex": "(e|ee)*$"}}, r"pattern.Regex .*; expected ' \{2,\}' or"),
        (
            "normalizer",
            compiled("a", "e" * 1000),
            "precompiled_charsmap replaces letters by 1,000 bytes, expected at m",
        ),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "?"}, "precompiled_charsmap is not in base64"),
        ("normalizer", sequence("normalizers", compiled("a"), compiled("b")), "a sequence has Precompiled twice"),
        (
            "normalizer",
            sequence("normalizers", sequence("normalizers")),
            "a sequence has Sequence twice, expected each",
        ),
        ("pre_tokenizer", sequence("pretokenizers", *[{"type": "ByteLevel"}] * 2), "a sequence has ByteLevel twice"),
        ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(e|ee)*$"}}, "pre_tokenizer.type 'Split'; expected"),
        ("post_processor", {"type": "TemplateProcessing", "single": [{}] * 30}, "post_processor.single .* at most 20"),
        ("decoder", {"type": "Replace", "pattern": {"String": "e"}, "content": "ee"}, "decoder.type 'Replace'; expect"),
        ("padding", {"strategy": {"Fixed": 10**9}, "pad_token": "[PAD]"}, "Fixed 1000000000; expected less"),
        ("added_tokens", [{"id": 0, "content": "e" * 1000}], "added_tokens.0.content 'e.* expected at most 100 char"),
    ],
)
def test_what_makes_a_text_much_longer_is_refused(tier, role, part, message):
    change(tier, "tokenizer.json", **{role: part})
    with pytest.raises(DataError, match=f"encoder/tokenizer.json .*{message}.*It is not loaded: copy the run again"):
        load_held_model("someone/else", tier, is_trained=True)


def test_nothing_is_read_in_place_of_what_was_checked(tier):
    change(tier, "tokenizer_config.json", fast_tokenizer_files=["tokenizer.4.0.0.json"])
    with pytest.raises(DataError, match=r"fast_tokenizer_files.0 'tokenizer.4.0.0.json'; expected 'tokenizer.json'"):
        load_held_model("someone/else", tier, is_trained=True)
    (tier / "encoder" / "tokenizer_config.json").write_text("[1]")
    with pytest.raises(DataError, match="tokenizer_config.json is not a JSON object: .*copy the run again"):
        load_held_model("someone/else", tier, is_trained=True)
    change_back = {"tokenizer_class": "T5Tokenizer"}
    (tier / "encoder" / "tokenizer_config.json").write_text(json.dumps(change_back))
    (tier / "encoder" / "tokenizer.json").rename(tier / "encoder" / "spiece.model")
    with pytest.raises(DataError, match=r"encoder has spiece.model, but no tokenizer.json, expected both"):
        load_held_model("someone/else", tier, is_trained=True)


def test_a_model_that_a_user_names_has_what_it_likes(tier):
    change(tier, "tokenizer.json", normalizer={"type": "Prepend", "prepend": "e"})
    assert load_base_model(str(tier / "encoder")).tokenizer.tokenize("a") == ["e", "##a"]


@pytest.mark.parametrize(
    "name", ["Albert", "Bert", "Camembert", "Deberta", "DebertaV2", "MPNet", "Roberta", "XLMRoberta"]
)
def test_the_tokenizers_of_the_families_are_read(tmp_path, name):
    import transformers

    kind = getattr(transformers, f"{name}Tokenizer")
    scores, places = [(word, -1.0) for word in WORDS], {word: place for place, word in enumerate(WORDS)}
    by_model = {"Unigram": {"vocab": scores}, "BPE": {"vocab": places, "merges": []}, "WordPiece": {"vocab": places}}
    options = by_model[getattr(kind.model, "__name__", "Unigram")]
    if name in ("Albert", "XLMRoberta"):
        options = {**options, "_spm_precompiled_charsmap": charsmap("صلى الله عليه وسلم", "x")}
    kind(**options).save_pretrained(tmp_path)
    check_tokenizer(tmp_path)

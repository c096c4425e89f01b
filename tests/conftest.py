"""The toy graphs, and a machine where no test can reach a mirror, a cache or a network by accident."""

import os
import secrets
import sys

# Many small products: a second thread would only wait for the first, and a busy machine makes that wait long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import pytest

from cascader.graph import KnowledgeGraph

#: Kept before the fixture below hides it; only tests of the real benchmark files may look.
MIRROR = os.environ.get("CASCADER_MIRROR")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files with slow tests first: a worker that starts the longest file last would keep the others waiting."""
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow_files)


@pytest.fixture(autouse=True, scope="session")
def a_cache_of_its_own(tmp_path_factory):
    """For what is made once for many tests: their own caches come later."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CASCADER_CACHE", str(tmp_path_factory.mktemp("cache-of-the-session")))
        yield


@pytest.fixture(autouse=True, scope="module")
def a_cache_for_each_module(a_cache_of_its_own, tmp_path_factory):
    """A cached vector depends in its last bits on the texts it was read with, so modules do not share a cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CASCADER_CACHE", str(tmp_path_factory.mktemp("cache-of-a-module")))
        yield


@pytest.fixture(autouse=True)
def a_machine_of_its_own(tmp_path_factory, monkeypatch):
    monkeypatch.delenv("CASCADER_MIRROR", raising=False)
    monkeypatch.delenv("CASCADER_WORDNET", raising=False)
    monkeypatch.setenv("CASCADER_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def random_seed() -> int:
    """Another one for every run of a test that kills at random moments; a failure shows how to repeat it."""
    seed = int(os.environ.get("CASCADER_TEST_SEED") or secrets.randbelow(2**32))
    sys.stdout.write(f"To draw the same moments again, set CASCADER_TEST_SEED={seed}\n")
    return seed


@pytest.fixture
def mirror(monkeypatch) -> Path:
    if not MIRROR or not Path(MIRROR).is_dir():
        pytest.skip("CASCADER_MIRROR names no folder with the benchmark files")
    monkeypatch.setenv("CASCADER_MIRROR", str(Path(MIRROR).resolve()))
    return Path(MIRROR)


@pytest.fixture(scope="session")
def toy() -> KnowledgeGraph:
    """Drugs, diseases and doctors: two relations, an entity that train never shows, questions with many answers."""
    return KnowledgeGraph.from_triples(
        train=[
            ("aspirin", "treats", "headache"),
            ("aspirin", "treats", "fever"),
            ("ibuprofen", "treats", "headache"),
            ("ibuprofen", "treats", "pain"),
            ("Ann", "prescribes", "aspirin"),
            ("Bob", "prescribes", "aspirin"),
            ("Bob", "prescribes", "ibuprofen"),
        ],
        valid=[("ibuprofen", "treats", "fever")],
        test=[("aspirin", "treats", "pain"), ("Ann", "prescribes", "ibuprofen"), ("Ann", "prescribes", "placebo")],
        name="toy",
    )


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> str:
    """A random language model of two tiny layers, in transformers' layout: nothing is downloaded."""
    import string

    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = str(tmp_path_factory.mktemp("tiny-model"))
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    letters = [*string.ascii_lowercase, *string.digits, *string.punctuation]
    words = [*marks.values(), *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = Tokenizer(WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(words), max_position_embeddings=128, initializer_range=0.3, **sizes)
    BertModel(config).save_pretrained(folder)
    return folder

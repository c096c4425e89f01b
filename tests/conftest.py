"""The toy graph, a tiny language model, and an environment in which no test uses a mirror or a cache by accident."""

import json
import os
import secrets
import shutil
import sys

# The tests compute many small products: a second thread would mostly wait, and wait long on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from pathlib import Path

import pytest

from cascader.graph import KnowledgeGraph
from cascader.records import write_record
from tests import processes
from tests.s3 import S3Server, serving_s3

#: Saved before the fixture below hides it; only tests of the real benchmark files may use it.
MIRROR = os.environ.get("CASCADER_MIRROR")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files with slow tests first: if the longest file started last, the other workers would wait for it."""
    slow_files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow_files)


@pytest.fixture(autouse=True, scope="session")
def a_cache_of_its_own(tmp_path_factory):
    """Give session fixtures their own cache, because those of modules and tests are set up later."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CASCADER_CACHE", str(tmp_path_factory.mktemp("cache-of-the-session")))
        yield


@pytest.fixture(autouse=True, scope="module")
def a_cache_for_each_module(a_cache_of_its_own, tmp_path_factory):
    """Give each module its own cache: the last bits of a cached vector depend on the texts it was computed with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CASCADER_CACHE", str(tmp_path_factory.mktemp("cache-of-a-module")))
        yield


@pytest.fixture(autouse=True)
def a_machine_of_its_own(tmp_path_factory, monkeypatch):
    monkeypatch.delenv("CASCADER_MIRROR", raising=False)
    monkeypatch.delenv("CASCADER_WORDNET", raising=False)
    monkeypatch.setenv("CASCADER_CACHE", str(tmp_path_factory.mktemp("cache")))


def accept_every_gain(folder: Path) -> None:
    """Let a tuned run choose every tier, and give weight to one that reads pairs.

    The few valid triples of a tiny graph can prove no gain, and a language model that has hardly learned has none.
    """
    path = folder / "tuning.json"
    saved = json.loads(path.read_text())
    sizes = [(trial["pairs_per_query"] > 0, len(trial["tiers"])) for trial in saved["trials"]]
    for trial, size in zip(saved["trials"], sizes, strict=True):
        trial["p_value"] = None
        trial["valid_mrr"] /= 1 if size == max(sizes) else 2
        for later in trial["later"]:
            if later["keep"] is not None and 1.0 in (later["alpha"]["head"], later["alpha"]["tail"]):
                later |= {"alpha": {"head": 0.9, "tail": 0.9, "relations": {}}, "scale": "standardized"}
    write_record(path, {name: value for name, value in saved.items() if name != "sha256"})


@pytest.fixture
def random_seed() -> int:
    """Draw a new seed for tests that kill at random moments; a failure shows how to repeat it."""
    seed = int(os.environ.get("CASCADER_TEST_SEED") or secrets.randbelow(2**32))
    sys.stdout.write(f"To repeat the same moments, set CASCADER_TEST_SEED={seed}\n")
    return seed


@pytest.fixture
def forked_workers() -> Iterator[None]:
    """Let workers start in a moment; how they start is tested with the engines and the trainings themselves."""
    with processes.forked_workers():
        yield


@pytest.fixture
def mirror(monkeypatch) -> Path:
    if not MIRROR or not Path(MIRROR).is_dir():
        pytest.skip("CASCADER_MIRROR names no folder with the benchmark files")
    monkeypatch.setenv("CASCADER_MIRROR", str(Path(MIRROR).resolve()))
    return Path(MIRROR)


@pytest.fixture(scope="session")
def toy() -> KnowledgeGraph:
    """Make a graph of drugs, diseases and doctors, with an entity outside train and questions with many answers."""
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
    """Make a random language model with two tiny layers in transformers' format, without downloading anything."""
    return make_tiny_model(str(tmp_path_factory.mktemp("tiny-model")), layer_count=2)


@pytest.fixture(scope="session")
def three_layers(tmp_path_factory) -> str:
    """Make a random language model that a cross encoder can be split in: two layers above, one below."""
    return make_tiny_model(str(tmp_path_factory.mktemp("three-layers")), layer_count=3)


@pytest.fixture(scope="session")
def reading_run(tmp_path_factory, tiny_model) -> Path:
    """Fit a run whose cascade reads pairs, of which none is stored; nobody may write into it."""
    import cascader

    facts = [(f"abc {a}", "likes", f"xyz {b}") for a in "abcdefgh" for b in "uvwxyz"]
    kg = KnowledgeGraph.from_triples(facts[:36], valid=facts[36:42], test=facts[42:])
    quick = {"base": tiny_model, "rounds": 1, "queries_per_round": 8, "split_layer": 0, "precision": "float32"}
    folder = tmp_path_factory.mktemp("reading") / "run"
    cascader.fit(kg, folder, tiers="kge,cross", settings={"kge": {"dim": 4, "epochs": 2}, "cross": quick})
    accept_every_gain(folder)
    cascader.load_run(folder).predictor()  # calibrates what is chosen now
    shutil.rmtree(folder / "scores")
    return folder


def make_tiny_model(folder: str, layer_count: int) -> str:
    """Save a random language model in the folder."""
    import string

    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    letters = [*string.ascii_lowercase, *string.digits, *string.punctuation]
    words = [*marks.values(), *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = Tokenizer(WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": layer_count, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(words), max_position_embeddings=128, initializer_range=0.3, **sizes)
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """Start an S3 server on loopback, once."""
    pytest.importorskip("moto", reason="moto, the S3 server of the tests, is not installed")
    with serving_s3() as server:
        yield server


@pytest.fixture
def s3(s3_server, monkeypatch) -> S3Server:
    """Let this process use the server."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server

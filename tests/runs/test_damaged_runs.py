"""A run is a folder that a colleague can be sent: whatever happened to it on the way, it works or says why not."""

import json
import os
import shutil
import socket
from random import Random

import numpy as np
import pytest

import cascader
from cascader.errors import DataError
from cascader.models.text import CrossEncoder, DualEncoder, LateInteraction
from cascader.records import write_record
from tests.run_mutations import copied, sign, try_one, use

CASES = {"structure": 60, "texts": 12}
BIT = 3


@pytest.fixture(scope="module")
def kg():
    facts = [(f"drug {a}", "treats", f"disease {b}") for a in "abcdefgh" for b in "uvwxyz"]
    facts = [facts[place] for place in np.random.default_rng(0).permutation(len(facts))]
    like = [(f"drug {a}", "is like", f"drug {b}") for a in "abcdefgh" for b in "bdf"]
    return cascader.KnowledgeGraph.from_triples([*facts[8:], *like], valid=facts[:4], test=facts[4:8], name="drugs")


@pytest.fixture(scope="module")
def structure(kg, tmp_path_factory):
    """A run of all tiers that learn from structure, tuned, calibrated and measured."""
    folder = tmp_path_factory.mktemp("structure") / "run"
    tiers = ["plausibility", "rules", "similarity", "kge"]
    run = cascader.fit(kg, folder, tiers=tiers, settings={"kge": {"dim": 4, "epochs": 3}})
    run.evaluate("test").save(folder / "results")
    use(folder)
    return folder


@pytest.fixture(scope="module")
def texts(kg, three_layers, tmp_path_factory):
    """A run of tiers that read texts, with the scores of some pairs."""
    folder, base = tmp_path_factory.mktemp("texts") / "run", {"base": three_layers}
    tiers = {
        "dual": DualEncoder(**base, epochs=1, dim=8).fit(kg),
        "late": LateInteraction(**base, layer=2, epochs=1, dim=8).fit(kg),
        "cross": CrossEncoder(**base, rounds=1, queries_per_round=8, split_layer=1, precision="float32").fit(kg),
    }
    run = cascader.save_run(folder, kg, tiers)
    run.evaluate("test").save(folder / "results")
    use(folder)
    return folder


@pytest.fixture
def run(structure, tmp_path):
    """The first run for one test, which may damage it."""
    return copied(structure, tmp_path / "run")


@pytest.mark.parametrize("kind", CASES)
def test_a_damaged_run_works_or_says_why_not(kind, request, tmp_path):
    folder, found = request.getfixturevalue(kind), []
    for case in range(CASES[kind]):
        what, error = try_one(folder, Random(case), tmp_path)  # make fuzz draws others
        found.append(error)
        if error is not None:
            assert isinstance(error, DataError), what
            assert str(tmp_path) in str(error) and "\n" not in str(error), f"{what}: {error}"
    assert 0 < sum(error is None for error in found) < len(found)  # some damage does not matter, most is found


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1 << BIT
    path.unlink()
    path.write_bytes(content)


def test_a_flipped_bit_in_the_weights_is_found_at_load(run):
    flipped(run / "tiers" / "kge" / "model.safetensors")
    found = r"tiers/kge/model.safetensors is damaged: its [0-9,]+ bytes have the sha256 \w{12}, expected \w{12}. Copy"
    with pytest.raises(DataError, match=found):
        cascader.load_run(run)
    assert cascader.load_run(run, verify=False).tiers  # the impatient get what is there


def test_a_flipped_bit_is_found_by_fit_too_and_never_signed(kg, run):
    flipped(run / "tiers" / "similarity" / "model.safetensors")
    tiers, settings = ["plausibility", "rules", "similarity", "kge"], {"kge": {"dim": 4, "epochs": 3}}
    with pytest.raises(DataError, match="model.safetensors is damaged: .* Delete .*/tiers/similarity, and fit again"):
        cascader.fit(kg, run, tiers=tiers, settings=settings)
    shutil.rmtree(run / "tiers" / "similarity")
    again = cascader.fit(kg, run, tiers=tiers, settings=settings)
    assert cascader.load_run(run).kg.data_hash == again.kg.data_hash


def test_a_kill_while_a_tier_is_trained_anew_leaves_a_run_that_the_same_call_finishes(kg, run, monkeypatch):
    tiers, settings = ["plausibility", "rules", "similarity", "kge"], {"kge": {"dim": 4, "epochs": 3}}
    shutil.rmtree(run / "tiers" / "kge")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("cascader.runs.folder.RunFolder.mark_complete", killed)
        cascader.fit(kg, run, tiers=tiers, settings=settings)
    with pytest.raises(DataError, match="holds no complete run"):
        cascader.load_run(run)
    cascader.fit(kg, run, tiers=tiers, settings=settings)
    use(run)


@pytest.mark.parametrize("name", ["../../out", "a/b", "..", "kge+dual", ""])
def test_the_name_of_a_tier_cannot_lead_out_of_the_run(run, name):
    saved = json.loads((run / "run.json").read_text())
    write_record(run / "run.json", {**without_sum(saved), "tiers": {name: "complex"}})
    with pytest.raises(DataError, match=r"run.json has tiers\..* expected a tier name. Copy it again"):
        cascader.load_run(run, verify=False)


def test_a_tier_of_another_kind_than_the_run_says_is_refused(run):
    saved = json.loads((run / "run.json").read_text())
    write_record(run / "run.json", {**without_sum(saved), "tiers": {**saved["tiers"], "kge": "rotate"}})
    with pytest.raises(DataError, match="the tier kge of .* is a complex, expected rotate"):
        cascader.load_run(run)


@pytest.mark.parametrize("name", ["run.json", "tiers/kge/model.json", "graph/train.parquet", ".lock", "results/x.json"])
def test_a_fifo_anywhere_is_refused_at_once(run, name):
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    with pytest.raises(DataError, match=f"{name} is a FIFO, expected nothing but files"):
        cascader.load_run(run)


def test_nothing_is_written_through_a_link_out_of_the_run(kg, run, tmp_path):
    (tmp_path / "precious.txt").write_text("precious")
    (run / "events.jsonl").unlink()
    (run / "events.jsonl").symlink_to(tmp_path / "precious.txt")
    with pytest.raises(DataError, match="events.jsonl is a link to .*precious.txt, which is not in"):
        cascader.fit(kg, run, tiers="kge", settings={"kge": {"dim": 4, "epochs": 3}})
    assert (tmp_path / "precious.txt").read_text() == "precious"


def test_a_link_from_elsewhere_to_the_run_is_fine(run, tmp_path):
    (tmp_path / "link").symlink_to(run)
    assert cascader.load_run(tmp_path / "link").tiers


class TestTheLanguageModelOfATier:
    @pytest.fixture
    def run(self, texts, tmp_path):
        return copied(texts, tmp_path / "run")

    @pytest.fixture(autouse=True)
    def no_network(self, monkeypatch):
        def reached(*_, **__):
            raise AssertionError("the network was reached")

        monkeypatch.setattr(socket.socket, "connect", reached)
        monkeypatch.setattr(socket, "getaddrinfo", reached)

    def change_settings(self, run, tier, **changes):
        path = run / "tiers" / tier / "model.json"
        saved = json.loads(path.read_text())
        path.unlink()
        path.write_text(json.dumps({**saved, "settings": {**saved["settings"], **changes}}))
        sign(run)

    def test_it_is_in_the_run_so_that_another_machine_can_read_new_texts(self, run):
        self.change_settings(run, "dual", base="/nowhere/on/this/machine")
        loaded = cascader.load_run(run)
        assert len(loaded.only(["dual"]).predict_new("aspirin: a drug", "treats", top=2)) == 2

    @pytest.mark.parametrize("tier", ["dual", "late", "cross"])
    def test_the_hub_is_never_asked_for_what_the_settings_of_a_run_name(self, kg, run, tier):
        self.change_settings(run, tier, base="someone/evil-model")
        shutil.rmtree(run / "tiers" / tier / "encoder")
        sign(run)
        with pytest.raises(DataError, match="encoder has no config.json"):
            new = [cascader.Entity("aspirin", "aspirin")]
            cascader.load_run(run).tiers[tier].for_new_entities(new, kg, None)

    @pytest.mark.parametrize(
        ("file", "content", "message"),
        [
            ("config.json", {"auto_map": {"AutoModel": "evil--x.Evil"}}, "'auto_map', which asks for code of others"),
            ("config.json", {"quantization_config": {}}, "'quantization_config', which asks for code of others"),
            ("adapter_config.json", {"base_model_name_or_path": "x/y"}, "asks for more than this folder has"),
            (
                "config.json",
                {"model_type": "gpt2"},
                "the language model .* has no weights h.0.attn",
            ),
            (
                "tokenizer.json",
                {"normalizer": {"type": "Prepend", "prepend": "e"}},
                "has normalizer.type 'Prepend'; exp",
            ),
            ("config.json", {"hidden_size": 16_000}, "has hidden_size 16,000, but its weights have at most"),
            ("config.json", {"num_hidden_layers": 10**9}, "has num_hidden_layers 1,000,000,000, but its weights"),
        ],
    )
    def test_none_that_asks_for_code_or_for_other_files_is_loaded(self, run, file, content, message):
        path = run / "tiers" / "cross" / "encoder" / file
        saved = json.loads(path.read_text()) if path.exists() else {}
        path.unlink(missing_ok=True)
        path.write_text(json.dumps({**saved, **content}))
        sign(run)
        with pytest.raises(cascader.CascaderError, match=message):
            cascader.load_run(run)

    def test_no_pickle_is_read(self, run):
        encoder = run / "tiers" / "cross" / "encoder"
        (encoder / "model.safetensors").rename(encoder / "pytorch_model.bin")
        sign(run)
        with pytest.raises(DataError, match="cannot load the language model .*no file named model.safetensors"):
            cascader.load_run(run)


def without_sum(saved):
    return {name: value for name, value in saved.items() if name != "sha256"}

"""The commands of docs/serve.md, run as they stand there against a server of the run that they speak of."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.serve.conftest import forked_server_of

BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
DOCUMENT = Path(__file__).parents[2] / "docs" / "serve.md"


@pytest.fixture
def mine(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"drug {i}\ttreats\tdisease {j}" for i in range(6) for j in range(5)]
    (tmp_path / "my-graph.tsv").write_text("\n".join(rows) + "\n")
    small = ["--tiers", "kge", "--set", "dim=4", "--set", "epochs=2"]
    assert run("fit", "my-graph.tsv", "--out", "runs/mine", *small)[0] == 0
    return Path("runs/mine")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_every_command_of_the_guide_works(mine):
    start, asking = BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert shlex.split(start) == ["cascader", "serve", str(mine), "--port", "8000"]
    commands = asking.replace("\\\n", " ").splitlines()
    assert len(commands) == 7
    with forked_server_of(mine) as (_, address):
        for command in commands:
            words = shlex.split(command.replace("http://localhost:8000", address))
            assert words[0] == "curl"
            said = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
            assert "error" not in said, command
            assert all("error" not in each for each in said.get("answers", []))

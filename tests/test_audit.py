"""`make audit` reads what pip-audit found, and does not take what was never looked up for good news."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "audit.py"
UNKNOWN = {"name": "torch", "skip_reason": "Dependency not found on PyPI and could not be audited"}
GOOD = {"name": "numpy", "version": "2.0", "vulns": []}
BAD = {"name": "jinja2", "version": "2.4.1", "vulns": [{"id": "PYSEC-2014-8", "fix_versions": ["2.7.3"]}]}


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ([BAD, GOOD], 1, "jinja2 2.4.1: PYSEC-2014-8, fixed in 2.7.3\n2 of 2 packages were compared"),
        ([GOOD, UNKNOWN], 0, "1 of 2 packages were compared"),
        ([UNKNOWN, UNKNOWN], 0, "Skipped: no advisories can be looked up from here for any of 2 packages"),
        (None, 0, "Skipped: the published advisories cannot be reached"),
    ],
)
def test_what_was_not_compared_is_not_called_harmless(found, code, said):
    given = "" if found is None else json.dumps({"dependencies": found})
    done = subprocess.run([sys.executable, SCRIPT], input=given, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    assert said in done.stdout

"""Results that someone sent: figures in JSON, ranks in Parquet, given to the commands that compare them."""

import json

from hypothesis import strategies as st

from tests.fuzz.case import CommandLine
from tests.fuzz.documents import damaged_json
from tests.fuzz.material import Material
from tests.fuzz.mutations import damaged, damages

_COMMANDS = (
    ("compare", "results/words/cascade.json", "results/words/frequency.json"),
    ("compare", "results/words/frequency.json", "results/words/cascade.json", "--json"),
    ("table", "results"),
)


@st.composite
def cases(draw: st.DrawFn, material: Material) -> CommandLine:
    """Draw results of which one file is damaged."""
    files = dict(material.results)
    name = draw(st.sampled_from(sorted(files)))
    if name.endswith(".json") and draw(st.integers(0, 3)):
        files[name] = draw(damaged_json(_without_sum(files[name])))
    else:
        files[name] = damaged(files[name], draw(damages(2)))
    return CommandLine(draw(st.sampled_from(_COMMANDS)), {f"results/words/{each}": files[each] for each in files})


def _without_sum(content: bytes) -> bytes:
    """A result as older versions wrote it: with a sum, whatever is changed in it would be found by that alone."""
    return json.dumps({name: value for name, value in json.loads(content).items() if name != "sha256"}).encode()

"""Damage run folders at random, as disks, kills, careless and hostile people do; `make fuzz` uses this, too.

`mutate(folder, rng)` damages one file of a run and says how; `sign(folder)` makes all sums right again, as a stranger
who wants us to read the damage would do; `use(folder)` reads all that a run has. A damaged run must work, or say in a
sentence why not: any other error is ours. `try_one(run, rng, scratch)` does all of that once:

    for seed in range(10_000):
        what, error = try_one(run, Random(seed), scratch)
"""

import hashlib
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import cascader
from cascader.errors import CascaderError
from cascader.evaluation import Evaluation
from cascader.records import sums_of, write_record

#: Values that no file of a run has where they are put.
_HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    10**18,
    10**30,
    float("nan"),
    float("inf"),
    1e308,
    "",
    "x",
    "../../../tmp/out",
    "/etc/passwd",
    "\x00",
    "１２",
    [],
    {},
    [[[]]],
    {"x": 1},
    ["x"] * 3,
)
_COVERED = ("graph", "tiers")


def copied(run: Path, target: Path) -> Path:
    """Copy a run in a moment: unchanged files are shared, since nothing writes into a file that is there."""
    return Path(shutil.copytree(run, target, copy_function=os.link))


def try_one(run: Path, rng: Random, scratch: Path) -> tuple[str, CascaderError | None]:
    """Damage a copy of a run and use it; returns what was done, and the error if one was raised that users can read."""
    folder = copied(run, scratch / "run")
    try:
        what = mutate(folder, rng)
        if rng.random() < 0.7:
            sign(folder)
            what += ", and signed"
        use(folder, verify=rng.random() < 0.5)
    except CascaderError as error:
        return what, error
    finally:
        shutil.rmtree(folder)
    return what, None


def use(folder: Path, verify: bool = True) -> None:
    """Load a run, ask it in all ways, and read its results."""
    run = cascader.load_run(folder, verify=verify)
    anchor, relation, other = run.kg.entities[0].id, run.kg.relations[0].id, run.kg.entities[1].id
    for answer in run.predict(anchor, relation, top=3, with_known=True):
        assert np.isfinite(answer.score) and answer.why() is not None
    if any(model.needs_texts for model in run.tiers.values()):
        run.predict_new("aspirin: a drug", relation)
    run.classify([(anchor, relation, other)])
    run.evaluate("test")
    run.evaluate("test", tiers=list(run.tiers)[:2], top=3)
    for path in sorted((folder / "results").glob("*.json")):
        Evaluation.load(path)


def files_of(folder: Path) -> list[Path]:
    """All files of a run except the lock."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))


def mutate(folder: Path, rng: Random) -> str:
    """Damage one file of a run in a way that is drawn at random, and say what was done to which."""
    path = rng.choice(files_of(folder))
    ways = [_flip, _flip, _cut, _grow, _delete, _empty, _fifo, _replace_by_folder, _link_out, _swap_files]
    if path.suffix == ".json":
        ways += [_change_json] * 12
    if path.suffix == ".safetensors":
        ways += [_change_header] * 6
    way = rng.choice(ways)
    return f"{path.relative_to(folder)}: {way(path, rng)}"


def sign(folder: Path) -> None:
    """Make the sums right again, wherever a file can still be read as JSON."""
    for path in files_of(folder):
        content = _loaded(path) if path.suffix == ".json" else None
        if not isinstance(content, dict) or "sha256" not in content:
            continue
        if path.name == "run.json" and path.parent == folder:
            content["files"] = {
                f"{part}/{name}": asdict(found)
                for part in _COVERED
                for name, found in sums_of(folder / part, without=("checkpoint.safetensors",)).items()
            }
        if path.name == "tuning.json" and (path.parent / "tuning.safetensors").is_file():
            content["arrays"] = hashlib.sha256((path.parent / "tuning.safetensors").read_bytes()).hexdigest()
        _write_record(path, {name: value for name, value in content.items() if name != "sha256"})


def _write_record(path: Path, content: dict[str, Any]) -> None:
    try:
        write_record(path, content)
    except ValueError:  # a number that JSON does not have: the sum cannot be right either
        _put(path, json.dumps(content).encode())


def _loaded(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, OSError, RecursionError):
        return None


def _put(path: Path, content: bytes) -> None:
    """Write a new file: the old one may be shared with other copies of the run."""
    path.unlink()
    path.write_bytes(content)


# Ways to damage a file.


def _flip(path: Path, rng: Random) -> str:
    content = bytearray(path.read_bytes())
    if not content:
        return _grow(path, rng)
    # Headers are at the beginning, or at the end.
    places = [
        rng.randrange(len(content)),
        rng.randrange(min(len(content), 512)),
        -1 - rng.randrange(min(len(content), 64)),
    ]
    place, bit = rng.choice(places), rng.randrange(8)
    content[place] ^= 1 << bit
    _put(path, bytes(content))
    return f"bit {bit} of byte {place} flipped"


def _cut(path: Path, rng: Random) -> str:
    content = path.read_bytes()
    length = rng.randrange(len(content)) if content else 0
    _put(path, content[:length])
    return f"cut after {length} of {len(content)} bytes"


def _grow(path: Path, rng: Random) -> str:
    _put(path, path.read_bytes() + rng.randbytes(rng.randint(1, 64)))
    return "bytes added at the end"


def _delete(path: Path, rng: Random) -> str:
    path.unlink()
    return "deleted"


def _empty(path: Path, rng: Random) -> str:
    _put(path, b"")
    return "emptied"


def _fifo(path: Path, rng: Random) -> str:
    path.unlink()
    os.mkfifo(path)
    return "replaced by a FIFO"


def _replace_by_folder(path: Path, rng: Random) -> str:
    path.unlink()
    path.mkdir()
    return "replaced by a folder"


def _link_out(path: Path, rng: Random) -> str:
    target = rng.choice(["/dev/zero", "/etc/passwd", "/dev/null", "nowhere", "../../outside", str(path)])
    path.unlink()
    path.symlink_to(target)
    return f"replaced by a link to {target}"


def _swap_files(path: Path, rng: Random) -> str:
    """Put the content of another file of the same kind in place of this one's."""
    root = next(parent for parent in path.parents if (parent / "graph").exists() or parent == parent.parent)
    others = [other for other in root.rglob(f"*{path.suffix}") if other.is_file() and other != path]
    if not others:
        return _delete(path, rng)
    other = rng.choice(sorted(others))
    _put(path, other.read_bytes())
    return f"replaced by {other.relative_to(root)}"


def _change_json(path: Path, rng: Random) -> str:
    content = _loaded(path)
    if not isinstance(content, dict | list) or not content:
        return _grow(path, rng)
    done = _change_value(content, rng)
    _put(path, json.dumps(content).encode())
    return done


def _change_value(content: Any, rng: Random) -> str:
    """Change one value, or one name, somewhere in a JSON value."""
    where, holder = "", content
    while True:
        key = rng.choice(list(holder) if isinstance(holder, dict) else list(range(len(holder))))
        where += f".{key}"
        inner = holder[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.2:
            break
        holder = inner
    way = rng.choice(["value", "value", "value", "delete", "twice", "number"])
    if way == "delete":
        del holder[key]
        return f"{where} deleted"
    if way == "twice" and isinstance(holder, list):
        holder.append(inner)
        return f"{where} twice"
    if way == "number" and isinstance(inner, int | float):
        holder[key] = rng.choice([inner + 1, -inner, inner * 1000, inner / 3, str(inner)])
        return f"{where} is {holder[key]!r}"
    value = rng.choice(_HOSTILE)
    if isinstance(holder, dict) and rng.random() < 0.2:
        holder[str(value)] = holder.pop(key)
        return f"{where} renamed to {value!r}"
    holder[key] = value
    return f"{where} is {value!r}"


def _change_header(path: Path, rng: Random) -> str:
    """Change the JSON header of a safetensors file: names, shapes and types of tensors."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + length])
        if not header:
            return _grow(path, rng)
        name = rng.choice([each for each in header if each != "__metadata__"] or list(header))
        tensor = header[name]
        way = rng.choice(["shape", "type", "name", "any"])
        if way == "shape":
            tensor["shape"] = rng.choice([tensor["shape"][::-1], [*tensor["shape"], 1], [1, *tensor["shape"]]])
        elif way == "type":
            same = {"F32": ["I32", "U32"], "I64": ["F64", "U64"], "I32": ["F32"], "F16": ["BF16", "I16"]}
            tensor["dtype"] = rng.choice(same.get(tensor["dtype"], ["F32"]))
        elif way == "name":
            header[f"{name}x"] = header.pop(name)
        else:
            _change_value(header, rng)
        written = json.dumps(header).encode()
    except (ValueError, KeyError, TypeError, IndexError):
        return _grow(path, rng)
    _put(path, len(written).to_bytes(8, "little") + written + content[8 + length :])
    return f"header of tensor {name}: {way}"

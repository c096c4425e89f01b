"""Fits at the URL of a bucket that meet with faults, in a process of its own.

Its children are forked, and must find no thread of others.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import boto3
import pyarrow.parquet  # noqa: F401 - loaded once, for all children
import s3fs  # noqa: F401
import scipy.stats  # noqa: F401
import torch._dynamo  # noqa: F401 - by the first optimizer

import cascader.models.embeddings.training  # noqa: F401
import cascader.runs  # noqa: F401
from cascader.storage.lease import SECONDS_VARIABLE
from cascader.storage.remote import Remote
from tests.faults.processes import Child

#: So many more puts are let through at each attempt before the process kills itself.
_MORE_PUTS = 6
_LONGEST_SECONDS = 120


def main(bucket: str, folder: Path) -> None:
    """Perform all faults, and print their outcome as JSON."""
    graph = folder / "likes.tsv"
    graph.write_text("".join(f"abc {a}\tlikes\txyz {b}\n" for a in "abcdefgh" for b in "uvwxyz"))

    def fit(out: str, machine: str, at_put: Callable[[int], None] | None = None) -> Child:
        options = ["--tiers", "rules,kge", "--set", "epochs=4", "--set", "dim=4", "--set", "batch_size=16"]
        arguments = ["fit", str(graph), *options, "--out", out]
        return Child(arguments, folder / f"{machine}.log", lambda: _become_machine(folder / machine, at_put))

    outcome = {
        "plain": fit(str(folder / "plain"), "plain").ended(_LONGEST_SECONDS),
        "kills": _killed(fit, f"s3://{bucket}/killed"),
        "together": _together(fit, f"s3://{bucket}/together"),
        "vanished": _vanished(fit, bucket),
    }
    sys.stdout.write(json.dumps(outcome))


def _become_machine(cache: Path, at_put: Callable[[int], None] | None) -> None:
    """Use a cache of its own, and let something happen when files are put: once before each, and once after."""
    os.environ["CASCADER_CACHE"] = str(cache)
    if at_put is None:
        return
    put, numbers = Remote.put, count(1)

    def put_and_more(remote: Remote, name: str, source: Path) -> str:
        at_put(next(numbers))
        version = put(remote, name, source)
        at_put(next(numbers))
        return version

    Remote.put = put_and_more  # type: ignore[method-assign]


def _killed(fit: Callable[..., Child], url: str) -> int:
    """Kill a fit again and again, each time on another machine, until one ends; return how many were killed."""
    os.environ[SECONDS_VARIABLE] = "0.5"  # of the leases that the killed ones leave
    number = 0
    while True:
        last = 1 + (2 * _MORE_PUTS + 1) * number  # odd and even: before a put, and right after one

        def kill(now: int, last: int = last) -> None:
            if now > last:
                os.kill(os.getpid(), signal.SIGKILL)

        child = fit(url, f"killed {number}", kill)
        code = child.ended(_LONGEST_SECONDS)
        if code == 0:
            return number
        assert code == -signal.SIGKILL, child.printed()
        number += 1


def _together(fit: Callable[..., Child], url: str) -> dict[str, object]:
    """Fit the same run on two machines at once."""
    os.environ[SECONDS_VARIABLE] = "30"
    first = fit(url, "first", lambda now: time.sleep(0.1))
    while not _objects(url):
        time.sleep(0.05)
    second = fit(url, "second")
    codes = [child.ended(_LONGEST_SECONDS) for child in (first, second)]
    return {"codes": codes, "printed": second.printed()}


def _objects(url: str) -> list[str]:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    found = boto3.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix)
    return [each["Key"] for each in found.get("Contents", [])]


def _vanished(fit: Callable[..., Child], other: str) -> dict[str, object]:
    """Take the bucket away in the middle; then make it again, and fit on the same machine."""
    bucket = f"{other}-vanishing"
    client, url = boto3.client("s3"), f"s3://{bucket}/mine"
    client.create_bucket(Bucket=bucket)

    def take_away(now: int) -> None:
        if now == 20:
            mine = boto3.client("s3")
            for key in _objects(url):
                mine.delete_object(Bucket=bucket, Key=key)
            mine.delete_bucket(Bucket=bucket)

    child = fit(url, "vanishing", take_away)
    code, printed = child.ended(_LONGEST_SECONDS), child.printed()
    client.create_bucket(Bucket=bucket)
    again = fit(url, "vanishing")
    return {"codes": [code, again.ended(_LONGEST_SECONDS)], "printed": printed, "again": again.printed()}

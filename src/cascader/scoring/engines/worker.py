"""A worker's side of the local engine."""

import os
import signal
import sys
import threading
import traceback
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any

from cascader.errors import CascaderError, EngineError
from cascader.progress import no_progress
from cascader.scoring.engines.engine import Call, Task


def serve(connection: Connection, threads: int) -> None:
    """Load once, then work on one shard after the other, until the engine or its process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the engine's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if "torch" in sys.modules:  # the user's script may have loaded it, and set another number
        sys.modules["torch"].set_num_threads(threads)
    kept: dict[Call | None, Any] = {}
    with no_progress():
        while True:
            try:
                task, place, shard = connection.recv()
            except EOFError:
                return
            connection.send(_done(task, shard, kept) or place)


def _done(task: Task, shard: Any, kept: dict[Call | None, Any]) -> CascaderError | None:  # noqa: ANN401
    """Work on a shard; what went wrong, if anything did."""
    try:
        if task.load is not None and task.load not in kept:
            kept.clear()  # two models at a time may be more than memory holds
            kept[task.load] = task.load()
        task.work(kept.get(task.load), shard)
    except CascaderError as error:
        return error
    except Exception:
        return EngineError(f"a worker failed, which should not happen:\n{traceback.format_exc()}")
    return None


def _end_with_parent() -> None:
    """A process that is killed cannot end its workers, so that they must do it themselves."""
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)

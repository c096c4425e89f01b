"""The engine of a Ray cluster: workers on many machines, each of which loads its model once.

Scores go from the workers into the files of a run. What Ray carries are pairs to the workers, and positions back.
"""

import logging
import os
import platform
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from cascader.display import no_progress
from cascader.errors import CascaderError, EngineError, MissingExtraError, SettingsError, StorageError
from cascader.scoring.engine import THREADS, Call, Task, cores, done
from cascader.scoring.ray_address import NEW_HERE, check_reachable
from cascader.scoring.shares import ShareEngine
from cascader.storage import CACHE_VARIABLE, versions_of

logger = logging.getLogger(__name__)
#: How often a shard is given to another worker, and how many workers in a row may fail to start.
_RETRIES = 3
#: How long a cluster without a free CPU is waited for before a note says so.
_SECONDS_UNTIL_NOTE = 30.0
#: Scores do not pass through Ray's object store, so that the smallest is large enough (Ray takes no less than 75 MB).
_OBJECT_STORE_BYTES = 80 << 20
#: What scores depend on, to the last bit; Ray itself insists on its own version and on that of Python.
_PACKAGES = ("cascader", "torch", "transformers")


class Worker:
    """What runs in a process of the cluster: it loads once, then works on one shard after another."""

    def __init__(self, versions: dict[str, str]) -> None:
        self._refusal = _refusal(versions, versions_of(_PACKAGES))
        self._loaded: dict[Call | None, object] = {}

    def begin(self) -> EngineError | None:
        """Return why this worker must not score: another version would give other bytes."""
        return self._refusal

    def work(self, task: Task, place: int, shard: object) -> int | CascaderError:
        """Work on a shard, and return its position, or the error if there was one."""
        with no_progress():
            error = done(task, shard, self._loaded)
        return place if error is None else _with_node(error)


def _with_node(error: CascaderError) -> CascaderError:
    """Say on which node a disk is full, credentials fail or a package is missing: the user's own may be in order."""
    if isinstance(error, StorageError | MissingExtraError):
        return type(error)(f"on the node {platform.node()}: {error}")
    return error


def _refusal(expected: dict[str, str], found: dict[str, str]) -> EngineError | None:
    for package, version in expected.items():
        if found.get(package) != version:
            has = found.get(package, "none")
            return EngineError(
                f"the node {platform.node()} has {package} {has}, but this command runs with {version}. Scores may "
                f"differ between versions: install {package} {version} on every node."
            )
    return None


def check_engine(engine: object, device: str) -> None:
    """Find out before hours of training what a cluster would refuse after them: a device, or an address."""
    check_device(engine, device)
    if isinstance(engine, RayEngine):
        engine.check_address()


def check_device(engine: object, device: str) -> None:
    """Refuse to have a cluster score on GPUs: its workers ask for CPUs, so that those of a machine would share one."""
    inner = engine.engine if isinstance(engine, ShareEngine) else engine
    if isinstance(inner, RayEngine) and device != "cpu":
        raise SettingsError(
            f"the device is {device}, but Ray's workers ask for CPUs only: all of a machine would share its first GPU. "
            "Score on the CPU with --engine ray --device cpu, or on the GPU with --processes 1 and no Ray."
        )


class RayEngine:
    """Runs shards in the workers of a Ray cluster: the one at `address`, or one that is started on this machine.

    Without an `address`, RAY_ADDRESS names the cluster, or else `ray start` has started it on this machine. Each of the
    `workers` takes a CPU; without a number, all CPUs of the cluster are used. A shard whose worker is lost is given to
    another. All nodes need the same version of cascader, and the run at a URL or under the same path.

    >>> from cascader import RayEngine
    >>> RayEngine("10.0.0.1:6379", workers=32)
    RayEngine('10.0.0.1:6379', workers=32)
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        if find_spec("ray") is None:
            raise MissingExtraError("RayEngine needs Ray. Install it with: pip install 'cascader[ray]'")
        if workers is not None and workers < 1:
            raise SettingsError(f"workers is {workers}, expected at least 1.")
        self.address, self.workers = address, workers
        self._is_ours = False  # whether this engine has connected, and has to disconnect
        self._starting: dict[Any, Any] = {}  # workers by what they promise to answer once they have started
        self._idle: list[Any] = []
        self._failures = 0  # workers that could not start, in a row

    def __repr__(self) -> str:
        return f"RayEngine({self.address!r}, workers={self.workers})"

    def __enter__(self) -> "RayEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check_address(self) -> None:
        """Refuse an address at which nothing answers, without connecting."""
        address = self._named_address()
        if address and not self._is_ours:
            check_reachable(address)

    def _named_address(self) -> str | None:
        return self.address or os.environ.get("RAY_ADDRESS")

    def run(self, task: Task, shards: Sequence[Any], loaded: object = None) -> Iterator[int]:
        """Yield the position of each shard once it is done."""
        if task.load is None:
            raise SettingsError(
                "this work cannot be rebuilt in another process, which Ray's workers are. Give a model of a run whose "
                "folder can be written to, or leave out --engine ray."
            )
        return self._run(task, shards)

    def _run(self, task: Task, shards: Sequence[Any]) -> Iterator[int]:
        left, losses = deque(range(len(shards))), Counter[int]()
        busy: dict[Any, tuple[Any, int]] = {}  # a worker and its shard, by the promised answer
        try:
            while left or busy:
                self._start(len(left) + len(busy), len(busy))
                while left and self._idle:
                    worker, place = self._idle.pop(), left.popleft()
                    busy[worker.work.remote(task, place, shards[place])] = worker, place
                for promise in self._answered([*self._starting, *busy], is_working=bool(busy)):
                    if promise in self._starting:
                        self._welcome(promise)
                        continue
                    worker, place = busy.pop(promise)
                    loss = _loss(promise)
                    if loss is None:
                        self._idle.append(worker)
                        yield place
                    else:
                        _kill(worker)
                        losses[place] += 1
                        _check_losses(losses[place], loss)
                        left.appendleft(place)
        except BaseException:  # an interrupt, or a caller that stops early: leave no worker busy
            for worker, _ in busy.values():
                _kill(worker)
            raise

    def _start(self, wanted: int, busy: int) -> None:
        """Start as many workers as there is work and room for; a cluster may grow and shrink meanwhile."""
        ray = self._connected()
        room = self.workers or int(ray.cluster_resources().get("CPU", 0))
        if room < 1:
            raise EngineError(
                f"the Ray cluster at {ray.get_runtime_context().gcs_address} has no CPUs. Add a node to it with: ray "
                "start --address=HEAD:6379"
            )
        variables = {**dict.fromkeys(THREADS, "1"), **_cache_of_this_machine()}
        hired = ray.remote(num_cpus=1, scheduling_strategy="SPREAD", runtime_env={"env_vars": variables})(Worker)
        for _ in range(min(wanted, room) - busy - len(self._idle) - len(self._starting)):
            worker = hired.remote(versions_of(_PACKAGES))
            self._starting[worker.begin.remote()] = worker

    def _welcome(self, promise: object) -> None:
        """Take a worker that has started; one that could not is replaced, unless that happens again and again."""
        worker, loss = self._starting.pop(promise), _loss(promise)
        if loss is None:
            self._failures = 0
            self._idle.append(worker)
            return
        self._failures += 1
        if self._failures > _RETRIES:
            raise EngineError(
                f"{self._failures} workers in a row could not start in the Ray cluster. Is cascader installed on every "
                f"node? Ray says: {loss}"
            )

    def _answered(self, promises: list[Any], is_working: bool) -> list[Any]:
        """Wait until at least one promise is kept, and return all that are."""
        import ray

        found, _ = ray.wait(promises, num_returns=1, timeout=None if is_working else _SECONDS_UNTIL_NOTE)
        if not found:
            logger.info("no CPU of the Ray cluster is free: waiting for one.")
            found, _ = ray.wait(promises, num_returns=1)
        return list(found)

    def _connected(self) -> Any:  # noqa: ANN401 - the module
        """Connect, unless this process has done so already, and return the module."""
        import ray

        if not ray.is_initialized():
            _connect(self._named_address(), self.workers)
            self._is_ours = True
        return ray

    def dismiss(self) -> None:
        """End the workers; the next run starts new ones."""
        for worker in [*self._idle, *self._starting.values()]:
            _kill(worker)
        self._idle, self._starting, self._failures = [], {}, 0

    def close(self) -> None:
        """End the workers, and disconnect; the next run starts new ones."""
        self.dismiss()
        if self._is_ours:
            import ray

            ray.shutdown()
            self._is_ours = False


def _loss(promise: Any) -> str | None:  # noqa: ANN401 - a reference of Ray's
    """Return how the worker was lost that should have kept a promise; None: it has kept it. An error is raised."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        answer = ray.get(promise)
    except RayTaskError as error:
        raise EngineError(f"a worker failed, which should not happen:\n{error}") from error
    except RayError as error:
        return " ".join(str(error).split())
    if isinstance(answer, CascaderError):
        raise answer
    return None


def _check_losses(count: int, loss: str) -> None:
    if count > _RETRIES:
        raise EngineError(
            f"{count} workers died on the same shard, perhaps for lack of memory. Finished shards are stored: the same "
            f"command resumes from there, and fewer workers for each machine need less memory. Ray says: {loss}"
        )


def _kill(worker: Any) -> None:  # noqa: ANN401 - a handle of Ray's
    import ray

    if ray.is_initialized():
        ray.kill(worker)


def _cache_of_this_machine() -> dict[str, str]:
    """The cache folder that the user has named, which workers do not inherit."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return {CACHE_VARIABLE: chosen} if chosen else {}


def _connect(address: str | None, workers: int | None) -> None:
    """Connect to a cluster, or start one on this machine that ends with this process."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what Ray starts for us sends nothing anywhere
    quietly: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    new: dict[str, Any] = {
        "num_cpus": workers or cores(),
        "object_store_memory": _OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }
    with _own_signal_handlers(), _explained(address):
        if address and address != NEW_HERE:
            check_reachable(address)
            ray.init(address, **quietly)
            return
        try:
            ray.init(address or None, **quietly, **new)
        except ValueError:  # there is one already that `ray start` has started, and it has its own settings
            ray.init(**quietly)


@contextmanager
def _explained(address: str | None) -> Iterator[None]:
    try:
        yield
    except (ConnectionError, RuntimeError, TimeoutError) as error:
        raise EngineError(
            f"cannot connect to the Ray cluster at {address or 'this machine'}: {' '.join(str(error).split())} Check "
            "the address, and that the same versions of Ray and Python are installed here and there."
        ) from error


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Keep our handler of SIGTERM, which Ray replaces."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)

"""What the server says about itself, in the text format of Prometheus."""

from collections import Counter as Counts
from collections import defaultdict, deque
from collections.abc import Callable, Iterable

import numpy as np
from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

__all__ = ["CONTENT_TYPE", "Metrics"]
_QUANTILES = (0.5, 0.95, 0.99)
#: Requests whose times are kept, of each path.
_RECENT = 1000


class Latencies(Collector):
    """Quantiles of the seconds that the latest requests of each path took; the client library itself has none."""

    def __init__(self) -> None:
        self._recent: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_RECENT))
        self._counts, self._sums = Counts[str](), defaultdict[str, float](float)

    def add(self, path: str, seconds: float) -> None:
        """Add a request."""
        self._recent[path].append(seconds)
        self._counts[path] += 1
        self._sums[path] += seconds

    def collect(self) -> Iterable[Metric]:
        """Yield one summary, with the quantiles of each path that was asked."""
        name = "cascader_request_seconds"
        summary = SummaryMetricFamily(name, f"Time to answer; quantiles of the last {_RECENT:,}.", labels=["path"])
        for path, recent in self._recent.items():
            summary.add_metric([path], self._counts[path], self._sums[path])
            for quantile, seconds in zip(_QUANTILES, np.quantile(recent, _QUANTILES).tolist(), strict=True):
                summary.add_sample(name, {"path": path, "quantile": f"{quantile:g}"}, seconds)
        yield summary


class Metrics:
    """Counts requests, questions and pairs, and asks others how much is waiting.

    Requests are counted by route, so that nobody can make up new labels.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "cascader_requests", "Requests, by path and status.", ["path", "status"], registry=self._registry
        )
        self._questions = Counter("cascader_questions", "Questions asked.", registry=self._registry)
        self._pairs = Counter("cascader_pairs_read", "Pairs read by language models.", registry=self._registry)
        self._latencies = Latencies()
        self._registry.register(self._latencies)
        ProcessCollector(registry=self._registry)

    def watch(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Ask for a value whenever somebody reads the metrics."""
        Gauge(name, description, registry=self._registry).set_function(value)

    def add(self, path: str, status: int, seconds: float, questions: int, pairs_read: int) -> None:
        """Count a request; `path` is that of its route."""
        self._requests.labels(path, str(status)).inc()
        self._latencies.add(path, seconds)
        self._questions.inc(questions)
        self._pairs.inc(pairs_read)

    def text(self) -> bytes:
        """Everything, one value a line."""
        return generate_latest(self._registry)

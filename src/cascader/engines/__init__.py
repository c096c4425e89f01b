"""Where work runs: here, or in several processes."""

from cascader.engines.engine import Call, Engine, Task
from cascader.engines.local import LocalEngine

__all__ = ["Call", "Engine", "LocalEngine", "Task"]

"""Where work runs: here, or in several processes."""

from cascader.scoring.engines.engine import Call, Engine, Task
from cascader.scoring.engines.local import LocalEngine

__all__ = ["Call", "Engine", "LocalEngine", "Task"]

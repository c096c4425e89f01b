"""Engines that run work, in this process or in several."""

from cascader.scoring.engines.engine import Call, Engine, Task
from cascader.scoring.engines.local import LocalEngine

__all__ = ["Call", "Engine", "LocalEngine", "Task"]

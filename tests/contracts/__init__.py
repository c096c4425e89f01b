"""Batteries of tests that every implementation of an interface inherits."""

from tests.contracts.engine import EngineContract
from tests.contracts.scorer import ScorerContract

__all__ = ["EngineContract", "ScorerContract"]

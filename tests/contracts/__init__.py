"""Batteries of tests that every implementation of an interface inherits."""

from tests.contracts.scorer import ScorerContract

__all__ = ["ScorerContract"]

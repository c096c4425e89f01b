"""Test suites that every implementation of an interface inherits."""

from tests.contracts.engine import EngineContract
from tests.contracts.pruner import LearningPrunerContract, PrunerContract
from tests.contracts.remote import RemoteContract
from tests.contracts.scorer import ModelContract, ScorerContract
from tests.contracts.store import StoreContract

__all__ = [
    "EngineContract",
    "LearningPrunerContract",
    "ModelContract",
    "PrunerContract",
    "RemoteContract",
    "ScorerContract",
    "StoreContract",
]

"""Rules: what usually holds in the graph. Found within a time limit, and their own explanation."""

from cascader.models.rules.model import Rules
from cascader.models.rules.tables import RulesSettings

__all__ = ["Rules", "RulesSettings"]

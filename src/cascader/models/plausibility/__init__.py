"""What the graph itself says of who can be an answer at all."""

from cascader.models.plausibility.model import Plausibility
from cascader.models.plausibility.settings import PlausibilityOptions, PlausibilitySettings

__all__ = ["Plausibility", "PlausibilityOptions", "PlausibilitySettings"]

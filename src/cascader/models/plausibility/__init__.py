"""What the graph itself says of who can be an answer at all."""

from cascader.models.plausibility.model import Plausibility, PlausibilityOptions, PlausibilitySettings

__all__ = ["Plausibility", "PlausibilityOptions", "PlausibilitySettings"]

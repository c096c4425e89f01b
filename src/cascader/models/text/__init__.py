"""Language models, the second and third tier: what the texts say."""

from cascader.models.text.context_encoder import ContextEncoder
from cascader.models.text.cross_encoder import CrossEncoder
from cascader.models.text.dual_encoder import DualEncoder
from cascader.models.text.late_interaction import LateInteraction
from cascader.models.text.pooled_encoder import PooledEncoder
from cascader.models.text.settings import ContextSettings, CrossSettings, DualSettings, LateSettings, PooledSettings

__all__ = [
    "ContextEncoder",
    "ContextSettings",
    "CrossEncoder",
    "CrossSettings",
    "DualEncoder",
    "DualSettings",
    "LateInteraction",
    "LateSettings",
    "PooledEncoder",
    "PooledSettings",
]

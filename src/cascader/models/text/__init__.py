"""Language models, the second and third tier: what the texts say."""

from cascader.models.text.cross_encoder import CrossEncoder, load_cross_encoder
from cascader.models.text.dual_encoder import DualEncoder, load_dual_encoder
from cascader.models.text.settings import CrossSettings, DualSettings

__all__ = ["CrossEncoder", "CrossSettings", "DualEncoder", "DualSettings", "load_cross_encoder", "load_dual_encoder"]

"""Language models, the second and third tier: what the texts say."""

from cascader.models.language.cross_encoder import CrossEncoder, load_cross_encoder
from cascader.models.language.dual_encoder import DualEncoder, load_dual_encoder
from cascader.models.language.recipes import CrossRecipe, DualRecipe

__all__ = ["CrossEncoder", "CrossRecipe", "DualEncoder", "DualRecipe", "load_cross_encoder", "load_dual_encoder"]

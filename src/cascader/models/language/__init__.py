"""Language models, the second and third tier: what the texts say."""

from cascader.models.language.dual_encoder import DualEncoder, load_dual_encoder
from cascader.models.language.recipes import DualRecipe

__all__ = ["DualEncoder", "DualRecipe", "load_dual_encoder"]

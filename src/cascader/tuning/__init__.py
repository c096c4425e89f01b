"""What valid chooses: no model runs twice."""

from cascader.tuning.alphas import tune_alpha

__all__ = ["tune_alpha"]

"""What valid chooses: no model runs twice."""

from cascader.tuning.alphas import best_reranking, best_sum, tune_alpha

__all__ = ["best_reranking", "best_sum", "tune_alpha"]

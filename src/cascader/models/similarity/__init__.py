"""Similarity: answers from what is known of similar entities."""

from cascader.models.similarity.model import Similarity, SimilaritySettings

__all__ = ["Similarity", "SimilaritySettings"]

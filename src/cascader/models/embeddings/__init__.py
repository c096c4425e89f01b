"""Knowledge graph embeddings, the first tier: what the structure alone says."""

from cascader.models.embeddings.embedding import Embedding, EmbeddingSettings
from cascader.models.embeddings.external import PyKEENScorer, read_embedding
from cascader.models.embeddings.interactions import EMBEDDINGS, RESCAL, ComplEx, RotatE, TransE
from cascader.models.settings import preset, search_space

__all__ = [
    "EMBEDDINGS",
    "RESCAL",
    "ComplEx",
    "Embedding",
    "PyKEENScorer",
    "EmbeddingSettings",
    "RotatE",
    "TransE",
    "preset",
    "read_embedding",
    "search_space",
]

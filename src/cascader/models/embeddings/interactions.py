"""The four interactions of the paper (Section 2.2), in real arithmetic: torch's complex numbers are ten times slower.

A complex vector is stored as its real parts, then its imaginary parts.
"""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from cascader.models.embeddings.embedding import Embedding


def _parts(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary parts, each of half the width."""
    real, imaginary = vectors.chunk(2, dim=1)
    return real, imaginary


def _product(left: Tensor, right: Tensor) -> Tensor:
    """The complex product, coordinate by coordinate."""
    (a, b), (c, d) = _parts(left), _parts(right)
    return torch.cat([a * c - b * d, a * d + b * c], dim=1)


def _moduli(vectors: Tensor) -> Tensor:
    real, imaginary = _parts(vectors)
    return (real**2 + imaginary**2 + 1e-20).sqrt()  # the gradient of sqrt is infinite at 0


def _distances(left: Tensor, right: Tensor) -> Tensor:
    """Euclidean distances of all pairs, as one matrix product: |l - r|² = |l|² + |r|² - 2 l·r."""
    squares = (left**2).sum(dim=1, keepdim=True) + (right**2).sum(dim=1)
    return torch.addmm(squares, left, right.T, alpha=-2).clamp_min(1e-12).sqrt()


#: For distances, small initial vectors would all be equally near, and N3 would pull them together.
_DISTANCE_DEFAULTS: dict[str, Any] = {
    "loss": "negative-sampling",
    "optimizer": "adam",
    "learning_rate": 1e-3,
    "regularizer": "none",
    "init_std": 0.1,
}


class RESCAL(Embedding):
    """hᵀ R t, with a matrix for each relation (Nickel et al., 2011). Its settings are those of `EmbeddingSettings`.

    The matrix of an inverse relation is the transpose: if it had one of its own, each would learn from half as much.

    >>> from cascader import KnowledgeGraph
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "fever")])
    >>> RESCAL(dim=4, epochs=2).fit(kg).score_all(kg.query("aspirin", "treats")).shape
    (1, 4)
    """

    name = "rescal"
    learns_inverses = False
    defaults: ClassVar[dict[str, Any]] = {
        "dim": 128,
        "optimizer": "adam",
        "learning_rate": 1e-3,
        "dropout": 0.3,
        "regularizer": "none",
        "init_std": 0.1,
    }

    def widths(self) -> tuple[int, int]:
        """A relation is a matrix, its rows one after the other."""
        return self.settings.dim, self.settings.dim**2

    def transform(self, anchors: Tensor, relations: Tensor) -> Tensor:
        """The row vector hᵀ R."""
        matrices = relations.view(-1, self.settings.dim, self.settings.dim)
        return torch.bmm(anchors[:, None, :], matrices)[:, 0]

    def reversed(self, relations: Tensor) -> Tensor:
        """hᵀ R t = tᵀ Rᵀ h."""
        return relations.view(-1, self.settings.dim, self.settings.dim).mT.reshape(relations.shape)

    def similarity(self, predicted: Tensor, entities: Tensor) -> Tensor:
        """The dot product with every tail."""
        return predicted @ entities.T


class TransE(Embedding):
    """-‖h + r - t‖ (Bordes et al., 2013). Its settings are those of `EmbeddingSettings`.

    >>> from cascader import KnowledgeGraph
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "fever")])
    >>> TransE(dim=4, epochs=2, norm=1).fit(kg).score_all(kg.query("aspirin", "treats")).shape
    (1, 4)
    """

    name = "transe"
    defaults = _DISTANCE_DEFAULTS

    def widths(self) -> tuple[int, int]:
        """One number for each coordinate."""
        return self.settings.dim, self.settings.dim

    def transform(self, anchors: Tensor, relations: Tensor) -> Tensor:
        """Move along the relation."""
        return anchors + relations

    def reversed(self, relations: Tensor) -> Tensor:
        """Move back."""
        return -relations

    def similarity(self, predicted: Tensor, entities: Tensor) -> Tensor:
        """The nearer, the higher."""
        return -_distances(predicted, entities) if self.settings.norm == 2 else -torch.cdist(predicted, entities, p=1)

    def pairwise(self, predicted: Tensor, entities: Tensor) -> Tensor:
        """The same for pairs; shape (pairs,)."""
        return -torch.linalg.vector_norm(predicted - entities, ord=self.settings.norm, dim=1)


class ComplEx(Embedding):
    """Re⟨h, r, conj(t)⟩ (Trouillon et al., 2016). Its settings are those of `EmbeddingSettings`.

    >>> from cascader import KnowledgeGraph
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "fever")])
    >>> ComplEx(dim=4, epochs=2, loss="k-vs-all").fit(kg).score_all(kg.query("aspirin", "treats")).shape
    (1, 4)
    """

    name = "complex"

    def widths(self) -> tuple[int, int]:
        """The real and the imaginary part of each coordinate."""
        return 2 * self.settings.dim, 2 * self.settings.dim

    def transform(self, anchors: Tensor, relations: Tensor) -> Tensor:
        """The complex product h r."""
        return _product(anchors, relations)

    def reversed(self, relations: Tensor) -> Tensor:
        """Re⟨h, r, conj(t)⟩ = Re⟨t, conj(r), conj(h)⟩."""
        real, imaginary = _parts(relations)
        return torch.cat([real, -imaginary], dim=1)

    def similarity(self, predicted: Tensor, entities: Tensor) -> Tensor:
        """Re⟨h r, conj(t)⟩ is the dot product of the parts."""
        return predicted @ entities.T

    def relation_scores(self, heads: Tensor, tails: Tensor, relations: Tensor) -> Tensor:
        """Re⟨h conj(t), r⟩, linear in r: one matrix product over all relations."""
        (a, b), (c, d) = _parts(heads), _parts(tails)
        return torch.cat([a * c + b * d, a * d - b * c], dim=1) @ relations.T

    def norms(self, vectors: Tensor) -> Tensor:
        """The moduli of the coordinates."""
        return _moduli(vectors)


class RotatE(Embedding):
    """-‖h ∘ r - t‖, where r rotates each complex coordinate (Sun et al., 2019).

    >>> from cascader import KnowledgeGraph
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain"), ("ibuprofen", "treats", "fever")])
    >>> RotatE(dim=4, epochs=2).fit(kg).score_all(kg.query("aspirin", "treats")).shape
    (1, 4)
    """

    name = "rotate"
    defaults = _DISTANCE_DEFAULTS

    def widths(self) -> tuple[int, int]:
        """Entities are complex; a relation is one angle for each coordinate."""
        return 2 * self.settings.dim, self.settings.dim

    def transform(self, anchors: Tensor, relations: Tensor) -> Tensor:
        """Rotate the anchor."""
        return _product(anchors, torch.cat([relations.cos(), relations.sin()], dim=1))

    def similarity(self, predicted: Tensor, entities: Tensor) -> Tensor:
        """The nearer, the higher."""
        return -_distances(predicted, entities)

    def pairwise(self, predicted: Tensor, entities: Tensor) -> Tensor:
        """The same for pairs; shape (pairs,)."""
        return -torch.linalg.vector_norm(predicted - entities, dim=1)

    def reversed(self, relations: Tensor) -> Tensor:
        """Rotate back."""
        return -relations

    def norms(self, vectors: Tensor) -> Tensor:
        """The moduli of the coordinates; angles are not regularized."""
        return _moduli(vectors) if vectors.shape[1] == 2 * self.settings.dim else torch.zeros_like(vectors)

    def initial(self, generator: torch.Generator, entity_count: int, relation_count: int) -> tuple[Tensor, Tensor]:
        """Angles are uniform."""
        entities, relations = super().initial(generator, entity_count, relation_count)
        return entities, relations.uniform_(-math.pi, math.pi, generator=generator)


EMBEDDINGS: dict[str, type[Embedding]] = {model.name: model for model in (RESCAL, TransE, ComplEx, RotatE)}

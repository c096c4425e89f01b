"""Embeddings that were trained elsewhere, for use as a first tier."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cascader.datasets.tables import read_table
from cascader.errors import DataError, MissingExtraError
from cascader.graph import Candidates, FloatArray, KnowledgeGraph, Queries
from cascader.models.embeddings.embedding import Embedding
from cascader.models.embeddings.interactions import EMBEDDINGS
from cascader.storage import read_npy, read_tensors

if TYPE_CHECKING:
    from pykeen.models import Model


def read_embedding(
    model: str,
    kg: KnowledgeGraph,
    entities: str | Path,
    relations: str | Path,
    entity_ids: str | Path,
    relation_ids: str | Path,
) -> Embedding:
    """An embedding from two arrays (.npy or .safetensors) and two tables that name their rows.

    DGL-KE, PBG and Marius write such files. Row i of `entities` belongs to the id in row i of `entity_ids`. Inverse
    relations are derived: ComplEx conjugates, RotatE and TransE negate, RESCAL transposes.

    >>> import tempfile
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, ids in (("entities", ["aspirin", "pain"]), ("relations", ["treats"])):
    ...         np.save(f"{folder}/{name}.npy", np.ones((len(ids), 4)))
    ...         np.savetxt(f"{folder}/{name}.tsv", ids, fmt="%s")
    ...     paths = [f"{folder}/{name}" for name in ("entities.npy", "relations.npy", "entities.tsv", "relations.tsv")]
    ...     read_embedding("transe", kg, *paths).score_all(kg.query("aspirin", "treats")).shape
    (1, 2)
    """
    if model not in EMBEDDINGS:
        raise DataError(f"there is no embedding {model!r}. Choose one of: {', '.join(EMBEDDINGS)}.")
    entity_rows = _in_order(_array(Path(entities)), _ids(Path(entity_ids)), [e.id for e in kg.entities], "entity")
    relation_rows = _in_order(
        _array(Path(relations)), _ids(Path(relation_ids)), [r.id for r in kg.relations], "relation"
    )
    kind = EMBEDDINGS[model]
    embedding = kind(dim=entity_rows.shape[1] // kind(dim=1).widths()[0])  # complex numbers are two wide
    both = torch.cat([relation_rows, embedding.reversed(relation_rows)])
    return embedding.load_vectors({"entities": entity_rows, "relations": both}, kg)


def _array(path: Path) -> Tensor:
    """The array of a file; pickled ones are refused."""
    if path.suffix == ".safetensors":
        tensors, _ = read_tensors(path)
        if len(tensors) != 1:
            raise DataError(f"{path} holds {len(tensors)} tensors, expected one.")
        return next(iter(tensors.values())).float()
    array = read_npy(path)
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.number):
        raise DataError(f"{path} holds {array.dtype} of shape {array.shape}, expected a matrix of numbers.")
    return torch.from_numpy(np.asarray(array, dtype=np.float32))


def _ids(path: Path) -> list[str]:
    """The last column of each row: mapping files have the id alone, or a number before it."""
    return [row[-1].strip() for row in read_table(path, lambda names: "id" in names).rows]


def _in_order(rows: Tensor, ids: list[str], wanted: list[str], kind: str) -> Tensor:
    if len(rows) != len(ids):
        raise DataError(f"there are {len(rows):,} {kind} vectors and {len(ids):,} ids. They must match row by row.")
    place = {id_: row for row, id_ in enumerate(ids)}
    missing = [id_ for id_ in wanted if id_ not in place]
    if missing:
        raise DataError(f"{len(missing):,} of the graph's ids have no {kind} vector, the first: {missing[0]!r}.")
    return rows[torch.tensor([place[id_] for id_ in wanted], dtype=torch.long)]


class PyKEENScorer:
    """A trained PyKEEN model as a scorer; its own ids are matched with the graph's.

    >>> from pykeen.models import TransE
    >>> from pykeen.triples import TriplesFactory
    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain")])
    >>> factory = TriplesFactory.from_labeled_triples(np.array([("aspirin", "treats", "pain")]))
    >>> scorer = PyKEENScorer(TransE(triples_factory=factory), kg, factory.entity_to_id, factory.relation_to_id)
    >>> scorer.score_all(kg.query("aspirin", "treats")).shape
    (1, 2)
    """

    def __init__(
        self, model: "Model", kg: KnowledgeGraph, entity_to_id: dict[str, int], relation_to_id: dict[str, int]
    ) -> None:
        try:
            import pykeen  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(
                "PyKEENScorer needs pykeen. Install it with: pip install 'cascader[pykeen]'"
            ) from error
        self._model = model.eval()
        self._entities = _matched([e.id for e in kg.entities], entity_to_id, "entity")
        self._relations = _matched([r.id for r in kg.relations], relation_to_id, "relation")

    def score_all(self, queries: Queries) -> FloatArray:
        """Score every entity; shape (queries, entities)."""
        anchors, relations = self._entities[queries.anchors], self._relations[queries.relations]
        scores = np.empty((len(queries), len(self._entities)), dtype=np.float32)
        for predicts_tail, score, columns in (
            (True, self._model.score_t, (anchors, relations)),
            (False, self._model.score_h, (relations, anchors)),
        ):
            asked = queries.predicts_tail == predicts_tail
            if asked.any():
                rows = np.stack([column[asked] for column in columns], axis=1)
                batch = torch.from_numpy(rows).to(self._model.device)
                with torch.inference_mode():
                    found: Any = score(batch)
                scores[asked] = found.cpu().numpy()[:, self._entities]
        return scores

    def score(self, queries: Queries, candidates: Candidates) -> FloatArray:
        """Score the candidates of each query; shape (candidates,)."""
        return self.score_all(queries)[candidates.rows, candidates.ids]


def _matched(ids: list[str], numbers: dict[str, int], kind: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    missing = [id_ for id_ in ids if id_ not in numbers]
    if missing:
        raise DataError(
            f"the model does not know {len(missing):,} of the graph's {kind} ids, the first: {missing[0]!r}."
        )
    return np.array([numbers[id_] for id_ in ids], dtype=np.int64)

"""Graphs of other libraries in and out: networkx, whose only importer this is, and PyKEEN's triples factories."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol, cast

from cascader.datasets.columns import column_name
from cascader.datasets.statements import ONLY_RELATION, Statements, statements_of
from cascader.datasets.tables import table_of_columns
from cascader.datasets.texts import Texts
from cascader.datasets.triples import Index, Split, assemble
from cascader.errors import DataError, MissingExtraError
from cascader.graph import SPLITS, KnowledgeGraph

if TYPE_CHECKING:
    import networkx
    from pykeen.triples import TriplesFactory

logger = logging.getLogger(__name__)

#: The attributes of an edge that may name its relation, the best first; the key of a multigraph comes last.
_RELATIONS = ("relation", "predicate", "relationship", "rel", "edge_type", "edge_label", "label", "type", "name")
_TEXTS = ("name", "description", "type")


class _Graph(Protocol):
    """What is read of a networkx graph, of any class."""

    def nodes(self, data: bool) -> Iterable[tuple[object, Mapping[object, object]]]: ...

    def edges(self, data: bool) -> Iterable[tuple[object, object, Mapping[object, object]]]: ...

    def is_multigraph(self) -> bool: ...


class _Factory(Protocol):
    """What is read of a triples factory."""

    entity_to_id: Mapping[str, int]
    relation_to_id: Mapping[str, int]
    mapped_triples: Any


def graph_from_networkx(graph: _Graph, *, split: Split = Split(), name: str = "graph") -> KnowledgeGraph:
    """Build a graph from one of networkx: nodes become entities, edges become triples.

    The relation of an edge is its attribute `relation`, `predicate`, `label`, `type` or the like, a text or an integer,
    or its key in a multigraph; without any, it is "related to". Nodes may have the attributes `name`, `description` and
    `type`. If all edges have a `split`, it is kept; otherwise triples are held out as `split` says.

    >>> import networkx
    >>> drugs = networkx.DiGraph()
    >>> drugs.add_edge("aspirin", "pain", relation="treats")
    >>> graph_from_networkx(drugs, split=Split(valid=0, test=0))
    KnowledgeGraph('graph', 2 entities, 1 relation, 1/0/0 triples)
    """
    if not all(hasattr(graph, each) for each in ("nodes", "edges", "is_multigraph")):
        raise DataError(f"found a {type(graph).__name__}, expected a graph of networkx.")
    texts, relations = Texts(), Texts()
    nodes = [{"id": str(node), **_plain(about)} for node, about in graph.nodes(data=True)]
    keys = dict.fromkeys(key for node in nodes for key in node)
    columns = {key: [node.get(key, "") for node in nodes] for key in keys}
    ids = texts.add_table(table_of_columns("the nodes of the graph", columns))
    edges = table_of_columns("the edges of the graph", _edge_columns(graph))
    statements = statements_of(edges, relations=relations)
    return assemble({"triples": statements}, Index("entity", texts, ids), Index("relation", relations), split, name)


def _plain(attributes: Mapping[object, object]) -> dict[str, str]:
    """The attributes that are texts, under the names that columns have."""
    return {key: value for key, value in _named(attributes).items() if isinstance(value, str) and key != "id"}


def _named(attributes: Mapping[object, object]) -> dict[str, object]:
    """The attributes whose keys are texts, under the names that columns have; networkx allows any key."""
    return {column_name(key): value for key, value in attributes.items() if isinstance(key, str)}


def _edge_columns(graph: _Graph) -> dict[str, list[str]]:
    edges = list(_edges(graph))
    columns = {
        "head": [str(head) for head, _, _, _ in edges],
        "relation": _relations([(key, about) for _, _, key, about in edges]),
        "tail": [str(tail) for _, tail, _, _ in edges],
        "relation_name": [_plain(about).get("name", "") for _, _, _, about in edges],
    }
    splits = [str(about.get("split", "")) for _, _, _, about in edges]
    return {**columns, "split": splits} if all(splits) else columns


def _edges(graph: _Graph) -> Iterable[tuple[object, object, object, Mapping[object, object]]]:
    if not graph.is_multigraph():
        return ((head, tail, None, about) for head, tail, about in graph.edges(data=True))
    return cast("Any", graph).edges(keys=True, data=True)


def _relations(edges: Sequence[tuple[object, Mapping[object, object]]]) -> list[str]:
    found = [_relation(key, about) for key, about in edges]
    unnamed = found.count(None)
    if unnamed:
        logger.warning(
            "the edges of the graph: %s of %s name no relation, and are read as %r. Give them an attribute `relation`.",
            f"{unnamed:,}",
            f"{len(found):,}",
            ONLY_RELATION,
        )
    return [relation or ONLY_RELATION for relation in found]


def _relation(key: object, attributes: Mapping[object, object]) -> str | None:
    """What names the relation of an edge, best first: an attribute, or the key; None if nothing does."""
    named = _named(attributes)
    values = [named[each] for each in _RELATIONS if _is_label(named.get(each))]
    return str(values[0]) if values else key if isinstance(key, str) and key else None


def _is_label(value: object) -> bool:
    """Whether a value can name a relation: a text, or an integer, which people use as a code."""
    if isinstance(value, str):
        return bool(value.strip())
    return isinstance(value, Integral) and not isinstance(value, bool)


def to_networkx(kg: KnowledgeGraph) -> "networkx.MultiDiGraph":
    """The graph as one of networkx, with a key, a `name` and a `split` for each edge; `graph_from_networkx` reads it.

    >>> kg = KnowledgeGraph.from_triples([("aspirin", "treats", "pain")])
    >>> list(to_networkx(kg).edges(keys=True))
    [('aspirin', 'pain', 'treats')]
    """
    try:
        import networkx
    except ImportError as error:
        raise MissingExtraError(
            "a graph of networkx needs networkx. Install it with: pip install 'cascader[networkx]'"
        ) from error
    graph = networkx.MultiDiGraph(name=kg.name)
    for entity in kg.entities:
        graph.add_node(entity.id, **{key: value for key in _TEXTS if (value := getattr(entity, key))})
    for split in SPLITS:
        for head, relation, tail in kg.split(split).tolist():
            about = {"relation": kg.relations[relation].id, "name": kg.relations[relation].name, "split": split}
            graph.add_edge(kg.entities[head].id, kg.entities[tail].id, key=kg.relations[relation].id, **about)
    return graph


def graph_from_pykeen(
    training: _Factory,
    validation: _Factory | None = None,
    testing: _Factory | None = None,
    *,
    split: Split = Split(),
    name: str = "graph",
) -> KnowledgeGraph:
    """Build a graph from PyKEEN's triples factories, as a dataset of it has: `dataset.training` and so on.

    >>> factories = to_pykeen(KnowledgeGraph.from_triples([("aspirin", "treats", "pain")]))
    >>> graph_from_pykeen(factories["train"], split=Split(valid=0, test=0))
    KnowledgeGraph('graph', 2 entities, 1 relation, 1/0/0 triples)
    """
    factories = {"train": training, "valid": validation, "test": testing}
    statements = {role: _factory_statements(each, role) for role, each in factories.items() if each is not None}
    entities, relations = (
        Index(kind, Texts(), sorted(ids, key=ids.__getitem__))
        for kind, ids in (("entity", training.entity_to_id), ("relation", training.relation_to_id))
    )
    return assemble(statements, entities, relations, split, name)


def _factory_statements(factory: _Factory, role: str) -> Statements:
    if not all(hasattr(factory, each) for each in ("entity_to_id", "relation_to_id", "mapped_triples")):
        raise DataError(f"{role} is a {type(factory).__name__}, expected a TriplesFactory of PyKEEN: one with labels.")
    entities, relations = (
        {number: label for label, number in labels.items()} for labels in (factory.entity_to_id, factory.relation_to_id)
    )
    triples = [(entities[h], relations[r], entities[t]) for h, r, t in factory.mapped_triples.tolist()]
    return Statements.of(triples, lambda row: f"the factory of {role}, row {row + 1}")


def to_pykeen(kg: KnowledgeGraph) -> "dict[str, TriplesFactory]":
    """The splits of a graph as PyKEEN's triples factories, by the names train, valid and test; empty ones are left out.

    >>> to_pykeen(KnowledgeGraph.from_triples([("aspirin", "treats", "pain")]))["train"].num_triples
    1
    """
    try:
        import torch
        from pykeen.triples import TriplesFactory
    except ImportError as error:
        raise MissingExtraError(
            "triples factories need PyKEEN. Install it with: pip install 'cascader[pykeen]'"
        ) from error
    entities = {entity.id: number for number, entity in enumerate(kg.entities)}
    relations = {relation.id: number for number, relation in enumerate(kg.relations)}
    return {
        split: TriplesFactory(
            torch.tensor(kg.split(split).astype("int64")), entity_to_id=entities, relation_to_id=relations
        )
        for split in SPLITS
        if len(kg.split(split))
    }

"""N-Triples and Turtle: links become triples, labels and comments become texts. The one door to pyoxigraph."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from cascader.datasets.texts import ENGLISH, FROM_ID, NO_LANGUAGE, OTHER_LANGUAGE, Texts
from cascader.errors import DataError
from cascader.graph import Entity, Relation

if TYPE_CHECKING:
    from pyoxigraph import BlankNode, Literal, NamedNode, RdfFormat, Triple

logger = logging.getLogger(__name__)

RDF_SUFFIXES = (".nt", ".ttl")

_RDFS = "http://www.w3.org/2000/01/rdf-schema#"
_SKOS = "http://www.w3.org/2004/02/skos/core#"
_SCHEMA = "http://schema.org/"
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_NAMES = (f"{_RDFS}label", f"{_SKOS}prefLabel", f"{_SCHEMA}name", "http://xmlns.com/foaf/0.1/name")
_DESCRIPTIONS = (
    f"{_RDFS}comment",
    f"{_SCHEMA}description",
    f"{_SKOS}definition",
    "http://purl.org/dc/terms/description",
)

# An id that is no IRI is written as one of these, and read back as what it was.
_ENTITY = "urn:cascader:entity:"
_RELATION = "urn:cascader:relation:"
_TYPE_NAME = "urn:cascader:type:"


def read_rdf(path: Path, *texts: Texts) -> list[tuple[str, str, str]]:
    """Return the links of a file; its labels, comments and `rdf:type` go into each of `texts`."""
    from pyoxigraph import BlankNode, Literal, NamedNode

    links: list[tuple[str, str, str]] = []
    skipped: Counter[str] = Counter()
    for triple in _parsed(path):
        subject, predicate, value = triple.subject, triple.predicate.value, triple.object
        if not isinstance(subject, NamedNode | BlankNode):
            skipped["statements about statements"] += 1
        elif isinstance(value, Literal):
            if predicate in (*_NAMES, *_DESCRIPTIONS):
                _offer(texts, _id(subject), predicate, value)
            else:
                skipped["literal values"] += 1
        elif isinstance(value, NamedNode | BlankNode) and predicate == _TYPE:
            for each in texts:
                each.types.offer(_id(subject), _local_name(_id(value)))
        elif isinstance(value, NamedNode | BlankNode):
            links.append((_id(subject), _id(triple.predicate), _id(value)))
        else:
            skipped["statements about statements"] += 1
    for kind, count in skipped.items():
        logger.warning("%s: left out %s %s, which link no two entities.", path, f"{count:,}", kind)
    for id_ in dict.fromkeys(id_ for link in links for id_ in link):
        for each in texts:
            each.names.offer(id_, _local_name(id_), FROM_ID)
    return links


def described_ids(path: Path) -> list[str]:
    """The ids that a file gives a text to, in order."""
    from pyoxigraph import Triple

    subjects = [triple.subject for triple in _parsed(path) if triple.predicate.value in (*_NAMES, *_DESCRIPTIONS)]
    return list(dict.fromkeys(_id(subject) for subject in subjects if not isinstance(subject, Triple)))


def _offer(texts: tuple[Texts, ...], id_: str, predicate: str, value: "Literal") -> None:
    language = (value.language or "").lower()
    worth = ENGLISH if language.startswith("en") else OTHER_LANGUAGE if language else NO_LANGUAGE
    for each in texts:
        kind = each.names if predicate in _NAMES else each.descriptions
        kind.offer(id_, value.value.strip(), worth)


def _parsed(path: Path) -> Iterator["Triple"]:
    from pyoxigraph import parse

    try:
        for quad in parse(path=path, format=_format(path)):
            yield quad.triple
    except SyntaxError as error:
        raise DataError(f"{path}:{error.lineno}: {error.msg}. Mend the line, or leave it out.") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}.") from error


def _format(path: Path) -> "RdfFormat":
    from pyoxigraph import RdfFormat

    return RdfFormat.N_TRIPLES if path.suffix.lower() == ".nt" else RdfFormat.TURTLE


def _id(node: "NamedNode | BlankNode") -> str:
    from pyoxigraph import BlankNode

    if isinstance(node, BlankNode):
        return f"_:{node.value}"
    for minted in (_ENTITY, _RELATION, _TYPE_NAME):
        if node.value.startswith(minted):
            return unquote(node.value.removeprefix(minted))
    return node.value


def _local_name(id_: str) -> str:
    """The readable end of an IRI: http://dbpedia.org/resource/Marie_Curie is "Marie Curie"."""
    if "://" not in id_ and not id_.startswith("urn:"):
        return id_
    end = id_.rstrip("/#").rsplit("#", 1)[-1].rsplit("/", 1)[-1]
    return unquote(end).replace("_", " ").strip() or id_


def write_links(path: Path, links: Iterable[tuple[str, str, str]]) -> None:
    """Write triples of ids as links."""
    from pyoxigraph import Triple, serialize

    rows = (Triple(_node(head, _ENTITY), _predicate(relation), _node(tail, _ENTITY)) for head, relation, tail in links)
    serialize(rows, path, format=_format(path))


def write_entities(path: Path, entities: Iterable[Entity]) -> None:
    """Write the texts of entities: labels, comments and types."""
    from pyoxigraph import Literal, NamedNode, Triple, serialize

    def statements() -> Iterator["Triple"]:
        for entity in entities:
            node = _node(entity.id, _ENTITY)
            yield Triple(node, NamedNode(_NAMES[0]), Literal(entity.name))
            if entity.description:
                yield Triple(node, NamedNode(_DESCRIPTIONS[0]), Literal(entity.description))
            if entity.type:
                yield Triple(node, NamedNode(_TYPE), _node(entity.type, _TYPE_NAME))

    serialize(statements(), path, format=_format(path))


def write_relations(path: Path, relations: Iterable[Relation]) -> None:
    """Write the labels of relations."""
    from pyoxigraph import Literal, NamedNode, Triple, serialize

    rows = (Triple(_predicate(relation.id), NamedNode(_NAMES[0]), Literal(relation.name)) for relation in relations)
    serialize(rows, path, format=_format(path))


def _node(id_: str, minted: str) -> "NamedNode | BlankNode":
    from pyoxigraph import BlankNode

    if id_.startswith("_:"):
        try:
            return BlankNode(id_[2:])
        except ValueError:
            pass
    return _iri(id_, minted)


def _predicate(id_: str) -> "NamedNode":
    return _iri(id_, _RELATION)


def _iri(id_: str, minted: str) -> "NamedNode":
    from pyoxigraph import NamedNode

    if "://" in id_:
        try:
            return NamedNode(id_)
        except ValueError:
            pass
    return NamedNode(minted + quote(id_, safe=""))

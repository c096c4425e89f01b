"""N-Triples and Turtle: links become triples, labels and comments become texts. The only importer of pyoxigraph."""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from cascader.datasets.tables import check_text
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

# An id that is not an IRI is written with one of these prefixes, and read back without it.
_ENTITY = "urn:cascader:entity:"
_RELATION = "urn:cascader:relation:"
_TYPE_NAME = "urn:cascader:type:"
_OURS = (_ENTITY, _RELATION, _TYPE_NAME)

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S")
_RANDOM_LABEL = re.compile(r"[0-9a-f]{20,32}")  # as the parser generates for unlabeled nodes
_NESTING = re.compile(rb'"""(?:.|\n)*?"""|"(?:\\.|[^"\\\n])*"|<<|>>')
_MAX_NESTING = 100


def read_rdf(path: Path, *texts: Texts) -> list[tuple[str, str, str]]:
    """Return the links of a file, and add its labels, comments and types to each of `texts`."""
    from pyoxigraph import BlankNode, Literal, NamedNode

    ids = _Ids(path)
    links: list[tuple[str, str, str]] = []
    skipped: Counter[str] = Counter()
    for triple in _parsed(path):
        subject, predicate, value = triple.subject, triple.predicate.value, triple.object
        if not isinstance(subject, NamedNode | BlankNode):
            skipped["statements about statements"] += 1
        elif isinstance(value, Literal):
            if predicate in (*_NAMES, *_DESCRIPTIONS):
                check_text(f"{path}, {ids.of(subject)}", value.value)
                _offer(texts, ids.of(subject), predicate, value)
            else:
                skipped["literal values"] += 1
        elif isinstance(value, NamedNode | BlankNode) and predicate == _TYPE:
            skipped["further types"] += any(each.types.of(ids.of(subject)) for each in texts)
            for each in texts:
                each.types.offer(ids.of(subject), ids.name_of_type(value))
        elif isinstance(value, NamedNode | BlankNode):
            links.append((ids.of(subject), ids.of(triple.predicate), ids.of(value)))
        else:
            skipped["statements about statements"] += 1
    for kind, count in skipped.items():
        if count:
            logger.warning("%s: ignored %s %s, which do not link two entities.", path, f"{count:,}", kind)
    for id_ in dict.fromkeys(id_ for link in links for id_ in link):
        for each in texts:
            each.names.offer(id_, _local_name(id_), FROM_ID)
    return links


class _Ids:
    """The ids of the nodes of one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._anonymous: dict[str, str] = {}

    def of(self, node: "NamedNode | BlankNode") -> str:
        """The IRI, or the id that we minted it from, or the label of a blank node."""
        from pyoxigraph import BlankNode

        if isinstance(node, BlankNode):
            return f"_:{self._label(node.value)}"
        for minted in _OURS:
            if node.value.startswith(minted):
                return unquote(node.value.removeprefix(minted))
        check_text(f"{self._path}, {node.value[:40]}", node.value)
        return node.value

    def name_of_type(self, node: "NamedNode | BlankNode") -> str:
        """The name of a type: the text that we minted its IRI from, or the readable end of the IRI."""
        id_ = self.of(node)
        return id_ if node.value.startswith(_TYPE_NAME) else _local_name(id_)

    def _label(self, label: str) -> str:
        """Number the nodes without a label, which the parser labels at random, so that every reading is the same."""
        if not _RANDOM_LABEL.fullmatch(label):
            return label
        return self._anonymous.setdefault(label, f"{self._path.stem}-{len(self._anonymous) + 1}")


def _offer(texts: tuple[Texts, ...], id_: str, predicate: str, value: "Literal") -> None:
    language = (value.language or "").lower()
    quality = ENGLISH if language.startswith("en") else OTHER_LANGUAGE if language else NO_LANGUAGE
    for each in texts:
        kind = each.names if predicate in _NAMES else each.descriptions
        kind.offer(id_, value.value.strip(), quality)


def _parsed(path: Path) -> Iterator["Triple"]:
    from pyoxigraph import parse

    try:
        _check_nesting(path)
        for quad in parse(path=path, format=_format(path)):
            yield quad.triple
    except SyntaxError as error:
        raise DataError(f"{path}:{error.lineno}: {error.msg}. Fix the line, or delete it.") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}.") from error


def _check_nesting(path: Path) -> None:
    """Refuse deeply nested statements about statements, which would overflow the parser's stack."""
    content = path.read_bytes()
    if b"<<" not in content:
        return
    depth = 0
    for token in _NESTING.finditer(content):
        depth += {b"<<": 1, b">>": -1}.get(token[0], 0)
        if depth > _MAX_NESTING:
            line = content.count(b"\n", 0, token.start()) + 1
            raise DataError(f"{path}:{line}: statements are nested more than {_MAX_NESTING} deep. Delete them.")


def _format(path: Path) -> "RdfFormat":
    from pyoxigraph import RdfFormat

    return RdfFormat.N_TRIPLES if path.suffix.lower() == ".nt" else RdfFormat.TURTLE


def _local_name(id_: str) -> str:
    """The readable end of an IRI: http://dbpedia.org/resource/Marie_Curie is "Marie Curie"."""
    if "://" not in id_ and not id_.startswith("urn:"):
        return id_
    end = id_.rstrip("/#").rsplit("#", 1)[-1].rsplit("/", 1)[-1]
    return unquote(end).replace("_", " ").strip() or id_


def write_links(path: Path, links: Iterable[tuple[str, str, str]]) -> None:
    """Write triples of ids as links between IRIs."""
    from pyoxigraph import serialize

    serialize(_links(links), path, format=_format(path))


def ntriples(links: Iterable[tuple[str, str, str]]) -> str:
    """Triples of ids as the text of an N-Triples file."""
    from pyoxigraph import RdfFormat, serialize

    return (serialize(_links(links), format=RdfFormat.N_TRIPLES) or b"").decode()


def _links(links: Iterable[tuple[str, str, str]]) -> Iterator["Triple"]:
    from pyoxigraph import Triple

    return (Triple(_entity(head), _predicate(relation), _entity(tail)) for head, relation, tail in links)


def write_entities(path: Path, entities: Iterable[Entity]) -> None:
    """Write the texts of entities: labels, comments and types."""
    from pyoxigraph import Literal, NamedNode, Triple, serialize

    def statements() -> Iterator["Triple"]:
        for entity in entities:
            node = _entity(entity.id)
            yield Triple(node, NamedNode(_NAMES[0]), Literal(entity.name))
            if entity.description:
                yield Triple(node, NamedNode(_DESCRIPTIONS[0]), Literal(entity.description))
            if entity.type:
                yield Triple(node, NamedNode(_TYPE), _minted(entity.type, _TYPE_NAME))

    serialize(statements(), path, format=_format(path))


def write_relations(path: Path, relations: Iterable[Relation]) -> None:
    """Write the labels of relations."""
    from pyoxigraph import Literal, NamedNode, Triple, serialize

    rows = (Triple(_predicate(relation.id), NamedNode(_NAMES[0]), Literal(relation.name)) for relation in relations)
    serialize(rows, path, format=_format(path))


def _entity(id_: str) -> "NamedNode":
    return _iri(id_, _ENTITY)


def _predicate(id_: str) -> "NamedNode":
    # A predicate that RDF uses for texts and types would be read back as one, not as a link.
    return _minted(id_, _RELATION) if id_ in (_TYPE, *_NAMES, *_DESCRIPTIONS) else _iri(id_, _RELATION)


def _iri(id_: str, prefix: str) -> "NamedNode":
    """The id itself if it is an IRI, otherwise one minted from it."""
    from pyoxigraph import NamedNode

    if _SCHEME.match(id_) and not id_.startswith(_OURS):
        try:
            return NamedNode(id_)
        except ValueError:
            pass
    return _minted(id_, prefix)


def _minted(id_: str, prefix: str) -> "NamedNode":
    from pyoxigraph import NamedNode

    return NamedNode(prefix + quote(id_, safe=""))

"""The names, descriptions and types that files give to ids, the best of each kept."""

from dataclasses import dataclass, field

from cascader.graph import Entity, Relation

#: What a text is worth: a label made from an id is better than none, an English one better than any other.
FROM_ID, OTHER_LANGUAGE, NO_LANGUAGE, ENGLISH = range(4)


@dataclass
class BestTexts:
    """The best text offered so far for each id; of equally good ones, the first."""

    _texts: dict[str, tuple[int, str]] = field(default_factory=dict)

    def offer(self, id_: str, text: str, worth: int = NO_LANGUAGE) -> None:
        """Keep `text` if it is worth more than what is there."""
        if text and (id_ not in self._texts or worth > self._texts[id_][0]):
            self._texts[id_] = worth, text

    def ids(self) -> list[str]:
        """The ids that have a text, in the order in which they got one."""
        return list(self._texts)

    def of(self, id_: str) -> str:
        """The text of an id, empty if none was offered."""
        return self._texts[id_][1] if id_ in self._texts else ""


@dataclass
class Texts:
    """What is known of ids besides their triples."""

    names: BestTexts = field(default_factory=BestTexts)
    descriptions: BestTexts = field(default_factory=BestTexts)
    types: BestTexts = field(default_factory=BestTexts)

    def entity(self, id_: str) -> Entity:
        """The entity with this id; its id is its name where no file has a better one."""
        return Entity(id_, self.names.of(id_) or id_, self.descriptions.of(id_), self.types.of(id_))

    def relation(self, id_: str) -> Relation:
        """The relation with this id."""
        return Relation(id_, self.names.of(id_) or id_)

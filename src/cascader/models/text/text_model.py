"""Models that read texts: every entity and relation tokenized once, and what the encoders share."""

import hashlib
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from torch import Tensor, nn

from cascader.errors import DataError, SettingsError
from cascader.graph import Candidates, Entity, IntArray, KnowledgeGraph, Queries
from cascader.graph.arrays import offsets_of, positions_within
from cascader.models.files import naming_damage
from cascader.models.model import TrainedModel
from cascader.models.parallel import helping
from cascader.models.text.base_model import BaseModel
from cascader.models.text.settings import ContextSettings, DualSettings, LateSettings, PairSettings
from cascader.models.training import Trainable

_WORD = re.compile(r"[^\W\d_]{3,}")
#: A graph has texts if at least this share of its names are words, rather than ids such as Q42 or /m/027rn.
_SPEAKING_SHARE = 0.05
_SPECIAL_TOKENS = 2  # [CLS] and [SEP]
#: A text cannot be read if more than this share of its tokens are unknown, nor a graph with this share of such texts.
_UNREADABLE_SHARE = 0.5
_EXAMPLE = 40  # characters of a text in a message


def text_of(entity: Entity) -> str:
    """An entity as text: "name: description", or one of the two alone."""
    name, description = name_in_text(entity), entity.description.strip()
    return ": ".join(part for part in (name, description) if part)


def name_in_text(entity: Entity) -> str:
    """The name as it is read: an id such as Q42 says nothing, so it is left out where there is a description."""
    return "" if entity.description.strip() and not _is_speaking(entity) else entity.name.strip()


def as_read(text: str, base: BaseModel, limit: int) -> str:
    """The part of a text that is read: its first `limit` tokens."""
    if len(text) <= limit:  # a token has at least one character
        return text
    cut = base.tokenizer(
        text, add_special_tokens=False, truncation=True, max_length=limit, return_offsets_mapping=True
    )["offset_mapping"]
    return text[: cut[-1][1]] if len(cut) == limit else text


def phrase_of(relation_name: str, predicts_tail: bool) -> str:
    """A relation as text; its inverse gets a marker, since it is another question."""
    return relation_name if predicts_tail else f"reverse of {relation_name}"


def has_texts(kg: KnowledgeGraph) -> bool:
    """Whether a graph has something for a language model to read."""
    return _speaking(kg) >= _SPEAKING_SHARE * len(kg.entities)


def _speaking(kg: KnowledgeGraph) -> int:
    return sum(bool(entity.description.strip() or _is_speaking(entity)) for entity in kg.entities)


def check_texts(kg: KnowledgeGraph) -> None:
    """Refuse a graph without texts, to which a tier that reads them would add nothing."""
    if not has_texts(kg):
        raise DataError(
            f"{kg.name} has no texts: {_speaking(kg):,} of {len(kg.entities):,} entities have a name in words or a "
            "description, so a language model would add nothing. Give an entity table with the columns id, name and "
            "description (entities.tsv, or --entities FILE), or use the embedding alone."
        )


def _is_speaking(entity: Entity) -> bool:
    """Whether the name consists of words, rather than being the id in some catalog."""
    return entity.name != entity.id or bool(_WORD.search(entity.name) and not entity.name.startswith("/m/"))


@dataclass(frozen=True, eq=False)
class Tokens:
    """Texts as token ids, without [CLS] and [SEP]; those of text i are `ids[offsets[i]:offsets[i + 1]]`."""

    offsets: IntArray  # (texts + 1,)
    ids: IntArray  # (tokens,)

    @classmethod
    def of(cls, texts: Sequence[str], base: BaseModel, limit: int) -> "Tokens":
        """Tokenize texts, and truncate each after `limit` tokens."""
        cut = base.tokenizer(list(texts), add_special_tokens=False, truncation=True, max_length=limit)["input_ids"]
        flat = [token for tokens in cut for token in tokens]
        return cls(offsets_of([len(tokens) for tokens in cut]), np.array(flat, dtype=np.int32))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, text: int) -> IntArray:
        return self.ids[self.offsets[text] : self.offsets[text + 1]]

    def take(self, texts: IntArray) -> "Tokens":
        """Some of the texts, in the order given."""
        counts = self.counts[texts]
        return Tokens(offsets_of(counts), self.ids[np.repeat(self.offsets[texts], counts) + positions_within(counts)])

    @property
    def counts(self) -> IntArray:
        """How many tokens each text has; shape (texts,)."""
        return np.diff(self.offsets)

    def keys(self, salt: str) -> list[str]:
        """A hash of each text's tokens; `salt` names what else a cached value depends on."""
        start = hashlib.sha256(salt.encode())
        keys = []
        for text in range(len(self)):
            digest = start.copy()
            digest.update(self[text].tobytes())
            keys.append(digest.hexdigest())
        return keys


@dataclass(frozen=True, eq=False)
class GraphTexts:
    """The tokens of a graph; as in embeddings, inverse relations come after the others."""

    entities: Tokens
    relations: Tokens  # (2 × relations)

    @classmethod
    def of(cls, kg: KnowledgeGraph, base: BaseModel, max_tokens: int) -> "GraphTexts":
        """Tokenize every entity and relation; entities are truncated after `max_tokens`, relations are not."""
        check_texts(kg)
        limit = base.token_limit - _SPECIAL_TOKENS
        if max_tokens > limit:
            raise SettingsError(
                f"max_tokens is {max_tokens}, but {base.name} reads texts of {limit} tokens at most. Lower max_tokens: "
                "longer texts are truncated."
            )
        phrases = [
            phrase_of(relation.name, predicts_tail) for predicts_tail in (True, False) for relation in kg.relations
        ]
        entities = Tokens.of([text_of(entity) for entity in kg.entities], base, max_tokens)
        _check_script(kg, entities, base)
        return cls(entities, Tokens.of(phrases, base, limit))


def _check_script(kg: KnowledgeGraph, entities: Tokens, base: BaseModel) -> None:
    """Refuse texts in a script that the tokenizer does not know: to the model, all of them would read the same."""
    is_unknown = entities.ids == base.tokenizer.unk_token_id
    of_token = np.repeat(np.arange(len(entities)), entities.counts)
    unread = np.bincount(of_token, is_unknown, len(entities)) > _UNREADABLE_SHARE * entities.counts
    if unread.sum() > _UNREADABLE_SHARE * len(entities):
        example = text_of(kg.entities[int(np.flatnonzero(unread)[0])])[:_EXAMPLE]
        raise DataError(
            f"{base.name} does not know the script of {int(unread.sum()):,} of the {len(entities):,} texts of "
            f"{kg.name}, such as {example!r}. Set base to a language model that reads it, or use tiers without texts."
        )


class TextModel(TrainedModel):
    """A model that reads the names and descriptions of entities."""

    needs_texts: ClassVar[bool] = True
    settings: ContextSettings | DualSettings | LateSettings | PairSettings

    @classmethod
    def load(cls, folder: str | Path, kg: KnowledgeGraph) -> Self:
        """Read a model that `save` has written; `kg` must be the graph it was fitted to.

        It has to answer a question right away: the shapes of so many layers are best checked by using them.
        """
        model = super().load(folder, kg)
        first = np.zeros(1, dtype=np.int32)
        with naming_damage(Path(folder)):
            scores = model.score(Queries(first, first, np.ones(1, dtype=bool)), Candidates(np.array([0, 1]), first))
            if not np.isfinite(scores).all():
                raise ValueError("its weights are not finite, so that it scores nothing")
        return model

    def _helped(self, training: Trainable, kg: KnowledgeGraph) -> AbstractContextManager[None]:
        return helping(training, type(self), self.settings.as_dict(), kg)

    @abstractmethod
    def prepare_helping(self, kg: KnowledgeGraph) -> Trainable:
        """What computes the gradients of this model's training for another process, which has the weights."""

    def as_read(self, text: str) -> str:
        """The part of an entity's text that this model reads."""
        return as_read(text, self._base_model(), self.settings.max_tokens)

    @property
    def parameter_count(self) -> int:
        """How many numbers the model consists of, including those of the pretrained model."""
        return count_parameters(self._base_model().encoder, *self._heads())

    @abstractmethod
    def _base_model(self) -> BaseModel:
        """The pretrained model that reads the texts."""

    @abstractmethod
    def _heads(self) -> tuple[nn.Module, ...]:
        """The modules on top of the pretrained model."""


def count_parameters(*modules: nn.Module) -> int:
    """How many numbers the modules consist of."""
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under longer names, for a file that holds those of several modules."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def under_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with the prefix, under their own names again."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

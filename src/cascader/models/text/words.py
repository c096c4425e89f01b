"""Words that two texts share or that a model has matched: a hint for a cross encoder, and a reason for people."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cascader.graph import FloatArray, IntArray
from cascader.graph.arrays import positions_within
from cascader.models.rules.words import in_one_line
from cascader.models.text.base_model import BaseModel
from cascader.models.text.text_model import Tokens
from cascader.scoring.scorer import Reason

#: Letters only: numbers and ids are shared by chance.
_WORD = re.compile(r"[^\W\d_]{3,}")
#: English words that say nothing by themselves; shorter ones are no words here.
_STOP_WORDS = frozenset(
    _WORD.findall(
        """
    about above after again against all also although among and another any are around because been before being below
    between both but can cannot could did does doing down during each either etc especially few for from further had
    has have having her here hers herself him himself his how however including into its itself just least less made
    make many may might more most much must near neither nor not now off often once one only onto other others our out
    over own part per same several shall she should since some something somewhat such than that the their them then
    there these they thing things this those through thus too toward towards two under until upon usually used various
    very was well were what when where whether which while who whom whose why will with within without would yet you
    your
    """
    )
)
#: How many pairs of words are named at most, and the share of the strongest that a pair must have.
_MOST_PAIRS, _LEAST_SHARE = 4, 0.2
#: What they must add to a score to be worth a sentence: it makes an answer e times as probable.
_CLEAR = 1.0


def shared_words(text: str, other: str, without: str = "") -> list[str]:
    """Return the content words that two texts share, in the order of the first; those of a third are left out.

    >>> shared_words("aspirin: a drug against pain", "pain: what a drug relieves", without="treats pain")
    ['drug']
    """
    shared = set(_words(other)) - set(_words(without)) - _STOP_WORDS
    return [word for word in dict.fromkeys(_words(text)) if word in shared]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def words_of(text: str, base: BaseModel, limit: int | None = None) -> list[str]:
    """The whole word that each row of a text belongs to; "" for [CLS], marks and words that say nothing."""
    options = {} if limit is None else {"truncation": True, "max_length": limit}
    pieces = base.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, **options)
    spans: dict[int, tuple[int, int]] = {}
    for word, (start, end) in zip(pieces.word_ids(), pieces["offset_mapping"], strict=True):
        first, last = spans.get(word, (start, end))
        spans[word] = min(first, start), max(last, end)
    return ["", *(_word(text[slice(*spans[word])]) for word in pieces.word_ids())]


def _word(found: str) -> str:
    says_nothing = found.isascii() and not shared_words(found, found)  # which words do is only known of English
    return "" if says_nothing or not any(letter.isalnum() for letter in found) else in_one_line(found)


@dataclass(frozen=True, eq=False)
class MatchedWords:
    """The tokens of one question and of one candidate as words, and how much each match counts."""

    question: Sequence[str]  # (question tokens,)
    candidate: Sequence[str]  # (candidate tokens,)
    products: Tensor  # (question tokens, candidate tokens)
    usual: Tensor  # (question tokens,) the best match of a token in the average entity

    def reasons(self) -> list[Reason]:
        """Name the pairs of words that set the candidate apart from the average entity, if there are any."""
        gains = self._gains()
        named = sorted(gains, key=lambda pair: -gains[pair])[:_MOST_PAIRS]
        named = [pair for pair in named if gains[pair] >= _LEAST_SHARE * gains[named[0]]]
        strength = sum(gains[pair] for pair in named)
        if strength < _CLEAR:
            return []
        text = ", ".join(" ~ ".join(dict.fromkeys(pair)) for pair in named)
        return [Reason(f"matched words: {text}", strength=strength)]

    def _gains(self) -> dict[tuple[str, str], float]:
        """What each pair of words adds to the score; words that differ in their case only are the same."""
        best, places = self.products.max(dim=1)
        spelled: dict[str, str] = {}
        found: dict[tuple[str, str], float] = {}
        for word, place, gain in zip(self.question, places.tolist(), (best - self.usual).tolist(), strict=True):
            other = self.candidate[place]
            if word and other and gain > 0:
                pair = spelled.setdefault(word.casefold(), word), spelled.setdefault(other.casefold(), other)
                found[pair] = found.get(pair, 0.0) + gain
        return found


class SharedTokens:
    """Which tokens of a question its candidate has as well, and the other way around, and how rare they are.

    A layer or two learn from scratch to compare tokens of two texts. That both name Virginia is plain to see without.
    """

    def __init__(self, texts: Tokens, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        distinct = np.unique(self._keys(_texts_of(texts), texts.ids))
        text_counts = np.bincount(distinct % vocabulary, minlength=vocabulary)
        # From 1, in no text, to 0, in all of them; shape (vocabulary,)
        self._rarity: FloatArray = np.log((len(texts) + 1) / (text_counts + 1)) / np.log(len(texts) + 1)

    def rarity(self, segments: Sequence[Tokens]) -> Tensor:
        """How rare each token is that its other text has, or 0; shape (tokens of all pairs, segments).

        `segments[s][j]` is a part of pair j, and the last one is the candidate. A row stands for a token of a pair, as
        they are read: each segment between [CLS] and [SEP]. Its value is in the column of its segment.
        """
        *question, candidate = (self._keys(_texts_of(tokens), tokens.ids) for tokens in segments)
        is_shared = [*(np.isin(keys, candidate) for keys in question), np.isin(candidate, np.concatenate(question))]
        counts = np.stack([tokens.counts + 2 for tokens in segments], axis=1)  # (pairs, segments)
        starts = (np.cumsum(counts) - counts.reshape(-1)).reshape(counts.shape)
        found = np.zeros((int(counts.sum()), len(segments)), dtype=np.float32)
        for segment, (tokens, shared) in enumerate(zip(segments, is_shared, strict=True)):
            places = np.repeat(starts[:, segment] + 1, tokens.counts) + positions_within(tokens.counts)
            found[places, segment] = shared * self._rarity[tokens.ids]
        return torch.from_numpy(found)

    def _keys(self, texts: IntArray, ids: IntArray) -> IntArray:
        """A number for each token of each text."""
        return texts.astype(np.int64) * self._vocabulary + ids


def _texts_of(tokens: Tokens) -> IntArray:
    return np.repeat(np.arange(len(tokens)), tokens.counts)

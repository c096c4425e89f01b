"""The tokenizer that a run holds, checked before a library builds it: a few rules could make gigabytes of a word.

Allowed is what the families of BERT, RoBERTa and MPNet use, their multilingual models included, and only in ways that
make a text longer by a small factor. What a tokenizer may be that a user names is not decided here.
"""

import base64
import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Interval, Len

from cascader.errors import DataError
from cascader.records import Count, conforming
from cascader.storage import read_bytes, read_json

_ADVICE = "It is not loaded: copy the run again from where it came from, or fit it again with another base model."
#: What the letters of a text are replaced by is much shorter: the longest ligature of Unicode has 33 bytes.
_LONGEST_PIECE = 100

Short = Annotated[str, Len(max_length=100)]
Few = Len(max_length=20)
Length = Annotated[int, Interval(ge=0, le=100_000)]


@dataclass(frozen=True)
class Pattern:
    """What is replaced: a text, or one of the expressions that are known to end soon on any text."""

    String: Short | None = None
    Regex: Literal[" {2,}", r"\s{2,}|[\n\r\t]"] | None = None

    @property
    def fewest(self) -> int:
        """The length of the shortest text that it matches."""
        return 1 if self.String is None else len(self.String)


@dataclass(frozen=True)
class Normalizer:
    """What is done to a text as a whole."""

    type: Literal[
        "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Replace", "Strip",
        "StripAccents", "Sequence",
    ]  # fmt: skip
    normalizers: Annotated[tuple["Normalizer", ...], Few] = ()
    pattern: Pattern = Pattern()
    content: Short = ""
    precompiled_charsmap: str = ""

    def __post_init__(self) -> None:
        """Refuse what makes a text much longer."""
        _check_once(self.type, self.normalizers, often="Replace")
        if self.type == "Replace" and len(self.content) > self.pattern.fewest:
            raise DataError(
                f"a normalizer replaces {self.pattern.String or self.pattern.Regex!r} by {len(self.content)} "
                "characters, expected no more than it takes."
            )
        if self.type == "Precompiled":
            _check_pieces(self.precompiled_charsmap)


@dataclass(frozen=True)
class PreTokenizer:
    """How a text is cut into words."""

    type: Literal[
        "BertPreTokenizer", "ByteLevel", "Digits", "Metaspace", "Punctuation", "UnicodeScripts", "Whitespace",
        "WhitespaceSplit", "Sequence",
    ]  # fmt: skip
    pretokenizers: Annotated[tuple["PreTokenizer", ...], Few] = ()

    def __post_init__(self) -> None:
        """Refuse to have the same done again and again: in bytes, each time can double a text."""
        _check_once(self.type, self.pretokenizers)


@dataclass(frozen=True)
class Mark:
    """The tokens that stand for a special one."""

    ids: Annotated[tuple[Count, ...], Few]
    tokens: Annotated[tuple[Short, ...], Few]


@dataclass(frozen=True)
class PostProcessor:
    """What is put around tokens."""

    type: Literal["BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing", "Sequence"]
    processors: Annotated[tuple["PostProcessor", ...], Few] = ()
    single: Annotated[tuple[object, ...], Few] = ()
    pair: Annotated[tuple[object, ...], Few] = ()
    special_tokens: Annotated[dict[Short, Mark], Few] | None = None
    cls: tuple[Short, Count] | None = None
    sep: tuple[Short, Count] | None = None

    def __post_init__(self) -> None:
        """Refuse one in another."""
        _check_once(self.type, self.processors)


@dataclass(frozen=True)
class Decoder:
    """How tokens become a text again, which nobody asks for here."""

    type: Literal["BPEDecoder", "ByteLevel", "Metaspace", "WordPiece"]
    prefix: Short = ""
    suffix: Short = ""


@dataclass(frozen=True)
class Vocabulary:
    """How words become tokens; the tokens themselves take up no more than they do in the file."""

    type: Literal["BPE", "Unigram", "WordLevel", "WordPiece"]
    unk_token: Short | None = None
    continuing_subword_prefix: Short | None = None
    end_of_word_suffix: Short | None = None
    max_input_chars_per_word: Annotated[int, Interval(ge=0, le=1000)] = 100


@dataclass(frozen=True)
class AddedToken:
    """A token that is found in a text before it is cut into words."""

    content: Short


@dataclass(frozen=True)
class FixedLength:
    """That every text becomes so many tokens."""

    Fixed: Length


@dataclass(frozen=True)
class Padding:
    """How short texts are filled up."""

    strategy: FixedLength | Literal["BatchLongest"]
    pad_token: Short
    pad_to_multiple_of: Length | None = None


@dataclass(frozen=True)
class Tokenizer:
    """The file `tokenizer.json`."""

    model: Vocabulary
    normalizer: Normalizer | None = None
    pre_tokenizer: PreTokenizer | None = None
    post_processor: PostProcessor | None = None
    decoder: Decoder | None = None
    padding: Padding | None = None
    added_tokens: tuple[AddedToken, ...] = ()


@dataclass(frozen=True)
class TokenizerConfig:
    """The file `tokenizer_config.json`, as far as it leads to other files."""

    fast_tokenizer_files: tuple[Literal["tokenizer.json"], ...] = ()


def check_tokenizer(folder: Path) -> None:
    """Refuse a tokenizer of kinds that no language model of these families has, or that makes texts much longer."""
    config, rules = folder / "tokenizer_config.json", folder / "tokenizer.json"
    conforming(_read_config(config), TokenizerConfig, config, _ADVICE)
    if rules.exists():
        conforming(read_json(rules), Tokenizer, rules, _ADVICE)
        return
    compiled = [path.name for path in sorted(folder.iterdir()) if re.search(r"\.model|tekken", path.name)]
    if compiled:  # rules of its own, which would be read in place of those that are missing
        raise DataError(f"{folder} has {compiled[0]}, but no tokenizer.json, expected both. {_ADVICE}")


def _read_config(path: Path) -> dict[str, object]:
    """Read what transformers writes, who says that a length has no bound with a number of 31 digits."""
    try:
        return dict(json.loads(read_bytes(path)))
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is not a JSON object: {error}. {_ADVICE}") from error


def _check_once(
    kind: str, parts: Sequence[Normalizer] | Sequence[PreTokenizer] | Sequence[PostProcessor], often: str = ""
) -> None:
    """Refuse a sequence in a sequence, and what is done twice: each time could double what the one before has left."""
    kinds = [kind, *(part.type for part in parts if part.type != often)]
    twice = next((each for place, each in enumerate(kinds) if each in kinds[:place]), None)
    if twice is not None:
        raise DataError(f"a sequence has {twice} twice, expected each kind once.")


def _check_pieces(charsmap: str) -> None:
    """Refuse a compiled table that replaces a letter by a long text: a trie with its size, and the texts behind it."""
    try:
        content = base64.b64decode(charsmap, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"precompiled_charsmap is not in base64: {error}.") from error
    pieces = content[4 + int.from_bytes(content[:4], "little") :].split(b"\0")
    longest = max(map(len, pieces))
    if longest > _LONGEST_PIECE:
        raise DataError(
            f"precompiled_charsmap replaces letters by {longest:,} bytes, expected at most {_LONGEST_PIECE} for each."
        )

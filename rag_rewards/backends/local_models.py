"""Folders of models: what must be in them, which weights they hold, where they run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rag_rewards.backends.addresses import is_url, without_credentials
from rag_rewards.errors import BackendError, MissingExtraError, UsageError

DTYPES = ("float32", "bfloat16", "float16", "auto")
TOKENIZER_FILES = (
    "tokenizer.json tokenizer.model vocab.txt vocab.json spiece.model spm.model "
    "sentencepiece.bpe.model"
).split()


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """MissingExtraError for an import that fails because a package is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError("sentence-transformers", extra=extra) from error


def model_folder(model: str | Path, revision: str | None = None) -> Path:
    """The folder of a model: the one given, or the copy of one from the Hugging Face hub.

    What looks like a path is never looked for on the hub; UsageError where it is not there.
    """
    if is_url(str(model)):
        raise UsageError(
            f"{without_credentials(str(model))} is a URL: give a folder, or the name of a model on "
            "the Hugging Face hub"
        )
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise UsageError(f"{path} is a file: the folder of a model is needed")
    if _looks_local(model):
        raise UsageError(f"no folder {path}")
    return _from_hub(str(model), revision)


def _looks_local(model: str | Path) -> bool:
    """Not the form of a hub name (name, owner/name), or below a folder that is there."""
    if isinstance(model, Path) or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", model):
        return True
    return "/" in model and Path(model).parent.is_dir()


def _from_hub(name: str, revision: str | None) -> Path:
    """Configs, tokenizer and safetensors; pickled weights only where there are no others."""
    from huggingface_hub import snapshot_download

    files = ["*.json", "*.txt", "*.model", "*.safetensors"]
    rest = ["onnx/*", "openvino/*", "checkpoint*/*"]
    try:
        folder = snapshot_download(
            name, revision=revision, allow_patterns=files, ignore_patterns=rest
        )
        if not weights(Path(folder)):
            snapshot_download(
                name, revision=revision, allow_patterns=["*.bin"], ignore_patterns=rest
            )
    except Exception as error:
        raise BackendError(
            f"{name} is no folder here, and cannot be had from the hub: {first_line(error)}"
        ) from error
    return Path(folder)


def weights(folder: Path) -> list[Path]:
    """The files that are loaded as weights: safetensors where there are any."""
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))


def model_files(folder: Path) -> list[Path]:
    """What a model's values depend on: weights, configs and tokenizer at the top of a folder."""
    tokenizers = [folder / name for name in TOKENIZER_FILES]
    configs = [
        *folder.glob("*config*.json"),
        *folder.glob("*.index.json"),
        *(folder / name for name in ("added_tokens.json", "special_tokens_map.json", "merges.txt")),
    ]
    return [file for file in {*weights(folder), *tokenizers, *configs} if file.is_file()]


def require_complete(folder: Path) -> None:
    """BackendError that names what a model's folder lacks."""
    if not (folder / "config.json").is_file():
        raise BackendError(f"{folder} has no config.json")
    if not weights(folder):
        raise BackendError(f"{folder} has no weights (*.safetensors, pytorch_model*.bin)")
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise BackendError(f"{folder} has no tokenizer ({', '.join(TOKENIZER_FILES)})")


def identity(folder: Path, files: Iterable[Path]) -> str:
    """Twelve hexadecimal digits that tell files apart, by name, size and content.

    Of a large file its ends and 64 samples between them are read: any training run changes some
    of those, and a model of 40 GB is known in a second.
    """
    digest = hashlib.sha256()
    for file in sorted(files):
        size = file.stat().st_size
        digest.update(f"{file.relative_to(folder).as_posix()} {size}\n".encode())
        with file.open("rb") as stream:
            for at, length in _samples(size):
                stream.seek(at)
                digest.update(stream.read(length))
    return digest.hexdigest()[:12]


def _samples(size: int) -> list[tuple[int, int]]:
    """(position, length) of what is read of a file: all of it up to 8 MB."""
    megabyte = 1 << 20
    if size <= 8 * megabyte:
        return [(0, size)]
    between = [(size * i // 65, megabyte // 16) for i in range(1, 65)]
    return [(0, megabyte), *between, (size - megabyte, megabyte)]


def sentence_modules(folder: Path) -> list[tuple[str, Path]]:
    """(type, folder) of the parts that sentence-transformers lists in modules.json."""
    listing = folder / "modules.json"
    if not listing.is_file():
        return []
    return [(str(m.get("type", "")), folder / m.get("path", "")) for m in read_json(listing)]


def read_json(file: Path) -> Any:
    """What a JSON file holds; BackendError that names it."""
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BackendError(f"{file}: {error}") from error


def read_config(folder: Path) -> dict[str, Any]:
    config = read_json(folder / "config.json")
    if not isinstance(config, dict):
        raise BackendError(f"{folder / 'config.json'} is not an object")
    return config


def torch_device(device: str | None) -> Any:
    """A torch device that is there; UsageError for any other."""
    import torch

    name = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(name)
        torch.zeros(1, device=found)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device={name!r} cannot be used: {first_line(error)}") from error
    return found


def torch_dtype(dtype: str) -> Any:
    """What from_pretrained takes as dtype; UsageError for a name that is none of DTYPES."""
    import torch

    if dtype not in DTYPES:
        raise UsageError(f"dtype is one of {', '.join(DTYPES)}, not {dtype!r}")
    return dtype if dtype == "auto" else getattr(torch, dtype)


def load_model(auto: Any, folder: Path, dtype: Any, device: Any, **options: Any) -> Any:
    """A model in eval mode; BackendError where weights are missing: they would be random."""
    with explained(folder):
        model, report = auto.from_pretrained(
            folder, dtype=dtype, local_files_only=True, output_loading_info=True, **options
        )
    if missing := sorted(report["missing_keys"]):
        raise BackendError(
            f"{folder}: weights of the model are missing ({', '.join(missing[:3])}"
            f"{', …' if len(missing) > 3 else ''}): it was saved as something else"
        )
    with explained(folder):
        return model.to(device).eval()


def load_tokenizer(folder: Path, model: Any) -> Any:
    """A tokenizer that says where its tokens come from, and that fits the model."""
    from transformers import AutoTokenizer

    with explained(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if not tokenizer.is_fast:
        raise BackendError(f"{folder} has no fast tokenizer (tokenizer.json)")
    rows = model.get_input_embeddings().weight.shape[0]
    if (largest := max(tokenizer.get_vocab().values(), default=0)) >= rows:
        raise BackendError(
            f"{folder}: the tokenizer does not fit the model: it has token id {largest}, the "
            f"model {rows} embeddings"
        )
    return tokenizer


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """BackendError that names the folder, for whatever goes wrong while it is loaded."""
    try:
        yield
    except Exception as error:
        raise BackendError(f"{folder} cannot be loaded: {first_line(error)}") from error


_NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")


def is_out_of_memory(error: Exception) -> bool:
    """torch's error on a GPU, the allocator's on a CPU, and Python's own."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return any(said in text for said in _NO_MEMORY)


def free_memory() -> None:
    """Give what a GPU holds back without need."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0] or type(error).__name__

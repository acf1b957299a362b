"""The loader of all models in this process: folders, files, identity, weights, device and memory.

A folder that cannot be loaded is a UsageError, which names the folder and what it lacks.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from rag_rewards.errors import BackendError, UsageError, needs_extra, shorten
from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.models.addresses import is_url, without_credentials

T = TypeVar("T")
DTYPES = ("float32", "bfloat16", "float16", "auto")
TOKENIZER_FILES = (
    "tokenizer.json tokenizer.model vocab.txt vocab.json spiece.model spm.model "
    "sentencepiece.bpe.model"
).split()


def model_folder(model: str | Path, revision: str | None = None) -> Path:
    """Return the folder of a model, or a copy of the model from the Hugging Face hub.

    Raises UsageError for a path that is not a folder; a path is never requested from the hub.
    """
    return local_folder(model) or _from_hub(str(model), revision)


def local_folder(model: str | Path) -> Path | None:
    """Return the folder of a model, or None for a name on the Hugging Face hub.

    Raises UsageError for a path that is not a folder.
    """
    if is_url(str(model)):
        raise UsageError(
            f"{without_credentials(str(model))} is a URL: pass a folder, or the name of a model on "
            "the Hugging Face hub"
        )
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise UsageError(f"{path} is a file: pass the folder of a model")
    if _looks_local(model):
        raise UsageError(f"there is no folder {path}")
    return None


def _looks_local(model: str | Path) -> bool:
    """Return whether a model is a path: not name or owner/name, or below an existing folder."""
    if isinstance(model, Path) or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", model):
        return True
    return "/" in model and Path(model).parent.is_dir()


def _from_hub(name: str, revision: str | None) -> Path:
    """Download configs, tokenizer and safetensors, and pickled weights only without safetensors."""
    from huggingface_hub import snapshot_download

    files = ["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors"]
    ignored = ["onnx/*", "openvino/*", "checkpoint*/*"]
    try:
        folder = snapshot_download(
            name, revision=revision, allow_patterns=files, ignore_patterns=ignored
        )
        if not weights(Path(folder)):
            snapshot_download(
                name, revision=revision, allow_patterns=["*.bin"], ignore_patterns=ignored
            )
    except Exception as error:
        raise UsageError(
            f"{name} is not a folder, and cannot be downloaded from the hub: {first_line(error)}"
        ) from error
    return Path(folder)


def weights(folder: Path) -> list[Path]:
    """Return the files of the weights: safetensors if there are any, otherwise pickled weights."""
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))


def model_files(folder: Path) -> list[Path]:
    """Return the files that affect the values of a model: weights, configs and tokenizer."""
    tokenizers = [folder / name for name in TOKENIZER_FILES]
    configs = [
        *folder.glob("*config*.json"),
        *folder.glob("*.index.json"),
        *(folder / name for name in ("added_tokens.json", "special_tokens_map.json", "merges.txt")),
    ]
    return [file for file in {*weights(folder), *tokenizers, *configs} if file.is_file()]


def require_complete(folder: Path) -> None:
    """Raise UsageError if the folder of a model lacks its config, weights or tokenizer."""
    if not (folder / "config.json").is_file():
        raise UsageError(f"{folder} is not the folder of a model: it has no config.json")
    if not weights(folder):
        raise UsageError(f"{folder} has no weights: none of *.safetensors, pytorch_model*.bin")
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise UsageError(f"{folder} has no tokenizer: none of {', '.join(TOKENIZER_FILES)}")


def identity(folder: Path, files: Iterable[Path]) -> str:
    """Return 12 hexadecimal digits that identify files by name, size and content.

    Of a file above 8 MB, both ends and 64 samples between them are read. Any training changes some
    of them, and a model of 40 GB takes one second.
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
    """Return (position, length) of the parts of a file that `identity` reads."""
    megabyte = 1 << 20
    if size <= 8 * megabyte:
        return [(0, size)]
    between = [(size * i // 65, megabyte // 16) for i in range(1, 65)]
    return [(0, megabyte), *between, (size - megabyte, megabyte)]


def sentence_modules(folder: Path) -> list[tuple[str, Path]]:
    """Return (type, folder) of the modules that sentence-transformers lists in modules.json."""
    listing = folder / "modules.json"
    if not listing.is_file():
        return []
    return [(str(m.get("type", "")), folder / m.get("path", "")) for m in read_json(listing)]


def read_json(file: Path) -> Any:
    """Return the content of a JSON file. Raises UsageError with its name."""
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {error}") from error


def read_config(folder: Path) -> dict[str, Any]:
    """Return the content of config.json. Raises UsageError if it is not an object."""
    config = read_json(folder / "config.json")
    if not isinstance(config, dict):
        raise UsageError(f"{folder / 'config.json'} is not a JSON object")
    return config


def torch_device(device: str | None) -> Any:
    """Return a torch device, by default a GPU if there is one. UsageError for a missing one."""
    import torch

    name = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch_dev = torch.device(name)
        torch.zeros(1, device=torch_dev)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device={name!r} cannot be used: {first_line(error)}") from error
    return torch_dev


def torch_dtype(dtype: str) -> Any:
    """Return the dtype for from_pretrained. Raises UsageError for a name that is not in DTYPES."""
    import torch

    if dtype not in DTYPES:
        raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, found {dtype!r}")
    return dtype if dtype == "auto" else getattr(torch, dtype)


def load_model(auto: Any, folder: Path, dtype: Any, device: Any, **options: Any) -> Any:
    """Load a model in eval mode. Raises UsageError for missing weights, which would be random."""
    with explained(folder), _no_progress_bar():
        model, report = auto.from_pretrained(
            folder, dtype=dtype, local_files_only=True, output_loading_info=True, **options
        )
    if missing := sorted(report["missing_keys"]):
        raise UsageError(
            f"{folder}: weights of the model are missing ({', '.join(missing[:3])}"
            f"{', …' if len(missing) > 3 else ''}): it is a model of another kind"
        )
    with explained(folder):
        return model.to(device).eval()


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a model."""
    from transformers import AutoTokenizer

    with explained(folder):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def resolve_tokenizer(
    tokenizer: Tokenizer | str | os.PathLike[str] | None, model: str | None
) -> Tokenizer:
    """Return a tokenizer, or load it from its folder or from the folder of the model.

    tokenizer  a tokenizer, its folder, or None for the folder of the model
    model      folder of the model, None if unknown

    Nothing is downloaded. Raises UsageError if the folder does not exist on this machine or
    contains no tokenizer, and MissingExtraError if transformers is not installed.
    """
    if tokenizer is not None and not isinstance(tokenizer, str | os.PathLike):
        return tokenizer
    folder = model if tokenizer is None else os.fspath(tokenizer)
    if folder is None or not os.path.isdir(folder):
        reason = "the tokenizer is unknown"
        if folder is not None:
            reason = f"there is no folder {without_credentials(folder)!r}"
        raise UsageError(f"{reason}: pass tokenizer=, a tokenizer or its folder")
    with needs_extra("transformers", "transformers"):
        from transformers import AutoTokenizer
    try:
        loaded = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, ImportError) as error:  # ImportError: of a library for its format
        raise UsageError(f"no tokenizer in {folder!r}: {error}") from error
    return cast(Tokenizer, loaded)


def check_tokenizer(tokenizer: Any, model: Any, spare: int = 0) -> None:
    """Raise UsageError if a model lacks embeddings for more than `spare` ids of a tokenizer."""
    vocabulary = getattr(tokenizer, "get_vocab", None)
    rows = model.get_input_embeddings().weight.shape[0]
    beyond = [i for i in vocabulary().values() if i >= rows] if vocabulary else []
    if len(beyond) > spare:
        raise UsageError(
            f"the tokenizer does not fit the model: it has the token id {max(beyond)}, but the "
            f"model has {rows:,} embeddings"
        )


@contextmanager
def explained(path: object) -> Iterator[None]:
    """Turn any exception of the block into a UsageError that names the folder."""
    try:
        yield
    except Exception as error:
        message = shorten(first_line(error), 300)
        raise UsageError(f"{path} cannot be loaded: {message}") from error


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    from transformers.utils import logging

    is_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if is_enabled:
            logging.enable_progress_bar()


_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error is that of torch on a GPU or CPU, or of Python, for full memory."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return any(phrase in text for phrase in _OUT_OF_MEMORY)


def free_memory() -> None:
    """Return unused memory of torch to the GPU."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its type."""
    return str(error).strip().split("\n", 1)[0] or type(error).__name__


class LocalModel:
    """A model that compares texts in this process, for one call at a time, until it is closed."""

    kind: ClassVar[str]
    """Kind of the model, for messages."""

    def __init__(self, model: Any, fingerprint: str) -> None:
        self._model = model
        self._fingerprint = fingerprint
        self._lock = threading.Lock()

    @property
    def fingerprint(self) -> str:
        """The weights, their precision, and the settings that affect a value."""
        return self._fingerprint

    async def close(self) -> None:
        """Release the model. Later calls raise BackendError."""
        await asyncio.to_thread(self._release)

    def _release(self) -> None:
        with self._lock:
            self._model = None
            free_memory()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Wait for the end of other calls. Raises BackendError if the model is closed."""
        with self._lock:
            if self._model is None:
                raise BackendError(f"the {self.kind} model is closed")
            yield

    def _run_within_memory(self, run: Callable[[], T], one: str | None) -> T | None:
        """Return the result of a batch, None if memory is exhausted.

        `one` describes a batch that cannot be divided, whose BackendError is raised, as that of any
        other failure.
        """
        try:
            return run()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise BackendError(f"the {self.kind} model failed: {error}") from error
            if one is not None:
                raise BackendError(f"out of memory with {one}") from error
        return None

    def _continue_with(self, size: str) -> None:
        """Release memory, and warn that batches are smaller from now on."""
        free_memory()
        warnings.warn(f"out of memory: continuing with {size}", stacklevel=3)

"""Loading of a model with its tokenizer and adapter, and checks of models for scoring."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rag_rewards.backends.addresses import is_url, without_credentials
from rag_rewards.backends.transformers.modules import import_torch
from rag_rewards.errors import UsageError, needs_extra
from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.shorten import shorten

DTYPES = ("auto", "float32", "bfloat16", "float16")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
_SPARE_IDS = 64
"""Ids of a tokenizer that a model may lack: families share special tokens of other sizes."""


def load_causal_model(
    path: str, dtype: str, device: str | None, adapter: str | None
) -> tuple[Any, Any]:
    """Load a model and its tokenizer. `adapter` is the folder of a LoRA adapter.

    Raises UsageError for an incomplete folder.
    """
    torch = import_torch()
    if dtype not in DTYPES:
        raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, found {dtype!r}")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with _explained(path), _no_progress_bar():
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
        tokenizer: Any = AutoTokenizer.from_pretrained(path)
    model = model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return (model if adapter is None else _with_adapter(model, adapter)), tokenizer


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Raise UsageError in one line for an incomplete folder."""
    if is_url(path):
        raise UsageError(
            f"{without_credentials(path)} is the address of a server, not a folder with a model"
        )
    folder = Path(path)
    if folder.exists() and not (folder / "config.json").exists():
        raise UsageError(f"{path} is not the folder of a model: it has no config.json")
    if folder.is_dir() and not any((folder / name).exists() for name in _TOKENIZERS):
        raise UsageError(f"{path} has no tokenizer: none of {', '.join(_TOKENIZERS)}")
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        message = shorten(str(error), 300)
        raise UsageError(f"cannot load a model from {path}: {message}") from None


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


def _with_adapter(model: Any, adapter: str) -> Any:
    with needs_extra("transformers", "peft"):
        from peft import PeftModel
    try:
        adapted = PeftModel.from_pretrained(model, adapter)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        message = shorten(str(error), 300)
        raise UsageError(f"cannot load an adapter from {adapter}: {message}") from None
    if adapted.active_peft_config.is_prompt_learning:
        raise UsageError(f"{adapter} is a prompt adapter; only weight adapters are supported")
    return adapted


# --- checks ------------------------------------------------------------------------------------


def check_tokenizer(tokenizer: Tokenizer, embeddings: int) -> None:
    """Raise UsageError if a tokenizer has too many ids for a number of embeddings."""
    vocabulary = getattr(tokenizer, "get_vocab", None)
    ids = vocabulary().values() if vocabulary else ()
    beyond = sorted(i for i in ids if i >= embeddings)
    if len(beyond) > _SPARE_IDS:
        raise UsageError(
            f"the tokenizer does not fit the model: it has the token id {beyond[-1]}, but the "
            f"model has {embeddings:,} embeddings"
        )


def check_not_sharded(model: Any) -> None:
    """Raise UsageError for sharded weights: every rank would have to run equally often."""
    for module in model.modules():
        kind = type(module).__name__
        if "FullyShardedDataParallel" in kind or kind.startswith("FSDP"):
            break
        if any(
            hasattr(parameter, "ds_id") or type(parameter.data).__name__ == "DTensor"
            for parameter in module.parameters(recurse=False)
        ):
            break
    else:
        return
    raise UsageError(
        "the weights are sharded (ZeRO-3, FSDP): every rank would have to score equally often. "
        "Score over HTTP with a server that has the weights (vLLM, SGLang)"
    )


def hash_weights(model: Any) -> str:
    """Return a hash of the names, the shapes and some numbers of all weights.

    It is computed quickly, and training changes it.
    """
    torch = import_torch()
    digest = hashlib.blake2b(digest_size=6)
    for name, weight in sorted(model.state_dict().items()):
        flat = weight.detach().reshape(-1)
        step = max(flat.numel() // 512, 1)
        some = flat[::step][:1024].to(torch.float32).cpu().contiguous()
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        digest.update(bytes(some.numpy()))
    return digest.hexdigest()

"""Loading of a model with its tokenizer and adapter, and checks of models for scoring."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from rag_rewards.errors import UsageError, needs_extra, shorten
from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.models.addresses import is_url, without_credentials
from rag_rewards.models.transformers.modules import import_torch

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
    """Return a hash of all weights, with the adapters that are active.

    Every element counts, since an optimizer can change a single row, and no counter of torch
    notices all changes (`.data`, memory that is shared with numpy, kernels outside of torch). The
    hash is the same on all devices.
    """
    digest = hashlib.blake2b(digest_size=6)
    digests: dict[tuple[Any, ...], bytes] = {}  # tied weights are read once
    for name, weight in sorted(model.state_dict().items()):
        if not hasattr(weight, "data_ptr"):
            digest.update(f"{name} {weight!r}".encode())
            continue
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        key = (weight.device, weight.data_ptr(), weight.dtype, weight.shape, weight.stride())
        if key not in digests:
            digests[key] = _digest(weight.detach())
        digest.update(digests[key])
    for name, module in model.named_modules():
        if hasattr(module, "merged_adapters"):  # a layer of peft
            state = (module.disable_adapters, module.active_adapters, module.merged_adapters)
            scaling = sorted(getattr(module, "scaling", {}).items())
            digest.update(f"{name} {state} {scaling}".encode())
    return digest.hexdigest()


_PART = 4096
"""Number of 4-byte words of a weight whose sum is in its digest."""
_PARTS = {"cpu": 64}
"""Number of parts in memory at a time by kind of device: the cache of a CPU is small."""
_PARTS_OF_GPU = 4096


def _digest(weight: Any) -> bytes:
    """Return a digest of all bits of a weight.

    Each part is a sum of 4-byte words times odd random factors, modulo 2⁶⁴: the change of one word
    always changes it, and other changes remain unnoticed with a probability of at most 2⁻³² for
    each part. Modulo 2³², two changed signs of float32 would always remain unnoticed.
    """
    torch = import_torch()
    octets = weight.contiguous().reshape(-1).view(torch.uint8)
    end = len(octets) // 4 * 4
    words = octets[:end]
    words = (words if words.data_ptr() % 4 == 0 else words.clone()).view(torch.int32)
    digest = hashlib.blake2b(bytes(octets[end:].cpu().numpy()), digest_size=16)
    factors = _factors(str(words.device))
    whole = len(words) // _PART * _PART
    size = _PARTS.get(words.device.type, _PARTS_OF_GPU)
    parts = [*words[:whole].view(-1, _PART).split(size), words[None, whole:]]
    memory = factors.new_empty(min(max(map(len, parts)), size), _PART)
    for part in parts:
        products = memory[: len(part), : part.shape[1]]
        torch.mul(part, factors[: part.shape[1]], out=products)
        digest.update(bytes(products.sum(-1).cpu().numpy()))
    return digest.digest()


@cache
def _factors(device: str) -> Any:
    """Return the factors of the words of a part, which are the same in every process."""
    torch = import_torch()
    octets = hashlib.shake_128(b"factors of weights").digest(8 * _PART)
    return torch.frombuffer(bytearray(octets), dtype=torch.int64).to(device) | 1

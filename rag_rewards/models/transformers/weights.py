"""The weights of a model: their hash, and whether all of them are in this process."""

from __future__ import annotations

import hashlib
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.models.transformers.modules import import_torch, unwrapped

_PART = 4096
"""Number of 4-byte words of a weight whose sum is in its digest."""
_PARTS = {"cpu": 32}
"""Number of parts in memory at a time by kind of device: the cache of a CPU is small."""
_PARTS_OF_GPU = 4096


def check_not_sharded(model: Any) -> None:
    """Raise UsageError for sharded weights: every rank would have to run equally often."""
    for module in model.modules():
        kind = type(module).__name__
        is_wrapped = "FullyShardedDataParallel" in kind or kind.startswith("FSDP")
        if is_wrapped or any(map(_is_shard, module.parameters(recurse=False))):
            raise UsageError(
                "the weights are sharded (ZeRO-3, FSDP): every rank would have to score equally "
                "often. Score over HTTP with a server that has the weights (vLLM, SGLang)"
            )


def _is_shard(weight: Any) -> bool:
    """Return whether a weight is a part of one, or has freed its memory until it is gathered."""
    if hasattr(weight, "ds_id") or type(weight.data).__name__ == "DTensor":
        return True
    is_plain = type(weight.data) is import_torch().Tensor and weight.device.type != "meta"
    return is_plain and weight.numel() > 0 and weight.untyped_storage().nbytes() == 0


def hash_weights(model: Any) -> str:
    """Return a hash of all weights, with the adapters that are active.

    Every element counts, since an optimizer can change a single row. Counters of torch
    (`Tensor._version`) do not notice changes through `.data`, of memory that is shared with numpy,
    or by kernels outside of torch, so that they cannot replace a reading of the weights. The hash
    is the same in all processes and on all devices, also inside of data-parallel wrappers.

    Raises UsageError for sharded weights.
    """
    check_not_sharded(model)
    causal = unwrapped(model)
    digest = hashlib.blake2b(digest_size=6)
    factors: dict[str, Any] = {}
    digests: dict[tuple[Any, ...], bytes] = {}  # tied weights are read once
    for name, weight in sorted(causal.state_dict().items()):
        if not hasattr(weight, "data_ptr"):
            digest.update(f"{name} {weight!r}".encode())
            continue
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        key = (weight.device, weight.data_ptr(), weight.dtype, weight.shape, weight.stride())
        if key not in digests:
            digests[key] = _digest(weight.detach(), factors)
        digest.update(digests[key])
    for name, module in causal.named_modules():
        if hasattr(module, "merged_adapters"):  # a layer of peft
            state = (module.disable_adapters, module.active_adapters, module.merged_adapters)
            scaling = sorted(getattr(module, "scaling", {}).items())
            digest.update(f"{name} {state} {scaling}".encode())
    return digest.hexdigest()


def _digest(weight: Any, factors: dict[str, Any]) -> bytes:
    """Return a digest of all bits of a weight. `factors` keeps those of each device.

    Each part is a sum of 4-byte words times odd random factors, modulo 2⁶⁴: the change of one word
    always changes it, and other changes remain unnoticed with a probability of at most 2⁻³² for
    each part. Modulo 2³², two changed signs of float32 would always remain unnoticed.
    """
    torch, device = import_torch(), str(weight.device)
    octets = weight.contiguous().reshape(-1).view(torch.uint8)
    end = len(octets) // 4 * 4
    words = octets[:end]
    words = (words if words.data_ptr() % 4 == 0 else words.clone()).view(torch.int32)
    digest = hashlib.blake2b(bytes(octets[end:].cpu().numpy()), digest_size=16)
    if device not in factors:
        factors[device] = _factors().to(device)
    own = factors[device]
    whole = len(words) // _PART * _PART
    size = _PARTS.get(words.device.type, _PARTS_OF_GPU)
    parts = [*words[:whole].view(-1, _PART).split(size), words[None, whole:]]
    memory = own.new_empty(min(max(map(len, parts)), size), _PART)
    for part in parts:
        products = memory[: len(part), : part.shape[1]]
        products.copy_(part).mul_(own[: part.shape[1]])
        digest.update(bytes(products.sum(-1).cpu().numpy()))
    return digest.digest()


def _factors() -> Any:
    """Return the factors of the words of a part, which are the same in every process."""
    torch = import_torch()
    octets = hashlib.shake_128(b"factors of weights").digest(8 * _PART)
    return torch.frombuffer(bytearray(octets), dtype=torch.int64) | 1

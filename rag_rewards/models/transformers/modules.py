"""Torch, and temporary changes of the modules of a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from rag_rewards.errors import UsageError, needs_extra


def import_torch() -> Any:
    """Return torch. Raises MissingExtraError if torch or transformers is not installed."""
    with needs_extra("transformers"):
        import torch
        import transformers  # noqa: F401
    return torch


def unwrapped(model: Any) -> Any:
    """Return the causal language model inside data-parallel and adapter wrappers."""
    while hasattr(model, "module"):
        model = model.module
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def backbone_of(causal: Any) -> Any:
    """Return the part of a causal language model that computes the hidden states.

    Raises UsageError if it has another name than those of transformers.
    """
    # The prefix of some families is that of their multimodal models.
    names = list(dict.fromkeys((causal.base_model_prefix, "model")))
    for name in names:
        if (backbone := getattr(causal, name, None)) is not None:
            return backbone
    raise UsageError(
        f"{type(causal).__name__} has no module {' or '.join(map(repr, names))} that computes its "
        "hidden states: pass the URL of a server that runs this model"
    )


@contextmanager
def replaced_forward(module: Any, forward: Any) -> Iterator[None]:
    """Replace the forward method of a module."""
    own = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


@contextmanager
def original_forward(causal: Any) -> Iterator[None]:
    """Remove the autocast of accelerate: all parts of the model compute in one precision."""
    original = getattr(causal, "_original_forward", None)
    with nullcontext() if original is None else replaced_forward(causal, original):
        yield

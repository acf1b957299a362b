"""The tokenizer of a policy whose model runs on a server or in another engine."""

from __future__ import annotations

import os
from typing import cast

from rag_rewards.errors import UsageError, needs_extra
from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.models.addresses import without_credentials


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

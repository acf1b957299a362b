"""The tokenizer of a policy whose model runs elsewhere."""

from __future__ import annotations

import os
from typing import cast

from rag_rewards.backends.addresses import without_credentials
from rag_rewards.errors import MissingExtraError, UsageError
from rag_rewards.evidence.protocols import Tokenizer


def tokenizer_of(given: Tokenizer | str | os.PathLike[str] | None, model: str | None) -> Tokenizer:
    """The tokenizer given, or loaded from the folder given, or from the model's if it is here.

    Nothing is downloaded. Raises UsageError where no folder is known or nothing loads from it.
    """
    if given is not None and not isinstance(given, str | os.PathLike):
        return given
    folder = model if given is None else os.fspath(given)
    if folder is None or not os.path.isdir(folder):
        what = "" if folder is None else f" {without_credentials(folder)!r}"
        raise UsageError(f"no folder{what}: pass tokenizer=, a tokenizer or the folder of one")
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise MissingExtraError("transformers", extra="transformers") from None
    try:
        loaded = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, ImportError) as error:  # a format whose library is missing
        raise UsageError(f"no tokenizer in {folder!r}: {error}") from error
    return cast(Tokenizer, loaded)

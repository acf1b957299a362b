"""The messages of ms-swift as text.

After each turn but the last, ms-swift replaces the text of the policy's message by its token ids
(swift/rollout/multi_turn.py, set_assistant_message_token_ids).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards_adapters.response_text import response_text


class MessageTexts:
    """Reads messages with the tokenizer of the model. `args` are the arguments of the trainer."""

    def __init__(self, args: Any) -> None:
        self._args = args

    def of(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the messages with texts for token ids. UsageError if the model is unknown."""
        return [self._with_text(message) for message in messages]

    def _with_text(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        ids = token_ids(message.get("content"))
        if ids is None or message.get("role") != "assistant":
            return message
        return {**message, "content": response_text(self._tokenizer, ids)}

    @cached_property
    def _tokenizer(self) -> Any:
        """The tokenizer of the model that the trainer trains.

        The arguments that a reward gets do not contain the model. ms-swift writes those that do to
        `args.json` in the output folder, before it creates the trainer. `model_dir` is the folder
        of the model on this machine, also if `--model` is a name of a hub.
        """
        from swift.arguments import BaseArguments

        folder = getattr(self._args, "output_dir", None) or "output_dir"
        file = Path(folder, "args.json")
        if not file.exists():
            raise UsageError(
                "the messages of a multi-turn scheduler contain token ids, and the model with "
                f"their tokenizer is unknown: {file} does not exist. Create the reward with the "
                "arguments of the trainer, as in RagReward(args=args), and share the folder "
                "--output_dir between all machines"
            )
        model = json.loads(file.read_text(encoding="utf-8"))["model_dir"]
        arguments = BaseArguments.from_pretrained(folder)
        _, processor = arguments.get_model_processor(model=model, load_model=False)
        return getattr(processor, "tokenizer", processor)


def token_ids(content: Any) -> list[int] | None:
    """Return the token ids of a message, None if its content is a text or a list of parts.

    >>> token_ids([5, 6]), token_ids({"token_ids": [5]}), token_ids("text"), token_ids([])
    ([5, 6], [5], None, None)
    """
    ids = content.get("token_ids") if isinstance(content, Mapping) else content
    if not isinstance(ids, Sequence) or isinstance(ids, str) or not ids:
        return None
    return list(ids) if all(type(token) is int for token in ids) else None

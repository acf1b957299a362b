"""The messages of ms-swift as text.

After each turn but the last, ms-swift replaces the text of the policy's message by its token ids
(swift/rollout/multi_turn.py, set_assistant_message_token_ids).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards_adapters.response_text import response_text


class MessageTexts:
    """Reads messages with the tokenizer of the trainer. `args` are the arguments of the trainer."""

    def __init__(self, args: Any) -> None:
        self._args = args

    def of(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the messages with texts instead of token ids. UsageError without a tokenizer."""
        return [self._with_text(message) for message in messages]

    def _with_text(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        ids = token_ids(message.get("content"))
        if ids is None or message.get("role") != "assistant":
            return message
        return {**message, "content": response_text(self._tokenizer, ids)}

    @cached_property
    def _tokenizer(self) -> Any:
        if not hasattr(self._args, "get_model_processor"):
            raise UsageError(
                "the messages of a multi-turn scheduler contain token ids, which need the "
                "tokenizer of the trainer: pass its arguments, as in RagReward(args=args)"
            )
        _, processor = self._args.get_model_processor(load_model=False)
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

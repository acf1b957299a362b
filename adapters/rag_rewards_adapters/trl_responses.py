"""The response of a completion of TRL: its thoughts, the tag that its prompt opens, and its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rag_rewards.errors import RolloutError
from rag_rewards.rollout import Rollout
from rag_rewards.rows.columns import response_prefix_of
from rag_rewards_adapters.response_text import response_text, tool_loop_limit
from rag_rewards_adapters.trl_trainer import TrainerSettings


@dataclass(frozen=True)
class ResponseReader:
    """Reads responses with the settings and the tokenizer of a trainer, which may be unknown.

    prefix     the tag that the prompt opens; None reads it from the prompt or the chat template
    settings   the settings of the trainer, None before `bind`
    tokenizer  the tokenizer of the trainer, None before `bind` and in another process
    """

    prefix: str | None
    settings: TrainerSettings | None
    tokenizer: Any

    def prompt_prefix(self, prompt: Any) -> str | None:
        """Return the tag that a prompt opens for the model."""
        if self.prefix is not None:
            return self.prefix
        if isinstance(prompt, str):
            return response_prefix_of(prompt)
        return self.settings.response_prefix if self.settings else None

    def response(
        self, completion: Any, ids: Sequence[int] | None, prefix: str | None
    ) -> tuple[Any, str | None]:
        """Return the response with its thoughts, and the tag that the prompt opened for it.

        A tokenizer with a response template separates thoughts from the text, with an opened tag.
        """
        if isinstance(completion, str) or len(completion) != 1:
            return completion, prefix
        message = completion[0]
        thought = message.get("reasoning_content") or message.get("thinking")
        is_parsed = thought or (self.settings is not None and self.settings.parses_thoughts)
        if not is_parsed:
            return completion, prefix
        if ids is not None and self.tokenizer is not None:
            return self.tokenizer.decode(ids, skip_special_tokens=True), prefix
        content = message.get("content") or ""
        return (f"<think>{thought}</think>{content}" if thought else content), None

    def finish_reason(
        self, ids: Sequence[int] | None, messages: Sequence[Mapping[str, Any]] | None = None
    ) -> str | None:
        """Return `length` or `max_turns` if a limit ended the response, else `stop`.

        The reason depends on the last token and on the messages of the tool loop. It is None if it
        is not known.
        """
        if self.settings is None or not ids:
            return None
        if ids[-1] not in self.settings.end_tokens:
            return "length"
        if messages is None or self.settings.max_turns is None:
            return "stop"
        return tool_loop_limit(messages, self.settings.max_turns) or "stop"

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        return response_text(self.tokenizer, ids)


def has_unopened_thoughts(rollouts: Iterable[Rollout | RolloutError]) -> bool:
    """Return whether a response closes <think>, and neither it nor its prompt opens it."""
    for rollout in rollouts:
        if isinstance(rollout, RolloutError) or rollout.response_prefix is not None:
            continue
        text = _text(rollout.response)
        if "</think>" in text and "<think>" not in text:
            return True
    return False


def _text(response: Any) -> str:
    return response if isinstance(response, str) else "".join(m.text for m in response)

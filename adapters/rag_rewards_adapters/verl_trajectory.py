"""The turns of an output of verl's agent loops, for recipes that read turns.

The turns are the runs of the loop's mask. `tool_agent` does not return its messages, so its calls
are parsed with the parser of verl (`rollout.multi_turn.format`), and the text of the chat template
around a tool message is removed. For other loops, the dialect of the recipe reads queries and
results, unless the loop returns `turns` in its `extra_fields`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rag_rewards.errors import DataError, UsageError
from rag_rewards.turns.actions import visible_words
from rag_rewards_adapters.response_text import (
    response_text,
    tool_loop_limit,
    tool_message_borders,
)
from rag_rewards_adapters.token_masks import runs, turns_of_mask
from rag_rewards_adapters.turn_rows import turn_rows, with_spans

TOOL_AGENT = "tool_agent"
_TAGS = ("tool_call", "tool_calls", "tool_calls_section")
"""The names of the tags around calls in the parsers of verl. That of gpt-oss has none of them."""


async def turn_fields(
    output: Any,
    *,
    inner: str,
    tokenizer: Any,
    multi_turn: Any,
    template: Mapping[str, Any],
    dialect: str,
) -> dict[str, Any]:
    """Return the turns of an output as fields of a row: `turns`, or messages as `response`.

    The fields contain `finish_reason` if `tool_agent` ended at a limit. `multi_turn` is the section
    of verl's configuration with the limits and the format of calls. Raises DataError for an output
    without own tokens.
    """
    ids, mask = list(output.response_ids), list(output.response_mask)
    tokens = {"response_token_ids": tuple(ids), "prompt_token_ids": tuple(output.prompt_ids)}
    if (given := output.extra_fields.get("turns")) is not None:
        return {"turns": with_spans(given, {"response_mask": mask}), **tokens}

    def decode(part: Sequence[int]) -> str:
        return response_text(tokenizer, part)

    if inner == TOOL_AGENT and dialect in ("auto", "tools"):
        parser = _parser(str(multi_turn.format), tokenizer)
        max_calls = multi_turn.max_parallel_calls
        messages = await _messages(ids, mask, tokenizer, parser, max_calls, template)
        limit = tool_loop_limit(messages, _max_turns(multi_turn))
        if limit is None:  # verl found no call in the last message
            messages[-1].update(_unread_call(parser, messages[-1]["content"]))
        reason = {} if limit is None else {"finish_reason": limit}
        return {"response": messages, **reason, **tokens}
    return {"turns": turn_rows(turns_of_mask(ids, mask, decode, dialect)), **tokens}


def _parser(tool_format: str, tokenizer: Any) -> Any:
    """Return the tool parser of verl with this name. UsageError for an unknown name."""
    from verl.experimental.agent_loop.tool_parser import ToolParser

    try:
        return ToolParser.get_tool_parser(tool_format, tokenizer)
    except ValueError as error:
        raise UsageError(f"actor_rollout_ref.rollout.multi_turn.format: {error}") from None


async def _messages(
    ids: list[int],
    mask: list[int],
    tokenizer: Any,
    parser: Any,
    max_calls: int | None,
    template: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the assistant messages with their calls, and the tool messages between them."""
    spans = runs(mask)
    if not spans:
        raise DataError("contains no token of the policy", "response_mask")
    before, after = tool_message_borders(tokenizer, template)
    messages: list[dict[str, Any]] = []
    ends = [start for start, _ in spans[1:]] + [len(ids)]
    for (start, end), following in zip(spans, ends, strict=True):
        content, calls = await parser.extract_tool_calls(ids[start:end], [])
        message: dict[str, Any] = {
            "role": "assistant",
            "content": _without_end(content, tokenizer)
            if calls
            else response_text(tokenizer, ids[start:end]),
            "token_span": [start, end],
        }
        if calls:
            # verl does not execute calls beyond the limit, so they ask the environment nothing.
            executed = len(calls[:max_calls])
            message["tool_calls"] = [
                {
                    "type": "function",
                    "function": {
                        "name": call.name,
                        "arguments": call.arguments if i < executed else "{}",
                    },
                }
                for i, call in enumerate(calls)
            ]
        messages.append(message)
        if following > end:
            text = str(tokenizer.decode(ids[end:following], skip_special_tokens=False)).strip()
            text = text.removeprefix(before).removesuffix(after).strip()
            messages.append({"role": "tool", "content": text})
    return messages


def _unread_call(parser: Any, text: str) -> dict[str, Any]:
    """Return the field `tool_calls` of a message with a complete call that verl could not read.

    verl ends its loop at such a message. Tags inside thinking are no call. The field is missing for
    a message without the tags of the parser.
    """
    words = visible_words(text)
    for name in _TAGS:
        start, end = (getattr(parser, f"{name}_{side}_token", None) for side in ("start", "end"))
        if start and end:
            _, _, rest = words.partition(start)
            call, closing, _ = rest.partition(end)
            if closing:
                return {"tool_calls": [{"type": "function", "function": call}]}
    return {}


def _max_turns(multi_turn: Any) -> float:
    """Return the greatest number of messages of the model. 0 and null are no limit."""
    own, replies = multi_turn.max_assistant_turns, multi_turn.max_user_turns
    return min(own or math.inf, (replies or math.inf) + 1)


def _without_end(text: str, tokenizer: Any) -> str:
    return text.strip().removesuffix(tokenizer.eos_token or "").rstrip()

"""The turns of a completion of TRL: messages of its tool loop, a mask, or columns of a rollout.

messages       with tools, TRL passes the messages of the conversation; each assistant message is a
               turn, and its tokens are a run of the mask
turns          column that a `rollout_func` returns, with the turns of each completion as in a row
token_span     column that a `rollout_func` returns: for each completion, the span of each turn
response_mask  1 for own tokens of the policy, 0 for others. `TurnGRPOTrainer` adds this column
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rag_rewards.errors import DataError
from rag_rewards_adapters.token_masks import Span, runs, turns_of_mask
from rag_rewards_adapters.turn_rows import as_list, turn_rows, with_spans

Decode = Callable[[Sequence[int]], str]


def last_message(prompt: Any, completion: Any) -> tuple[Any, Any]:
    """Return the last assistant message of a completion with tool turns, and all before it."""
    if isinstance(completion, str) or isinstance(prompt, str) or len(completion) < 2:
        return prompt, completion
    own = [i for i, message in enumerate(completion) if message["role"] == "assistant"]
    if not own:
        return prompt, completion
    return [*prompt, *completion[: own[-1]]], [completion[own[-1]]]


def turn_columns(columns: Mapping[str, Sequence[Any]], position: int) -> dict[str, Any]:
    """Return the values of one completion in the columns that describe its tokens.

    Raises DataError for a value that is not a list.
    """
    names = ("token_span", "response_mask", "prompt_token_ids")
    return {
        name: as_list(columns[name][position], name)
        for name in names
        if columns.get(name) is not None and columns[name][position] is not None
    }


def turn_fields(
    completion: Any,
    turns: Sequence[Mapping[str, Any]] | None,
    ids: Sequence[int] | None,
    tokens: Mapping[str, Any],
    decode: Decode | None,
    dialect: str,
) -> dict[str, Any] | None:
    """Return the fields `turns` or `response` of a row with turns, None for a plain completion.

    completion  text or messages
    turns       the column `turns`
    ids         token ids of the completion
    tokens      values of `turn_columns`
    decode      text of token ids; None without a trainer

    Raises DataError if the spans do not fit the turns.
    """
    mask = tokens.get("response_mask")
    if turns is not None:
        return {"turns": with_spans(turns, tokens)}
    if not isinstance(completion, str) and _is_conversation(completion):
        return {"response": _messages_with_spans(completion, mask)}
    if mask is None or ids is None or decode is None:
        return None
    return {"turns": turn_rows(turns_of_mask(ids, mask, decode, dialect))}


def _is_conversation(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether there are several messages, or a tool call."""
    return len(messages) > 1 or any(message.get("tool_calls") for message in messages)


def _messages_with_spans(
    messages: Sequence[Mapping[str, Any]], mask: Sequence[int] | None
) -> list[dict[str, Any]]:
    """Return messages with the runs of the mask as the spans of the assistant messages."""
    own = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    spans: Sequence[Span | None] = [None] * len(own) if mask is None else runs(mask)
    if len(spans) != len(own):
        raise DataError(
            f"has {len(own)} assistant messages for {len(spans)} runs of own tokens: return the "
            "columns turns and token_span",
            "response",
        )
    result = [_message(message) for message in messages]
    for i, span in zip(own, spans, strict=True):
        if span is not None:
            result[i]["token_span"] = list(span)
    return result


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with the names of the OpenAI chat format."""
    renamed = {"thinking": "reasoning_content"}
    return {renamed.get(name, name): value for name, value in message.items() if value is not None}

"""Token ids of prompts and responses as text: special tokens, opened tags, tool turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rag_rewards.errors import DataError, UsageError
from rag_rewards.rows.columns import response_prefix_of

_TAG_TOKENS = 32
"""The number of tokens at the end of a prompt that are searched for an opened tag."""
_USE_RAG_GROUP = (
    "so the text of the model cannot be separated from that of the tools: use the agent loop "
    "rag_group, which reads the loop's own mask"
)
_MARKER = "tool-message-text"
_CHAT_WITH_TOOL: list[dict[str, Any]] = [
    {"role": "user", "content": "?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "call00000", "type": "function", "function": {"name": "search", "arguments": {}}}
        ],
    },
    {"role": "tool", "name": "search", "tool_call_id": "call00000", "content": "."},
]


def without_end_tokens(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """Return token ids without the end-of-sequence and padding tokens at their end."""
    ends = {tokenizer.eos_token_id, tokenizer.pad_token_id} - {None}
    length = len(ids)
    while length and ids[length - 1] in ends:
        length -= 1
    return list(ids[:length])


def response_text(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return the text of a response. Special tokens stay: <think> is one in some vocabularies."""
    ids = without_end_tokens(tokenizer, ids)
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def finish_reason(tokenizer: Any, ids: Sequence[int], max_length: int) -> str:
    """Return `length` if a response of the maximum length has no end token, else `stop`."""
    has_end = bool(ids) and ids[-1] == tokenizer.eos_token_id
    return "length" if len(ids) >= max_length and not has_end else "stop"


def tool_loop_limit(messages: Sequence[Mapping[str, Any]], max_turns: float) -> str | None:
    """Return the limit that ended a trainer's tool loop, or None if the model ended it.

    The loop continues until a message of the model contains no call. If the last message is a call
    or a result, the loop has reached `max_turns` messages of the model, or the next tokens do not
    fit into the response.

    >>> call, result = {"role": "assistant", "tool_calls": [{}]}, {"role": "tool"}
    >>> answer = {"role": "assistant", "content": "Seine"}
    >>> [tool_loop_limit(end, 2) for end in ([call, result, answer], [call], [call, result, call])]
    [None, 'length', 'max_turns']
    """
    last = messages[-1]
    if last["role"] == "assistant" and not last.get("tool_calls"):
        return None
    turns = sum(message["role"] == "assistant" for message in messages)
    return "max_turns" if turns >= max_turns else "length"


def opened_tag(tokenizer: Any, prompt_ids: Sequence[int]) -> str | None:
    """Return the tag that a prompt opens at its end, such as <think>, or None."""
    end = tokenizer.decode(list(prompt_ids[-_TAG_TOKENS:]), skip_special_tokens=False)
    return response_prefix_of(str(end))


def turn_header(tokenizer: Any, template: Mapping[str, Any] | None = None) -> str:
    """Return the text that the chat template writes between a tool message and the next turn.

    It is the difference between such a chat with and without the generation prompt, which verl's
    tool loop also inserts between the turns. An opened <think> is part of it. Raises UsageError if
    the template writes nothing there.
    """
    options = {"tokenize": False, **(template or {})}
    try:
        chat, chat_and_header = (
            str(
                tokenizer.apply_chat_template(_CHAT_WITH_TOOL, add_generation_prompt=add, **options)
            )
            for add in (False, True)
        )
    except Exception as error:  # a template is code of the model's authors
        raise UsageError(
            f"the chat template does not accept tool turns ({error}), {_USE_RAG_GROUP}"
        ) from error
    header = chat_and_header[len(chat) :].lstrip() if chat_and_header.startswith(chat) else ""
    if not header:
        raise UsageError(
            f"the chat template writes nothing before the model's turn, {_USE_RAG_GROUP}"
        )
    return header


def tool_message_borders(
    tokenizer: Any, template: Mapping[str, Any] | None = None
) -> tuple[str, str]:
    """Return the text that the chat template writes before and after the text of a tool message.

    Both are "" if the template does not accept tool messages. White space at their ends is removed.
    """
    options = {"tokenize": False, **(template or {})}
    marked = [*_CHAT_WITH_TOOL[:2], {**_CHAT_WITH_TOOL[2], "content": _MARKER}]
    try:
        chat = str(tokenizer.apply_chat_template(_CHAT_WITH_TOOL[:2], **options))
        whole = str(tokenizer.apply_chat_template(marked, add_generation_prompt=True, **options))
    except Exception:  # a template is code of the model's authors
        return "", ""
    start = len(chat) if whole.startswith(chat) else 0
    before, marker, after = whole[start:].partition(_MARKER)
    return (before.strip(), after.strip()) if marker else ("", "")


def last_turn(text: str, header: str) -> str:
    """Return the last assistant message of a response with tool turns.

    verl's tool loop ends with a turn of the model, so all text after the last header is that of
    the model, whatever a tool returns. If the model writes the header itself, the text before it
    is lost. Raises DataError if the text does not contain the header.
    """
    _, separator, last = text.rpartition(header)
    if not separator:
        raise DataError(
            f"has several turns, but does not contain {header!r} of the chat template, "
            f"{_USE_RAG_GROUP}",
            "response",
        )
    return last

"""Turns of a list of chat messages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rag_rewards.documents import Message, Result
from rag_rewards.turns.blocks import documents_of
from rag_rewards.turns.calls import QUERY_FIELDS, Call, read_calls
from rag_rewards.turns.dialects import TOOLS, Dialect
from rag_rewards.turns.raw_text import results_in
from rag_rewards.turns.segment import Segment


def has_tools(messages: Sequence[Message]) -> bool:
    """Return whether the messages contain a tool call or a tool message."""
    return any(message.role == "tool" or message.tool_calls for message in messages)


def split_messages(
    messages: Sequence[Message],
    dialect: Dialect,
    fields: Collection[str] = QUERY_FIELDS,
    names: Collection[str] = (),
) -> list[Segment]:
    """Return a segment for each assistant message.

    Tool messages after it are its results, in the order of its calls. A user message after it is
    its observation. Messages before the first assistant message belong to the prompt.
    """
    return [
        _segment(message, replies, dialect, fields, names)
        for message, replies in _exchanges(messages)
    ]


def _exchanges(messages: Sequence[Message]) -> Iterator[tuple[Message, list[Message]]]:
    """Yield each assistant message with the messages between it and the next one."""
    current: Message | None = None
    replies: list[Message] = []
    for message in messages:
        if message.role == "assistant":
            if current is not None:
                yield current, replies
            current, replies = message, []
        elif current is not None:
            replies.append(message)
    if current is not None:
        yield current, replies


def _segment(
    message: Message,
    replies: list[Message],
    dialect: Dialect,
    fields: Collection[str],
    names: Collection[str],
) -> Segment:
    reasoning = message.reasoning_content
    calls: list[Call] | None = None
    queries: tuple[str, ...] | None = None
    if dialect is TOOLS:
        calls = read_calls(message.tool_calls, fields, names)
        queries = tuple(query for call in calls for query in call.queries)
        results = _tool_results(calls, replies)
    else:
        results = _block_results(replies, dialect)
    return Segment(
        text=message.text,
        queries=queries,
        results=results,
        observation="\n".join(reply.text for reply in replies) if replies else None,
        calls=None if calls is None else tuple(calls),
        reasoning=reasoning if isinstance(reasoning, str) else None,
        token_span=message.token_span,
    )


def _tool_results(calls: list[Call], replies: list[Message]) -> tuple[Result, ...] | None:
    """Return the documents of the tool messages that reply to searches, in the order of these."""
    messages = [reply for reply in replies if reply.role == "tool"]
    by_id: dict[str, list[Message]] = {}
    others: list[Message] = []
    ids = {call.id for call in calls if call.id is not None}
    for message in messages:
        reference = message.tool_call_id
        if isinstance(reference, str) and reference in ids:
            by_id.setdefault(reference, []).append(message)
        else:
            others.append(message)
    others.reverse()  # the first reply is then the last item
    results: list[Result] | None = None
    for call in calls:
        found = by_id.get(call.id or "", [])
        if not found and others:
            found = [others.pop()]
        if call.kind == "search" and found:
            results = results or []
            for message in found:
                results.extend(documents_of(message.text, TOOLS))
    return None if results is None else tuple(results)


def _block_results(replies: list[Message], dialect: Dialect) -> tuple[Result, ...] | None:
    """Return the documents of the results blocks. A tool message can omit the tags of the block."""
    results: list[Result] | None = None
    for reply in replies:
        documents = results_in(reply.text, dialect)
        if documents is None and reply.role == "tool":
            documents = documents_of(reply.text, dialect)
        if documents is not None:
            results = [*(results or []), *documents]
    return None if results is None else tuple(results)

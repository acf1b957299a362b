"""Turns of a transcript, which is one string, and of a list of chat messages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from rag_rewards.turns.actions import end_of_forged_block, next_tag
from rag_rewards.turns.dialects import TOOLS, Dialect, documents_of, results_in
from rag_rewards.turns.turn import Message, Result, Turn

SEARCH_R1_ERROR = (
    "\nMy previous action is invalid. If I want to search, I should put the query between <search> "
    "and </search>. If I want to give the final answer, I should put the answer between <answer> "
    "and </answer>. Let me try again.\n"
)
"""The message of Search-R1's environment after words without an action."""


def is_transcript(text: str, dialect: Dialect) -> bool:
    """Return whether a string contains a complete query, so that it can contain several turns."""
    if dialect.query is None:
        return False
    opening, closing = dialect.query
    start = text.find(opening)
    return start >= 0 and text.find(closing, start) >= 0


def split_transcript(text: str, dialect: Dialect, error_texts: Sequence[str] = ()) -> list[Turn]:
    """Return the turns of a transcript, without their queries and answers.

    A results block belongs to the environment if only white space separates it from a complete
    query before it; a turn ends with it. An error text of the environment ends a turn too. A
    results block that never closes extends to the end. The policy can forge both, so a turn with
    a results block is not trusted.
    """
    if not is_transcript(text, dialect):
        return [Turn(text=text)]
    # The search for tags alone is faster, because all of them begin with the same character.
    cuts = _cuts(text, dialect, tuple(error for error in error_texts if error and error in text))
    turns: list[Turn] = []
    at = 0
    for start, end, is_block in cuts:
        observation = text[start:end]
        results = results_in(observation, dialect) if is_block else None
        words = text[at:start]
        turns.append(
            Turn(text=words, results=results, observation=observation, trusted=not is_block)
        )
        at = end
    if not turns or text[at:].strip():
        turns.append(Turn(text=text[at:]))
    return turns


def _cuts(text: str, dialect: Dialect, error_texts: tuple[str, ...]) -> list[tuple[int, int, bool]]:
    """Return the ranges that the environment wrote, each with whether it is a results block."""
    opening_query, closing_query = dialect.query or ("", "")
    opening_block, closing_block = dialect.block or ("", "")
    tags = list(_pattern(dialect, error_texts).finditer(text))
    names = [tag[0] for tag in tags]
    cuts: list[tuple[int, int, bool]] = []
    asks = -1  # position after a complete query, −1 if the words since then are not blank
    is_open = False
    i = 0
    while i < len(tags):
        match = tags[i]
        tag = names[i]
        if tag in error_texts:
            cuts.append((match.start(), match.end(), False))
            asks, is_open = -1, False
        elif is_open:
            if tag == closing_query:
                asks, is_open = match.end(), False
        elif tag == opening_query:
            asks, is_open = -1, True
        elif tag == opening_block:
            if asks >= 0 and not text[asks : match.start()].strip():
                end = next_tag(names, i, closing_block)
                if end < 0:
                    cuts.append((asks, len(text), True))
                    break
                cuts.append((asks, tags[end].end(), True))
                i = end
            else:
                i = end_of_forged_block(names, i, opening_block, closing_block)
            asks = -1
        i += 1
    return cuts


@lru_cache(maxsize=64)
def _pattern(dialect: Dialect, error_texts: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern of the tags of queries and blocks, and of the error texts."""
    tags = [tag for pair in (dialect.query, dialect.block) if pair for tag in pair]
    longest_first = sorted(error_texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, (*longest_first, *tags))))


QUERY_FIELDS = ("query", "queries", "query_list", "q")
"""Names of the argument that contains the query, in order of precedence."""


def has_tools(messages: Sequence[Message]) -> bool:
    """Return whether the messages contain a tool call or a tool message."""
    return any(message.role == "tool" or message.tool_calls for message in messages)


def split_messages(
    messages: Sequence[Message],
    dialect: Dialect,
    fields: Collection[str] = QUERY_FIELDS,
) -> list[Turn]:
    """Return a turn for each assistant message, without its answer and the queries in its words.

    Tool messages after it are its results, in the order of its calls. A user message after it is
    its observation. Messages before the first assistant message belong to the prompt.
    """
    return [_turn(message, replies, dialect, fields) for message, replies in exchanges(messages)]


def exchanges(messages: Sequence[Message]) -> Iterator[tuple[Message, list[Message]]]:
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


def _turn(
    message: Message, replies: list[Message], dialect: Dialect, fields: Collection[str]
) -> Turn:
    reasoning = message.reasoning_content
    turn = Turn(
        text=message.text,
        observation="\n".join(reply.text for reply in replies) if replies else None,
        reasoning=reasoning if isinstance(reasoning, str) else None,
        token_span=message.token_span,
    )
    if dialect is not TOOLS:
        return msgspec.structs.replace(turn, results=_block_results(replies, dialect))
    calls = read_calls(message.tool_calls, fields)
    return msgspec.structs.replace(
        turn,
        queries=tuple(query for call in calls for query in call.queries),
        results=_tool_results(calls, replies),
        calls=len(calls),
        malformed=_faults(calls),
    )


def _faults(calls: Sequence[Call]) -> tuple[str, ...]:
    """Return the name of what is wrong with the calls of a message, if anything is."""
    kinds = [call.kind for call in calls]
    if "bad" in kinds:
        return ("bad_call",)
    asks_nothing = "search" in kinds and not any(
        query.strip() for c in calls for query in c.queries
    )
    return ("empty_query",) if asks_nothing else ()


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


# --- tool calls ----------------------------------------------------------------------------------


class Call(NamedTuple):
    """A tool call.

    kind     `search`, `bad` for arguments that cannot be read, `other` for another tool
    queries  queries of a search
    id       id of the call, None if it has none
    """

    kind: str
    queries: tuple[str, ...] = ()
    id: str | None = None


def read_calls(tool_calls: Any, fields: Collection[str] = QUERY_FIELDS) -> list[Call]:
    """Return the calls of a message. A field `TOOL.ARGUMENT` is that of the tool of this name.

    >>> read_calls([{"function": {"name": "search", "arguments": '{"query": "Paris"}'}}])
    [Call(kind='search', queries=('Paris',), id=None)]
    """
    if not isinstance(tool_calls, list):
        return [] if tool_calls is None else [Call("bad")]
    return [_read(call, fields) for call in tool_calls]


def _read(call: Any, fields: Collection[str]) -> Call:
    if not isinstance(call, dict):
        return Call("bad")
    call_id = call.get("id") if isinstance(call.get("id"), str) else None
    function = call.get("function", call)
    if not isinstance(function, dict):
        return Call("bad", id=call_id)
    places = [(tool, name) for tool, _, name in (field.rpartition(".") for field in fields)]
    names = [name for tool, name in places if not tool or tool == function.get("name")]
    if not names:
        return Call("other", id=call_id)
    arguments = _arguments(function.get("arguments"))
    if arguments is None:
        return Call("bad", id=call_id)
    for name in names:
        if name in arguments:
            queries = _queries(arguments[name])
            return Call("bad" if queries is None else "search", queries or (), call_id)
    return Call("other", id=call_id)


def _arguments(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _queries(value: Any) -> tuple[str, ...] | None:
    """Return the queries of an argument, or None if it is neither text nor a list of texts."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    return None

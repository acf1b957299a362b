"""Queries in the tool calls of a chat message."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec

QUERY_FIELDS = ("query", "queries", "query_list", "q")
"""Names of the argument that contains the query, in order of precedence."""


class Call(NamedTuple):
    """A tool call.

    kind     `search`, `bad` for arguments that cannot be read, `other` for another tool
    queries  queries of a search
    id       id of the call, None if it has none
    """

    kind: str
    queries: tuple[str, ...] = ()
    id: str | None = None


def read_calls(
    tool_calls: Any, fields: Collection[str] = QUERY_FIELDS, names: Collection[str] = ()
) -> list[Call]:
    """Return the calls of a message. With `names`, only these tools are searches.

    >>> read_calls([{"function": {"name": "search", "arguments": '{"query": "Paris"}'}}])
    [Call(kind='search', queries=('Paris',), id=None)]
    """
    if not isinstance(tool_calls, list):
        return [] if tool_calls is None else [Call("bad")]
    return [_read(call, fields, names) for call in tool_calls]


def _read(call: Any, fields: Collection[str], names: Collection[str]) -> Call:
    if not isinstance(call, dict):
        return Call("bad")
    call_id = call.get("id") if isinstance(call.get("id"), str) else None
    function = call.get("function", call)
    if not isinstance(function, dict):
        return Call("bad", id=call_id)
    if names and function.get("name") not in names:
        return Call("other", id=call_id)
    arguments = _arguments(function.get("arguments"))
    if arguments is None:
        return Call("bad", id=call_id)
    for field in fields:
        if field in arguments:
            queries = _queries(arguments[field])
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

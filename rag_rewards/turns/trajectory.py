"""A rollout in any form as a list of turns, and the counts of its turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec

from rag_rewards.errors import DataError, RowError, UsageError
from rag_rewards.settings import about
from rag_rewards.text.normalize import squad
from rag_rewards.text.response import strip_end_of_sequence
from rag_rewards.turns.actions import Position, read_tags, read_tools
from rag_rewards.turns.conversation import (
    QUERY_FIELDS,
    SEARCH_R1_ERROR,
    exchanges,
    has_tools,
    is_transcript,
    split_messages,
    split_transcript,
)
from rag_rewards.turns.dialects import (
    DIALECTS,
    SEARCH_R1,
    THINK,
    TOOLS,
    Dialect,
    dialect_of,
    has_block,
    has_query,
)
from rag_rewards.turns.turn import Message, Result, Turn, TurnRow


class Reading(msgspec.Struct, frozen=True):
    """The settings by which turns are read from a rollout."""

    dialect: Annotated[
        str,
        about(
            "tags of queries, results and answers; auto chooses per rollout",
            "ours: the text shows its dialect",
        ),
    ] = "auto"
    results_from: Annotated[
        Literal["text", "environment"],
        about(
            "text: also read results from a transcript, where the policy can forge them; "
            "environment: only from the field turns or from chat messages",
            "ours: text, as published",
        ),
    ] = "text"
    error_texts: Annotated[
        tuple[str, ...],
        about(
            "texts by which the environment rejects an action in a transcript, besides the text of "
            "Search-R1 in its dialect",
            "ours: none, as other environments differ",
        ),
    ] = ()
    query_fields: Annotated[
        tuple[str, ...],
        about(
            "with dialect=tools, arguments of a call that contain the query; TOOL.ARGUMENT: "
            "that of the tool of this name",
            "ours: names in common tools",
            min_length=1,
        ),
    ] = QUERY_FIELDS


READING = Reading()
"""The default settings."""


class Trajectory(msgspec.Struct, frozen=True):
    """The turns of a rollout.

    dialect  the dialect by which they were read
    turns    the turns, at least one
    """

    dialect: Dialect
    turns: tuple[Turn, ...]

    @property
    def answer(self) -> str | None:
        """The answer of the last turn, None if it has none."""
        return self.turns[-1].answer

    @property
    def searches(self) -> int:
        """The number of turns with a query and with results, which can be empty."""
        return sum(turn.is_search for turn in self.turns)

    @property
    def trusted(self) -> bool:
        """Whether no results can be words of the policy."""
        return all(turn.trusted for turn in self.turns)

    @property
    def results(self) -> tuple[Result, ...]:
        """The different results of all turns, in the order of their first appearance."""
        return distinct(result for turn in self.turns for result in turn.results or ())


def distinct(results: Iterable[Result]) -> tuple[Result, ...]:
    """Return results without repetitions: equal ids, or without ids equal titles and texts."""
    seen: dict[object, Result] = {}
    for result in results:
        key = (result.title, result.text) if result.id is None else str(result.id)
        seen.setdefault(key, result)
    return tuple(seen.values())


def can_have_results(response: str | Sequence[Message]) -> bool:
    """Return whether a response can contain results, by a fast search for their tags.

    >>> can_have_results("<search>a</search><information></information>"), can_have_results("a")
    (True, False)
    """
    if isinstance(response, str):
        return has_query(response) and has_block(response)
    roles = [message.role for message in response]
    if "assistant" not in roles:
        return False
    first = roles.index("assistant")
    return any(
        message.role == "tool" or (message.role != "assistant" and has_block(message.text))
        for message in response[first:]
    )


def read_trajectory(
    response: str | Sequence[Message],
    turns: tuple[TurnRow, ...] | None = None,
    reading: Reading = READING,
    *,
    prefix: str | None = None,
    finish_reason: str | None = None,
) -> Trajectory:
    """Return the turns of a rollout: those of the row, of its messages, or of its transcript.

    prefix         beginning of the first turn that the prompt contains
    finish_reason  why the rollout ended

    Raises UsageError for an unknown dialect, DataError for a transcript if results must come from
    the environment, and RowError for messages without an assistant message.

    >>> run = read_trajectory("<search>a</search><information></information><answer>b</answer>")
    >>> run.dialect.name, [turn.queries for turn in run.turns], run.answer
    ('search-r1', [('a',), ()], 'b')
    """
    if turns is not None:
        dialect, read = _of_rows(turns, reading)
    elif isinstance(response, str):
        dialect, read = _of_transcript(response, reading)
    else:
        dialect, read = _of_messages(response, reading)
    stated = None if turns is None else [turn.given_queries for turn in turns]
    last = len(read) - 1
    has_thought = False
    for i, turn in enumerate(read):
        text = strip_end_of_sequence(turn.text)
        if i == 0 and prefix:
            text = prefix + text
        if text != turn.text:
            turn = msgspec.structs.replace(turn, text=text)
        position = Position(i == last, has_thought, finish_reason if i == last else None)
        if dialect is TOOLS:
            read[i] = read_tools(turn, dialect, position)
        else:
            read[i] = read_tags(turn, stated[i] if stated else None, dialect, position)
        has_thought = has_thought or THINK[1] in text
    return Trajectory(dialect, tuple(read))


def _of_rows(turns: Sequence[TurnRow], reading: Reading) -> tuple[Dialect, list[Turn]]:
    dialect = _named(reading.dialect) or dialect_of(
        [turn.text for turn in turns], [turn.observation for turn in turns], has_tools=False
    )
    return dialect, [turn.turn(has_calls=dialect is TOOLS) for turn in turns]


def _of_messages(messages: Sequence[Message], reading: Reading) -> tuple[Dialect, list[Turn]]:
    dialect = _named(reading.dialect)
    if dialect is None:
        pairs = list(exchanges(messages))
        words = [message.text for message, _ in pairs]
        observations = ["".join(reply.text for reply in replies) for _, replies in pairs]
        dialect = dialect_of(words, observations, has_tools(messages))
    turns = split_messages(messages, dialect, reading.query_fields)
    if not turns:
        raise RowError("the messages contain no assistant message", "response")
    return dialect, turns


def _of_transcript(response: str, reading: Reading) -> tuple[Dialect, list[Turn]]:
    text = strip_end_of_sequence(response)
    dialect = _named(reading.dialect) or dialect_of([text], [None], has_tools=False)
    if reading.results_from == "environment" and is_transcript(text, dialect):
        raise DataError(
            "a transcript cannot show which results are from the environment: write the field "
            "turns or chat messages, or set results_from=text",
            "response",
        )
    own = (SEARCH_R1_ERROR,) if dialect is SEARCH_R1 else ()
    return dialect, split_transcript(text, dialect, (*own, *reading.error_texts))


def _named(name: str) -> Dialect | None:
    if name == "auto":
        return None
    if name not in DIALECTS:
        raise UsageError(f"unknown dialect {name!r}: choose {', '.join(('auto', *DIALECTS))}")
    return DIALECTS[name]


# --- counts --------------------------------------------------------------------------------------


class TurnCounts(msgspec.Struct, frozen=True):
    """Counts of the turns of a rollout.

    turns           number of turns
    searches        turns with a query and with results, which can be empty
    query_turns     turns with a query
    empty           turns with a query to which the environment returned no document
    queries         number of queries
    repeated        queries that are equal to an earlier query of the rollout, after `squad`
    malformed       turns with a name in `names`
    names           number of turns with each name of a malformed turn
    """

    turns: int
    searches: int
    query_turns: int
    empty: int
    queries: int
    repeated: int
    malformed: int
    names: dict[str, int]


def turn_counts(run: Trajectory) -> TurnCounts:
    """Return the counts of the turns of a rollout.

    >>> counts = turn_counts(read_trajectory("<search>a</search><information></information>b"))
    >>> counts.turns, counts.searches, counts.empty
    (2, 1, 1)
    """
    query_turns = [turn for turn in run.turns if turn.queries]
    queries = [query for turn in query_turns for query in turn.queries]
    names = Counter(name for turn in run.turns for name in turn.malformed)
    return TurnCounts(
        turns=len(run.turns),
        searches=run.searches,
        query_turns=len(query_turns),
        empty=sum(not turn.results for turn in query_turns),
        queries=len(queries),
        repeated=len(queries) - len(set(map(normal_query, queries))),
        malformed=sum(bool(turn.malformed) for turn in run.turns),
        names=dict(names),
    )


def normal_query(query: str) -> str:
    """Return a query after `squad`, or the query itself if nothing of it is left."""
    return squad(query) or query

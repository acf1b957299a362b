"""A rollout in any form as a list of turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec

from rag_rewards.documents import Message, Result
from rag_rewards.errors import DataError, RowError, UsageError
from rag_rewards.settings import about
from rag_rewards.text.boxed import last_box
from rag_rewards.text.response import strip_end_of_sequence
from rag_rewards.text.thinking import without_thinking
from rag_rewards.turns.calls import QUERY_FIELDS
from rag_rewards.turns.conversation import has_tools, split_messages
from rag_rewards.turns.dialects import (
    DIALECTS,
    R1_SEARCHER,
    RESEARCH,
    SEARCH_R1,
    THINK,
    TOOLS,
    Dialect,
    dialect_of,
    has_block,
    has_query,
)
from rag_rewards.turns.own_words import OwnWords, Section, read_own_words
from rag_rewards.turns.raw_text import SEARCH_R1_ERROR, is_transcript, split_transcript
from rag_rewards.turns.segment import Segment, segments_of_rows
from rag_rewards.turns.turn import Turn, TurnRow, in_order

CUT_OFF = frozenset(("length", "max_turns"))
"""The values of `finish_reason` of a rollout that a limit ended."""


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
            "with dialect=tools, arguments of a call that contain the query",
            "ours: names in common tools",
            min_length=1,
        ),
    ] = QUERY_FIELDS
    tools: Annotated[
        tuple[str, ...],
        about(
            "with dialect=tools, names of the tools that search; empty for all",
            "ours: all",
            key="tools.names",
        ),
    ] = ()


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
    dialect = _named(reading.dialect)
    if turns is not None:
        segments = segments_of_rows(turns)
        dialect = dialect or _dialect(segments)
    elif not isinstance(response, str):
        tools = has_tools(response)
        dialect = dialect or (TOOLS if tools else _dialect_of_messages(response))
        segments = split_messages(response, dialect, reading.query_fields, reading.tools)
        if not segments:
            raise RowError("the messages contain no assistant message", "response")
    else:
        text = strip_end_of_sequence(response)
        dialect = dialect or dialect_of([text], [None], has_tools=False)
        if reading.results_from == "environment" and is_transcript(text, dialect):
            raise DataError(
                "a transcript cannot show which results are from the environment: write the field "
                "turns or chat messages, or set results_from=text",
                "response",
            )
        own = (SEARCH_R1_ERROR,) if dialect is SEARCH_R1 else ()
        segments = split_transcript(text, dialect, (*own, *reading.error_texts))
    last = len(segments) - 1
    read: list[Turn] = []
    has_thought = False
    for i, segment in enumerate(segments):
        text = strip_end_of_sequence(segment.text)
        if i == 0 and prefix:
            text = prefix + text
        reason = finish_reason if i == last else None
        classify = _tool_turn if dialect is TOOLS else _tag_turn
        turn = classify(segment, text, dialect, i == last, reason, has_thought)
        has_thought = has_thought or THINK[1] in text
        read.append(turn)
    return Trajectory(dialect, tuple(read))


def _named(name: str) -> Dialect | None:
    if name == "auto":
        return None
    if name not in DIALECTS:
        raise UsageError(f"unknown dialect {name!r}: choose {', '.join(('auto', *DIALECTS))}")
    return DIALECTS[name]


def _dialect(segments: list[Segment]) -> Dialect:
    words = [segment.text for segment in segments]
    return dialect_of(words, [segment.observation for segment in segments], has_tools=False)


def _dialect_of_messages(messages: Sequence[Message]) -> Dialect:
    words: list[str] = []
    observations: list[str | None] = []
    for message in messages:
        if message.role == "assistant":
            words.append(message.text)
            observations.append(None)
        elif words:
            observations[-1] = (observations[-1] or "") + message.text
    return dialect_of(words, observations, has_tools=False)


# --- one turn ------------------------------------------------------------------------------------


def _tag_turn(
    segment: Segment,
    text: str,
    dialect: Dialect,
    is_last: bool,
    reason: str | None,
    has_thought: bool,
) -> Turn:
    """Classify a turn whose actions are tags in its text."""
    own = read_own_words(text, dialect)
    if dialect is R1_SEARCHER:
        own = _after_thinking(own, has_thought)
    answers, written = own.answers, own.queries
    given = segment.queries
    asks = bool(written if given is None else given)
    queries = _acting(written, dialect) if given is None else given
    queries = tuple(query for query in map(dialect.clean, queries) if query)
    # A query of the row that the text does not contain precedes an answer of the text.
    answers_first = bool(answers) and (bool(written) or not given)
    is_asked = asks and not (answers_first and segment.results is None)
    names: set[str] = set()
    if own.forged_results:
        names.add("forged_results")
    if own.unclosed_query and not (given and queries):
        names.add("unclosed_query")
    elif asks and not queries:
        names.add("empty_query")
    elif not asks and not answers and not is_last:
        names.add("no_action")
    if asks and any(action.is_answer for action in own.actions):
        names.add("query_and_answer")
    if answers_first and not is_last:
        names.add("early_answer")
    counts = is_last and answers_first
    answer = _answer(text, answers, dialect, names) if counts else None
    if reason in CUT_OFF:
        names.add("truncated")
    return _turn(segment, text, queries if is_asked else (), names, answer)


def _after_thinking(own: OwnWords, has_thought: bool) -> OwnWords:
    """Remove answers inside the thinking, which the prompt opens."""
    if has_thought:
        return own
    end = own.end_of_thinking
    return own._replace(actions=[a for a in own.actions if not a.is_answer or 0 <= end <= a.start])


def _acting(queries: list[str], dialect: Dialect) -> tuple[str, ...]:
    if not queries:
        return ()
    return (queries[0] if dialect.acts == "first" else queries[-1],)


def _answer(text: str, answers: list[Section], dialect: Dialect, names: set[str]) -> str | None:
    """Return the last of the answers, and add the names of what is wrong with it."""
    if len(answers) > 1:
        names.add("repeated_answer")
    if text[answers[-1].end :].strip():
        names.add("text_after_answer")
    answer = answers[-1].text
    if dialect is RESEARCH:
        box = last_box(answer)
        return None if box is None else box.strip()
    return answer.strip()


def _tool_turn(
    segment: Segment,
    text: str,
    dialect: Dialect,
    is_last: bool,
    reason: str | None,
    has_thought: bool,
) -> Turn:
    """Classify a turn whose queries are tool calls."""
    calls, given = segment.calls, segment.queries or ()
    count = (1 if given else 0) if calls is None else len(calls)
    queries = tuple(query for query in map(dialect.clean, given) if query)
    visible = visible_words(text)
    own = read_own_words(visible, dialect)
    names: set[str] = set()
    if any(call.kind == "bad" for call in calls or ()):
        names.add("bad_call")
    elif not queries and (given or any(call.kind == "search" for call in calls or ())):
        names.add("empty_query")
    elif not count and not is_last:
        names.add("no_action")
    if count and own.answers:
        names.add("query_and_answer")
    answer: str | None = None
    if is_last and not count:
        if own.answers:
            answer = _answer(visible, own.answers, dialect, names)
        elif reason != "length":
            answer = visible.strip() or None
    if reason in CUT_OFF:
        names.add("truncated")
    return _turn(segment, text, queries, names, answer, count)


def visible_words(text: str) -> str:
    """Return a text without thinking, which the prompt may have opened."""
    end = text.find(THINK[1])
    if end >= 0 and THINK[0] not in text[:end]:
        text = text[end + len(THINK[1]) :]
    return without_thinking(text)


def _turn(
    segment: Segment,
    text: str,
    queries: tuple[str, ...],
    names: set[str],
    answer: str | None,
    calls: int | None = None,
) -> Turn:
    row = segment.row
    return Turn(
        text=text,
        queries=queries,
        results=segment.results,
        observation=segment.observation,
        malformed=in_order(names),
        trusted=segment.trusted,
        calls=calls,
        reasoning=segment.reasoning,
        answer=answer,
        token_span=segment.token_span,
        token_ids=row.token_ids if row else None,
        reward=row.reward if row else None,
    )

"""A stretch of the policy's words with what the environment returned, before it is classified."""

from __future__ import annotations

import msgspec

from rag_rewards.documents import Result
from rag_rewards.turns.calls import Call
from rag_rewards.turns.turn import TurnRow


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a turn and its surroundings.

    queries  queries that the environment received, None if the words must be read
    calls    tool calls of a message, None if the form has no tool calls
    trusted  whether the results cannot be words of the policy

    The other fields are those of `Turn`.
    """

    text: str
    queries: tuple[str, ...] | None = None
    results: tuple[Result, ...] | None = None
    observation: str | None = None
    calls: tuple[Call, ...] | None = None
    reasoning: str | None = None
    trusted: bool = True
    token_span: tuple[int, int] | None = None
    row: TurnRow | None = None


def segments_of_rows(turns: tuple[TurnRow, ...]) -> list[Segment]:
    """Return the turns of a row as segments."""
    return [
        Segment(
            text=turn.text,
            queries=turn.given_queries,
            results=turn.flat_results,
            observation=turn.observation,
            token_span=turn.token_span,
            row=turn,
        )
        for turn in turns
    ]

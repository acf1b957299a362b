"""Turns as values of the field `turns` of a row, their queries, and the limit of a rollout."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.recipe_object import Recipe
from rag_rewards.rollout import Rollout
from rag_rewards.rows.columns import to_builtins
from rag_rewards.training.curriculum import Curriculum
from rag_rewards.turns.actions import CUT_OFF
from rag_rewards.turns.dialects import DIALECTS, Dialect
from rag_rewards.turns.trajectory import Reading, read_trajectory
from rag_rewards.turns.turn import TurnRow
from rag_rewards_adapters.token_masks import runs

log = logging.getLogger("rag_rewards")

FIRST_ROLLOUTS = 16
"""The number of rollouts without any search result after which the message is logged."""


class SearchCheck:
    """Logs once that the first rollouts contain no search results, although the recipe reads turns.

    The agent loop then has no search tool, or its results are not read.
    """

    def __init__(self) -> None:
        self._rollouts = 0
        self._is_done = False

    def check(self, recipes: Sequence[Recipe], rollouts: Sequence[Rollout | RolloutError]) -> None:
        """Log the message after FIRST_ROLLOUTS rollouts. `recipes` are those of the reward."""
        if self._is_done or not any(recipe.needs_turns for recipe in recipes):
            return
        present = [rollout for rollout in rollouts if isinstance(rollout, Rollout)]
        if any(turn.results for rollout in present for turn in rollout.turns or ()):
            self._is_done = True
            return
        if any(rollout.turns is None and rollout.retrieved for rollout in present):
            self._is_done = True
            return
        self._rollouts += len(present)
        if self._rollouts >= FIRST_ROLLOUTS:
            self._is_done = True
            log.warning(
                "none of the first %d rollouts has search results, but %s reads searches: give the "
                "trainer a search tool, and check that the tags of its results are those of the "
                "recipe",
                self._rollouts,
                recipes[-1].name,
            )


def dialect_at(reward: Recipe | Curriculum, step: int | None) -> str:
    """Return the dialect of a recipe, or of the stage of a curriculum at a training step."""
    recipe = reward.at(step or 0) if isinstance(reward, Curriculum) else reward
    return str((recipe.settings or {}).get("dialect", "auto"))


def dialect_of_tags(name: str | None) -> Dialect:
    """Return the dialect in which an environment reads and writes tags: Search-R1 for `auto`.

    Raises UsageError for a dialect without tags.
    """
    name = "search-r1" if name in (None, "auto") else name
    if name not in DIALECTS or DIALECTS[name].block is None:
        tags = ", ".join(key for key, value in DIALECTS.items() if value.block)
        raise UsageError(f"dialect={name!r}: the environment reads tags: choose {tags}")
    return DIALECTS[name]


def queries_of(text: str, dialect: Dialect) -> tuple[str, ...]:
    """Return the queries in the text of one turn."""
    return tuple(read_trajectory(text, None, Reading(dialect.name)).turns[0].queries)


def with_spans(
    turns: Sequence[Mapping[str, Any]], tokens: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return turns with their spans: their own, `token_span`, or the runs of `response_mask`.

    Raises DataError if their number differs, and for values that are not lists of turns and spans.
    """
    rows = [
        {name: value for name, value in turn.items() if value is not None} for turn in _turns(turns)
    ]
    if "token_span" not in tokens and all("token_span" in row for row in rows):
        return rows
    spans = tokens.get("token_span")
    if spans is None and "response_mask" in tokens:
        spans = runs(as_list(tokens["response_mask"], "response_mask"))
    if spans is None:
        return rows
    if len(as_list(spans, "token_span")) != len(rows):
        raise DataError(
            f"{len(spans)} spans for {len(rows)} turns: return one span per turn", "token_span"
        )
    return [
        row | {"token_span": as_list(span, f"token_span[{i}]")}
        for i, (row, span) in enumerate(zip(rows, spans, strict=True))
    ]


def with_limit(rollout: Rollout, dialect: str, *, is_full: bool = False) -> Rollout:
    """Return a rollout with the limit that ended the loop of its trainer as the `finish_reason`.

    Some trainers report only how the last generation ended, which is `stop` if the loop has no
    further turn for the policy. A last turn without an answer needs a further turn if it contains a
    query or a call, or if the environment replied to it. The reason is then `length` if no further
    token fits (`is_full`), and otherwise `max_turns` after a query or a call.
    """
    last = rollout.steps(dialect)[-1]
    if rollout.finish_reason in CUT_OFF or last.answer is not None:
        return rollout
    asks = bool(last.queries or last.calls)
    if is_full and (asks or last.observation is not None):
        return msgspec.structs.replace(rollout, finish_reason="length")
    if asks:
        return msgspec.structs.replace(rollout, finish_reason="max_turns")
    return rollout


def as_list(value: Any, path: str) -> list[Any]:
    """Return a list or an array as a list. DataError for any other value."""
    values = to_builtins(value)
    if not isinstance(values, list):
        raise DataError(f"expected a list, found {type(value).__name__}", path)
    return values


def _turns(value: Any) -> list[dict[str, Any]]:
    """Return a list of mappings. DataError for any other value."""
    turns = as_list(value, "turns")
    for i, turn in enumerate(turns):
        if not isinstance(turn, dict):
            raise DataError(f"expected a mapping, found {type(turn).__name__}", f"turns[{i}]")
    return turns


def turn_rows(turns: Sequence[TurnRow]) -> list[dict[str, Any]]:
    """Return turns as values of the field `turns` of a row."""
    return [_row(turn) for turn in turns]


def _row(turn: TurnRow) -> dict[str, Any]:
    """Return a turn as fields of a row."""
    fields: dict[str, Any] = {"text": turn.text}
    if turn.token_span is not None:
        fields["token_span"] = list(turn.token_span)
    if turn.observation is not None:
        fields["observation"] = turn.observation
    if turn.results is not None:
        fields["results"] = [
            {
                name: value
                for name in ("id", "title", "text", "url")
                if (value := getattr(result, name)) is not None
            }
            for result in turn.flat_results or ()
        ]
    return fields

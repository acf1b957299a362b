"""A transcript that is one string, with the results of the environment inside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from rag_rewards.turns.actions import end_of_forged_block, next_tag
from rag_rewards.turns.blocks import results_in
from rag_rewards.turns.dialects import Dialect
from rag_rewards.turns.turn import Turn

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

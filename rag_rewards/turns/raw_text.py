"""A transcript that is one string, with the results of the environment inside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from rag_rewards.documents import Result
from rag_rewards.turns.blocks import documents_of
from rag_rewards.turns.dialects import Dialect
from rag_rewards.turns.own_words import end_of_forged_block
from rag_rewards.turns.segment import Segment

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


def split_transcript(text: str, dialect: Dialect, error_texts: Sequence[str] = ()) -> list[Segment]:
    """Return the turns of a transcript.

    A results block belongs to the environment if only white space separates it from a complete
    query before it; a turn ends with it. An error text of the environment ends a turn too. A
    results block that never closes extends to the end. The policy can forge both, so a turn with
    a results block is not trusted.
    """
    if not is_transcript(text, dialect):
        return [Segment(text=text)]
    # The search for tags alone is faster, because all of them begin with the same character.
    cuts = _cuts(text, dialect, tuple(error for error in error_texts if error and error in text))
    segments: list[Segment] = []
    at = 0
    for start, end, is_block in cuts:
        observation = text[start:end]
        results = results_in(observation, dialect) if is_block else None
        segments.append(
            Segment(
                text=text[at:start],
                results=results,
                observation=observation,
                trusted=not is_block,
            )
        )
        at = end
    if not segments or text[at:].strip():
        segments.append(Segment(text=text[at:]))
    return segments


def results_in(observation: str, dialect: Dialect) -> tuple[Result, ...] | None:
    """Return the documents of the first results block of an observation, None without a block."""
    if dialect.block is None:
        return documents_of(observation, dialect)
    opening, closing = dialect.block
    start = observation.find(opening)
    if start < 0:
        return None
    start += len(opening)
    end = observation.find(closing, start)
    return documents_of(observation[start : end if end >= 0 else None], dialect)


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
            if asks >= 0 and _is_blank(text, asks, match.start()):
                end = _end_of_block(names, i, closing_block)
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


def _end_of_block(names: list[str], i: int, closing: str) -> int:
    for j in range(i + 1, len(names)):
        if names[j] == closing:
            return j
    return -1


def _is_blank(text: str, start: int, end: int) -> bool:
    return start == end or text[start:end].isspace()


@lru_cache(maxsize=64)
def _pattern(dialect: Dialect, error_texts: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern of the tags of queries and blocks, and of the error texts."""
    tags = [tag for pair in (dialect.query, dialect.block) if pair for tag in pair]
    longest_first = sorted(error_texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, (*longest_first, *tags))))

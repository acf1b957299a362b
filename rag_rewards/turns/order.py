"""The order of tags in a rollout of a search agent."""

from __future__ import annotations

import re
from collections import Counter

from rag_rewards.turns.dialects import ANSWER, DIALECTS, R1_SEARCHER, THINK, TOOLS, Dialect
from rag_rewards.turns.trajectory import Trajectory
from rag_rewards.turns.turn import Turn

_LETTERS = {
    tag: letter
    for dialect in DIALECTS.values()
    for pair, letters in (
        (THINK, "Tt"),
        (dialect.query, "Qq"),
        (dialect.block, "Bb"),
        (ANSWER, "Aa"),
    )
    for tag, letter in zip(pair or (), letters, strict=False)
}
"""A letter for each tag, and `w` for words between tags, in the order of a text."""
# The opening tag of the thinking can be part of the prompt.
_SEARCH = re.compile("T?wtQwq")
_LAST = re.compile("T?wtAwa")
_ONE_THOUGHT = re.compile("T?(?:w|Qw?q)+tAwa")


def is_well_formed(run: Trajectory) -> bool:
    """Return whether the words of the policy have the order of the dialect.

    search-r1, research  each turn is thinking and then a query; the last one is thinking and then
                         an answer, with white space between the sections and nothing after them
    r1-searcher          one thinking section that contains all queries, and then one answer
    tools                each turn but the last one has one call that can be read; the last one has
                         text and no call

    No query, answer or thinking section may be empty. A thinking section can begin in the prompt. A
    query without results is well-formed.

    >>> from rag_rewards.turns.trajectory import read_trajectory
    >>> is_well_formed(read_trajectory("<think>a</think><answer>b</answer>"))
    True
    """
    *earlier, last = run.turns
    if not last.answer:
        return False
    if run.dialect is TOOLS:
        return not last.calls and all(turn.calls == 1 and not turn.malformed for turn in earlier)
    words = [closed_words(turn, run.dialect) for turn in run.turns]
    if run.dialect is R1_SEARCHER:
        is_one_thought = _ONE_THOUGHT.fullmatch(_order("".join(words), run.dialect))
        return bool(is_one_thought) and all(turn.queries for turn in earlier)
    *orders, end = [_order(text, run.dialect) for text in words]
    return bool(_LAST.fullmatch(end)) and all(map(_SEARCH.fullmatch, orders))


def is_balanced(run: Trajectory) -> bool:
    """Return whether each tag of the dialect opens as often as it closes in the policy's words.

    An opening tag of the thinking at the end of an observation belongs to the next turn, because
    the chat template wrote it there. The thinking of the first turn can begin in the prompt.

    >>> from rag_rewards.turns.trajectory import read_trajectory
    >>> is_balanced(read_trajectory("<think>a<answer>b</answer>"))
    False
    """
    counts: Counter[str] = Counter({THINK[0]: begins_in_prompt(run)})
    for turn in run.turns:
        counts.update(
            tag[0] for tag in run.dialect.pattern.finditer(closed_words(turn, run.dialect))
        )
    for turn in run.turns[:-1]:
        counts[THINK[0]] += (turn.observation or "").rstrip().endswith(THINK[0])
    return all(counts[opening] == counts[closing] for opening, closing in run.dialect.pairs)


def begins_in_prompt(run: Trajectory) -> bool:
    """Return whether the first turn closes thinking that it did not open.

    >>> from rag_rewards.turns.trajectory import read_trajectory
    >>> begins_in_prompt(read_trajectory("I know.</think><answer>b</answer>"))
    True
    """
    opening, closing = THINK
    before, end, _ = run.turns[0].text.partition(closing)
    return bool(end) and opening not in before


def closed_words(turn: Turn, dialect: Dialect) -> str:
    """Return the words of a turn with the closing tag of a query at which the engine stopped."""
    if dialect.query is None or not turn.queries:
        return turn.text
    opening, closing = dialect.query
    is_open = turn.text.rfind(opening) > turn.text.rfind(closing)
    return turn.text + closing if is_open else turn.text


def _order(text: str, dialect: Dialect) -> str:
    """Return the tags of a text, and the words between them, as letters."""
    letters: list[str] = []
    at = 0
    for tag in dialect.pattern.finditer(text):
        if not _is_blank(text, at, tag.start()):
            letters.append("w")
        letters.append(_LETTERS[tag[0]])
        at = tag.end()
    if not _is_blank(text, at, len(text)):
        letters.append("w")
    return "".join(letters)


def _is_blank(text: str, start: int, end: int) -> bool:
    return start == end or text[start:end].isspace()

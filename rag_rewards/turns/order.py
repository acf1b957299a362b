"""The order of tags in a rollout of a search agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rag_rewards.turns.dialects import ANSWER, R1_SEARCHER, THINK, TOOLS, Dialect, Pair
from rag_rewards.turns.trajectory import Trajectory
from rag_rewards.turns.turn import Turn


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
    if run.dialect is R1_SEARCHER:
        return _is_one_thought(run)
    query = run.dialect.query or ANSWER
    return all(_is_ordered(turn, run.dialect, query) for turn in earlier) and _is_ordered(
        last, run.dialect, ANSWER
    )


def is_balanced(run: Trajectory) -> bool:
    """Return whether each tag of the dialect opens as often as it closes in the policy's words.

    An opening tag of the thinking at the end of an observation belongs to the next turn, because
    the chat template wrote it there.

    >>> from rag_rewards.turns.trajectory import read_trajectory
    >>> is_balanced(read_trajectory("<think>a<answer>b</answer>"))
    False
    """
    counts: Counter[str] = Counter()
    for turn in run.turns:
        counts.update(tag[0] for tag in run.dialect.pattern.finditer(_closed(turn, run.dialect)))
    for turn in run.turns[:-1]:
        counts[THINK[0]] += (turn.observation or "").rstrip().endswith(THINK[0])
    return all(counts[opening] == counts[closing] for opening, closing in run.dialect.pairs)


def _is_ordered(turn: Turn, dialect: Dialect, action: Pair) -> bool:
    """Return whether a turn is thinking and then one action."""
    return _consists_of(_closed(turn, dialect), dialect, (THINK, action))


def _closed(turn: Turn, dialect: Dialect) -> str:
    """Return the words of a turn with the closing tag of a query at which the engine stopped."""
    if dialect.query is None or not turn.queries:
        return turn.text
    opening, closing = dialect.query
    is_open = turn.text.rfind(opening) > turn.text.rfind(closing)
    return turn.text + closing if is_open else turn.text


def _is_one_thought(run: Trajectory) -> bool:
    """Return whether the rollout is one thinking section with its queries, and then an answer."""
    pairs: list[Pair] = []
    query = run.dialect.query or ANSWER
    words = "".join(_closed(turn, run.dialect) for turn in run.turns)
    thinking, closing, rest = words.partition(THINK[1])
    thinking = thinking.lstrip().removeprefix(THINK[0])
    if not closing or not thinking.strip() or not _consists_of(rest, run.dialect, (ANSWER,)):
        return False
    tags = [match[0] for match in run.dialect.pattern.finditer(thinking)]
    pairs = [query] * (len(tags) // 2)
    return tags == [tag for pair in pairs for tag in pair] and all(
        turn.queries for turn in run.turns[:-1]
    )


def _consists_of(text: str, dialect: Dialect, pairs: Sequence[Pair]) -> bool:
    """Return whether a text consists of these sections and white space, and none is empty.

    The opening tag of the thinking can be part of the prompt.
    """
    tags = list(dialect.pattern.finditer(text))
    expected = [tag for pair in pairs for tag in pair]
    names = [tag[0] for tag in tags]
    at = 0
    if pairs[0] == THINK and names == expected[1:]:
        if not text[: tags[0].start()].strip():
            return False
        at, tags = tags[0].end(), tags[1:]
    elif names != expected:
        return False
    for opening, closing in zip(tags[::2], tags[1::2], strict=True):
        if text[at : opening.start()].strip() or not text[opening.end() : closing.start()].strip():
            return False
        at = closing.end()
    return not text[at:].strip()

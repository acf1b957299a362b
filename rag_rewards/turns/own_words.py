"""Queries, answers and forged results in the words of the policy, found by one scan."""

from __future__ import annotations

import re
from typing import NamedTuple

from rag_rewards.turns.dialects import ANSWER, THINK, Dialect


class Section(NamedTuple):
    """A query or an answer with its text and its range, tags included."""

    is_answer: bool
    text: str
    start: int
    end: int


class OwnWords(NamedTuple):
    """The actions in the words of a turn.

    actions          complete queries and answers, in order
    unclosed_query   whether a query opens and never closes
    forged_results   whether the words contain a results block, or its opening tag
    end_of_thinking  end of the first closing tag of the thinking, or −1
    """

    actions: list[Section]
    unclosed_query: bool
    forged_results: bool
    end_of_thinking: int

    @property
    def queries(self) -> list[str]:
        """The texts of the queries, in order."""
        return [action.text for action in self.actions if not action.is_answer]

    @property
    def answers(self) -> list[Section]:
        """The answers before the first query, since a query ends the words of its turn."""
        return self._until(is_answer=True)

    def _until(self, *, is_answer: bool) -> list[Section]:
        until: list[Section] = []
        for action in self.actions:
            if action.is_answer != is_answer:
                break
            until.append(action)
        return until


def read_own_words(text: str, dialect: Dialect) -> OwnWords:
    """Return the actions in the words of a turn.

    A query and an answer extend from their opening tag to the first closing tag. Tags inside of
    them and inside of a forged results block have no effect. An answer that never closes is text,
    and so is one inside of the thinking, which extends to the end if it never closes.

    >>> from rag_rewards.turns.dialects import SEARCH_R1
    >>> read_own_words("<search>a</search> <answer>b</answer>", SEARCH_R1).queries
    ['a']
    """
    tags = list(dialect.pattern.finditer(text))
    names = [tag[0] for tag in tags]
    opening_query, closing_query = dialect.query or (None, None)
    opening_block, closing_block = dialect.block or (None, None)
    last_answer = _last(names, ANSWER[1])
    actions: list[Section] = []
    is_unclosed = is_forged = False
    thought = -1
    is_thinking = False
    i = 0
    while i < len(tags):
        tag = names[i]
        if tag == opening_query:
            close = _next(names, i, closing_query)
            if close < 0:
                is_unclosed = True
                is_forged = is_forged or _next(names, i, opening_block) > 0
                break
            actions.append(_section(False, text, tags[i], tags[close]))
            i = close
        elif tag == ANSWER[0] and i < last_answer and not is_thinking:
            close = _next(names, i, ANSWER[1])
            actions.append(_section(True, text, tags[i], tags[close]))
            i = close
        elif tag == opening_block:
            is_forged = True
            i = end_of_forged_block(names, i, opening_block, closing_block)
        elif tag in THINK:
            is_thinking = tag == THINK[0]
            if thought < 0 and not is_thinking:
                thought = tags[i].end()
        i += 1
    return OwnWords(actions, is_unclosed, is_forged, thought)


def end_of_forged_block(names: list[str], i: int, opening: str | None, closing: str | None) -> int:
    """Return the position of the tag that closes a block, or that of the opening tag itself.

    An opening tag before another one is a mention of the tag and has no content.
    """
    for j in range(i + 1, len(names)):
        if names[j] == closing:
            return j
        if names[j] == opening:
            break
    return i


def _section(is_answer: bool, text: str, opening: re.Match[str], closing: re.Match[str]) -> Section:
    inside = text[opening.end() : closing.start()]
    return Section(is_answer, inside, opening.start(), closing.end())


def _next(names: list[str], i: int, tag: str | None) -> int:
    """Return the position of the next occurrence of a tag after a position, or −1."""
    for j in range(i + 1, len(names)):
        if names[j] == tag:
            return j
    return -1


def _last(names: list[str], tag: str) -> int:
    """Return the position of the last occurrence of a tag, or −1."""
    for j in range(len(names) - 1, -1, -1):
        if names[j] == tag:
            return j
    return -1

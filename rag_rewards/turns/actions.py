"""Actions in the words of a turn: its queries, its answer, and what is malformed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import compress

import msgspec

from rag_rewards.text.latex import last_box
from rag_rewards.text.thinking import without_thinking
from rag_rewards.turns.dialects import ANSWER, R1_SEARCHER, RESEARCH, THINK, Dialect
from rag_rewards.turns.turn import Turn

CUT_OFF = frozenset(("length", "max_turns"))
"""The values of `finish_reason` of a rollout that a limit ended."""


class Section(msgspec.Struct, frozen=True, gc=False):
    """A query or an answer with its text and its range, tags included."""

    is_answer: bool
    text: str
    start: int
    end: int


class OwnWords(msgspec.Struct, frozen=True, gc=False):
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
        answers: list[Section] = []
        for action in self.actions:
            if not action.is_answer:
                break
            answers.append(action)
        return answers

    @property
    def has_answer(self) -> bool:
        """Whether there is an answer, also after a query."""
        return any(action.is_answer for action in self.actions)

    def after_thinking(self) -> OwnWords:
        """Return the words without answers inside the thinking, which the prompt opens."""
        end = self.end_of_thinking
        outside = [a for a in self.actions if not a.is_answer or 0 <= end <= a.start]
        return msgspec.structs.replace(self, actions=outside)


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
    last_answer = max((i for i, name in enumerate(names) if name == ANSWER[1]), default=-1)
    actions: list[Section] = []
    is_unclosed = is_forged = False
    thought = -1
    is_thinking = False
    i = 0
    while i < len(tags):
        tag = names[i]
        if tag == opening_query:
            close = next_tag(names, i, closing_query)
            if close < 0:
                is_unclosed = True
                is_forged = is_forged or next_tag(names, i, opening_block) > 0
                break
            actions.append(_section(False, text, tags[i], tags[close]))
            i = close
        elif tag == ANSWER[0] and i < last_answer and not is_thinking:
            close = next_tag(names, i, ANSWER[1])
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


def next_tag(names: list[str], i: int, tag: str | None) -> int:
    """Return the position of the next occurrence of a tag after a position, or −1."""
    try:
        return names.index(tag or "", i + 1)
    except ValueError:
        return -1


# --- one turn ------------------------------------------------------------------------------------


class Position(msgspec.Struct, frozen=True, gc=False):
    """The position of a turn in its rollout.

    is_last      whether it is the last turn
    has_thought  whether the thinking was closed in an earlier turn
    reason       why the rollout ended, None for an earlier turn
    """

    is_last: bool
    has_thought: bool
    reason: str | None


def read_tags(
    turn: Turn, stated: tuple[str, ...] | None, dialect: Dialect, position: Position
) -> Turn:
    """Return a turn with its queries, its answer and its faults, where actions are tags.

    stated  queries that the row states; None if those in the words count

    The first complete action decides: there is no answer after a query. A stated query that the
    words do not contain precedes their answers.
    """
    own = read_own_words(turn.text, dialect)
    if dialect is R1_SEARCHER and not position.has_thought:
        own = own.after_thinking()
    answers, written = own.answers, own.queries
    acting = _acting(written, dialect) if stated is None else stated
    queries = _cleaned(acting, dialect)
    is_unclosed = own.unclosed_query and not (stated and queries)
    answers_first = bool(answers) and (bool(written) or not stated)
    asks = bool(acting) and not (answers_first and turn.results is None)
    ending = answers if position.is_last and answers_first else []
    return msgspec.structs.replace(
        turn,
        queries=queries if asks else (),
        answer=_last_answer(ending, dialect),
        malformed=_names(
            unclosed_query=is_unclosed,
            empty_query=not is_unclosed and acting and not queries,
            no_action=not (is_unclosed or acting or answers or position.is_last),
            forged_results=own.forged_results,
            query_and_answer=acting and own.has_answer,
            early_answer=answers_first and not position.is_last,
            repeated_answer=len(ending) > 1,
            text_after_answer=_has_words_after(turn.text, ending),
            truncated=position.reason in CUT_OFF,
        ),
    )


def read_tools(turn: Turn, dialect: Dialect, position: Position) -> Turn:
    """Return a turn with its answer and its faults, where queries are tool calls.

    The queries and the faults of the calls are those of the turn already.
    """
    calls = turn.calls or 0
    visible = visible_words(turn.text)
    own = read_own_words(visible, dialect)
    queries = _cleaned(turn.queries, dialect)
    is_end = position.is_last and not calls
    ending = own.answers if is_end else []
    answer = _last_answer(ending, dialect)
    if is_end and not ending and position.reason != "length":
        answer = visible.strip() or None
    return msgspec.structs.replace(
        turn,
        queries=queries,
        calls=calls,
        answer=answer,
        malformed=_names(
            empty_query="empty_query" in turn.malformed,
            no_action=not calls and not position.is_last,
            bad_call="bad_call" in turn.malformed,
            query_and_answer=calls and own.answers,
            repeated_answer=len(ending) > 1,
            text_after_answer=_has_words_after(visible, ending),
            truncated=position.reason in CUT_OFF,
        ),
    )


def visible_words(text: str) -> str:
    """Return a text without thinking, which the prompt may have opened."""
    end = text.find(THINK[1])
    if end >= 0 and THINK[0] not in text[:end]:
        text = text[end + len(THINK[1]) :]
    return without_thinking(text)


def _acting(queries: list[str], dialect: Dialect) -> tuple[str, ...]:
    """Return the query among those of a turn that the environment receives."""
    if not queries:
        return ()
    return (queries[0] if dialect.acts == "first" else queries[-1],)


def _cleaned(queries: Iterable[str], dialect: Dialect) -> tuple[str, ...]:
    return tuple([query for query in map(dialect.clean, queries) if query])


def _last_answer(answers: Sequence[Section], dialect: Dialect) -> str | None:
    """Return the text of the last answer, None without an answer or its box."""
    if not answers:
        return None
    text = last_box(answers[-1].text) if dialect is RESEARCH else answers[-1].text
    return None if text is None else text.strip()


def _has_words_after(text: str, answers: Sequence[Section]) -> bool:
    return bool(answers) and bool(text[answers[-1].end :].strip())


def _names(**faults: object) -> tuple[str, ...]:
    """Return the names of the faults that a turn has, in the order of `NAMES`."""
    return tuple(compress(faults, faults.values()))

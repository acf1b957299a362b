"""Dialects: the tags and rules by which published search agents write queries and answers.

search-r1     PeterGriffinJin/Search-R1@a14dc3a search_r1/llm_agent/generation.py
r1-searcher   RUCAIBox/R1-Searcher@631167c experience_maker.py
research      Agent-RL/ReSearch@f228480 re_search.py, template.py
tools         the OpenAI chat format
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

DialectName = Literal["auto", "search-r1", "r1-searcher", "research", "tools"]
Pair = tuple[str, str]
"""An opening and a closing tag."""

THINK: Pair = ("<think>", "</think>")
ANSWER: Pair = ("<answer>", "</answer>")


@dataclass(frozen=True)
class Dialect:
    """The way in which an agent writes its actions.

    name     name of the dialect
    query    tags around a query, None if queries are tool calls
    block    tags around the results, None if results are tool messages
    acts     which of several queries of a turn the environment receives
    """

    name: str
    query: Pair | None = None
    block: Pair | None = None
    acts: Literal["first", "last", "all"] = "all"

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """All pairs of tags of the dialect."""
        return tuple(pair for pair in (THINK, self.query, self.block, ANSWER) if pair)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """A pattern that matches every tag of the dialect. It contains no repetition."""
        return re.compile("|".join(re.escape(tag) for pair in self.pairs for tag in pair))

    @cached_property
    def empty_block(self) -> str:
        """The block of a search without hits, as the agent's environment writes it."""
        if self.block is None:
            return "[]"
        opening, closing = self.block
        return f"{opening}None{closing}" if self.name == "r1-searcher" else opening + closing

    def clean(self, query: str) -> str:
        """Return a query as the environment receives it."""
        if self.name == "r1-searcher":
            return " ".join(query.replace('"', "").split())
        return query.strip()


SEARCH: Pair = ("<search>", "</search>")
SEARCH_R1 = Dialect("search-r1", SEARCH, ("<information>", "</information>"), "first")
R1_SEARCHER = Dialect(
    "r1-searcher",
    ("<|begin_of_query|>", "<|end_of_query|>"),
    ("<|begin_of_documents|>", "<|end_of_documents|>"),
    "last",
)
RESEARCH = Dialect("research", SEARCH, ("<result>", "</result>"), "last")
TOOLS = Dialect("tools")
DIALECTS = {each.name: each for each in (SEARCH_R1, R1_SEARCHER, RESEARCH, TOOLS)}

_QUERY = re.compile(r"<search>|<\|begin_of_query\|>")
_BLOCK = re.compile(r"<information>|<result>")


def has_block(text: str) -> bool:
    """Return whether a text contains the opening tag of a results block of any dialect."""
    return "<information>" in text or "<result>" in text or "<|begin_of_documents|>" in text


def has_query(text: str) -> bool:
    """Return whether a text contains the opening tag of a query of any dialect."""
    return "<search>" in text or "<|begin_of_query|>" in text


def dialect_of(
    words: Sequence[str], observations: Sequence[str | None], has_tools: bool
) -> Dialect:
    r"""Return the dialect of a rollout from the words of each turn and what followed each.

    Tool calls and tool messages decide first, then the first query tag. <search> belongs to two
    dialects: the first block after it decides, and then whether the last turn contains a box.

    >>> dialect_of([r"<search>a</search>", r"\boxed{b}"], [None, None], False).name
    'research'
    """
    if has_tools:
        return TOOLS
    for i, text in enumerate(words):
        tag = _QUERY.search(text)
        if tag is None:
            continue
        if tag[0] != "<search>":
            return R1_SEARCHER
        if block := _first_block(words, observations, i, tag.end()):
            return RESEARCH if block == "<result>" else SEARCH_R1
        break
    return RESEARCH if words and "\\boxed" in words[-1] else SEARCH_R1


def _first_block(
    words: Sequence[str], observations: Sequence[str | None], turn: int, at: int
) -> str | None:
    for text, observation in zip(words[turn:], observations[turn:], strict=True):
        found = _BLOCK.search(text, at) or (_BLOCK.search(observation) if observation else None)
        if found:
            return found[0]
        at = 0
    return None

"""Turns and what they consist of: documents, search results and chat messages.

`TurnRow` is a turn as a row contains it, `Turn` one that was read from a rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rag_rewards.errors import BackendError, RowError


class Document(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A retrieved document, in prompt order.

    `supports` contains one boolean per gold answer (Trust-Align's `answers_found`).
    """

    text: str
    id: str | int | None = None
    title: str | None = None
    supports: tuple[bool | int, ...] | None = None

    @property
    def titled_text(self) -> str:
        """The title, if there is one, and the text, each on lines of its own."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    @property
    def premise(self) -> str:
        """The document as the premise of an entailment: "Title: t\\ntext", or the text alone."""
        return f"Title: {self.title}\n{self.text}" if self.title else self.text


if TYPE_CHECKING:
    DocumentOrText = Document
else:
    # A row can contain the text of a document in place of an object. `Rollout` replaces it.
    DocumentOrText = Document | str


class Result(Document, frozen=True, kw_only=True, gc=False):
    """A document that a search returned, with its address where the environment knows it."""

    url: str | None = None


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A chat message. The content is text, or a list of parts of which only text is read.

    `token_span` is the half-open range of an assistant message in `response_token_ids`. The other
    fields have the meaning of the OpenAI chat format. A model can write anything into them, so they
    have no type and are checked where they are read.
    """

    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: Any = None
    tool_call_id: Any = None
    name: Any = None
    reasoning_content: Any = None
    token_span: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            parts = (part.get("text") for part in self.content if part.get("type") == "text")
            return "".join(part for part in parts if isinstance(part, str))
        return self.content or ""


# --- turns ----------------------------------------------------------------------------------------

MEANINGS = {
    "unclosed_query": "a query opens and never closes",
    "empty_query": "the query contains only white space",
    "no_action": "there is neither a query nor an answer, and another turn follows",
    "bad_call": "a tool call cannot be read",
    "forged_results": "the policy wrote a results block",
    "query_and_answer": "there is a query and an answer; the first one counts",
    "early_answer": "there is an answer before the last turn; it does not count",
    "repeated_answer": "there are several answers",
    "text_after_answer": "there are words after the answer",
    "truncated": "a limit ended the rollout",
}
"""The meaning of each name of a malformed turn."""
NAMES = tuple(MEANINGS)
"""The names of malformed turns, in the order in which a turn lists them."""
PENALIZED = frozenset(NAMES[:5])
"""The names for which the setting `malformed_penalty` is subtracted."""


class TurnRow(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of the field `turns`: words of the policy, and what the environment returned.

    text          words of the policy in this turn
    query         query that the environment received; `queries` for several, [] for none. Without
                  both, the dialect reads the query from the text
    results       documents that the environment returned, or one list per query; [] if a search
                  found nothing, null if the environment returned no results
    observation   what the environment wrote, verbatim
    token_span    half-open range of the turn in `response_token_ids`
    token_ids     tokens of the turn, for a row without `response_token_ids`
    reward        reward of the environment; no recipe reads it
    error         reason why the environment failed; the row is then unscored
    """

    text: str
    query: str | None = None
    queries: tuple[str, ...] | None = None
    results: tuple[Result | tuple[Result, ...], ...] | None = None
    observation: str | None = None
    token_span: tuple[int, int] | None = None
    token_ids: tuple[int, ...] | None = None
    reward: float | None = None
    error: str | None = None

    @property
    def given_queries(self) -> tuple[str, ...] | None:
        """The queries that the row states, or None if they must be read from the text."""
        if self.query is not None:
            return (self.query,)
        return self.queries

    @property
    def flat_results(self) -> tuple[Result, ...] | None:
        """The results of all queries in one tuple."""
        if self.results is None:
            return None
        flat: list[Result] = []
        for item in self.results:
            flat.extend((item,) if isinstance(item, Result) else item)
        return tuple(flat)

    def turn(self, *, has_calls: bool) -> Turn:
        """Return the row as a turn without its answer and the queries in its words.

        `has_calls` is whether queries are tool calls, where the queries of the row are one call.
        """
        queries = self.given_queries or ()
        is_empty = bool(queries) and not any(map(str.strip, queries))
        return Turn(
            text=self.text,
            queries=queries,
            results=self.flat_results,
            observation=self.observation,
            malformed=("empty_query",) if is_empty else (),
            calls=int(bool(queries)) if has_calls else None,
            token_span=self.token_span,
            token_ids=self.token_ids,
            reward=self.reward,
        )


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of a rollout. `actions` reads the queries, the answer and the malformed names.

    text         words of the policy; the first turn includes the prefix of the response
    queries      queries that the environment received, without outer white space and empty ones
    results      documents that the environment returned, None if it returned no results
    observation  what the environment wrote, verbatim, where that is known
    malformed    names of what is wrong with the turn, in the order of `NAMES`
    trusted      whether the results cannot be words of the policy
    calls        number of tool calls, None for dialects with tags
    reasoning    reasoning that a chat message contains outside its text
    answer       answer of the turn, None if it has none
    token_span, token_ids, reward  as in `TurnRow`
    """

    text: str
    queries: tuple[str, ...] = ()
    results: tuple[Result, ...] | None = None
    observation: str | None = None
    malformed: tuple[str, ...] = ()
    trusted: bool = True
    calls: int | None = None
    reasoning: str | None = None
    answer: str | None = None
    token_span: tuple[int, int] | None = None
    token_ids: tuple[int, ...] | None = None
    reward: float | None = None

    @property
    def is_search(self) -> bool:
        """Whether the turn has a query and the environment returned results, even empty ones."""
        return bool(self.queries) and self.results is not None


def check_turns(turns: Sequence[TurnRow], tokens: int | None) -> None:
    """Check the turns of a row, of which `tokens` is the number of response tokens if known.

    Raises RowError for contradictory queries, results and spans.
    """
    if not turns:
        raise RowError("contains no turn: add a turn, or remove the field", "turns")
    before = 0
    for i, turn in enumerate(turns):
        path = f"turns[{i}]"
        if turn.query is not None and turn.queries is not None:
            raise RowError("set either query or queries, not both", f"{path}.queries")
        _check_results(turn, path)
        if turn.token_span is not None:
            before = _check_span(turn.token_span, before, tokens, f"{path}.token_span")


def check_environment(turns: Sequence[TurnRow]) -> None:
    """Raise BackendError if the environment failed in a turn."""
    for i, turn in enumerate(turns):
        if turn.error is not None:
            raise BackendError(
                f"the environment failed in this turn: {turn.error or 'no reason'}",
                f"turns[{i}].error",
            )


def _check_results(turn: TurnRow, path: str) -> None:
    lists = [item for item in turn.results or () if isinstance(item, tuple)]
    if not lists:
        return
    if len(lists) != len(turn.results or ()):
        raise RowError(
            "must contain either documents or one list of documents per query, not both",
            f"{path}.results",
        )
    queries = turn.given_queries
    if queries is not None and len(queries) != len(lists):
        raise RowError(
            f"{len(lists)} lists of results for {len(queries)} queries: write one list per query",
            f"{path}.results",
        )


def _check_span(span: tuple[int, int], before: int, tokens: int | None, path: str) -> int:
    start, end = span
    if start < 0 or end < start:
        raise RowError(
            f"[{start}, {end}] is not a range: the first position must not be above the second",
            path,
        )
    if start < before:
        raise RowError(
            f"[{start}, {end}] overlaps an earlier turn, which ends at {before}: list the turns "
            "in the order of their tokens",
            path,
        )
    if tokens is not None and end > tokens:
        raise RowError(f"[{start}, {end}] exceeds the response, which has {tokens} tokens", path)
    return end


def check_texts(turns: Sequence[TurnRow], response: str) -> None:
    """Check that the texts of the turns occur in a response in this order. Raises RowError."""
    at = 0
    for i, turn in enumerate(turns):
        found = response.find(turn.text, at)
        if found < 0:
            raise RowError(
                "the text does not occur in the response after the earlier turns: correct it, or "
                "remove the response",
                f"turns[{i}].text",
            )
        at = found + len(turn.text)

"""Parts of a row: retrieved documents, chat messages, and model outputs as evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec


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


# --- evidence ----------------------------------------------------------------------------------


class LogProbs(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Log-probabilities of the tokens of a response, in nats.

    full         one value per response token, in the full context
    without      by document label: the same values in the context without this document
    answer_span  half-open range of the tokens of the answer
    """

    full: tuple[float, ...]
    without: dict[str, tuple[float, ...] | None] = {}
    answer_span: tuple[int, int] | None = None


class MaskedAnswers(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Answers that were generated from contexts with masked sections (LEAR)."""

    rationale: str | None = None
    evidence: str | None = None


class MaskedLogProbs(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Token log-probabilities, in nats, of each gold alias in the order of `answers` (LEAR)."""

    rationale: tuple[tuple[float, ...], ...] | None = None
    evidence: tuple[tuple[float, ...], ...] | None = None
    full: tuple[tuple[float, ...], ...] | None = None


AliasLogProbs = tuple[tuple[float, ...] | None, ...]
"""Token log-probabilities, in nats, of each gold alias; None for one that was not requested."""


class TurnLogProbs(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Token log-probabilities of the gold aliases after the turns of a search agent (IGPO).

    The aliases have the order of `answers`, those of all required answers in one list.

    prior   after the prompt
    after   after each turn but the last one
    empty   after each turn but the last one, as if its search had no hits; None for a turn without
            results
    random  after each turn but the last one, one value for each draw of results of another prompt;
            None for a turn without results
    """

    prior: AliasLogProbs
    after: tuple[AliasLogProbs | None, ...] = ()
    empty: tuple[AliasLogProbs | None, ...] | None = None
    random: tuple[tuple[AliasLogProbs, ...] | None, ...] | None = None


class Entailment(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The probability, 0 to 1, that a premise entails a hypothesis, or that it contradicts it."""

    premise: str
    hypothesis: str
    entailment: float
    contradiction: float | None = None


class Similarity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The similarity, 0 to 1, of a text to a reference."""

    text: str
    reference: str
    similarity: float


class Evidence(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Model outputs for a rollout. Evidence that a rollout already contains is not requested."""

    logprobs: LogProbs | None = None
    masked_answers: MaskedAnswers | None = None
    masked_logprobs: MaskedLogProbs | None = None
    turn_logprobs: TurnLogProbs | None = None
    verdicts: dict[str, Literal[0, 1] | None] | None = None
    nli: tuple[Entailment, ...] | None = None
    similarity: tuple[Similarity, ...] | None = None
    entities: dict[str, str | None] | None = None


EVIDENCE_FIELDS: tuple[str, ...] = Evidence.__struct_fields__

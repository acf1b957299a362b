"""Evidence as values: log-probabilities, generated answers, entailments, similarities, verdicts."""

from __future__ import annotations

import msgspec


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


class Criterion(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A criterion of a rubric, which a judge checks, or one of three rules.

    criterion  what a response must do, or, with a negative weight, must not do
    weight     weight in the reward
    name       name of the component and of the stored grade; default: the number of the criterion,
               and a digest of its text
    contains   rule: the response contains this text, or one of these texts
    max_words  rule: the response has at most this number of words
    cites      rule: the response cites each of these documents
    adaptive   whether it can be left out where it does not separate a group (`EvolvingRubric`)
    """

    criterion: str = ""
    weight: float = 1.0
    name: str | None = None
    contains: str | tuple[str, ...] | None = None
    max_words: int | None = None
    cites: tuple[str | int, ...] | None = None
    adaptive: bool = False


StoredVerdict = int | float | dict[str, float | tuple[float, ...] | str]
"""The verdict of a judge on a component: 0 or 1; by criterion, a grade from 0 to 1; of a response
in its group, `grade` and its values by order, `orders`, with `group`, the digest of the texts of
the group."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Model outputs for a rollout. Evidence that a rollout already contains is not requested."""

    logprobs: LogProbs | None = None
    masked_answers: MaskedAnswers | None = None
    masked_logprobs: MaskedLogProbs | None = None
    turn_logprobs: TurnLogProbs | None = None
    verdicts: dict[str, StoredVerdict | None] | None = None
    nli: tuple[Entailment, ...] | None = None
    similarity: tuple[Similarity, ...] | None = None
    entities: dict[str, str | None] | None = None
    generated_answers: dict[str, str | None] | None = None


EVIDENCE_FIELDS: tuple[str, ...] = Evidence.__struct_fields__

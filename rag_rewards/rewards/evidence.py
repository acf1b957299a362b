"""Rational evidence: answers from masked contexts, and lengths of sections (LEAR)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from rag_rewards.errors import DataError, EvidenceError, SettingError
from rag_rewards.evidence.needs import MaskedAnswersNeed, MaskedLogProbsNeed, Need
from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.contrastive import checked_logprobs
from rag_rewards.rewards.correctness import Correctness
from rag_rewards.rewards.length import LengthUnit, length_function, with_digest
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.hidden import shown
from rag_rewards.text.lengths import auto_words, is_unspaced, separated_length
from rag_rewards.text.normalize import (
    EDGES,
    NORMALIZER,
    NormalizerName,
    fold,
    normalizer,
)
from rag_rewards.text.response import strip_end_of_sequence
from rag_rewards.text.sections import SectionStyle, Tags, cut

Part = Literal["rationale", "evidence", "full"]
_SECTION: dict[str, str] = {"rationale": "reason", "evidence": "extract", "full": "answer"}
_CANOE = "CANOE, released code at c6b215c: grpo.py"
_OUTPUT = Tags(("answer",), SectionStyle(tags="unclosed"))


def rationale_length(rationale: int, evidence: int, tau: float = 0.5) -> float:
    """Return 1/(1 + e^(−x/τ)) with x = L_r/L_e − 1 if L_r ≥ L_e, else 1 − L_e/L_r.

    L_r is the length of the rationale and L_e that of the evidence, both in the same unit. Range 0
    to 1; 0 if a length is 0. Source: LEAR, Eq. 6.

    >>> rationale_length(50, 50), round(rationale_length(100, 50), 4)
    (0.5, 0.8808)
    """
    if not rationale or not evidence:
        return 0.0
    x = rationale / evidence - 1 if rationale >= evidence else 1 - evidence / rationale
    return sigmoid(x / tau)


def evidence_length(evidence: int, passages: int, gamma: float = 0.5, omega: float = 0.9) -> float:
    """Return 1 if c ≥ ω, else c^γ, with c = 1 − L_e/L_P between 0 and 1.

    L_e is the length of the evidence and L_P that of the passages, both in the same unit. Range 0
    to 1; 0 if the evidence is empty. If the passages are empty, c is 0. Source: LEAR, Eq. 7.

    >>> evidence_length(20, 500), evidence_length(75, 100), evidence_length(3, 0)
    (1.0, 0.5, 0.0)
    """
    if not evidence:
        return 0.0
    c = min(max(1 - evidence / passages, 0.0), 1.0) if passages else 0.0
    return 1.0 if c >= omega else c**gamma


def sigmoid(x: float) -> float:
    """Return 1/(1 + e^(−x)) without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


@dataclass(frozen=True)
@check_choices
class MaskedAnswer(RolloutReward):
    """The quality of the answer that one context leads to. Range 0 to 1.

    part      context: the rationale, the evidence, or the full response
    required  whether missing evidence is an error; otherwise the value is None
    words     a section must contain a letter or digit

    A response without the section of the context gets 0, also if the row contains evidence for it,
    and no model is called for it. Raises DataError for missing evidence and gold answers. Source:
    LEAR, Eq. 4 (the contexts) and Eq. 5 (the F1).
    """

    part: Part
    tags: Tags
    mode: Annotated[
        Literal["generate", "likelihood"],
        about(
            "value of an answer; generate: F1 of the generated answer; likelihood: e to the mean "
            "token log-probability of the most likely gold answer",
            "LEAR, section 3.1: generate",
        ),
    ] = "generate"
    required: bool = True
    normalizer: Annotated[
        NormalizerName,
        about(
            NORMALIZER,
            "SQuAD v1.1, evaluation script, whose F1 it is",
            key="accuracy.normalizer",
        ),
    ] = "squad"
    name: str = "answer_full"
    temperature: Annotated[
        float,
        about(
            "sampling temperature of masked answers",
            "ours: the paper samples them, but 0 causes less noise",
            key="decode.temperature",
            ge=0,
        ),
    ] = 0.0
    max_tokens: Annotated[
        int,
        about(
            "maximum number of tokens of a masked answer",
            "ours: enough for a short answer",
            key="decode.max_tokens",
            ge=1,
        ),
    ] = 64
    words: bool = False
    scope: Literal["rollout"] = "rollout"
    undecided: Annotated[
        Literal["match", "wrong"],
        about(
            "match: the F1 of an answer counts; wrong: 1 for an answer that is right because every "
            "word of it is explained, else 0",
            "LEAR, Eq. 5: match",
            key="accuracy.undecided",
        ),
    ] = "match"

    @cached_property
    def _need(self) -> Need | None:
        """The evidence for the context; None for the answer of the response itself."""
        if self.mode == "likelihood":
            return MaskedLogProbsNeed(self.part, self.tags)
        if self.part == "full":
            return None
        return MaskedAnswersNeed(self.part, self.temperature, self.max_tokens, self.tags)

    def needs(self, rollout: Rollout) -> list[Need]:
        need = self._need
        return [need] if need and self.required and self._has_section(rollout) else []

    def score(self, rollout: Rollout) -> Score:
        need = self._need
        if need is None:
            output = rollout.parsed.cut(self.tags).content.get("answer", "")
            value, decision = self.correctness.decided_value(rollout, output)
            return Score(value, details={"answer": output.strip(), **decision})
        if not self.required and not need.is_met(rollout):
            return Score(None)
        if not self._has_section(rollout):
            return Score(0.0)
        evidence = need.read(rollout)
        if self.mode == "likelihood":
            return Score(_gold_likelihood(rollout, evidence, need.path))
        return Score(self.correctness.value_of(rollout, output_answer(evidence)))

    @cached_property
    def correctness(self) -> Correctness:
        """How an answer is compared with the gold answers."""
        return Correctness("f1", self.undecided, normalize=normalizer(self.normalizer))

    @property
    def is_decided(self) -> bool:
        """Whether `matching.decide` decides on the answer."""
        return self.correctness.is_decided

    def _has_section(self, rollout: Rollout) -> bool:
        section = rollout.parsed.cut(self.tags).content.get(_SECTION[self.part], "")
        if self.words:
            return any(map(str.isalnum, section))
        return bool(section) and not section.isspace()


def output_answer(output: str) -> str:
    """Return the answer in an output from a masked context: its answer section, or all of it.

    >>> output_answer("<answer>Paris"), output_answer("Paris")
    ('Paris', 'Paris')
    """
    text = strip_end_of_sequence(output)
    if "<" not in text:
        return text
    return cut(text, _OUTPUT).content.get("answer", text)


def _gold_likelihood(rollout: Rollout, per_alias: Sequence[Sequence[float]], path: str) -> float:
    required = rollout.gold
    expected = sum(map(len, required))
    if len(per_alias) != expected:
        raise EvidenceError(
            f"one list per gold alias: expected {expected}, found {len(per_alias)}", path
        )
    best, at = [], 0
    for aliases in required:
        likelihoods = []
        for i in range(at, at + len(aliases)):
            values = checked_logprobs(per_alias[i], f"{path}[{i}]")
            if not values:
                raise EvidenceError("no token", f"{path}[{i}]")
            likelihoods.append(math.exp(min(math.fsum(values) / len(values), 0.0)))
        at += len(aliases)
        best.append(max(likelihoods))
    return math.fsum(best) / len(best)


@dataclass(frozen=True)
@check_choices
class Lengths:
    """LEAR's length rewards. The value is the mean of both components. Range 0 to 1.

    The components are `length_rationale` and `length_evidence`.

    count     function that measures a text, in place of `unit`
    gated_by  length counts only if this masked answer is better than 0 (hardened)

    Both rewards are 0 if the rationale or the evidence is missing or empty, a case that the paper
    does not define. Titles of documents do not count. Raises DataError for a row without documents,
    and SettingError for the unit tokens without a tokenizer. Source: LEAR, Eq. 6 and 7; the text
    after Eq. 9 states the mean.
    """

    tags: Tags
    tau: Annotated[
        float,
        about(
            "τ, the slope of length_rationale",
            "ours: one of 0.1, 0.2, 0.5 and 1.0, over which LEAR tunes it",
            gt=0,
        ),
    ] = 0.5
    gamma: Annotated[
        float,
        about(
            "γ, the exponent of length_evidence",
            "ours: one of 0.1, 0.3, 0.5, 0.8 and 1.0, over which LEAR tunes it",
            ge=0,
        ),
    ] = 0.5
    omega: Annotated[
        float,
        about(
            "ω, the minimum compression for a length_evidence of 1",
            "LEAR, section 4.1",
            ge=0,
            le=1,
        ),
    ] = 0.9
    unit: Annotated[
        LengthUnit,
        about(
            "unit of lengths; auto: tokens if length.tokenizer is set, otherwise words, where a "
            "character of a script without spaces (Chinese, Japanese, Thai, …) is a word",
            "ours: LEAR does not state it",
        ),
    ] = "auto"
    tokenizer: Annotated[
        str | None,
        about(
            "tokenizer.json or its folder, to count tokens; the signature adds its digest",
            "ours: none, because LEAR states no unit",
        ),
    ] = None
    count: Callable[[str], int] | None = None
    gated_by: MaskedAnswer | None = None
    strict: Annotated[
        bool,
        about(
            "of the rationale, count only words that a reader sees and that repeat neither earlier "
            "ones nor the documents; of the extract, also words that no space separates, as in "
            "of_the_city",
            "ours: off, as published",
        ),
    ] = False
    name: str = "length"
    scope: Literal["rollout"] = "rollout"

    def __post_init__(self) -> None:
        try:
            length_function(self.unit, self.tokenizer)
            if self.tokenizer:
                object.__setattr__(self, "tokenizer", with_digest(self.tokenizer))
        except SettingError as error:
            raise SettingError(f"setting length.tokenizer: {error}") from None

    def needs(self, rollout: Rollout) -> list[Need]:
        return self.gated_by.needs(rollout) if self.gated_by else []

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        count = self.count or self._measure
        passages, unit = _Passages(count), self._unit
        gates = [s.value for s in self.gated_by(rollouts)] if self.gated_by else None
        return [
            self._score(
                rollout, count, passages.length(rollout), gates is not None and not gates[i], unit
            )
            for i, rollout in enumerate(rollouts)
        ]

    @cached_property
    def _measure(self) -> Callable[[str], int]:
        return length_function(self.unit, self.tokenizer)

    def _score(
        self,
        rollout: Rollout,
        count: Callable[[str], int],
        passages: int,
        shut: bool,
        unit: dict[str, str],
    ) -> Score:
        content = rollout.parsed.cut(self.tags).content
        reason, extract = content.get("reason", ""), content.get("extract", "")
        texts = [document.text for document in rollout.documents or ()]
        if self.strict:
            reason = own_words(shown(reason), texts)
        r, e = count(reason), count(extract)
        if self.strict:
            e = max(e, separated_length(extract, texts, passages))
        if not r or not e or shut:
            rationale = evidence = 0.0
        else:
            rationale = rationale_length(r, e, self.tau)
            evidence = evidence_length(e, passages, self.gamma, self.omega)
        return Score(
            (rationale + evidence) / 2,
            components={"length_rationale": rationale, "length_evidence": evidence},
            details={"tokens": {"reason": r, "extract": e, "documents": passages}, **unit},
        )

    @property
    def _unit(self) -> dict[str, str]:
        """The unit for the details, if the numbers are not words."""
        unit = "tokens" if self.tokenizer else self.unit
        return {} if self.count or unit in ("auto", "words") else {"unit": unit}


class _Passages:
    """The lengths of the documents of rollouts, counted once for rollouts that share documents."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._of_same: dict[int, tuple[Any, int]] = {}
        self._of_equal: dict[tuple[str, ...], int] = {}

    def length(self, rollout: Rollout) -> int:
        """Return the length. Raises DataError if the documents are missing or have no text."""
        documents = rollout.documents
        same = self._of_same.get(id(documents))
        if same is not None:
            return same[1]
        if not documents:
            raise DataError("missing: the length of the extract is relative to them", "documents")
        texts = tuple([document.text for document in documents])
        length = self._of_equal.get(texts)
        if length is None:
            length = self._of_equal[texts] = sum(map(self._count, texts))
        if not length:
            raise DataError("no text in them", "documents")
        self._of_same[id(documents)] = (documents, length)  # the reference keeps the id unique
        return length


@dataclass(frozen=True)
@check_choices
class RelativeLength(RolloutReward):
    """1 if the length of a section is between two shares of that of the documents, else 0.

    1[low·L_D < L_s < high·L_D], with the length L_s of the section and L_D of the texts of the
    documents, joined by empty lines, both in characters without outer white space. The titles do
    not count. Raises DataError for a row without documents. Source: CANOE, released code at
    c6b215c: grpo.py.

    section  name of the section
    """

    section: str
    tags: Tags
    low: Annotated[
        float,
        about("share of the documents that the section must exceed", _CANOE, ge=0, le=1),
    ] = 0.2
    high: Annotated[
        float,
        about("share of the documents below which the section must be", _CANOE, ge=0),
    ] = 0.8
    strict: Annotated[
        bool,
        about(
            "for the lower limit, count only words that a reader sees and that repeat no earlier "
            "ones",
            "ours: off, as published",
        ),
    ] = False
    name: str = "length"
    scope: Literal["rollout"] = "rollout"

    def score(self, rollout: Rollout) -> Score:
        text = rollout.parsed.cut(self.tags).content.get(self.section, "").strip()
        whole = "\n\n".join(document.text for document in rollout.documents or ()).strip()
        if not whole:
            raise DataError("missing: the length is relative to them", "documents")
        shortest = len(own_words(shown(text), ())) if self.strict else len(text)
        value = self.low * len(whole) < shortest and len(text) < self.high * len(whole)
        return Score(float(value), details={"characters": len(text), "of": len(whole)})


def own_words(text: str, documents: Sequence[str]) -> str:
    """Return a text without long runs of words from the documents or from earlier text.

    A run is long from 4 words on, or from 8 characters on in a script without spaces. Marks around
    a word do not belong to it. Within the text, all numbers count as one word, as do all single
    letters, so that counting and spelling are repetitions.
    """
    terms = _terms(text)
    n = 8 if sum(map(is_unspaced, terms)) * 2 > len(terms) else 4
    in_documents = {gram for each in documents for gram in _grams(_bare(_terms(each)), n)}
    earlier: set[tuple[str, ...]] = set()
    copied = [False] * len(terms)
    bare = _bare(terms)
    grams = zip(_grams(bare, n), _grams(list(map(_kind, bare)), n), strict=True)
    for i, (gram, kinds) in enumerate(grams):
        if gram in in_documents or kinds in earlier:
            copied[i : i + n] = [True] * n
        earlier.add(kinds)
    return " ".join(term for term, is_copy in zip(terms, copied, strict=True) if not is_copy)


def _terms(text: str) -> list[str]:
    return [word for word in auto_words(fold(text)) if any(map(str.isalnum, word))]


def _bare(terms: Sequence[str]) -> list[str]:
    return [term.strip(EDGES) for term in terms]


def _kind(word: str) -> str:
    """Return a word, or a text that stands for all numbers or for all single letters."""
    if word.isdecimal():
        return "0"
    return "a" if len(word) == 1 and not is_unspaced(word) else word


def _grams(sequence: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(sequence[i : i + n]) for i in range(len(sequence) - n + 1)]

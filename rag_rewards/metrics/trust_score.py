"""Grounded refusals, answers, citations and reasoning: Trust-Score, answer rate and %Align.

The definitions are those of Trust-Score's evaluation code, with these exceptions. Two settings of
`TrustScore` reproduce the authors' values: `empty` (an empty response has no correct citation,
while the authors' code leaves it out of the citation means) and `markers` (`[1, 3]` cites two
documents and `[0]` none, while the authors' code reads only the first number of a bracket, and
reads `[0]` as the last document). A document that a statement cites twice is one citation here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from rag_rewards.errors import DataError, UsageError
from rag_rewards.evidence.needs import EntailmentNeed, Need
from rag_rewards.metrics.metric import (
    AnswerCache,
    Gauge,
    MetricBase,
    Parts,
    Reads,
    Values,
    ratio,
    read_answer,
)
from rag_rewards.rewards.citation import document_of, premise_of
from rag_rewards.rewards.claims import Claim, citation_scores, claim_citations, claim_of
from rag_rewards.rewards.correctness import f1_of
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.settings import check_choices
from rag_rewards.text.citations import CITATION, compiled, strip_markers
from rag_rewards.text.normalize import squad
from rag_rewards.text.refusal import SHORT_REFUSAL, refusal_form
from rag_rewards.text.sections import Tags
from rag_rewards.text.statements import statements

MAX_CITATIONS = 3
"""Number of citations of a statement that count."""
_MARKERS = compiled(CITATION)
_FIRST_NUMBERS = compiled(r"\[(\d{1,9})\]?")

Empty = Literal["zero", "skip"]
Markers = Literal["all", "first"]
_REFUSAL = refusal_form(SHORT_REFUSAL)
_LEAST_SIMILARITY = 85.5
"""Trust-Score rounds the similarity to an integer, which must be above 85."""


def refuses(answer: str) -> bool:
    """Return whether an answer is a refusal: its partial similarity to the short one is above 85.

    The similarity is rapidfuzz's `partial_ratio` (0 to 100) of the `squad` forms with plain
    apostrophes, rounded to an integer. Source: Trust-Score's evaluation code.

    >>> refuses("Sadly: I apologize, but I couldn't find an answer."), refuses("It is Paris.")
    (True, False)
    """
    from rapidfuzz import fuzz

    return bool(fuzz.partial_ratio(_REFUSAL, refusal_form(answer), score_cutoff=_LEAST_SIMILARITY))


def is_answerable(rollout: Rollout) -> bool:
    """Return whether some document supports some gold answer.

    If no document has `supports`, `answerable` of the row decides. Raises DataError without both,
    and for a `supports` of a wrong length.
    """
    if any(document.supports is not None for document in rollout.documents or ()):
        return bool(rollout.supported_gold)
    if rollout.answerable is None:
        raise DataError("missing, and no document has `supports`", "answerable")
    return rollout.answerable


def list_correctness(items: Sequence[str], gold: Sequence[Sequence[str]]) -> float:
    """Return the F1 of precision and recall-5 of a list's items. Range 0 to 1.

    P = items that are an alias / items, R = min(5, matched answers) / min(5, answers). Items are
    compared in their `squad` form. 0 without items or answers. Source: ALCE (QAMPARI), Trust-Score.

    >>> list_correctness(["Ju Dou", "Titanic"], [["Ju Dou"], ["Mulan"]])
    0.5
    """
    answers = [form for form in map(squad, items) if form]
    forms = [{squad(alias) for alias in aliases} for aliases in gold]
    if not answers or not forms:
        return 0.0
    precision = sum(any(item in form for form in forms) for item in answers) / len(answers)
    matches = sum(not form.isdisjoint(answers) for form in forms)
    recall = min(5, matches) / min(5, len(forms))
    return f1_of(precision, recall)


def trust_score(sums: Parts) -> Values:
    """Return Trust-Score and its components from the sums over rows. Range 0 to 1.

    F1_GR = (F1_ref + F1_ans)/2 with F1 over refusing the unanswerable and answering the
    answerable; F1_AC = 2PR/(P+R), P = Σ calibrated/answered, R = Σ calibrated/answerable;
    F1_GC the same of mean citation precision and recall over answered rows (`citation_rows`);
    Trust-Score is their mean. An F1 without a denominator is 0. Source: Ground-GRPO, Appendix A,
    Eq. 9 to 13.
    """
    if not sums["rows"]:
        return dict.fromkeys(
            ("trust-score", "f1_gr", "f1_ac", "f1_gc", "f1_refuse", "f1_answer"), None
        )
    f1_refuse, f1_answer = _refusal_f1s(sums)
    f1_gr = (f1_refuse + f1_answer) / 2
    f1_ac = _f1(sums["calibrated"], sums["answered"], sums["answerable"])
    cited = sums["citation_rows"]
    means = (ratio(sums[f"citation_{of}"], cited) or 0.0 for of in ("precision", "recall"))
    f1_gc = f1_of(*means)
    return {
        "trust-score": (f1_gr + f1_ac + f1_gc) / 3,
        "f1_gr": f1_gr,
        "f1_ac": f1_ac,
        "f1_gc": f1_gc,
        "f1_refuse": f1_refuse,
        "f1_answer": f1_answer,
    }


def _refusal_f1s(sums: Parts) -> tuple[float, float]:
    """F1 of refusing the unanswerable, and of answering the answerable."""
    answered, answerable = sums["answered"], sums["answerable"]
    both = sums["answered_answerable"]
    refused, unanswerable = sums["rows"] - answered, sums["rows"] - answerable
    right_refusals = refused - answerable + both
    return _f1(right_refusals, refused, unanswerable), _f1(both, answered, answerable)


def _f1(right: float, chosen: float, wanted: float) -> float:
    """F1 of right/chosen and right/wanted; 0 if a denominator is 0."""
    return f1_of(ratio(right, chosen) or 0.0, ratio(right, wanted) or 0.0)


@dataclass(frozen=True, repr=False)
@check_choices
class TrustScore(MetricBase):
    """Mean of grounded refusal, calibrated correctness and grounded citation. Range 0 to 1.

    The calibrated score of an answered, answerable row counts the gold answers that a document
    supports: the share that occurs as `squad` substrings; for `answer_kind` list, the F1 of
    precision and recall-5; for claims, the share that the answer without its citations entails.
    A text is entailed if the probability is at least `threshold`.

    empty    `zero`: the citations of an empty response have recall and precision 0, because it was
             not refused and supports nothing; `skip`: it is not part of the citation means, as in
             the authors' code (an empty list is)
    markers  `all`: each number of `[1, 3]` is a citation, and `[0]` is invalid; `first`: only the
             number after the bracket is, the others stay in the statement, and `[0]` is the last
             document, as in the authors' code

    Source: Ground-GRPO, Appendix A; Trust-Score's evaluation code.
    """

    threshold: float = 0.5
    reads: Reads = "auto"
    empty: Empty = "zero"
    markers: Markers = "all"

    name = "trust-score"
    parts = (
        "rows",
        "answered",
        "answerable",
        "answered_answerable",
        "calibrated",
        "citation_rows",
        "citation_recall",
        "citation_precision",
    )

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        answer = read_answer(rollout, self.reads) or ""
        if refuses(answer):
            return []
        needs: list[Need] = []
        for statement in self._statements(rollout, answer):
            needs.extend(statement.needs(rollout))
        if rollout.answer_kind == "claims" and is_answerable(rollout):
            text = self._text(answer)
            claims = (claim for aliases in _counted_gold(rollout) for claim in aliases)
            needs += [EntailmentNeed(text, claim) for claim in claims]
        return needs

    def gauge(self, cache: AnswerCache) -> Gauge:
        return lambda row: self._measure(row, cache.answer(row, self.reads) or "")

    def values(self, sums: Parts) -> Values:
        return trust_score(sums)

    def parts_of(self, row: Rollout) -> dict[str, float]:
        """Return the parts of one row by name. Raises RolloutError if it cannot be measured."""
        answer = read_answer(row, self.reads) or ""
        return dict(zip(self.parts, self._measure(row, answer), strict=True))

    def _measure(self, row: Rollout, answer: str) -> tuple[float, ...]:
        answerable = is_answerable(row)
        if refuses(answer):
            return 1.0, 0.0, float(answerable), 0.0, 0.0, 0.0, 0.0, 0.0
        correct = self._correctness(row, answer) if answerable else 0.0
        is_skipped = self.empty == "skip" and row.answer_kind != "list" and not answer.strip()
        cited = (0.0, 0.0, 0.0) if is_skipped else (1.0, *self._citations(row, answer))
        return 1.0, 1.0, float(answerable), float(answerable), correct, *cited

    def _correctness(self, row: Rollout, answer: str) -> float:
        gold, text = _counted_gold(row), self._text(answer)
        if row.answer_kind == "list":
            return list_correctness(text.rstrip(" .,").split(","), gold)
        if row.answer_kind == "claims":
            marks = [any(self._entails(row, text, claim) for claim in claims) for claims in gold]
        else:
            normal = squad(text)
            marks = [any(squad(alias) in normal for alias in aliases) for aliases in gold]
        return sum(marks) / len(marks)

    def _citations(self, row: Rollout, answer: str) -> tuple[float, float]:
        cited_statements = self._statements(row, answer)

        def entails(at: int, labels: Sequence[str]) -> bool:
            return self._entails(row, premise_of(row, labels), cited_statements[at].text)

        def shares(one: str, rest: Sequence[str]) -> bool:
            return not _supported_by_any(row, [one]).isdisjoint(_supported_by_any(row, rest))

        cited = [statement.cited for statement in cited_statements]
        return citation_scores(claim_citations(cited, entails, shares))

    def _text(self, answer: str) -> str:
        """Return the answer without its citations."""
        if self.markers == "all":
            return strip_markers(answer, _MARKERS)
        return _without_brackets(strip_markers(answer, _FIRST_NUMBERS)).strip()

    def _statements(self, row: Rollout, answer: str) -> list[Claim]:
        items = row.answer_kind == "list"
        pattern = _MARKERS if self.markers == "all" else _FIRST_NUMBERS
        cited_statements = []
        for statement in statements(answer, pattern, items=items):
            text, cited = statement.text, statement.cited
            if self.markers == "first":
                text = _without_brackets(text)
                cited = tuple(row.labels[-1] if c == "0" and row.labels else c for c in cited)
            text = f"{row.question or ''} {text}" if items else text
            cited_statements.append(claim_of(row, text.strip(), cited, MAX_CITATIONS))
        return cited_statements

    def _entails(self, row: Rollout, premise: str, hypothesis: str) -> bool:
        return bool(EntailmentNeed(premise, hypothesis).read(row) >= self.threshold)


def _counted_gold(rollout: Rollout) -> list[tuple[str, ...]]:
    """The gold answers that a document supports, or all gold answers if that is unknown."""
    return [rollout.gold[i] for i in rollout.supported_gold]


def _without_brackets(text: str) -> str:
    """Remove the rest of the markers as the authors' code does: every `]`, and `|` after a space.

    >>> _without_brackets("Paris, 3]. | Rome")
    'Paris, 3. Rome'
    """
    return text.replace(" |", "").replace("]", "")


def _supported_by_any(rollout: Rollout, labels: Sequence[str]) -> set[int]:
    """The positions of the gold answers that at least one of the documents supports."""
    supports = [document_of(rollout, label).supports or () for label in labels]
    return {i for bits in supports for i, bit in enumerate(bits) if bit}


@dataclass(frozen=True, repr=False)
@check_choices
class AnswerRate(MetricBase):
    """Answered / all, and the ideal value: answerable / all. Range 0 to 1.

    Source: Ground-GRPO, section 3.4 (AR).
    """

    reads: Reads = "auto"

    name = "answer-rate"
    parts = ("answered", "answerable", "rows")
    main_ratio = ("answered", "rows")
    further_ratios = MappingProxyType({"ideal": ("answerable", "rows")})

    def gauge(self, cache: AnswerCache) -> Gauge:
        return lambda row: (
            float(not refuses(cache.answer(row, self.reads) or "")),
            float(is_answerable(row)),
            1.0,
        )


@dataclass(frozen=True, repr=False)
@check_choices
class Align(MetricBase):
    """Share of rows whose reasoning entails the final answer. Range 0 to 1.

    `reasoning` is the name of the section with the reasoning (`think`; LEAR: `reason`). The answer
    is compared without its citations. A row without reasoning or answer does not align and is
    counted as `unread`. Source: Ground-GRPO, section 4.7, Eq. 8 (%Align).
    """

    reasoning: str = "think"
    threshold: float = 0.5
    reads: Reads = "auto"

    name = "align"
    parts = ("aligned", "unread", "rows")
    main_ratio = ("aligned", "rows")

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-]+", self.reasoning):
            raise UsageError(
                f"metric align: reasoning must be the name of a section, found {self.reasoning!r}"
            )

    def needs(self, rollout: Rollout) -> Sequence[Need]:
        need = self._need(rollout)
        return [need] if need else []

    def gauge(self, cache: AnswerCache) -> Gauge:
        return self._measure

    def _need(self, rollout: Rollout) -> EntailmentNeed | None:
        tags = Tags((self.reasoning, "answer"))
        reasoning = rollout.parsed.cut(tags).content.get(self.reasoning, "").strip()
        answer = strip_markers(read_answer(rollout, self.reads) or "", _MARKERS)
        return EntailmentNeed(reasoning, answer) if reasoning and answer else None

    def _measure(self, row: ScoredRow) -> tuple[float, ...]:
        need = self._need(row)
        if need is None:
            return 0.0, 1.0, 1.0
        return float(need.read(row) >= self.threshold), 0.0, 1.0

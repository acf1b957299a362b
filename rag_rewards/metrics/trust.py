"""Trust-Score: grounded refusals, answers and citations; the answer rate; %Align.

Definitions are those of Trust-Score's evaluation code. Where this package reads a text otherwise:
`[0]` is an invalid citation here (the authors' code takes the last document by accident), and a
document that a statement cites twice is one citation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rag_rewards.errors import DataError, UsageError
from rag_rewards.evidence.needs import EntailmentNeed, Need, unmet
from rag_rewards.metrics.answers import Gauge, asks_nothing
from rag_rewards.metrics.metric import (
    Parts,
    Unit,
    Values,
    f1_of,
    identity,
    ratio,
)
from rag_rewards.metrics.reading import Common, Reads, read_answer
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.text.citations import CITATION, compiled, split_valid, strip_markers
from rag_rewards.text.normalize import squad
from rag_rewards.text.refusal import SHORT_REFUSAL
from rag_rewards.text.sections import Tags
from rag_rewards.text.statements import Statement, statements

_FLAG = squad(SHORT_REFUSAL)
_ABOVE = 85.5
"""Similarities are rounded to an integer, 85.5 to 86, and 86 is the first above 85."""
AT_MOST = 3
"""Citations of a statement that count."""
_MARKERS = compiled(CITATION)


# --- plain functions ---------------------------------------------------------------------------


def refuses(answer: str) -> bool:
    """Whether an answer is a refusal: partial similarity to the short flag above 85 of 100.

    rapidfuzz `partial_ratio` over squad-normalised texts, rounded to an integer. Source:
    Trust-Score's evaluation code.

    >>> refuses("Sadly: I apologize, but I couldn't find an answer."), refuses("It is Paris.")
    (True, False)
    """
    from rapidfuzz import fuzz

    return bool(fuzz.partial_ratio(_FLAG, squad(answer), score_cutoff=_ABOVE))


def list_correctness(items: Sequence[str], gold: Sequence[Sequence[str]]) -> float:
    """F1 of precision and recall-5 of a list's items. Range 0 to 1.

    P = items that are an alias / items, R = min(5, answers found) / min(5, answers); exact after
    `squad`. 0 where there is no item or no answer. Source: ALCE (QAMPARI), Trust-Score.

    >>> list_correctness(["Ju Dou", "Titanic"], [["Ju Dou"], ["Mulan"]])
    0.5
    """
    said = [form for form in map(squad, items) if form]
    forms = [{squad(alias) for alias in aliases} for aliases in gold]
    if not said or not forms:
        return 0.0
    precision = sum(any(item in form for form in forms) for item in said) / len(said)
    found = sum(not form.isdisjoint(said) for form in forms)
    recall = min(5, found) / min(5, len(forms))
    return 2 * precision * recall / (precision + recall) if found else 0.0


def citation_scores(
    statements_cite: Sequence[Sequence[str] | None],
    entails: Callable[[int, Sequence[str]], bool],
    shares: Callable[[str, Sequence[str]], bool],
) -> tuple[float, float]:
    """(recall, precision) of an answer's citations. Range 0 to 1.

    Per statement: its citations, or None where one is invalid. Recall: share of statements that
    their documents entail together. Precision: credited citations over all that are counted. A
    citation is credited where the documents together entail, unless it is superfluous: it alone
    does not entail, the rest does, and it `shares` no gold answer with the rest.
    Source: ALCE; Trust-Score's evaluation code.
    """
    recalled = credited = counted = 0
    for at, cited in enumerate(statements_cite):
        if not cited:
            continue
        counted += len(cited)
        if not entails(at, cited):
            continue
        recalled += 1
        credited += sum(not _superfluous(at, one, cited, entails, shares) for one in cited)
    n = len(statements_cite)
    return (recalled / n if n else 0.0), (credited / counted if counted else 0.0)


def _superfluous(
    at: int,
    one: str,
    cited: Sequence[str],
    entails: Callable[[int, Sequence[str]], bool],
    shares: Callable[[str, Sequence[str]], bool],
) -> bool:
    if len(cited) == 1 or entails(at, [one]):
        return False
    rest = [label for label in cited if label != one]
    return entails(at, rest) and not shares(one, rest)


def trust_score(sums: Parts) -> Values:
    """Trust-Score and what it is made of, from the counts of a set of rows. Range 0 to 1.

    F1_GR = (F1_ref + F1_ans)/2 with F1 over refusing the unanswerable and answering the
    answerable; F1_AC = 2PR/(P+R), P = Σ calibrated/answered, R = Σ calibrated/answerable;
    F1_GC the same of mean citation precision and recall over answered rows; Trust-Score their
    mean. 0 where a denominator is 0. Source: Ground-GRPO, Appendix A, Eq. 9 to 13.
    """
    rows, answered, answerable = sums["rows"], sums["answered"], sums["answerable"]
    if not rows:
        return dict.fromkeys(
            ("trust-score", "f1_gr", "f1_ac", "f1_gc", "f1_refuse", "f1_answer"), None
        )
    both = sums["answered_answerable"]
    refused, unanswerable = rows - answered, rows - answerable
    right_refusals = rows - answered - answerable + both
    f1_refuse = _f1(right_refusals, refused, unanswerable)
    f1_answer = _f1(both, answered, answerable)
    f1_gr = (f1_refuse + f1_answer) / 2
    f1_ac = _f1(sums["calibrated"], answered, answerable)
    f1_gc = (
        f1_of(ratio(sums["citation_precision"], answered), ratio(sums["citation_recall"], answered))
        or 0.0
    )
    return {
        "trust-score": (f1_gr + f1_ac + f1_gc) / 3,
        "f1_gr": f1_gr,
        "f1_ac": f1_ac,
        "f1_gc": f1_gc,
        "f1_refuse": f1_refuse,
        "f1_answer": f1_answer,
    }


def _f1(right: float, chosen: float, wanted: float) -> float:
    """F1 of right/chosen and right/wanted, 0 where a denominator is 0."""
    return f1_of(ratio(right, chosen), ratio(right, wanted)) or 0.0


# --- what a row brings -------------------------------------------------------------------------


def supported_gold(rollout: Rollout) -> frozenset[int] | None:
    """Which gold answers some document supports; None where no document says. DataError."""
    known = False
    found: set[int] = set()
    for at in range(len(rollout.documents or ())):
        bits = _bits(rollout, at)
        if bits is not None:
            known = True
            found |= bits
    return frozenset(found) if known else None


def _bits(rollout: Rollout, at: int) -> frozenset[int] | None:
    supports = (rollout.documents or ())[at].supports
    if supports is None:
        return None
    if len(supports) != len(rollout.gold):
        raise DataError(
            f"one boolean per required answer: expected {len(rollout.gold)}, found {len(supports)}",
            f"documents[{at}].supports",
        )
    return frozenset(i for i, bit in enumerate(supports) if bit)


def is_answerable(rollout: Rollout) -> bool:
    """Some document supports some gold answer; where none says, the row's own. DataError."""
    supported = supported_gold(rollout)
    if supported is not None:
        return bool(supported)
    if rollout.answerable is None:
        raise DataError("missing, and no document has `supports`", "answerable")
    return rollout.answerable


# --- metrics -----------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class AnswerRate:
    """Answered / all, beside the ideal: answerable / all. Range 0 to 1.

    Source: Ground-GRPO, section 3.4 (AR).
    """

    reads: Reads = "auto"

    name = "answer-rate"
    unit: ClassVar[Unit] = "row"
    parts = ("answered", "answerable", "rows")
    needs = asks_nothing
    __repr__ = identity

    def gauge(self, common: Common) -> Gauge:
        return lambda row: (
            float(not refuses(common.answer(row, self.reads) or "")),
            float(is_answerable(row)),
            1.0,
        )

    def values(self, sums: Parts) -> Values:
        return {
            self.name: ratio(sums["answered"], sums["rows"]),
            "ideal": ratio(sums["answerable"], sums["rows"]),
        }


@dataclass(frozen=True, repr=False)
class TrustScore:
    """Mean of grounded refusal, calibrated correctness and grounded citation. Range 0 to 1.

    The calibrated score of an answered, answerable row counts gold answers that a document
    supports: share found as `squad` substrings; `answer_kind` list: F1 of precision and recall-5;
    claims: share entailed by the answer without its citations. Entailed: probability at least
    `threshold`. Source: Ground-GRPO, Appendix A; Trust-Score's evaluation code.
    """

    threshold: float = 0.5
    reads: Reads = "auto"

    name = "trust-score"
    unit: ClassVar[Unit] = "row"
    parts = (
        "rows",
        "answered",
        "answerable",
        "answered_answerable",
        "calibrated",
        "citation_recall",
        "citation_precision",
    )
    __repr__ = identity

    def needs(self, rollout: Rollout) -> list[Need]:
        answer = read_answer(rollout, self.reads) or ""
        if refuses(answer):
            return []
        needs: list[Need] = []
        for statement in _Cited.of(rollout, answer):
            needs.extend(statement.needs(rollout))
        if rollout.answer_kind == "claims" and is_answerable(rollout):
            said = strip_markers(answer, _MARKERS)
            needs += [EntailmentNeed(said, a) for aliases in _counted(rollout) for a in aliases]
        return needs

    def gauge(self, common: Common) -> Gauge:
        return lambda row: self._measure(row, common.answer(row, self.reads) or "")

    def values(self, sums: Parts) -> Values:
        return trust_score(sums)

    def _measure(self, row: ScoredRow, answer: str) -> tuple[float, ...]:
        answerable = is_answerable(row)
        if refuses(answer):
            return 1.0, 0.0, float(answerable), 0.0, 0.0, 0.0, 0.0
        correct = self._correctness(row, answer) if answerable else 0.0
        recall, precision = self._citations(row, answer)
        return 1.0, 1.0, float(answerable), float(answerable), correct, recall, precision

    def _correctness(self, row: Rollout, answer: str) -> float:
        gold = _counted(row)
        if row.answer_kind == "list":
            return list_correctness(strip_markers(answer, _MARKERS).rstrip(" .,").split(","), gold)
        if row.answer_kind == "claims":
            said = strip_markers(answer, _MARKERS)
            found = [any(self._entails(row, said, claim) for claim in claims) for claims in gold]
        else:
            normal = squad(answer)
            found = [any(squad(alias) in normal for alias in aliases) for aliases in gold]
        return sum(found) / len(found)

    def _citations(self, row: Rollout, answer: str) -> tuple[float, float]:
        cited = list(_Cited.of(row, answer))

        def entails(at: int, labels: Sequence[str]) -> bool:
            return self._entails(row, premise_of(row, labels), cited[at].text)

        def shares(one: str, rest: Sequence[str]) -> bool:
            mine = _supported_by(row, [one])
            return not mine.isdisjoint(_supported_by(row, rest))

        return citation_scores([statement.labels for statement in cited], entails, shares)

    def _entails(self, row: Rollout, premise: str, hypothesis: str) -> bool:
        known = row.entailment(premise, hypothesis)
        if known is None:
            raise unmet(EntailmentNeed(premise, hypothesis))
        return known >= self.threshold


def _counted(rollout: Rollout) -> list[tuple[str, ...]]:
    """Gold answers that a document supports; all of them where that is unknown."""
    supported = supported_gold(rollout)
    return [a for i, a in enumerate(rollout.gold) if supported is None or i in supported]


@dataclass(frozen=True)
class _Cited:
    """A statement as entailment reads it; its first citations, None where one is invalid."""

    text: str
    labels: tuple[str, ...] | None

    @classmethod
    def of(cls, rollout: Rollout, answer: str) -> Iterator[_Cited]:
        items = rollout.answer_kind == "list"
        for statement in statements(answer, _MARKERS, items=items):
            text = f"{rollout.question or ''} {statement.text}" if items else statement.text
            yield cls(text.strip(), _labels(rollout, statement))

    def needs(self, rollout: Rollout) -> Iterator[Need]:
        labels = self.labels or ()
        if labels:
            yield EntailmentNeed(premise_of(rollout, labels), self.text)
        if len(labels) > 1:
            for one in labels:
                rest = [label for label in labels if label != one]
                yield EntailmentNeed(premise_of(rollout, [one]), self.text)
                yield EntailmentNeed(premise_of(rollout, rest), self.text)


def _labels(rollout: Rollout, statement: Statement) -> tuple[str, ...] | None:
    valid, invalid = split_valid(statement.cited, rollout.labels)
    return None if invalid else valid[:AT_MOST]


def premise_of(rollout: Rollout, labels: Sequence[str]) -> str:
    """Documents as one premise, in the order cited."""
    documents = rollout.documents or ()
    return "\n".join(documents[rollout.labels.index(label)].premise for label in labels)


def _supported_by(rollout: Rollout, labels: Sequence[str]) -> set[int]:
    found: set[int] = set()
    for label in labels:
        found |= _bits(rollout, rollout.labels.index(label)) or frozenset()
    return found


@dataclass(frozen=True, repr=False)
class Align:
    """Share of rows whose reasoning entails the final answer. Range 0 to 1.

    The reasoning is the section of that name (`think`; LEAR: `reasoning=reason`), the answer is
    read without its citations. A row without one of them does not align and is counted as
    `unread`. Source: Ground-GRPO, section 4.7, Eq. 8 (%Align).
    """

    reasoning: str = "think"
    threshold: float = 0.5
    reads: Reads = "auto"

    name = "align"
    unit: ClassVar[Unit] = "row"
    parts = ("aligned", "unread", "rows")
    __repr__ = identity

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-]+", self.reasoning):
            raise UsageError(f"reasoning is a section's name, not {self.reasoning!r}")

    def needs(self, rollout: Rollout) -> list[Need]:
        need = self._need(rollout)
        return [need] if need else []

    def gauge(self, common: Common) -> Gauge:
        return self._measure

    def values(self, sums: Parts) -> Values:
        return {self.name: ratio(sums["aligned"], sums["rows"])}

    def _need(self, rollout: Rollout) -> EntailmentNeed | None:
        tags = Tags((self.reasoning, "answer"))
        reasoning = rollout.parsed.cut(tags).content.get(self.reasoning, "").strip()
        answer = strip_markers(read_answer(rollout, self.reads) or "", _MARKERS)
        return EntailmentNeed(reasoning, answer) if reasoning and answer else None

    def _measure(self, row: ScoredRow) -> tuple[float, ...]:
        need = self._need(row)
        if need is None:
            return 0.0, 1.0, 1.0
        known = row.entailment(need.premise, need.hypothesis)
        if known is None:
            raise unmet(need)
        return float(known >= self.threshold), 0.0, 1.0

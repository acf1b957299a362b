"""Grounded statements: right statements with sufficient citations, and refusals (Ground-GRPO)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rag_rewards.errors import DataError
from rag_rewards.evidence.needs import EntailmentNeed, Need, unmet
from rag_rewards.rewards.format import Format
from rag_rewards.rewards.refusal import RefusalDetector, refusal_reward
from rag_rewards.rollout import GoldForms, Rollout, Score
from rag_rewards.text.citations import CITATION, compiled, split_valid
from rag_rewards.text.normalize import NormalizerName, normalizer, squad
from rag_rewards.text.statements import Statement, statements
from rag_rewards.text.strict import StrictText

Aggregate = Literal["sum", "mean", "answers"]
JudgeBy = Literal["nli", "gold"]


def is_sufficient(
    cited: Sequence[str], entails: Callable[[Sequence[str]], bool], *, minimal: bool = False
) -> bool:
    """Whether the cited documents together entail the statement.

    `minimal` also asks that none is superfluous: without any one of them the rest must not
    entail. Source: Ground-GRPO, Eq. 2 and introduction ("minimal yet sufficient").
    """
    if not cited or not entails(cited):
        return False
    if not minimal or len(cited) == 1:
        return True
    return not any(entails([c for c in cited if c != left_out]) for left_out in cited)


def aggregate_sum(credits: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Σ over statements of (exact match, citation) credits. Source: Ground-GRPO, Eq. 1 and 2."""
    return sum(c[0] for c in credits), sum(c[1] for c in credits)


@dataclass(frozen=True)
class _Checked:
    """A statement of the answer with what was found out about it."""

    statement: Statement
    answers: tuple[int, ...]  # which required answers it contains
    sufficient: bool | None  # None where no answer asked for a check


@dataclass(frozen=True)
class Grounding:
    """Ground-GRPO's statement-level correctness and refusal, behind its format.

    Score.components holds `exact_match`, `citation` and `refusal`; the value is their sum. Per
    statement: +0.5 if it contains a gold answer, then +0.5 if its citation is correct, else
    `bad_penalty`. `aggregate` sums over statements, averages, or credits each required answer
    once at its best statement over the number of required answers that a document supports.
    A response without the format, or one that refuses, gets none of it.

    Source: Ground-GRPO, section 2.2, Eq. 1, 2 and 6, Algorithm 1.
    """

    format: Format
    detector: RefusalDetector
    refusal: bool = True  # stage 2
    aggregate: Aggregate = "sum"
    judge_by: JudgeBy = "nli"
    threshold: float = 0.5
    minimal: bool = False
    match: float = 0.5
    good: float = 0.5
    bad_penalty: float = -0.5
    answered: float = 0.5
    normalizer: NormalizerName = "squad"
    fold_accents: bool = False
    numbers: bool = False
    dates: bool = False
    strict: bool = False
    precise: bool = False
    together: bool = False
    pattern: str = CITATION
    name: str = "grounding"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        answer = self._answer(rollout)
        if answer is None:
            return []
        needs: list[Need] = list(self.detector.needs(answer))
        if not rollout.answerable:
            return needs  # no statement of an unanswerable row is checked
        forms = self._forms()
        for statement in self._statements(rollout, answer, compiled(self.pattern)):
            needs.extend(self._statement_needs(rollout, statement, forms))
        return needs

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        pattern = compiled(self.pattern)
        forms = self._forms()
        return [self._score(rollout, pattern, forms) for rollout in rollouts]

    def _score(self, rollout: Rollout, pattern: re.Pattern[str], forms: GoldForms) -> Score:
        answerable = self._answerable(rollout)
        answer = self._answer(rollout)
        if answer is None:
            return _score(0.0, 0.0, 0.0, 0.0, {"answer": None, "refused": False})
        found = self._statements(rollout, answer, pattern)
        refused, r = self._refused(rollout, answer, found)
        details: dict[str, Any] = {"answer": answer.strip(), "refused": refused}
        if refused:
            details["refusal_similarity"] = r
        paid = (
            refusal_reward(answerable=answerable, refused=refused, r=r, bonus=self.answered)
            if self.refusal
            else 0.0
        )
        if not answerable or refused:
            return _score(0.0, 0.0, paid, float(refused and not answerable), details)
        asserted = self._asserted(rollout, found, forms)
        checked = [self._check(rollout, statement, forms, asserted) for statement in found]
        matched, cited = self._credit(rollout, checked)
        details["statements"] = [_detail(item, rollout.labels) for item in checked]
        hit = {i for item in checked for i in item.answers}
        return _score(matched, cited, paid, len(hit) / len(rollout.gold), details)

    def _forms(self) -> GoldForms:
        return GoldForms(
            normalizer(
                self.normalizer,
                fold_accents=self.fold_accents,
                numbers=self.numbers,
                dates=self.dates,
            )
        )

    def _answerable(self, rollout: Rollout) -> bool:
        if rollout.answerable is None:
            raise DataError("missing; whether the documents answer the question", "answerable")
        if not rollout.answerable and not self.refusal:
            raise DataError("stage 1 takes answerable rows only", "answerable")
        return rollout.answerable

    def _answer(self, rollout: Rollout) -> str | None:
        """The answer section of a well-formed response."""
        if not self.format.of(rollout):
            return None
        return rollout.parsed.cut(self.format.tags).content["answer"]

    def _statements(
        self, rollout: Rollout, answer: str, pattern: re.Pattern[str]
    ) -> list[Statement]:
        found = statements(answer, pattern, items=rollout.answer_kind == "list")
        return _merged(found) if self.together else found

    def _refused(
        self, rollout: Rollout, answer: str, found: Sequence[Statement]
    ) -> tuple[bool, float]:
        if not self.detector.strict:
            return self.detector.refused(rollout, answer)
        gold: tuple[str, ...] = ()
        if rollout.answers is not None and rollout.answer_kind != "claims":
            gold = tuple(squad(alias) for aliases in rollout.gold for alias in aliases)
        # The similarity of the whole answer is what `needs` asks for.
        semantic = self.detector.matcher == "semantic"
        bare = answer if semantic else " ".join(s.text for s in found)
        return self.detector.refused(rollout, bare, cites=any(s.cited for s in found), gold=gold)

    # -- one statement --

    def _asserted(
        self, rollout: Rollout, found: Sequence[Statement], forms: GoldForms
    ) -> Collection[int]:
        """Answers that the answer as a whole asserts: strict looks beyond single statements."""
        required = rollout.gold
        if not self.strict or rollout.answer_kind in ("list", "claims"):
            return range(len(required))
        text = "\n".join(statement.text for statement in found)
        whole = StrictText(text, forms.normalize, required)
        return [i for i, aliases in enumerate(required) if whole.contains(aliases)]

    def _check(
        self,
        rollout: Rollout,
        statement: Statement,
        forms: GoldForms,
        asserted: Collection[int],
    ) -> _Checked:
        answers = tuple(i for i in self._answers_in(rollout, statement, forms) if i in asserted)
        sufficient = self._sufficient(rollout, statement, answers, forms) if answers else None
        return _Checked(statement, answers, sufficient)

    def _answers_in(
        self, rollout: Rollout, statement: Statement, forms: GoldForms
    ) -> Iterator[int]:
        if rollout.answer_kind == "claims":
            for i, aliases in enumerate(rollout.gold):
                if any(self._entails(rollout, statement.text, alias) for alias in aliases):
                    yield i
            return
        normalize, required = forms.normalize, rollout.gold
        if self.strict:
            read = StrictText(statement.text, normalize, required)
            yield from (i for i, aliases in enumerate(required) if read.contains(aliases))
            return
        normal = normalize(statement.text)
        for i, aliases in enumerate(required):
            for gold, alias in zip(forms.of(aliases), aliases, strict=True):
                if _holds(normal, statement.text, gold, alias):
                    yield i
                    break

    def _sufficient(
        self,
        rollout: Rollout,
        statement: Statement,
        answers: Sequence[int],
        forms: GoldForms,
    ) -> bool:
        cited, invalid = split_valid(statement.cited, rollout.labels)
        if invalid or not cited:
            return False
        if self.judge_by == "gold":
            return self._gold_sufficient(rollout, statement, cited, answers, forms)

        def entails(labels: Sequence[str]) -> bool:
            return self._entails(rollout, _premise(rollout, labels), statement.text)

        return is_sufficient(cited, entails, minimal=self.minimal)

    def _gold_sufficient(
        self,
        rollout: Rollout,
        statement: Statement,
        cited: Sequence[str],
        answers: Sequence[int],
        forms: GoldForms,
    ) -> bool:
        """Inside D+, and some cited document contains an answer that the statement gives."""
        if not set(cited) <= set(rollout.supporting_labels):
            return False
        normal = forms.normalize(statement.text)
        given = [
            (gold, alias)
            for i in answers
            for gold, alias in zip(forms.of(rollout.gold[i]), rollout.gold[i], strict=True)
            if rollout.answer_kind == "claims" or _holds(normal, statement.text, gold, alias)
        ]
        texts = [_document(rollout, label).text for label in cited]
        return any(
            _holds(forms.of((text,))[0], text, *answer) for text in texts for answer in given
        )

    def _entails(self, rollout: Rollout, premise: str, hypothesis: str) -> bool:
        known = rollout.entailment(premise, hypothesis)
        if known is None:
            raise unmet(EntailmentNeed(premise, hypothesis))
        return known >= self.threshold

    def _statement_needs(
        self, rollout: Rollout, statement: Statement, forms: GoldForms
    ) -> Iterator[Need]:
        if rollout.answer_kind == "claims":
            for aliases in rollout.gold:
                for alias in aliases:
                    yield EntailmentNeed(statement.text, alias)
        elif next(self._answers_in(rollout, statement, forms), None) is None:
            return
        if self.judge_by == "gold":
            return
        cited, invalid = split_valid(statement.cited, rollout.labels)
        if invalid or not cited:
            return
        yield EntailmentNeed(_premise(rollout, cited), statement.text)
        if self.minimal and len(cited) > 1:
            for left_out in cited:
                rest = [label for label in cited if label != left_out]
                yield EntailmentNeed(_premise(rollout, rest), statement.text)

    # -- all statements --

    def _credit(self, rollout: Rollout, checked: Sequence[_Checked]) -> tuple[float, float]:
        """(exact match, citation) of the whole answer."""
        if self.aggregate == "answers":
            return self._credit_answers(rollout, checked)
        credits = [
            (self.match, self.good if item.sufficient else self.bad_penalty)
            for item in checked
            if item.answers
        ]
        matched, cited = aggregate_sum(credits)
        n = len(checked) if self.aggregate == "mean" else 1
        return (matched / n, cited / n) if n else (0.0, 0.0)

    def _credit_answers(self, rollout: Rollout, checked: Sequence[_Checked]) -> tuple[float, float]:
        matched = cited = 0.0
        for i in range(len(rollout.gold)):
            found = [item.sufficient for item in checked if i in item.answers]
            if found:
                matched += self.match
                cited += self.good if any(found) else self.bad_penalty
        n = supported_answers(rollout)
        if self.precise and rollout.answer_kind == "list":
            n = max(n, len(checked))
        return matched / n, cited / n


def _merged(found: Sequence[Statement]) -> list[Statement]:
    """Equal statements as one that cites what all of them cite: trying sources does not pay."""
    cited: dict[str, dict[str, None]] = {}
    first: dict[str, str] = {}
    for statement in found:
        form = squad(statement.text)
        first.setdefault(form, statement.text)
        cited.setdefault(form, {}).update(dict.fromkeys(statement.cited))
    return [Statement(first[form], tuple(labels)) for form, labels in cited.items()]


def supported_answers(rollout: Rollout) -> int:
    """How many required answers some document supports; all of them where that is unknown."""
    n = len(rollout.gold)
    supported: set[int] = set()
    known = False
    for at, document in enumerate(rollout.documents or ()):
        if document.supports is None:
            continue
        if len(document.supports) != n:
            raise DataError(
                f"one boolean per required answer: expected {n}, found {len(document.supports)}",
                f"documents[{at}].supports",
            )
        known = True
        supported.update(i for i, bit in enumerate(document.supports) if bit)
    return len(supported) or n if known else n


def _score(
    matched: float, cited: float, refusal: float, correct: float, details: dict[str, Any]
) -> Score:
    return Score(
        matched + cited + refusal,
        components={"exact_match": matched, "citation": cited, "refusal": refusal},
        correct=correct,
        details=details,
    )


def _detail(item: _Checked, labels: Collection[str]) -> dict[str, Any]:
    valid, invalid = split_valid(item.statement.cited, labels)
    shown: dict[str, Any] = {
        "text": item.statement.text,
        "cited": list(valid),
        "answers": len(item.answers),
    }
    if item.sufficient is not None:
        shown["supported"] = item.sufficient
    if invalid:
        shown["invalid"] = list(invalid)
    return shown


def _holds(normal: str, raw: str, gold: str, alias: str) -> bool:
    """A text contains an answer; raw casefolded where the answer normalises to nothing."""
    return gold in normal if gold else alias.strip().casefold() in raw.casefold()


def _document(rollout: Rollout, label: str) -> Any:
    return (rollout.documents or ())[rollout.labels.index(label)]


def _premise(rollout: Rollout, labels: Sequence[str]) -> str:
    """The cited documents as one premise, in the order cited."""
    return "\n".join(_document(rollout, label).premise for label in labels)

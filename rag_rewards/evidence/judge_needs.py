"""Needs of a judge: verdicts, grades by criterion, grades within a group, and names."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from hashlib import blake2b
from typing import Any

from rag_rewards.errors import BackendError, EvidenceError, UsageError, shorten
from rag_rewards.evidence.needs import Need
from rag_rewards.evidence.protocols import NO_ENTITIES, EntityQuestion, JudgeQuestion
from rag_rewards.rollout import Rollout


class _JudgeNeed(Need):
    """A need of the answers of a judge to questions."""

    model_kind = "judge"
    field_name = "verdicts"
    method = "judge"
    questions: tuple[JudgeQuestion, ...]

    @property
    def requests(self) -> tuple[JudgeQuestion, ...]:
        return self.questions


@dataclass(frozen=True)
class VerdictNeed(_JudgeNeed):
    """The verdict of a judge on a component: 1 if the answer to any of the questions is 1."""

    fault = (
        "missing; add the verdict of a judge (0 or 1), set the option judge, or choose a setting "
        "without a judge"
    )
    component: str
    questions: tuple[JudgeQuestion, ...] = field(default=(), compare=False, repr=False)

    def combine(self, results: Sequence[Any]) -> Any:
        """Return 1 if any answer is 1; otherwise an error, which may hide a 1; otherwise 0."""
        results = _checked(self.questions, results)
        answers = [each for each in results if not isinstance(each, BaseException)]
        if 1 in answers or len(answers) == len(results):
            return int(1 in answers)
        return next(each for each in results if isinstance(each, BaseException))

    def read(self, rollout: Rollout) -> int:
        """Return the verdict, 0 or 1. Raises DataError for a rollout without it."""
        verdict = super().read(rollout)
        if verdict not in (0, 1):
            raise EvidenceError(f"must be 0, 1 or null, found {verdict!r}", self.path)
        return int(verdict)


@dataclass(frozen=True)
class GradesNeed(_JudgeNeed):
    """The grades of a judge by criterion, 0 to 1.

    component  key of the verdicts
    names      names of the criteria, or digests of their texts, each once
    questions  questions whose criteria are, one after another, those of the names; a question
               without criteria is about one name
    """

    component: str
    names: tuple[str, ...]
    questions: tuple[JudgeQuestion, ...] = field(default=(), compare=False, repr=False)

    @property
    def fault(self) -> str:
        names = shorten(", ".join(self.names), 200)
        return f"missing; add a grade from 0 to 1 for each of {names}, or set the option judge"

    def value(self, rollout: Rollout) -> dict[str, float] | None:
        """Return the grades by name, None if one is missing. Raises EvidenceError for others."""
        grades = rollout.verdict(self.component)
        if not isinstance(grades, dict) or not all(name in grades for name in self.names):
            return None
        return {name: _grade(grades[name], f"{self.path}.{name}") for name in self.names}

    def combine(self, results: Sequence[Any]) -> Any:
        """Return the grades by name, or the first error."""
        results = _checked(self.questions, results)
        for each in results:
            if isinstance(each, BaseException):
                return each
        grades = [g for each in results for g in (each if isinstance(each, tuple) else (each,))]
        return dict(zip(self.names, grades, strict=True))


def _checked(questions: Sequence[JudgeQuestion], results: Sequence[Any]) -> list[Any]:
    """Return the verdicts on questions, an error in place of one that is not of their form."""
    checked = [tuple(each) if isinstance(each, list) else each for each in results]
    for i, (question, result) in enumerate(zip(questions, checked, strict=True)):
        if not isinstance(result, BaseException):
            try:
                question.check(result)
            except BackendError as error:
                checked[i] = error
    return checked


def _grade(value: Any, path: str) -> float:
    if isinstance(value, (int, float)) and 0 <= value <= 1:
        return value
    raise EvidenceError(f"a grade must be a number from 0 to 1, found {value!r}", path)


@dataclass(frozen=True)
class GroupGradesNeed(_JudgeNeed):
    """The grade of a response among those of its group, 0 to 1.

    The requests contain all responses of the group, so the gatherer makes them: `GroupGrades` of
    the members' needs. The evidence counts only if its digest is that of the group.

    component  key of the verdicts
    question   question about the response, with its text as the only one of `responses`
    orders     number of orders in which the responses are shown
    """

    fault = (
        "missing, of a group with other responses, or in fewer orders; add `grade`, `orders` and "
        "`group` of a run with a judge, or set the option judge"
    )
    component: str
    question: JudgeQuestion
    orders: int = 1

    @property
    def questions(self) -> tuple[JudgeQuestion, ...]:  # type: ignore[override]
        """The question about the response alone, as an example of those about its group."""
        return (self.question,)

    def value(self, rollout: Rollout) -> dict[str, Any] | None:
        """Return the grade, None if it has no group. The members show whether it is theirs."""
        verdict = rollout.verdict(self.component)
        return verdict if isinstance(verdict, dict) and "group" in verdict else None


def distinct_needs(needs: Iterable[Need]) -> list[Need]:
    """Return needs, each once.

    Raises UsageError for grades of one name that are the answers to different questions.
    """
    distinct: dict[Need, Need] = {}
    names: dict[str, Need] = {}
    for need in needs:
        distinct.setdefault(need, need)
        if isinstance(need, (GradesNeed, GroupGradesNeed)):
            first = names.setdefault(need.component, need)
            if first is not need and (first != need or first.requests != need.requests):
                raise UsageError(
                    f"two rewards are named {need.component!r}: give each its own name, because "
                    "their grades are those of different questions"
                )
    return list(distinct)


class GroupGrades:
    """The questions about a group, and the grades of its members.

    needs  the needs of the members of one group

    Equal texts are shown and judged once. The order of the texts follows from their digests and
    from the other texts, so that it is the same wherever a response stands in the group; every
    second order is the reverse of the one before. Only documents of all members are shown.
    """

    def __init__(self, needs: Sequence[GroupGradesNeed]) -> None:
        first = needs[0]
        self.component = first.component
        self.texts = sorted({need.question.responses[0] for need in needs})
        question = min(
            (need.question for need in needs), key=lambda each: json.dumps(astuple(each))
        )
        shared = set(question.documents).intersection(*(each.question.documents for each in needs))
        documents = tuple(each for each in question.documents if each in shared)
        self._question = replace(question, documents=documents, responses=tuple(self.texts))
        self.digest = text_digest(json.dumps(astuple(self._question)))
        self._shown = [self._order(number) for number in range(first.orders)]

    def _order(self, number: int) -> tuple[str, ...]:
        salt = f"{self.digest} {number // 2} "
        is_reverse = number % 2 == 1
        return tuple(sorted(self.texts, key=lambda t: text_digest(salt + t), reverse=is_reverse))

    @property
    def questions(self) -> list[JudgeQuestion]:
        """One question for each order of the responses."""
        return [replace(self._question, responses=texts) for texts in self._shown]

    def verdicts(self, results: Sequence[Any]) -> Any:
        """Return the verdict by text from the answers to the questions, or the first error."""
        grades: dict[str, list[float]] = {text: [] for text in self.texts}
        for texts, each in zip(self._shown, _checked(self.questions, results), strict=True):
            if isinstance(each, BaseException):
                return each
            for text, grade in zip(texts, each, strict=True):
                grades[text].append(float(grade))
        return {
            text: {"grade": math.fsum(own) / len(own), "orders": tuple(own), "group": self.digest}
            for text, own in grades.items()
        }

    def _evidence(self, rollout: Rollout) -> tuple[Any, Sequence[Any]] | None:
        """Return the grade and those in each order, None for another group or fewer orders."""
        verdict = rollout.verdict(self.component)
        if not isinstance(verdict, dict) or verdict.get("group") != self.digest:
            return None
        orders = verdict.get("orders")
        if not isinstance(orders, (tuple, list)) or len(orders) < len(self._shown):
            return None
        return verdict.get("grade"), orders

    def is_stored(self, rollout: Rollout) -> bool:
        """Return whether the evidence of a member is of this group, in at least these orders."""
        return self._evidence(rollout) is not None

    def grade(self, rollout: Rollout) -> tuple[float, float] | None:
        """Return the grade and the spread between orders, None if the rollout has none.

        Evidence of another group is none. Raises EvidenceError for a grade out of range.
        """
        evidence = self._evidence(rollout)
        if evidence is None:
            return None
        grade = _grade(evidence[0], f"verdicts.{self.component}.grade")
        grades = self.stored_orders(rollout)
        return grade, max(grades) - min(grades)

    def stored_orders(self, rollout: Rollout) -> list[float]:
        """Return the grades in the orders of the evidence, none for that of another group."""
        _, orders = self._evidence(rollout) or (None, ())
        path = f"verdicts.{self.component}.orders"
        return [_grade(each, f"{path}[{i}]") for i, each in enumerate(orders)]

    def positions(self, number: int) -> dict[str, int]:
        """Return the position of each text in the order of this number, from 0."""
        return {text: position for position, text in enumerate(self._order(number))}


def text_digest(text: str) -> str:
    """Return a digest of a text, 16 hexadecimal digits."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(frozen=True)
class EntitiesNeed(Need):
    """The names that a response states for these placeholders, or its claims."""

    model_kind = "judge"
    field_name = "entities"
    method = "entities"
    no_method = NO_ENTITIES
    placeholders: tuple[str, ...]
    question: EntityQuestion | None = field(default=None, compare=False, repr=False)

    @property
    def fault(self) -> str:
        names = ", ".join(self.placeholders)
        is_of_claims = self.question is not None and self.question.kind == "claims"
        what = "a claim of the response" if is_of_claims else "the name that the response states"
        return f"missing; add {what} for each of {names}, or null, or set the option judge"

    def value(self, rollout: Rollout) -> Mapping[str, str | None] | None:
        has_all = all(each in (rollout.entities or {}) for each in self.placeholders)
        return rollout.entities if has_all else None

    @property
    def requests(self) -> tuple[EntityQuestion, ...]:
        return () if self.question is None else (self.question,)

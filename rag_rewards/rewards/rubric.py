"""Rubrics: criteria with weights that a judge or a rule checks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import pstdev
from typing import Annotated, Any, Literal

from rag_rewards.errors import DataError, SettingError
from rag_rewards.evidence.judge_needs import GradesNeed, text_digest
from rag_rewards.evidence.needs import Need
from rag_rewards.evidence.protocols import Grade, JudgeQuestion
from rag_rewards.groups import Groups, Scope, groups_of
from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.correctness import references_of
from rag_rewards.rewards.format import has_word
from rag_rewards.rollout import Criterion, Rollout, Score, canonical
from rag_rewards.settings import about, check_choices
from rag_rewards.text.citations import CITATION, cited_labels, compiled
from rag_rewards.text.hidden import shown
from rag_rewards.text.lengths import words
from rag_rewards.text.normalize import lower
from rag_rewards.turns.trajectory import READING, Reading

MAX_CRITERIA = 100
"""Maximum number of criteria of a rubric."""
_MARKER = compiled(CITATION)
Reads = Literal["visible", "shown", "answer", "response", "turns"]
READS = (
    "text that is graded; visible: the response without its thinking; shown: this without hidden "
    "text, such as comments; answer: the answer section of the last turn without hidden text; "
    "response: all of it; turns: the words and the results of all turns",
    "ours: what a reader sees",
)
"""The description and the source of the setting `reads`."""


def graded_text(rollout: Rollout, reads: Reads, reading: Reading = READING) -> str:
    """Return the text of a rollout that a judge grades, see `READS`."""
    if reads == "response":
        return rollout.parsed.text
    if reads == "turns":
        turns = rollout.trajectory(reading).turns
        parts = ((turn.text, *(each.premise for each in turn.results or ())) for turn in turns)
        return "\n".join(text for texts in parts for text in texts)
    if reads == "answer":
        return shown(rollout.trajectory(reading).answer or "")
    text = rollout.parsed.visible
    return shown(text) if reads == "shown" else text


def rubric_value(grades: Sequence[float], weights: Sequence[float], *, clip: bool = True) -> float:
    """Return Σ w_i·s_i / Σ_{w_i > 0} w_i, clipped to [0, 1].

    grades   s_i, 0 to 1
    weights  w_i; a negative weight is for a fault
    clip     whether the value is clipped; without it, the maximum is 1

    Raises ValueError without a positive weight. Source: HealthBench, arXiv 2505.08775, section 3.

    >>> rubric_value([1, 0.5, 1], [2, 2, -1])
    0.5
    """
    scale = math.fsum(weight for weight in weights if weight > 0)
    if not scale:
        raise ValueError("a rubric requires a positive weight")
    value = math.fsum(w * s for w, s in zip(weights, grades, strict=True)) / scale
    return min(max(value, 0.0), 1.0) if clip else value


def rule_of(criterion: Criterion) -> str:
    """Return the name of the rule that checks a criterion, "" if a judge checks it."""
    return next(iter(_rules(criterion)), "")


def _rules(criterion: Criterion) -> list[str]:
    names = ("contains", "max_words", "cites")
    return [name for name in names if getattr(criterion, name) is not None]


def _texts(alternatives: str | tuple[str, ...]) -> tuple[str, ...]:
    return (alternatives,) if isinstance(alternatives, str) else alternatives


def checked_by_rule(criterion: Criterion, text: str, rollout: Rollout) -> float:
    """Return 1 if a text meets a criterion with a rule, else 0.

    contains   the text contains one of these texts, without regard to case
    max_words  the text has at most this number of words, and at least one
    cites      the text cites each of these documents, by label or id
    """
    if criterion.contains is not None:
        text = lower(text)
        return float(any(lower(each) in text for each in _texts(criterion.contains)))
    if criterion.max_words is not None:
        return float(0 < words(text) <= criterion.max_words)
    cited = cited_labels(text, _MARKER, len(rollout.labels))
    labels = {rollout.label_of(each) or canonical(each) for each in criterion.cites or ()}
    return float(labels <= set(cited))


@dataclass(frozen=True)
@check_choices
class ValidCitation(RolloutReward):
    """1 if a response cites at least one document of its row, else 0.

    >>> rows = [Rollout(response=f"Paris [{n}].", documents=["Paris is …"]) for n in (1, 2)]
    >>> [score.value for score in ValidCitation()(rows)]
    [1.0, 0.0]
    """

    reads: Reads = "visible"
    name: str = "cited"
    scope: Literal["rollout"] = "rollout"

    def score(self, rollout: Rollout) -> Score:
        cited = cited_labels(graded_text(rollout, self.reads), _MARKER, len(rollout.labels))
        return Score(float(not set(cited).isdisjoint(rollout.labels)))


@dataclass(frozen=True)
@check_choices
class Rubric(RolloutReward):
    """The weighted mean of the grades of a response by the criteria of a rubric.

    criteria  criteria of all rows; empty for those of the field `rubric` of each row
    reading   how turns are read, for a recipe that reads turns

    The value is that of `rubric_value`. A criterion with a rule is checked by it, the others by a
    judge, several in one call. A response without a word gets 0 without a judge. With `criteria`,
    each grade is also a component, by the name of its criterion.

    Raises DataError for a row without a valid rubric or without its grades. Sources: HealthBench
    (arXiv 2505.08775) and Rubrics as Rewards (arXiv 2507.17746), explicit aggregation.
    """

    criteria: Annotated[
        tuple[Criterion, ...],
        about(
            "criteria of all rows, each with criterion, weight (default 1), name, and perhaps a "
            "rule: contains, max_words or cites; empty: those of the row",
            "ours",
        ),
    ] = ()
    best: Annotated[
        int,
        about(
            "best grade of a criterion; grades are whole numbers from 0; 1: met or not",
            "HealthBench: met or not",
            ge=1,
            le=100,
        ),
    ] = 1
    criteria_per_call: Annotated[
        int, about("number of criteria in one call of the judge", "ours", ge=1, le=50)
    ] = 8
    clip: Annotated[bool, about("clip the value to [0, 1]", "HealthBench, section 3")] = True
    documents: Annotated[
        bool, about("show the documents of the row to the judge", "ours: criteria can need them")
    ] = True
    gold: Annotated[bool, about("show the gold answers of the row to the judge", "ours")] = False
    reads: Annotated[Reads, about(*READS)] = "visible"
    reading: Reading | None = None
    name: str = "rubric"
    scope: Literal["rollout"] = "rollout"

    def __post_init__(self) -> None:
        if self.criteria and (fault := _fault(self.criteria)):
            raise SettingError(f"criteria: {fault}")
        if self.name in self.criterion_names:
            raise SettingError(f"criteria: the name {self.name!r} is that of the whole rubric")

    @property
    def criterion_names(self) -> tuple[str, ...]:
        """The names of the criteria of all rows."""
        return tuple(_name(each, i) for i, each in enumerate(self.criteria))

    def needs(self, rollout: Rollout) -> list[Need]:
        text, criteria = self._text(rollout), self.criteria_of(rollout)
        keys = self._keys(criteria)
        if not keys or not has_word(text):
            return []
        questions = self._questions(rollout, text, [criteria[name].criterion for name in keys])
        return [GradesNeed(self.name, tuple(keys.values()), tuple(questions))]

    def score(self, rollout: Rollout) -> Score:
        text, criteria = self._text(rollout), self.criteria_of(rollout)
        grades = self._grades(rollout, text, criteria)
        weights = [criteria[name].weight for name in grades]
        value = rubric_value(list(grades.values()), weights, clip=self.clip)
        components: dict[str, float | None] = {**grades} if self.criteria else {}
        return Score(value, components, None, {"criteria": grades})

    def _grades(
        self, rollout: Rollout, text: str, criteria: Mapping[str, Criterion]
    ) -> dict[str, float]:
        """Return the grade of each criterion by name."""
        if not has_word(text):
            return dict.fromkeys(criteria, 0.0)
        keys = self._keys(criteria)
        stored = GradesNeed(self.name, tuple(keys.values())).read(rollout) if keys else {}
        return {
            name: float(stored[keys[name]])
            if name in keys
            else checked_by_rule(each, text, rollout)
            for name, each in criteria.items()
        }

    def _text(self, rollout: Rollout) -> str:
        return graded_text(rollout, self.reads, self.reading or READING)

    def criteria_of(self, rollout: Rollout) -> dict[str, Criterion]:
        """Return the criteria by name. Raises DataError for an invalid rubric of a row."""
        criteria = self.criteria or rollout.rubric
        if not criteria:
            what = "missing" if criteria is None else "contains no criterion"
            raise DataError(f"{what}; list criteria, or set criteria for all rows", "rubric")
        if criteria is not self.criteria and (fault := _fault(criteria)):
            raise DataError(fault, "rubric")
        field = "criteria" if self.criteria else "rubric"
        for i, each in enumerate(criteria):
            _check_cites(each, rollout, f"{field}[{i}].cites")
        return {_name(each, i): each for i, each in enumerate(criteria)}

    def _keys(self, criteria: Mapping[str, Criterion]) -> dict[str, str]:
        """Return the key of the stored grade of each criterion that a judge checks, by name.

        That of a criterion without a name follows from its text and the best grade, so that a grade
        does not count for another criterion.
        """
        return {
            name: each.name or text_digest(f"{self.best} {each.criterion.strip()}")
            for name, each in criteria.items()
            if not rule_of(each)
        }

    def _questions(
        self, rollout: Rollout, text: str, criteria: Sequence[str]
    ) -> list[JudgeQuestion]:
        documents = rollout.documents or () if self.documents else ()
        return [
            JudgeQuestion(
                "criteria",
                rollout.question or "",
                text,
                references_of(rollout) if self.gold else (),
                tuple(document.premise for document in documents),
                rollout.query_time,
                form=Grade(0, self.best),
                criteria=tuple(criteria[start : start + self.criteria_per_call]),
            )
            for start in range(0, len(criteria), self.criteria_per_call)
        ]


@dataclass(frozen=True)
@check_choices
class EvolvingRubric:
    """The value of a rubric of whose adaptive criteria only those count that separate the group.

    rubric  grades of all criteria

    With `max_active=0`, the scores are those of the rubric. Otherwise, adaptive criteria without
    spread of the grades within the group are left out, and of the other adaptive ones the
    `max_active` with the greatest standard deviation remain. Criteria without `adaptive` always
    count. Without a positive weight among the criteria that count, the value is 0.
    The detail `active` has the names of the adaptive criteria that remain: keep these in the rows
    of the next step and add new ones.

    Raises DataError as `Rubric`. Source: DR Tulu, released code at 6188f34, grpo_fast.py.
    """

    rubric: Rubric
    max_active: Annotated[
        int,
        about(
            "0: all criteria count; n: of the criteria with adaptive, only those n with the "
            "greatest spread within the group, and none without spread",
            "ours: 0; DR Tulu, released code at 6188f34, train_dr_tulu.sh: 5",
            key="active",
            ge=0,
            le=MAX_CRITERIA,
        ),
    ] = 0
    name: str = "rubric"

    @property
    def scope(self) -> Scope:
        """`group` if criteria are left out, else `rollout`."""
        return "group" if self.max_active else "rollout"

    @property
    def reads(self) -> Reads:
        """The text that the rubric grades."""
        return self.rubric.reads

    def needs(self, rollout: Rollout) -> list[Need]:
        return self.rubric.needs(rollout)

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        return self.score_each(rollouts, groups_of(rollouts))

    def score_each(self, rollouts: Sequence[Rollout], groups: Groups) -> list[Score]:
        """Return the scores. `groups` are the positions of members."""
        scores = self.rubric(rollouts)
        for group in groups if self.max_active else ():
            grades = [scores[i].details["criteria"] for i in group]
            active = active_criteria(self._adaptive(rollouts[group[0]]), grades, self.max_active)
            for i in group:
                scores[i] = self._score(rollouts[i], scores[i], active)
        return scores

    def _adaptive(self, rollout: Rollout) -> list[str]:
        return [name for name, each in self.rubric.criteria_of(rollout).items() if each.adaptive]

    def _score(self, rollout: Rollout, score: Score, active: Sequence[str]) -> Score:
        grades = score.details["criteria"]
        criteria = self.rubric.criteria_of(rollout)
        counted = [name for name, each in criteria.items() if not each.adaptive or name in active]
        weights = [criteria[name].weight for name in counted]
        value = 0.0
        if any(weight > 0 for weight in weights):
            value = rubric_value([grades[n] for n in counted], weights, clip=self.rubric.clip)
        details = {**score.details, "active": list(active)}
        return Score(value, score.components, None, details)


def active_criteria(
    names: Sequence[str], grades: Sequence[Mapping[str, float]], max_active: int = 5
) -> list[str]:
    """Return the names whose grades differ within a group, at most those of the greatest spread.

    names   names of criteria, in order
    grades  grades by name of each response of the group

    The spread is the population standard deviation; of equal ones, the first counts.

    >>> active_criteria(["a", "b", "c"], [{"a": 1, "b": 0, "c": 0}, {"a": 1, "b": 1, "c": 0.5}], 1)
    ['b']
    """
    spread = {
        name: pstdev([float(each[name]) for each in grades if name in each] or [0.0])
        for name in names
    }
    greatest = sorted((n for n in names if spread[n] > 0), key=lambda n: -spread[n])[:max_active]
    return [name for name in names if name in greatest]


def _name(criterion: Criterion, position: int) -> str:
    """Return the name of a criterion, its number if it has none."""
    return criterion.name or str(position + 1)


def _is_empty(rule: str | int | tuple[str | int, ...]) -> bool:
    """Return whether a rule requires nothing, or one of its texts is blank."""
    if isinstance(rule, (tuple, list)):
        return not rule or any(isinstance(each, str) and not each.strip() for each in rule)
    return not (rule.strip() if isinstance(rule, str) else rule)


def _check_cites(criterion: Criterion, rollout: Rollout, path: str) -> None:
    """Raise DataError for a document that a row does not have. Searches can miss a document."""
    if criterion.cites is None or rollout.has_results_as_documents:
        return
    for each in criterion.cites:
        if rollout.label_of(each) is None:
            documents = ", ".join(rollout.labels)
            raise DataError(f"document {each!r} does not exist (documents: {documents})", path)


def _fault(criteria: Sequence[Criterion]) -> str:
    """Return what is wrong with a rubric, or ""."""
    if len(criteria) > MAX_CRITERIA:
        return f"has {len(criteria)} criteria, at most {MAX_CRITERIA} are allowed"
    for i, each in enumerate(criteria):
        rules = _rules(each)
        if not rules and not each.criterion.strip():
            return f"criterion {i + 1} has no text: write what a response must do"
        if len(rules) > 1:
            return f"criterion {i + 1} has the rules {' and '.join(rules)}: choose one"
        if rules and _is_empty(getattr(each, rules[0])):
            return f"criterion {i + 1} has an empty rule {rules[0]}: complete it, or remove it"
        if each.max_words is not None and each.max_words < 0:
            return f"max_words of criterion {i + 1} must be 1 or more, found {each.max_words}"
        if each.weight and not 1e-6 <= abs(each.weight) <= 1e6:
            return f"the weight of criterion {i + 1} must be 0 or of a size from 1e-6 to 1e6"
    names: Any = Counter(_name(each, i) for i, each in enumerate(criteria))
    if repeated := [name for name, count in names.items() if count > 1]:
        return f"several criteria have the name {repeated[0]!r}: give each another name"
    texts = Counter(each.criterion.strip() for each in criteria if not rule_of(each))
    if repeated := [text for text, count in texts.items() if count > 1]:
        return f"the criterion {repeated[0][:60]!r} is repeated: remove it, or change its weight"
    if not any(each.weight > 0 for each in criteria):
        return "no criterion has a positive weight, so that no response could earn a reward"
    return ""

"""Grades of a judge that compares the responses of a group in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from rag_rewards.errors import RolloutError
from rag_rewards.evidence.judge_needs import GroupGrades, GroupGradesNeed
from rag_rewards.evidence.needs import Need
from rag_rewards.evidence.protocols import Grade, JudgeQuestion
from rag_rewards.groups import Groups, groups_of
from rag_rewards.rewards.correctness import references_of
from rag_rewards.rewards.format import has_word
from rag_rewards.rewards.rubric import READS, Reads, graded_text
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import about, check_choices

MAX_ORDERS = 16
"""Maximum number of orders in which a judge sees a group."""


@dataclass(frozen=True)
@check_choices
class GroupJudge:
    """The grade, 0 to 1, that a judge gives a response when it sees the whole group.

    The responses have numbers in place of names, in an order that follows from their digests.
    Lines with which all of them begin are shown once. Equal texts are shown and graded once. A
    text without a word gets 0 and is not shown. A single response is graded alone in the same form.

    The detail `spread` is the greatest difference of the grades in several orders.

    Raises DataError for a rollout without a grade of this group. Source: OpenPipe ART, RULER.
    """

    best: Annotated[
        int,
        about(
            "best grade; grades are whole numbers from 0, divided by this one",
            "OpenPipe ART, ruler.py: a score from 0 to 1",
            ge=1,
            le=1000,
        ),
    ] = 100
    orders: Annotated[
        int,
        about(
            "number of calls with other orders of the responses, whose mean counts",
            "ART: 1",
            ge=1,
            le=MAX_ORDERS,
        ),
    ] = 1
    documents: Annotated[
        bool,
        about(
            "show the documents of the row to the judge, but not results of searches, which differ "
            "within a group",
            "ours: responses cite them",
        ),
    ] = True
    gold: Annotated[bool, about("show the gold answers of the row to the judge", "ours")] = False
    reads: Annotated[Reads, about(*READS)] = "visible"
    name: str = "group"
    scope: Literal["group"] = "group"

    def needs(self, rollout: Rollout) -> list[Need]:
        need = self._need(rollout)
        return [] if need is None else [need]

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        scores = self.score_each(rollouts, groups_of(rollouts))
        for score in scores:
            if isinstance(score, RolloutError):
                raise score
        return [score for score in scores if isinstance(score, Score)]

    def score_each(self, rollouts: Sequence[Rollout], groups: Groups) -> list[Score | RolloutError]:
        """Return the score or the error of each rollout. `groups` are the positions of members."""
        scores: dict[int, Score | RolloutError] = {}
        for group in groups:
            needs = {i: need for i in group if (need := self._need(rollouts[i])) is not None}
            grades = GroupGrades(list(needs.values())) if needs else None
            for i in group:
                if grades is None or i not in needs:
                    scores[i] = Score(0.0)
                    continue
                try:
                    grade = grades.grade(rollouts[i])
                except RolloutError as error:
                    scores[i] = error
                    continue
                if grade is None:
                    scores[i] = needs[i].unmet()
                else:
                    value, spread = grade
                    scores[i] = Score(value, details={"spread": spread} if spread else {})
        return [scores[i] for i in range(len(rollouts))]

    def _need(self, rollout: Rollout) -> GroupGradesNeed | None:
        """Return the need of a rollout, None for a response without a word."""
        text = graded_text(rollout, self.reads)
        if not has_word(text):
            return None
        shows = self.documents and not rollout.has_results_as_documents
        documents = rollout.documents or () if shows else ()
        question = JudgeQuestion(
            "group",
            rollout.question or "",
            "",
            references_of(rollout) if self.gold else (),
            tuple(document.premise for document in documents),
            rollout.query_time,
            form=Grade(0, self.best),
            responses=(text,),
        )
        return GroupGradesNeed(self.name, question, self.orders)

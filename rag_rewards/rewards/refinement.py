"""Refinement: whether the notes of a search agent on its results contain the gold answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.search import Match, Retrieval
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.hidden import shown
from rag_rewards.text.sections import contents
from rag_rewards.turns.dialects import ANSWER
from rag_rewards.turns.trajectory import READING, Reading, Trajectory

CODE = "AutoRefine, released code at 8363788: qa_em.py"


def refined_reward(outcome: float, refined: float, *, weight: float = 0.1) -> float:
    """Return o if o > 0, else w·g, for the outcome o and refined g between 0 and 1; weight is w.

    Source: AutoRefine, released code at 8363788: qa_em.py.

    >>> refined_reward(0.4, 1), refined_reward(0, 1), refined_reward(0, 0)
    (0.4, 0.1, 0.0)
    """
    return outcome if outcome > 0 else weight * refined


def refinement(run: Trajectory, *, shown_only: bool = False) -> str:
    """Return the sections <refine> in the words of the policy, joined by a space.

    shown_only  leave out sections in hidden text and after an opening tag <answer>

    >>> from rag_rewards.turns.trajectory import read_trajectory
    >>> refinement(read_trajectory("<refine>a</refine> b <refine>c</refine><refine>d"))
    'a c'
    """
    texts = [turn.text for turn in run.turns]
    if shown_only:
        texts = [_outside_of_answers(shown(text)) for text in texts]
    return " ".join(part for text in texts for part in contents(text, "refine"))


def _outside_of_answers(text: str) -> str:
    opening, closing = ANSWER
    before, *rest = text.split(opening)
    return before + "".join(part.partition(closing)[2] for part in rest)


@dataclass(frozen=True)
@check_choices
class Refinement(RolloutReward):
    """1 if there is an answer and the sections <refine> contain every required answer, else 0.

    The answer itself can be wrong. Source: AutoRefine, released code at 8363788: qa_em.py.

    answer   its normalizer is that of the comparison
    reading  how the turns are read
    weight   the weight of the value in `refined_reward`
    """

    answer: AnswerMatch = AnswerMatch("outcome")
    reading: Reading = READING
    weight: Annotated[
        float,
        about(
            "reward of a wrong answer if <refine> contains the gold answer",
            "AutoRefine, released code at 8363788: train.sh",
            ge=0,
            le=1,
        ),
    ] = 0.1
    match: Annotated[
        Match,
        about(
            "how a gold answer is found in <refine>; substring: also inside a word; words: as "
            "whole words",
            CODE,
        ),
    ] = "substring"
    from_results: Annotated[
        bool,
        about(
            "<refine> counts only if the results of a search contain the gold answer, too, if it "
            "is visible and outside of the answer, and if the answer has a letter or digit",
            "ours: off, as published",
        ),
    ] = False
    name: str = "refined"
    scope: Literal["rollout"] = "rollout"

    def score(self, rollout: Rollout) -> Score:
        run = rollout.trajectory(self.reading)
        retrieval = Retrieval(self.match, self.answer.correctness.forms)
        if run.answer is None or (self.from_results and not any(map(str.isalnum, run.answer))):
            return Score(0.0)
        text = refinement(run, shown_only=self.from_results)
        value = retrieval.contain([text] if text else [], rollout.gold)
        return Score(value * retrieval(rollout, run) if value and self.from_results else value)

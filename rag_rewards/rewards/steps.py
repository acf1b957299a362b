"""Steps of a search agent: their form, and whether each searched where it had to (HiPRAG)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from rag_rewards.errors import EvidenceError
from rag_rewards.evidence.judge_needs import VerdictNeed
from rag_rewards.evidence.needs import GeneratedAnswerNeed, Need
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.reward import RolloutReward
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.generated_answer import final_answer
from rag_rewards.rewards.search import (
    REPEATED_ANSWER,
    RepeatedAnswer,
    answer_of,
    details_of,
    format_reward,
)
from rag_rewards.rollout import Rollout, Score
from rag_rewards.settings import about, check_choices
from rag_rewards.text.normalize import squad
from rag_rewards.turns.dialects import SEARCH, TOOLS
from rag_rewards.turns.order import closed_words
from rag_rewards.turns.trajectory import READING, Reading, Trajectory

_CODE = "HiPRAG, released code at 3e64036: qa_em_format.py"
_ANSWER_TOKENS = 256
"""The number of tokens of the generator's answer to a query."""
_NO_ANSWER = "The model gave no answer."

SEARCHED_TASK = """\
You check whether a search was needed. An agent wrote the query in the question, read the results \
and wrote the response as its conclusion. You decide whether it could have known the conclusion.

How to decide:
- First answer the query from your own general knowledge, without the conclusion.
- Score 0 if your answer and the conclusion state the same: the search was not needed.
- Score 1 if you do not know the answer, or if the conclusion states something else."""
COMPARED_TASK = """\
You check whether a search was needed. An agent searched with the query in the question and wrote \
the response as its conclusion. The accepted answer is what its model answers without a search.

How to decide:
- Compare the two, not with what you know: the accepted answer can be wrong.
- Score 0 if both state the same in substance: the search was not needed.
- Score 1 if they state something else, or if the accepted answer leaves the query open."""
UNSEARCHED_TASK = """\
You check one step of an agent that reasoned without a search. You get its reasoning and its \
conclusion, and you decide whether it should have searched.

How to decide:
- Score 1 if every fact in them is right, as far as you know, and the conclusion follows from the \
reasoning.
- Score 0 if a fact is wrong, if you are not sure of it, or if the conclusion does not follow."""

_TAG = re.compile(
    r"</?(?:think|step|reasoning|search|information|context|result|conclusion|answer)>"
    r"|<\|(?:begin|end)_of_documents\|>"
)
_LETTERS = {"think": "t", "step": "s", "reasoning": "r", "search": "q", "conclusion": "c"}
_LETTERS["answer"] = "a"  # a closing tag has a small letter; `w` are words, `x` is another tag
_FORM = re.compile("w?T?w?(?:Sw?Rwrw?(?:Qwqw?)?Cwcw?sw?)+tAwa")


class Step(NamedTuple):
    """A step of the thinking. `query` is None for a step without a search."""

    reasoning: str
    query: str | None
    conclusion: str


def read_steps(run: Trajectory, max_steps: int = 32) -> tuple[Step, ...]:
    """Return the steps of a rollout, () if its form is not complete.

    The words of the policy are one thinking section of steps and then an answer. A step has
    reasoning, a query if it searches, and a conclusion, none of them empty. The environment must
    have returned results to each query. A query has the tags of the dialect; in tool calls, a call
    is the query.

    >>> from rag_rewards.turns.trajectory import read_trajectory
    >>> step = "<step><reasoning>a</reasoning><conclusion>b</conclusion></step>"
    >>> read_steps(read_trajectory(f"<think>{step}</think><answer>c</answer>"))
    (Step(reasoning='a', query=None, conclusion='b'),)
    """
    text = "".join(_words(run))
    if not _FORM.fullmatch(_order(text)):
        return ()
    steps = tuple(_step(part) for part in text.split("<step>")[1:])
    searches = sum(each.query is not None for each in steps)
    return steps if len(steps) <= max_steps and searches == run.searches else ()


def _words(run: Trajectory) -> Iterator[str]:
    for turn in run.turns:
        words = closed_words(turn, run.dialect)
        opening, closing = run.dialect.query or SEARCH
        yield words.replace(opening, SEARCH[0]).replace(closing, SEARCH[1])
        if run.dialect is TOOLS and turn.queries:
            yield f"<search>{'; '.join(turn.queries)}</search>"


def _order(text: str) -> str:
    """Return the tags of a text, and the words between them, as letters."""
    letters, at = [], 0
    for tag in _TAG.finditer(text):
        letters.append("w" if text[at : tag.start()].strip() else "")
        letter = _LETTERS.get(tag[0].strip("</>"), "x")
        letters.append(letter if tag[0][1] == "/" else letter.upper())
        at = tag.end()
    return "".join(letters) + ("w" if text[at:].strip() else "")


def _step(text: str) -> Step:
    def content(name: str) -> str:
        return text.partition(f"<{name}>")[2].partition(f"</{name}>")[0].strip()

    return Step(content("reasoning"), content("search") or None, content("conclusion"))


def step_reward(
    outcome: float, form: float, good: float, *, structure: float = 0.2, process: float = 0.4
) -> float:
    """Return o·(1 − (1 − f)·w_s) + (1 − o)·f·w_s + w_p·o·f·g.

    outcome o, form f and share of good steps g are between 0 and 1; structure is w_s and process
    is w_p. Range 0 to 1 + w_p. Source: HiPRAG, released code at 3e64036, qa_em_format.py.

    >>> step_reward(1, 1, 0.5), step_reward(1, 0, 1), step_reward(0, 1, 1)
    (1.2, 0.8, 0.2)
    """
    base = format_reward(outcome, form, 0, 0, structure=structure, answer=0)
    return base + process * outcome * form * good


@dataclass(frozen=True)
@check_choices
class StepComponents(RolloutReward):
    """The components of HiPRAG's reward. The value is the outcome.

    outcome  comparison of the answer with the gold answers
    format   1 if the form of the steps and of the answer is complete, else 0
    steps    share of the steps whose verdict is 1, of a right answer in a complete form

    A judge decides on step i in the verdict `step:i`: 1 if a search was needed or, without a
    search, if none was. The steps of other rollouts are not judged.
    """

    answer: AnswerMatch = AnswerMatch("outcome", metric="substring")
    distinct: Annotated[
        bool,
        about(
            "a step whose conclusion repeats that of an earlier step is not good",
            "ours: false, as published",
            key="distinct_steps",
        ),
    ] = False
    unaided_by: Annotated[
        Literal["judge", "generator"],
        about(
            "who answers the query of a step without a search; judge: the judge itself; generator: "
            "the generator or the policy, and the judge compares its answer with the conclusion",
            f"{_CODE}: generator; ours: judge, which needs no other model",
            key="unaided.by",
        ),
    ] = "judge"
    max_steps: Annotated[
        int,
        about(
            "number of steps that a response may have; a longer one has no complete form",
            "ours: the released code judges every step",
            ge=1,
            le=1000,
        ),
    ] = 32
    repeated: Annotated[RepeatedAnswer, about(*REPEATED_ANSWER, key="repeated_answer")] = "last"
    reading: Reading = READING
    name: str = "step_parts"
    scope: Literal["rollout"] = "rollout"

    def needs(self, rollout: Rollout) -> list[Need]:
        run = rollout.trajectory(self.reading)
        if not self._outcome(rollout, run)[0]:
            return []
        steps = read_steps(run, self.max_steps)
        needs = (self._step_needs(rollout, i, steps[i]) for i in self._judged(steps))
        return [need for own in needs for need in own]

    def _step_needs(self, rollout: Rollout, i: int, step: Step) -> list[Need]:
        """Return the verdict on a step, and before it the answer of the generator that it reads."""
        verdict = VerdictNeed(_component(i), (_question(rollout, step),))
        if self.unaided_by == "judge" or step.query is None or verdict.is_met(rollout):
            return [verdict]
        message = ("user", f"Answer the question, or say what you know about it: {step.query}")
        answer = GeneratedAnswerNeed(_component(i), (message,), 1.0, _ANSWER_TOKENS)
        if not answer.is_met(rollout):
            return [answer]
        output = answer.read(rollout)
        text = final_answer(output).strip()
        if not text and "<think>" in output:
            raise EvidenceError(
                "the answer of the generator ends in its thinking: use a generator that does not "
                f"think, or that needs at most {_ANSWER_TOKENS} tokens",
                answer.path,
            )
        gold = (text or _NO_ANSWER,)
        question = JudgeQuestion(
            "searched_step", step.query, step.conclusion, gold, task=COMPARED_TASK
        )
        return [answer, VerdictNeed(_component(i), (question,))]

    def _outcome(self, rollout: Rollout, run: Trajectory) -> tuple[float, dict[str, Any]]:
        text = answer_of(run, self.repeated)
        return self.answer.correctness.decided_value(rollout, text)

    def _judged(self, steps: Sequence[Step]) -> list[int]:
        """Return the positions of the steps on which a judge decides."""
        if not self.distinct:
            return list(range(len(steps)))
        first = {squad(each.conclusion): i for i, each in reversed(list(enumerate(steps)))}
        return sorted(first.values())

    def score(self, rollout: Rollout) -> Score:
        run = rollout.trajectory(self.reading)
        outcome, decision = self._outcome(rollout, run)
        steps = read_steps(run, self.max_steps)
        share = None
        good: list[int] = []
        if outcome and steps:
            good = [i for i in self._judged(steps) if VerdictNeed(_component(i)).read(rollout)]
            share = len(good) / len(steps)
        components = {"outcome": outcome, "format": float(bool(steps)), "steps": share}
        read = [each._asdict() | {"good": i in good} for i, each in enumerate(steps)]
        text = answer_of(run, self.repeated)
        details = details_of(run, text, {}) | decision | {"steps": read}
        return Score(outcome, components, outcome, details)


def _component(i: int) -> str:
    """Return the key of the verdict on a step, counted from 1."""
    return f"step:{i + 1}"


def _question(rollout: Rollout, step: Step) -> JudgeQuestion:
    if step.query is not None:
        return JudgeQuestion("searched_step", step.query, step.conclusion, task=SEARCHED_TASK)
    text = f"Reasoning: {step.reasoning}\nConclusion: {step.conclusion}"
    question = rollout.question or ""
    return JudgeQuestion("unsearched_step", question, text, task=UNSEARCHED_TASK)

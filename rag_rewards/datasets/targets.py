"""Training sets of chats from questions and their rollouts: R-Tuning, RFT, DPO and SFT.

Each row is what supervised trainers read: `prompt` and `completion`, or `prompt`, `chosen` and
`rejected`. A question without what a set needs is a Problem, counted by its reason.
Sources: TruthRL, section 3 and appendix A (R-Tuning, RFT, DPO); ARENA, appendix D (SFT).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import msgspec

from rag_rewards.datasets.gold import Problem, generator
from rag_rewards.datasets.trials import Question, Sample, Trial
from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.prompts import fill, prompt_of
from rag_rewards.recipes import blueprint
from rag_rewards.text.refusal import ABSTENTIONS, REFUSAL

TrainingSet = Literal["r-tuning", "rft", "dpo", "sft"]
Style = Literal["direct", "reasoning"]
Text = str | list[dict[str, Any]]
"""A prompt or a completion: a chat, or text where the rows' prompts are text."""


class Form(NamedTuple):
    """How a recipe's output holds an answer, and how it abstains."""

    answer: str = "<answer>{answer}</answer>"
    abstention: str = ABSTENTIONS[0]


FORMS = {
    "truthrl": Form("\\boxed{{answer}}"),
    "ground-grpo": Form(abstention=REFUSAL),
    "ground-grpo-stage1": Form(abstention=REFUSAL),
}
"""By recipe, where it is not the usual one."""

CITING = frozenset(("ground-grpo", "ground-grpo-stage1"))
"""Recipes whose answers cite: a gold answer alone is no answer of theirs."""

DIRECT = (
    "Answer the question from the documents below. Reply with {shape} and nothing else: the answer "
    "is a word or a short phrase, unexplained.\n\nDocuments:\n\n{documents}\n\n"
    "Question: {question}"
)


@dataclass(frozen=True)
class Maker:
    """Makes one row of a training set from a question.

    `recipe` names the prompt and the output's form; without it the rows' signature does. What is
    drawn depends on the seed and the question alone.
    """

    kind: TrainingSet
    style: Style = "direct"
    recipe: str = ""
    seed: int = 0

    def __call__(self, question: Question) -> dict[str, Any] | Problem:
        make: Callable[[_Material], dict[str, Any] | Problem] = {
            "r-tuning": _r_tuning,
            "rft": _rft,
            "dpo": _dpo,
            "sft": _direct if self.style == "direct" else _reasoning,
        }[self.kind]
        rng = generator(self.seed, self.kind, question.name)
        try:
            return make(_Material(question, self._recipe_of(question), rng))
        except RolloutError as error:
            return Problem(f"{error.path}: {error.message}" if error.path else error.message)

    def _recipe_of(self, question: Question) -> str:
        row = question.rollout
        signed = row.signature if isinstance(row, Trial) and row.signature else ""
        name = self.recipe or "".join(signed.split(" ")[2:3])
        if not name:
            raise UsageError("which recipe's prompt and form? give --recipe NAME")
        return blueprint(name).name


@dataclass(frozen=True)
class _Material:
    """A question, and what can be made of it."""

    question: Question
    recipe: str
    rng: random.Random

    @property
    def form(self) -> Form:
        return FORMS.get(self.recipe, Form())

    @property
    def prompt(self) -> Text:
        """The row's own, else the recipe's."""
        row = self.question.rollout
        if row.prompt is not None:
            return row.prompt
        return list(prompt_of(self.recipe, row).messages(row))

    @property
    def direct_prompt(self) -> Text:
        """Question and documents, in the recipe's way, and the order to answer at once."""
        row = self.question.rollout
        shown = self.said("…")
        message = fill(DIRECT, shape=shown)
        return list(replace(prompt_of(self.recipe, row), message=message, system="").messages(row))

    def said(self, answer: str) -> str:
        return self.form.answer.replace("{answer}", answer)

    def answered(self, answer: str) -> Text:
        """The answer in the recipe's form, as the prompt asks for it: in a chat or as text."""
        return self.completion(self.said(answer))

    @property
    def gold(self) -> str:
        """Each required answer by its first alias, separated by commas."""
        return ", ".join(aliases[0] for aliases in self.question.rollout.gold)

    def completion(self, text: str) -> Text:
        if isinstance(self.question.rollout.prompt, str):
            return text
        return [{"role": "assistant", "content": text}]

    def trace(self, sample: Sample) -> Text:
        """A response as it was given, tool turns included."""
        response = sample.rollout.response
        if isinstance(response, str) or len(response) == 1:
            return self.completion(sample.rollout.parsed.text)
        return list(msgspec.json.decode(sample.line)["response"])

    def pick(self, fitting: Sequence[Sample], what: str) -> Sample | Problem:
        """One of those that ended by themselves."""
        if not fitting:
            return Problem(f"no {what}")
        whole = [sample for sample in fitting if sample.whole]
        if not whole:
            return Problem(f"no {what} that ended by itself")
        return self.rng.choice(whole)

    def one(self, keep: Callable[[Sample], bool | None], what: str) -> Sample | Problem:
        return self.pick([sample for sample in self.question.samples if keep(sample)], what)

    def row(self, **texts: Text) -> dict[str, Any]:
        return {"id": self.question.name, **texts}


def _unlabelled(material: _Material) -> Problem | None:
    if material.question.out_of_knowledge is None:
        return Problem("not known whether it is out of knowledge")
    return None


def _r_tuning(material: _Material) -> dict[str, Any] | Problem:
    """The gold answer; for a question out of knowledge an abstention (TruthRL, section 3)."""
    if problem := _unlabelled(material) or _unfit_gold(material):
        return problem
    unknown = material.question.out_of_knowledge
    answer = material.form.abstention if unknown else material.gold
    return material.row(prompt=material.prompt, completion=material.answered(answer))


def _rft(material: _Material) -> dict[str, Any] | Problem:
    """A right response; out of knowledge, one that abstains (TruthRL, section 3)."""
    if problem := _unlabelled(material):
        return problem
    if material.question.out_of_knowledge:
        picked = material.one(lambda sample: sample.refused, "response that abstains")
    else:
        picked = material.one(_right, "right response")
    if isinstance(picked, Problem):
        return picked
    return material.row(prompt=material.prompt, completion=material.trace(picked))


def _dpo(material: _Material) -> dict[str, Any] | Problem:
    """A right response over a wrong one; out of knowledge, an abstention over a wrong response
    (TruthRL, appendix A). The abstention is the policy's own where it made one."""
    if problem := _unlabelled(material):
        return problem
    rejected = material.one(lambda sample: sample.wrong, "wrong response")
    chosen: Text
    if material.question.out_of_knowledge:
        own = material.one(lambda sample: sample.refused, "response that abstains")
        made = material.answered(material.form.abstention)
        chosen = material.trace(own) if isinstance(own, Sample) else made
    else:
        right = material.one(_right, "right response")
        if isinstance(right, Problem):
            return right
        chosen = material.trace(right)
    if isinstance(rejected, Problem):
        return rejected
    return material.row(prompt=material.prompt, chosen=chosen, rejected=material.trace(rejected))


def _direct(material: _Material) -> dict[str, Any] | Problem:
    """The gold answer at once (ARENA, SFT-direct)."""
    if problem := _unfit_gold(material):
        return problem
    if not material.question.rollout.question:
        return Problem("no `question` in the row")
    said = [{"role": "assistant", "content": material.said(material.gold)}]
    return material.row(prompt=material.direct_prompt, completion=said)


def _reasoning(material: _Material) -> dict[str, Any] | Problem:
    """A right response in the recipe's whole form (ARENA, SFT-reasoning; its reasoning was
    written from the gold ids and the gold answer)."""
    picked = material.one(
        lambda sample: _right(sample) and sample.score.components.get("format", 1.0) == 1.0,
        "right response in the recipe's form",
    )
    if isinstance(picked, Problem):
        return picked
    return material.row(prompt=material.prompt, completion=material.trace(picked))


def _right(sample: Sample) -> bool | None:
    return sample.right


def _unfit_gold(material: _Material) -> Problem | None:
    if material.question.rollout.answer_kind == "claims":
        return Problem("gold claims are no answer")
    if material.recipe in CITING and not material.question.out_of_knowledge:
        return Problem("a gold answer does not cite, as this recipe's answers do")
    return None

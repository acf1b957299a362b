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
from rag_rewards.datasets.trials import Question, Sample
from rag_rewards.definition import Recipe
from rag_rewards.errors import OptionError, RolloutError
from rag_rewards.output_form import ANY_FORM, OutputForm
from rag_rewards.prompts import GROUNDED, Prompt, fill
from rag_rewards.recipes import RECIPES
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.signature import Signature

TrainingSet = Literal["r-tuning", "rft", "dpo", "sft"]
Style = Literal["direct", "reasoning"]
Text = str | list[dict[str, Any]]
"""A prompt or a completion: a chat, or text where the rows' prompts are text."""


DIRECT = (
    "Answer the question from the documents below. Reply with {shape} and nothing else: the answer "
    "is a word or a short phrase, unexplained.\n\nDocuments:\n\n{documents}\n\n"
    "Question: {question}"
)


@dataclass(frozen=True)
class Maker:
    """Makes one row of a training set from a question.

    `recipe` gives the prompt and the output form, by itself or by its name; without it, the recipe
    that a row's signature names does. The choice depends on the seed and the question only.
    """

    kind: TrainingSet
    style: Style = "direct"
    recipe: Recipe | str = ""
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
            return make(_Material(question, self._form_of(question), rng))
        except RolloutError as error:
            return Problem(f"{error.path}: {error.message}" if error.path else error.message)

    def _form_of(self, question: Question) -> _Form:
        """Return the form of the recipe, or of the recipe that the row's signature names."""
        if isinstance(self.recipe, Recipe):
            return _Form(self.recipe.prompt, self.recipe.output_form)
        name = self.recipe or _recipe_of_row(question.rollout)
        if name not in RECIPES:
            return _Form()
        return _Form(RECIPES[name].prompt, RECIPES[name].output)


def _recipe_of_row(row: Rollout) -> str:
    """Return the name of the recipe that scored a row."""
    signature = row.signature if isinstance(row, ScoredRow) else None
    stage = Signature.parse(signature).at(row.step) if signature else None
    if stage is None:
        raise OptionError("no recipe is given, whose prompt and form to use: set {recipe}")
    return stage.recipe


class _Form(NamedTuple):
    """How a recipe asks a question, and the form of a response to it."""

    prompt: Prompt = GROUNDED
    output: OutputForm = ANY_FORM


@dataclass(frozen=True)
class _Material:
    """A question, and what can be made of it."""

    question: Question
    form: _Form
    rng: random.Random

    @property
    def prompt(self) -> Text:
        """The row's own, else the recipe's."""
        row = self.question.rollout
        if row.prompt is not None:
            return row.prompt
        return list(self.form.prompt.messages(row))

    @property
    def direct_prompt(self) -> Text:
        """Question and documents, in the recipe's way, and the order to answer at once."""
        row = self.question.rollout
        message = fill(DIRECT, shape=self.form.output.write_answer("…"))
        return list(replace(self.form.prompt, message=message, system="").messages(row))

    def answered(self, answer: str) -> Text:
        """The answer in the recipe's output form, as text where the prompt is text."""
        return self.completion(self.form.output.write_answer(answer))

    def abstained(self) -> Text:
        """An abstention in the recipe's output form."""
        return self.completion(self.form.output.write_abstention())

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
    completion = material.abstained() if unknown else material.answered(material.gold)
    return material.row(prompt=material.prompt, completion=completion)


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
        chosen = material.trace(own) if isinstance(own, Sample) else material.abstained()
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
    answer = material.form.output.write_answer(material.gold)
    completion = [{"role": "assistant", "content": answer}]
    return material.row(prompt=material.direct_prompt, completion=completion)


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
    if material.form.output.cites and not material.question.out_of_knowledge:
        return Problem("a gold answer does not cite, as this recipe's answers do")
    return None

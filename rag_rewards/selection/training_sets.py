"""Training sets of chats from questions and their rollouts: R-Tuning, RFT, DPO, SFT, Trust-Align.

A row has the columns of supervised trainers: `prompt` and `completion`, or `prompt`, `chosen` and
`rejected`. A question that a training set cannot use is a Problem, which is counted by its reason.
Sources: TruthRL, section 3 and appendix A (R-Tuning, RFT, DPO); ARENA, appendix D (SFT).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from rag_rewards.datasets.gold import Problem, generator
from rag_rewards.errors import OptionError, RolloutError
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import RECIPES
from rag_rewards.rollout import Rollout
from rag_rewards.rows import ScoredRow
from rag_rewards.selection.questions import Question, ScoredRollout
from rag_rewards.selection.training_source import Form, TrainingSource
from rag_rewards.selection.trust_align import trust_dpo, trust_sft
from rag_rewards.settings import check_choices
from rag_rewards.signature import Signature

TrainingSetKind = Literal["r-tuning", "rft", "dpo", "sft", "trust-sft", "trust-dpo"]
Style = Literal["direct", "gold", "reasoning", "rationale"]


@dataclass(frozen=True)
@check_choices
class ChatMaker:
    """Make one row of a training set from a question.

    The prompt and the output form are those of `recipe`, a recipe or its name. Without it, they are
    those of the recipe in the signature of the row. Random choices depend only on the seed and the
    question.

    sections  with style=reasoning, the sections of the response to keep; () keeps the response
    prompt    with style=reasoning, the name of the prompt; None is the prompt of the row
    """

    kind: TrainingSetKind
    style: Style = "direct"
    recipe: Recipe | str = ""
    seed: int = 0
    sections: tuple[str, ...] = ()
    prompt: str | None = None

    def __call__(self, question: Question) -> dict[str, Any] | Problem:
        build: Callable[[TrainingSource], dict[str, Any] | Problem] = {
            "r-tuning": _r_tuning,
            "rft": _rft,
            "dpo": _dpo,
            "sft": {
                "direct": _direct,
                "gold": _gold,
                "reasoning": self._reasoning,
                "rationale": _rationale,
            }[self.style],
            "trust-sft": trust_sft,
            "trust-dpo": trust_dpo,
        }[self.kind]
        rng = generator(self.seed, self.kind, question.name)
        try:
            return build(TrainingSource(question, self._form_of(question), rng))
        except RolloutError as error:
            return Problem(f"{error.path}: {error.message}" if error.path else error.message)

    def _reasoning(self, source: TrainingSource) -> dict[str, Any] | Problem:
        """A right response of the policy in the complete output form of the recipe, or sections.

        LEAR, section 2.2, trains with the rationale and the extract, and with the extract alone.
        """
        rollout = source.pick(
            lambda rollout: rollout.is_right and rollout.score.components.get("format", 1.0) == 1.0,
            "right response in the output form of the recipe",
        )
        if isinstance(rollout, Problem):
            return rollout
        prompt = source.prompt if self.prompt is None else source.prompt_named(self.prompt)
        if not self.sections:
            return source.training_row(prompt=prompt, completion=source.response(rollout))
        completion = [{"role": "assistant", "content": source.excerpt(rollout, self.sections)}]
        return source.training_row(prompt=prompt, completion=completion)

    def _form_of(self, question: Question) -> Form:
        """Return the form of the recipe, or of the recipe that the row's signature names."""
        if isinstance(self.recipe, Recipe):
            return Form(self.recipe.prompts, self.recipe.output_form)
        name = self.recipe or _recipe_name(question.row)
        if name not in RECIPES:
            return Form()
        return Form(RECIPES[name].prompts, RECIPES[name].output)


def _recipe_name(row: Rollout) -> str:
    """Return the name of the recipe that scored a row."""
    signature = row.signature if isinstance(row, ScoredRow) else None
    stage = Signature.parse(signature).at(row.step) if signature else None
    if stage is None:
        raise OptionError(
            "no recipe is given, which determines the prompt and the output form: set {recipe}"
        )
    return stage.recipe


def _label_problem(source: TrainingSource) -> Problem | None:
    if source.question.out_of_knowledge is None:
        return Problem("unknown whether the question is out of knowledge")
    return None


def _gold_problem(source: TrainingSource) -> Problem | None:
    if source.question.row.answer_kind == "claims":
        return Problem("the gold answers are claims, which are not a response")
    if source.form.output.cites and not source.question.out_of_knowledge:
        return Problem("the recipe requires citations, which a gold answer does not have")
    return None


def _r_tuning(source: TrainingSource) -> dict[str, Any] | Problem:
    """The gold answer; out of knowledge: an abstention (TruthRL, section 3)."""
    if problem := _label_problem(source) or _gold_problem(source):
        return problem
    is_unknown = source.question.out_of_knowledge
    completion = source.abstention if is_unknown else source.gold_response
    return source.training_row(prompt=source.prompt, completion=completion)


def _rft(source: TrainingSource) -> dict[str, Any] | Problem:
    """A right response; out of knowledge: a response that abstains (TruthRL, section 3)."""
    if problem := _label_problem(source):
        return problem
    rollout = _abstention(source) if source.question.out_of_knowledge else _right(source)
    if isinstance(rollout, Problem):
        return rollout
    return source.training_row(prompt=source.prompt, completion=source.response(rollout))


def _dpo(source: TrainingSource) -> dict[str, Any] | Problem:
    """A right response, preferred to a wrong one (TruthRL, appendix A).

    Out of knowledge: an abstention, preferred to a wrong response. The abstention is a response of
    the policy, if there is one.
    """
    if problem := _label_problem(source):
        return problem
    wrong = source.pick(lambda rollout: rollout.is_wrong, "wrong response")
    if source.question.out_of_knowledge:
        preferred = _abstention(source)
        chosen = source.abstention
        if isinstance(preferred, ScoredRollout):
            chosen = source.response(preferred)
    else:
        preferred = _right(source)
        if isinstance(preferred, Problem):
            return preferred
        chosen = source.response(preferred)
    if isinstance(wrong, Problem):
        return wrong
    return source.training_row(prompt=source.prompt, chosen=chosen, rejected=source.response(wrong))


def _direct(source: TrainingSource) -> dict[str, Any] | Problem:
    """The gold answer without reasoning (ARENA, SFT-direct)."""
    if problem := _gold_problem(source):
        return problem
    if not source.question.row.question:
        return Problem("no `question` in the row")
    answer = source.form.output.write_answer(source.question.row.gold_text)
    completion = [{"role": "assistant", "content": answer}]
    return source.training_row(prompt=source.direct_prompt, completion=completion)


def _gold(source: TrainingSource) -> dict[str, Any] | Problem:
    """The gold answer with the prompt of the policy (TruthRL, section 2.2; LEAR's generators).

    It is in the output form of the recipe, unless the prompt is one that does not request it.
    """
    if problem := _gold_problem(source):
        return problem
    completion = source.gold_response
    if source.has_plain_prompt:
        completion = source.completion(source.question.row.gold_text)
    return source.training_row(prompt=source.prompt, completion=completion)


def _rationale(source: TrainingSource) -> dict[str, Any] | Problem:
    """A response from gold data and a rationale with the full reward (ARENA, SFT-reasoning).

    The prompt is that of the recipe, because the prompt of the rationale contains the gold answer.
    """
    if not source.question.rollouts:
        return Problem("no rationale: set a model that writes rationales for rows without one")
    rollout = source.pick(
        lambda rollout: rollout.is_right,
        "rationale whose response earns 1 for format, accuracy and relevance",
    )
    if isinstance(rollout, Problem):
        return rollout
    completion = [{"role": "assistant", "content": rollout.score.details["assembled"]}]
    return source.training_row(prompt=source.recipe_prompt, completion=completion)


def _right(source: TrainingSource) -> ScoredRollout | Problem:
    return source.pick(lambda rollout: rollout.is_right, "right response")


def _abstention(source: TrainingSource) -> ScoredRollout | Problem:
    return source.pick(lambda rollout: rollout.abstains, "response that abstains")

"""A question with the prompts, responses and gold answers for a row of a training set."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from rag_rewards.datasets.gold import Problem
from rag_rewards.errors import OptionError
from rag_rewards.prompts import (
    ANY_FORM,
    DEFAULT,
    DIRECT,
    GROUNDED,
    OutputForm,
    Prompt,
    prompt_named,
    prompts_of,
)
from rag_rewards.selection.questions import Question, ScoredRollout
from rag_rewards.text.refusal import ABSTENTIONS
from rag_rewards.text.sections import Tags

Text = str | list[dict[str, Any]]
"""A prompt or a completion: a chat, or text if the prompts of the rows are text."""


class Form(NamedTuple):
    """The prompts of a recipe by name, and the output form of its responses."""

    prompts: Mapping[str, Prompt] = prompts_of(GROUNDED, ANY_FORM, {})
    output: OutputForm = ANY_FORM


@dataclass(frozen=True)
class TrainingSource:
    """A question with the prompts, responses and gold answers for its training row."""

    question: Question
    form: Form
    rng: random.Random

    @property
    def prompt(self) -> Text:
        """The prompt of the row, otherwise that of the recipe."""
        row = self.question.row
        if row.prompt is not None:
            return row.prompt
        return self.recipe_prompt

    @property
    def recipe_prompt(self) -> Text:
        """The prompt of the recipe, also if the row has a prompt."""
        return list(self.form.prompts[DEFAULT].messages(self.question.row))

    @property
    def direct_prompt(self) -> Text:
        """The question and documents in the form of the recipe, without a request to reason."""
        return list(self.form.prompts[DIRECT].messages(self.question.row))

    def prompt_named(self, name: str) -> Text:
        """A prompt of the recipe by name.

        Raises OptionError for an unknown name, and for a prompt that contains gold data.
        """
        prompt = prompt_named(name, self.form.prompts, "the recipe")
        if prompt.shows_gold:
            raise OptionError(
                "{prompt} {name} contains the gold answer, which the policy must not see: choose "
                "another prompt",
                name=name,
            )
        return list(prompt.messages(self.question.row))

    @property
    def gold_response(self) -> Text:
        """The gold answer in the output form of the recipe."""
        return self.completion(self.form.output.write_answer(self.question.row.gold_text))

    @property
    def abstention(self) -> Text:
        """An abstention in the output form of the recipe."""
        form = self.form.output
        return self.completion(form.write_answer(form.abstention or ABSTENTIONS[0]))

    def completion(self, text: str) -> Text:
        """Return a response as a chat, or as text if the prompt is text."""
        if isinstance(self.question.row.prompt, str):
            return text
        return [{"role": "assistant", "content": text}]

    def response(self, rollout: ScoredRollout) -> Text:
        """Return the response of a rollout, including tool turns."""
        response = rollout.rollout.response
        if isinstance(response, str) or len(response) == 1:
            return self.completion(rollout.rollout.parsed.text)
        return list(msgspec.json.decode(rollout.line)["response"])

    def excerpt(self, rollout: ScoredRollout, sections: Sequence[str]) -> str:
        """Return some sections of a response with their tags, in the order of the output form.

        Raises OptionError for a section that the output form does not have.
        """
        names = self.form.output.sections
        for section in sections:
            if section not in names:
                raise OptionError(
                    "{sections}: the recipe has no section {name!r}; it has {names}",
                    name=section,
                    names=", ".join(names),
                )
        content = rollout.rollout.parsed.cut(Tags(names)).content
        return "".join(
            f"<{name}>{content.get(name, '')}</{name}>" for name in names if name in sections
        )

    @property
    def has_plain_prompt(self) -> bool:
        """Whether the row has a prompt of the recipe that requests no part of the output form.

        Such prompts are `qa` and `closed-book` of LEAR. A prompt of the user may describe the form
        in other words.
        """
        row, marks = self.question.row, self.form.output.marks
        plain = (
            prompt
            for prompt in self.form.prompts.values()
            if marks and not any(mark in prompt.message_for(row) for mark in marks)
        )
        return any(row.prompt == list(prompt.messages(row)) for prompt in plain)

    def pick(
        self, condition: Callable[[ScoredRollout], bool | None], kind: str
    ) -> ScoredRollout | Problem:
        """Return a random rollout that satisfies a condition and was not truncated."""
        matches = [rollout for rollout in self.question.rollouts if condition(rollout)]
        if not matches:
            return Problem(f"no {kind}")
        complete = [rollout for rollout in matches if rollout.is_complete]
        return self.rng.choice(complete) if complete else Problem(f"no complete {kind}")

    def training_row(self, **texts: Text) -> dict[str, Any]:
        """Return a row of the training set."""
        return {"id": self.question.name, **texts}

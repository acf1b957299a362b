"""The parts of output forms, and the recipe whose form a response has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from rag_rewards.errors import RolloutError
from rag_rewards.prompts import OutputForm
from rag_rewards.recipes import RECIPES
from rag_rewards.rollout import Rollout

THINKING = "<think>"
"""The mark of thinking, which a chat template can begin in place of the policy."""


def parts_of(form: OutputForm, reader: str) -> dict[str, str]:
    """Return the names of the parts that a response must have besides thinking, by their marks.

    The answer is the first. `reader` is the recipe that reads them.

    >>> parts_of(RECIPES["naive-grpo"].output, "naive-grpo")
    {'<answer>': '<answer> section, which naive-grpo reads'}
    """
    marks = dict.fromkeys(filter(None, (form.answer_mark, *form.marks)))
    return {mark: form.answer_part(reader, mark) for mark in marks if mark != THINKING}


def missing_part(rollout: Rollout, parts: Mapping[str, str]) -> str:
    """Return the name of the first of `parts` that a response lacks, "" if it has all.

    >>> missing_part(Rollout(response="Paris"), parts_of(RECIPES["naive-grpo"].output, "me"))
    '<answer> section, which me reads'
    """
    try:
        text = rollout.parsed.text if parts else ""
    except RolloutError:  # messages without a text
        text = ""
    return next((name for mark, name in parts.items() if mark not in text), "")


def recipe_of_form(rollout: Rollout) -> str:
    r"""Return the name of the recipe whose output form a response has, "" if there is none.

    Of several forms, the one with the most parts counts. Of the recipes with one form, this is the
    one that reads the fewest fields, and it reads turns if the rollout has several.

    >>> recipe_of_form(Rollout(response=r"<think>In 1889.</think> \boxed{1889}"))
    'truthrl'
    """
    try:
        text, has_turns = rollout.parsed.text, len(rollout.steps()) > 1
    except RolloutError:  # messages without a text
        return ""
    for marks, reads_turns, name in _forms():
        if reads_turns == has_turns and all(mark in text for mark in marks):
            return name
    return ""


@cache
def _forms() -> list[tuple[tuple[str, ...], bool, str]]:
    """The marks of each form that a recipe requires, whether it reads turns, and its name."""
    forms = []
    for name, definition in RECIPES.items():
        marks = tuple(parts_of(definition.output, name))
        if marks:
            forms.append((marks, "turns" in definition.fields, len(definition.fields), name))
    forms.sort(key=lambda form: (-len(form[0]), form[2]))
    return [(marks, reads_turns, name) for marks, reads_turns, _, name in forms]

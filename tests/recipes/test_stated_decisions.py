"""Recipes that decide on answers state the decision in the details of a score."""

from __future__ import annotations

from typing import Any

import pytest

from rag_rewards import decode_row, recipe
from rag_rewards.audit.rule_evidence import with_evidence
from rag_rewards.recipes import RECIPES
from rag_rewards.recipes.sample import ROW

RULES: dict[str, dict[str, Any]] = {
    "truthrl": {"verifier": "exact"},
    "carr": {"by": "rules"},
    "rag-env": {"accuracy.metric": "exact"},
}
"""Settings with which no judge decides on the answer."""
BY_CITATIONS = ("ground-grpo", "ground-grpo-stage1")
BY_GRADES = ("rubric", "ruler", "dr-tulu", "s3")
"""Recipes that compare no answer of the policy with the gold answers."""
ANSWERS = {
    "Paris": ("right", "equal"),
    "Paris or Rome": ("undecided", "or, rome"),
    "Rome": ("undecided", "nothing in common"),
}


@pytest.mark.parametrize(
    "name", [name for name in RECIPES if name not in (*BY_CITATIONS, *BY_GRADES)]
)
@pytest.mark.parametrize("answer", ANSWERS)
def test_the_details_contain_the_decision(name: str, answer: str) -> None:
    hardened = recipe(name, RULES.get(name, {}), hardened=True)
    row = decode_row(ROW | {"response": hardened.output_form.write(answer)})
    (score,) = hardened([with_evidence(hardened, row)])
    assert hardened.decides_answers
    assert (score.details["decision"], score.details["decision_reason"]) == ANSWERS[answer]
    assert "decided_by" not in score.details


@pytest.mark.parametrize("name", RECIPES)
def test_the_default_profile_states_no_decision(name: str) -> None:
    default = recipe(name, RULES.get(name, {}))
    row = decode_row(ROW | {"response": default.output_form.write("Paris or Rome")})
    (score,) = default([with_evidence(default, row)])
    assert not default.decides_answers
    assert "decision" not in score.details


@pytest.mark.parametrize("name", [*BY_CITATIONS, *BY_GRADES])
def test_other_recipes_decide_on_no_answer(name: str) -> None:
    assert not recipe(name, hardened=True).decides_answers


def test_a_judge_for_all_answers_leaves_no_decision() -> None:
    for name, settings in (("truthrl", {}), ("carr", {}), ("arena", {"accuracy.metric": "judge"})):
        assert not recipe(name, settings, hardened=True).decides_answers

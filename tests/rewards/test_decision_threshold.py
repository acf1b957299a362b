"""A decision: the settings that derive `correct` from a score and a threshold."""

from __future__ import annotations

import pytest

import rag_rewards as rr
from rag_rewards.errors import SettingError
from rag_rewards.loading import load_recipe, recorded_spec
from rag_rewards.signature import Signature

F1 = {"accuracy.metric": "f1"}
ROWS = [
    rr.Rollout(response=f"<answer>{text}</answer>", answers=["Paris"], question="Which city?")
    for text in ("Paris", "Paris, France", "the big city of Paris", "Rome")
]
# The values of F1 are 1, 2/3, 2/5 and 0.


def correct(recipe):
    return [score.correct for score in recipe(ROWS)]


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(1, [1, 0, 0, 0]), (2 / 3, [1, 1, 0, 0]), (0.4, [1, 1, 1, 0]), (0.0, [1, 1, 1, 1])],
)
def test_a_score_at_the_threshold_is_correct(threshold, expected):
    plain = rr.recipe("naive-grpo", F1)
    decided = rr.recipe("naive-grpo", {**F1, "decision": {"threshold": threshold}})
    assert correct(decided) == expected
    assert [s.value for s in decided(ROWS)] == [s.value for s in plain(ROWS)]
    assert [s.components for s in decided(ROWS)] == [s.components for s in plain(ROWS)]


@pytest.mark.parametrize("score", ["correct", "accuracy", "reward"])
def test_the_score_of_a_decision(score):
    # The format is 0 in all rows, because the responses have no thinking section.
    decision = {"score": score, "threshold": 0.5}
    assert correct(rr.recipe("naive-grpo", {**F1, "decision": decision})) == [1, 1, 0, 0]


def test_the_signature_contains_the_decision():
    settings = {"bonus.value": 5, "decision.score": "reward", "decision.threshold": 4.5}
    for hardened in (False, True):
        recipe = rr.recipe("arena", settings, hardened=hardened)
        signature = Signature.parse(recipe.signature)
        assert signature.settings["decision.threshold"] == 4.5
        again = load_recipe(recorded_spec(signature))
        assert again.decision == recipe.decision
        assert again.settings == recipe.settings


def test_a_recipe_without_settings_can_have_a_decision():
    def brief(rollout):
        return 1 / len(rollout.parsed.text)

    recipe = load_recipe(brief, {"decision.score": "brief", "decision.threshold": 1 / 25})
    assert correct(recipe) == [1, 0, 0, 1]
    assert '"decision.threshold":0.04' in recipe.signature


def test_a_decision_applies_to_all_stages():
    stages = [{"recipe": "naive-grpo", "until_step": 5}, {"recipe": "arena"}]
    plan = load_recipe({"stages": stages}, {"decision.threshold": 0.5})
    assert [stage.recipe.decision.threshold for stage in plan.stages] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decision.threshold": "high"}, "decision.threshold must be a finite number"),
        ({"decision.score": "reward"}, "decision.score has no threshold: set decision.threshold"),
        ({"decision.threshold": float("nan")}, "finite"),
        ({"decision.threshold": True}, "finite"),
        ({"decision": {"threshold": 1, "above": 2}}, "unknown setting decision.above"),
        ({"decision.thresold": 1}, "did you mean 'decision.threshold'"),
        ({"decision": {"threshold": 1, "score": "acuracy"}}, "did you mean 'accuracy'"),
        ({"decision": {"threshold": 1, "metric": "f1"}}, "evaluate --config"),
    ],
)
def test_invalid_decisions(settings, message):
    with pytest.raises(SettingError, match=message):
        rr.recipe("arena", settings)

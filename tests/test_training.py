"""Advantages, KL estimators and curricula."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import (
    Curriculum,
    DataError,
    GroupError,
    Rollout,
    SettingError,
    Stage,
    __version__,
    decode_row,
    recipe,
)
from rag_rewards.evidence.judge_needs import VerdictNeed
from rag_rewards.rollout import LogProbs
from rag_rewards.training.advantages import group_advantages, mean, mean_std, zscores
from rag_rewards.training.kl import k1, k2, k3

quick = budget(200)
REWARDS = st.lists(st.floats(-20, 20), min_size=1, max_size=8)


@quick
@given(REWARDS, st.sampled_from([0.0, 0.1, 0.5]))
def test_advantages_against_a_naive_implementation(rewards, floor):
    mean = sum(rewards) / len(rewards)
    std = (sum((r - mean) ** 2 for r in rewards) / len(rewards)) ** 0.5
    output = group_advantages(rewards, std_floor=floor)
    if max(rewards) == min(rewards):
        assert output == [0.0] * len(rewards)
    elif max(std, floor) > 1e-6:
        assert output == pytest.approx([(r - mean) / max(std, floor) for r in rewards], abs=1e-6)
        assert sum(output) == pytest.approx(0.0, abs=1e-6)
        if std > floor:
            assert sum(x * x for x in output) / len(output) == pytest.approx(1.0)


@quick
@given(REWARDS, st.sampled_from([1e-8, 1e-3]))
def test_z_scores_against_a_naive_implementation(rewards, epsilon):
    mean = sum(rewards) / len(rewards)
    std = (sum((r - mean) ** 2 for r in rewards) / len(rewards)) ** 0.5
    output = zscores(rewards, epsilon=epsilon)
    if max(rewards) == min(rewards):
        assert output == [0.0] * len(rewards)
    elif std > 1e-6:
        assert output == pytest.approx([(r - mean) / (std + epsilon) for r in rewards], abs=1e-6)


def test_equal_rewards_have_no_spread_by_rounding():
    for n in range(1, 60):
        assert mean_std([0.1] * n) == (0.1, 0.0)
        assert group_advantages([0.1] * n, std_floor=0.0) == [0.0] * n
        assert zscores([0.1] * n) == [0.0] * n


def test_the_floor_of_the_standard_deviation():
    # mean 0.51, std 0.01 < 0.1: ±0.01/0.1
    assert group_advantages([0.5, 0.52]) == pytest.approx([-0.1, 0.1])
    # std 0.5 > 0.1: ±0.5/0.5
    assert group_advantages([0.0, 1.0]) == [-1.0, 1.0]
    assert group_advantages([]) == zscores([]) == []


@quick
@given(st.floats(-20, 0), st.floats(-20, 0))
def test_kl_estimators_against_a_naive_implementation(logp, ref):
    ratio = math.exp(ref) / math.exp(logp)
    assert k1(logp, ref) == pytest.approx(math.log(math.exp(logp) / math.exp(ref)), abs=1e-9)
    assert k2(logp, ref) == pytest.approx(0.5 * math.log(ratio) ** 2, abs=1e-9)
    assert k3(logp, ref) == pytest.approx(ratio - math.log(ratio) - 1, rel=1e-9, abs=1e-9)
    assert k2(logp, ref) >= 0.0
    assert k3(logp, ref) >= 0.0


def test_kl_of_equal_and_of_similar_policies():
    assert k1(-1.5, -1.5) == k2(-1.5, -1.5) == k3(-1.5, -1.5) == 0.0
    # r − log r − 1 ≈ x²/2 for a small x = log r; naive arithmetic loses it
    assert k3(-1.0, -1.0 + 1e-6) == pytest.approx(5e-13, rel=1e-3)


def test_only_k3_is_huge_for_a_very_unlikely_token():
    """ARENA uses k2 for this reason (section 3.2)."""
    assert k2(-30.0, -1.0) == pytest.approx(0.5 * 29**2)
    assert k3(-30.0, -1.0) == pytest.approx(math.exp(29), rel=1e-9)


class Tensor:
    """The operations of a tensor that the estimators use."""

    def __init__(self, *values):
        self.values = values

    def _with(self, other, function):
        return Tensor(*map(function, self.values, other.values))

    def __sub__(self, other):
        return self._with(other, lambda x, y: x - y)

    def __pow__(self, n):
        return Tensor(*(x**n for x in self.values))

    def __rmul__(self, factor):
        return Tensor(*(factor * x for x in self.values))

    def expm1(self):
        return Tensor(*map(math.expm1, self.values))


def test_kl_estimators_take_tensors():
    logp, ref = (-1.0, -2.0), (-1.5, -0.5)
    for estimator in (k1, k2, k3):
        expected = tuple(map(estimator, logp, ref))
        assert estimator(Tensor(*logp), Tensor(*ref)).values == pytest.approx(expected)


# --- curricula ----------------------------------------------------------------------------------

FIRST, SECOND = recipe("naive-grpo"), recipe("truthrl", {"verifier": "exact"})
PLAN = Curriculum((Stage(FIRST, 10), Stage(SECOND)))


def test_the_recipe_of_a_step():
    three = Curriculum((Stage(FIRST, 5), Stage(SECOND, 7), Stage(recipe("arena"))))
    names = [three.at(step).name for step in (0, 4, 5, 6, 7, 10**9)]
    assert names == ["naive-grpo"] * 2 + ["truthrl"] * 2 + ["arena"] * 2


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((), "the last has none"),
        ((5,), "the last has none"),
        ((None, None), "every stage but the last has until_step"),
        ((5, 5, None), r"until_step must increase, found \[5, 5\]"),
        ((5, 4, None), "must increase"),
    ],
)
def test_invalid_stages(steps, message):
    with pytest.raises(SettingError, match=message):
        Curriculum(tuple(Stage(FIRST, step) for step in steps))


def rollout(step, text="Paris", **fields):
    response = rf"<think>t</think> <answer>{text}</answer> \boxed{{{text}}}"
    return Rollout(response=response, answers="Paris", step=step, **fields)


def test_every_rollout_is_scored_by_its_stage():
    rows = [rollout(10), rollout(9), rollout(11, "Rome"), rollout(0, "Rome")]
    scores = PLAN(rows)
    # naive-grpo: text after the sections, so format 0; accuracy 1 or 0. truthrl: ±1.
    assert [s.value for s in scores] == [1.0, 1.0, -1.0, 0.0]
    names = {"format", "accuracy", "outcome"}
    assert all(set(s.components) == names for s in scores)
    assert scores[0].components == {"format": None, "accuracy": None, "outcome": 1.0}
    assert scores[1].components == {"format": 0.0, "accuracy": 1.0, "outcome": None}
    assert PLAN.component_names == ("format", "accuracy", "outcome")
    assert [s.correct for s in scores] == [1.0, 1.0, 0.0, 0.0]


def test_a_rollout_without_a_step_is_a_data_error_of_its_own():
    good, bad = rollout(1), rollout(None, id="r2")
    results = PLAN.score_each([good, bad, good])
    assert isinstance(results[1], DataError)
    assert (
        str(results[1])
        == "row r2: step: missing; a curriculum selects its stage by the training step"
    )
    assert results[0].value == results[2].value == 1.0
    with pytest.raises(DataError, match="row r2: step: missing"):
        PLAN([good, bad])
    with pytest.raises(DataError, match="step: missing"):
        PLAN.needs(bad)


def test_needs_scope_equation_and_signature_follow_the_stages():
    judged = Curriculum((Stage(FIRST, 10), Stage(recipe("truthrl"))))
    assert judged.needs(rollout(9, "Rome")) == []
    assert judged.needs(rollout(10, "Rome")) == [VerdictNeed("outcome")]
    assert PLAN.scope == "rollout"
    assert Curriculum((Stage(FIRST, 1), Stage(recipe("ctrl-rag")))).scope == "group"
    assert PLAN.equation == "until step 10: format + accuracy; then outcome"
    assert PLAN.signature == (
        f'rag-rewards {__version__} curriculum {{"stages":[{{"recipe":"naive-grpo",'
        '"until_step":10},{"recipe":"truthrl","settings":{"verifier":"exact"}}]}'
    )


def test_group_recipes_keep_their_groups_within_a_stage():
    plan = Curriculum((Stage(FIRST, 10), Stage(recipe("ctrl-rag"))))

    def member(step, least, group="g", **fields):
        logprobs = LogProbs(full=(-1.0,), without={"1": (least,)})
        return rollout(step, supporting=(1,), logprobs=logprobs, group=group, **fields)

    rows = [member(10, -3.0), member(5, -3.0, "other"), member(10, -7.0)]
    # E = 2 and 6 within the group: R′ 0 and 1.
    assert [s.value for s in plan(rows)] == [0.0, 1.0, pytest.approx(1.0)]
    broken = plan.score_each([member(10, -3.0), member(10, 1.0, id="b")])
    assert isinstance(broken[0], GroupError)
    assert broken[1].path == "logprobs.without.1[0]"


def test_curricula_pickle():
    copy = pickle.loads(pickle.dumps(PLAN))  # noqa: S301
    assert copy.signature == PLAN.signature
    assert [s.value for s in copy([rollout(1), rollout(20)])] == [1.0, 1.0]


def test_a_curriculum_scores_whole_groups_only():
    plan = Curriculum((Stage(FIRST, 10), Stage(recipe("ctrl-rag"))))

    def row(at, step):
        logprobs = {"full": [-0.1], "without": {"1": [-1.0 - at]}}
        return decode_row(
            {
                "id": f"r{at}",
                "question": "q",
                "response": "<answer>Paris</answer>",
                "answers": "Paris",
                "documents": [{"text": "d"}],
                "supporting": [1],
                "logprobs": logprobs,
                "step": step,
            }
        )

    whole = plan.score_each([row(at, 20) for at in range(4)])
    assert [result.components["clr_normalized"] for result in whole][-1] == pytest.approx(1.0)
    for steps, kinds in (
        ([20, None, 20], [GroupError, DataError, GroupError]),
        ([5, 20, 20], [GroupError] * 3),
    ):
        results = plan.score_each([row(at, step) for at, step in enumerate(steps)])
        assert list(map(type, results)) == kinds


def test_advantages_of_rewards_at_the_end_of_the_range() -> None:
    rewards = [1.7e308, -1.7e308, 0.0, 1.7e308]
    expected = zscores([reward / 1.7e308 for reward in rewards], epsilon=0)
    assert zscores(rewards) == pytest.approx(expected)
    assert group_advantages(rewards) == pytest.approx(expected)
    assert mean_std([1.7e308, -1.7e308]) == (0.0, 1.7e308)
    assert mean(rewards) == pytest.approx(0.425e308)

"""Recipes as functions of one rollout and of a batch, with the golden groups."""

from __future__ import annotations

import asyncio
import doctest
import pickle
import sys
from pathlib import Path

import pytest
from rag_rewards_adapters import callables
from rag_rewards_adapters.callables import batch, each

from rag_rewards.errors import DataError, RowError, SettingError, UnknownRecipeError
from rag_rewards.recipes import RECIPES
from rag_rewards.rows import decode_row

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainers"))
from build_matrix import kind_of
from golden import CASES, GROUPS, PLANS, Group, advantages, centred

RIGHT = {
    "response": "<think>1</think><answer>Seine</answer>",
    "answers": ["Seine"],
}
ALL = pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.id)


def test_doctests() -> None:
    assert doctest.testmod(callables).failed == 0


def test_the_golden_groups_cover_every_kind_of_recipe_in_every_case() -> None:
    assert {(group.recipe, group.case) for group in GROUPS} == {
        (plan.recipe, case) for plan in PLANS for case in CASES
    }
    assert {kind_of(plan.recipe) for plan in PLANS} == {kind_of(recipe) for recipe in RECIPES}
    assert (len(PLANS), len(CASES)) == (10, 10)


@ALL
def test_golden_rewards(group: Group) -> None:
    rewards = batch(group.recipe)([{**row, "group": group.id} for row in group.rows])
    scored = [reward for reward in rewards if reward is not None]
    assert [reward is None for reward in rewards] == [r is None for r in group.rewards]
    assert scored == pytest.approx([r for r in group.rewards if r is not None], abs=1e-7)


@pytest.mark.parametrize(
    "group", [group for group in GROUPS if group.scope == "rollout"], ids=lambda group: group.id
)
def test_single_rollouts_get_the_golden_rewards(group: Group) -> None:
    reward = each(group.recipe)
    for row, expected in zip(group.rows, group.rewards, strict=True):
        if expected is None:
            with pytest.raises(DataError, match=f"row {row['id']}: "):
                reward(row)
        else:
            assert reward(row) == pytest.approx(expected, abs=1e-7)


@ALL
def test_golden_advantages_have_mean_0(group: Group) -> None:
    for values in (advantages(group), advantages(group, std_floor=0.1), centred(group)):
        assert sum(values) == pytest.approx(0.0, abs=1e-9)
        assert all(
            value == 0.0 for value, r in zip(values, group.rewards, strict=True) if r is None
        )


def test_golden_advantages_of_small_groups() -> None:
    group = Group("arena", "by hand", (), (1.0, 3.0))
    assert advantages(group, sample=False, epsilon=0.0) == pytest.approx([-1.0, 1.0])
    assert advantages(group, epsilon=0.0) == pytest.approx([-(0.5**0.5), 0.5**0.5])
    assert advantages(group, epsilon=1.0) == pytest.approx([-1 / (1 + 2**0.5), 1 / (1 + 2**0.5)])
    assert advantages(Group("lear", "", (), (0.5, 0.52)), std_floor=0.1) == pytest.approx(
        [-0.1, 0.1]
    )
    assert centred(Group("arena", "", (), (1.0, None, 3.0))) == [-1.0, 0.0, 1.0]


def test_a_rollout_gets_the_reward_of_its_row() -> None:
    assert each("naive-grpo")(decode_row(RIGHT)) == each("naive-grpo")(RIGHT) == 2.0


def test_both_functions_can_be_pickled() -> None:
    one = pickle.loads(pickle.dumps(each("arena", settings={"bonus.value": 5})))  # noqa: S301
    many = pickle.loads(pickle.dumps(batch(stages=[{"recipe": "arena"}])))  # noqa: S301
    assert one.options == {"recipe": "arena", "settings": {"bonus.value": 5}}
    assert one.scorer.signature == each("arena", settings={"bonus.value": 5}).scorer.signature
    assert many.scorer.reward.name == "curriculum"


def test_both_functions_in_an_event_loop() -> None:
    async def ask() -> tuple[float, list[float | None]]:
        rows = [RIGHT, {**RIGHT, "answers": None}]
        return await each("naive-grpo").scored(RIGHT), await batch("naive-grpo").scored(rows)

    assert asyncio.run(ask()) == (2.0, [2.0, None])


def test_a_row_that_cannot_be_decoded_does_not_affect_other_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [{"response": 7}, RIGHT]
    assert batch("naive-grpo")(rows) == [None, 2.0]
    assert "1 of 2 rows are unscored: response: expected str" in caplog.text
    with pytest.raises(RowError, match="response: expected str"):
        each("naive-grpo")(rows[0])


def test_invalid_options_are_refused_at_construction() -> None:
    with pytest.raises(UnknownRecipeError, match="arena"):
        each("arenna")
    with pytest.raises(SettingError):
        each("arena", settings={"bonus.valu": 5})


def test_a_mapping_may_contain_the_options_of_models() -> None:
    options = {"recipe": "truthrl", "judge": "http://localhost:1", "judge_model": "m"}
    for function in (each(options), each(**options), each({"recipe": "truthrl"}, **options)):
        assert "m" in function.scorer.signature
        assert function.scorer.reward.name == "truthrl"


def test_a_lone_surrogate_in_a_message_can_be_written_to_a_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert callables._values([RowError("found \udcff")]) == [None]
    assert caplog.text.encode("utf-8").endswith("found \ufffd\n".encode())

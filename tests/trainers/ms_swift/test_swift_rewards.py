"""Recipes inside ms-swift: its own samples, reward computation and advantages."""

from __future__ import annotations

import copy
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rag_rewards_adapters.ms_swift import AsyncRagReward, RagReward, register
from swift.rewards import orms
from swift.rl_core.advantage import compute_advantages, compute_advantages_dynamic
from swift.rl_core.data import GRPOSample
from swift.rl_core.grpo_algorithm import compute_rewards_per_func

from rag_rewards.errors import DataError, GroupError, RolloutError, SettingError, UsageError
from rag_rewards.rows.columns import DATASET_FIELDS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs"))
from build_matrix import STD_FLOOR, cell
from golden import (
    GROUPS,
    MODELS,
    RECIPES,
    EvidenceGatherer,
    Group,
    advantages,
    bare,
    centred,
    scored,
)

EPSILON = 1e-4  # as in ms-swift's compute_advantages
TOLERANCE = {"abs": 2e-5, "rel": 2e-5}
"""The trainer computes rewards and advantages in float32."""
ALL = pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.id)

RIGHT = "<think>1</think><answer>Seine</answer>"
WRONG = "<think>1</think><answer>Loire</answer>"


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the rewards that a test registers."""
    before = dict(orms)
    yield
    orms.clear()
    orms.update(before)


def config(**changes: Any) -> SimpleNamespace:
    """Return the arguments of the trainer that an outcome reward reads."""
    defaults = {
        "num_generations": 4,
        "num_generations_eval": None,
        "per_device_train_batch_size": 4,
        "steps_per_generation": 1,
        "world_size": 1,
        "scale_rewards": "group",
    }
    return SimpleNamespace(**defaults | changes)


def sample(
    response: str, gold: dict[str, Any], prompt: str = "q", request: str = "", **more: Any
) -> GRPOSample:
    """Return a sample with a response, built as the trainer does from a row of the data set."""
    messages = [{"role": "user", "content": prompt}, *more.pop("turns", ())]
    rolled_out = GRPOSample.from_row({"messages": messages, **copy.deepcopy(gold)})
    rolled_out.messages.append({"role": "assistant", "content": response})
    rolled_out.prompt_id, rolled_out.request_id = f"prompt_{prompt}", request
    rolled_out.finish_reason = more.pop("finish_reason", "stop")
    return rolled_out


def rewards(reward: RagReward, samples: list[GRPOSample], step: int = 0) -> torch.Tensor:
    state = SimpleNamespace(global_step=step)
    return compute_rewards_per_func(
        samples, [reward], [None], torch.device("cpu"), trainer_state=state
    )


def new_reward(name: str, args: Any = None, **options: Any) -> RagReward:
    """Return a reward as the trainer creates it: registered, looked up, constructed with args."""
    register(name, **options)
    reward: RagReward = orms[name](args=args or config())
    return reward


def answered(*responses: str, **gold: Any) -> list[GRPOSample]:
    return [sample(text, {"answers": ["Seine"]} | gold) for text in responses]


def reward_after_first_batch(name: str = "naive-grpo", **options: Any) -> RagReward:
    """Return a reward after its first batch, from which on errors are counted."""
    reward = new_reward(name, **options)
    rewards(reward, answered(*[RIGHT] * 4))
    return reward


# --- golden groups -----------------------------------------------------------------------------


def group_advantages_of(values: torch.Tensor, n: int, scale: str = "group") -> list[float]:
    values, _ = compute_advantages(values, torch.ones(1), n, scale_rewards=scale)
    result: list[float] = values.tolist()
    return result


def rewards_with_means(group: Group) -> list[float]:
    """Return the rewards that ms-swift gets: an unscored member has the mean of the others."""
    rewards = scored(group)
    present = [reward for reward in rewards if reward is not None]
    mean = sum(present) / len(present) if present else 0.0
    return [mean if reward is None else reward for reward in rewards]


@ALL
def test_golden_advantages_with_scaling(group: Group) -> None:
    values = group_advantages_of(
        torch.tensor(rewards_with_means(group)).unsqueeze(1), len(group.rows)
    )
    if group.whole:
        assert values == pytest.approx(advantages(group, epsilon=EPSILON), **TOLERANCE)
        return
    # The member at the mean has advantage 0, but counts in the deviation.
    present = [reward for reward in group.rewards if reward is not None]
    wider = ((len(values) - 1) / max(len(present) - 1, 1)) ** 0.5
    golden = [value * wider for value in advantages(group, epsilon=EPSILON)]
    assert values == pytest.approx(golden, abs=1e-3)


@ALL
def test_golden_advantages_without_scaling(group: Group) -> None:
    values = group_advantages_of(
        torch.tensor(rewards_with_means(group)).unsqueeze(1), len(group.rows), "none"
    )
    assert values == pytest.approx(centred(group), **TOLERANCE)


@ALL
def test_golden_advantages_by_prompt_id(group: Group) -> None:
    """The trainer's second function, for several turns: it groups by prompt and request."""
    n = len(group.rows)
    if not group.whole:
        return
    values, _ = compute_advantages_dynamic(
        torch.tensor([*rewards_with_means(group), 5.0, 7.0]).unsqueeze(1),
        torch.ones(1),
        [*["p"] * n, "other", "other"],
        list(map(str, range(n + 2))),
    )
    assert values.tolist()[:n] == pytest.approx(advantages(group, epsilon=EPSILON), **TOLERANCE)


@ALL
@pytest.mark.parametrize("asynchronous", [False, True])
def test_golden_groups_through_the_adapter(group: Group, asynchronous: bool) -> None:
    """Real samples → the trainer's reward computation → its advantages."""
    reward = new_reward(
        group.recipe, config(num_generations=len(group.rows)), asynchronous=asynchronous
    )
    scorer: Any = reward.scorer
    scorer.gatherer, scorer.models = EvidenceGatherer(group), MODELS
    samples = []
    for row in group.rows:
        text, turns = row["response"], ()
        if not isinstance(text, str):  # tool turns are part of the messages
            *turns, last = text
            text = last["content"]
        gold = {key: row[key] for key in DATASET_FIELDS if key in row}
        # ms-swift adds the tag that its template opens to the completion.
        whole = row.get("response_prefix", "") + text
        samples.append(sample(whole, gold, "Q", turns=turns))
    if not group.whole:
        with pytest.raises(RolloutError, match="row unscored member-1: "):
            rewards(reward, samples)
        return
    values = rewards(reward, samples)
    assert values[:, 0].tolist() == pytest.approx(list(group.rewards), **TOLERANCE)
    golden = advantages(group, epsilon=EPSILON)
    assert group_advantages_of(values, len(samples)) == pytest.approx(golden, **TOLERANCE)


# --- what is not scored ------------------------------------------------------------------------


def test_ms_swift_itself_counts_none_as_zero() -> None:
    """ms-swift sums None as 0, so the adapter never returns it."""
    samples = answered(RIGHT, RIGHT, RIGHT)
    values = compute_rewards_per_func(
        samples, [lambda completions, **_: [2.0, None, 0.0]], [None], torch.device("cpu")
    )
    _, summed = compute_advantages(values, torch.ones(1), 3)
    assert summed.tolist() == [2.0, 0.0, 0.0]


def test_an_error_of_the_first_batch_names_the_row_and_the_field() -> None:
    samples = [*answered(RIGHT, RIGHT, RIGHT), sample(RIGHT, {"id": "r7"}, "q")]
    with pytest.raises(DataError, match="row r7: answers: missing"):
        rewards(new_reward("naive-grpo"), samples)


def test_a_later_error_gets_the_mean_of_its_group_and_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reward = reward_after_first_batch()
    samples = [*answered(RIGHT, RIGHT, WRONG), sample(RIGHT, {})]
    with caplog.at_level(logging.WARNING, "rag_rewards"):
        values = rewards(reward, samples)
    assert values[:, 0].tolist() == pytest.approx([2.0, 2.0, 1.0, 5 / 3])
    assert group_advantages_of(values, 4)[3] == pytest.approx(0.0, abs=1e-6)
    assert reward.not_scored == 1
    place = "row 3 of the batch (question 'q')"
    assert f"1 of 4 rollouts are unscored: {place}: answers: missing" in caplog.text


def test_a_group_without_any_score_has_advantage_0() -> None:
    reward = reward_after_first_batch()
    lost = [sample(RIGHT, {}, "lost") for _ in range(4)]
    values = rewards(reward, [*answered(RIGHT, RIGHT, WRONG, WRONG), *lost])
    assert values[4:, 0].tolist() == [1.5] * 4
    assert group_advantages_of(values, 4)[4:] == [0.0] * 4


def test_consecutive_batches_without_a_score_raise() -> None:
    reward = reward_after_first_batch(patience=2)
    lost = [sample(RIGHT, {}, "lost") for _ in range(4)]
    assert rewards(reward, lost)[:, 0].tolist() == [0.0] * 4
    with pytest.raises(DataError, match="answers: missing"):
        rewards(reward, lost)


# --- groups ------------------------------------------------------------------------------------


def group_positions(reward: RagReward, samples: list[GRPOSample]) -> list[list[int]]:
    """Return the groups that the recipe gets, as positions."""
    positions: list[list[int]] = []
    own = reward.scorer.score_each

    def watched(rollouts: Any, groups: Any = None) -> Any:
        positions.extend(list(group) for group in groups)
        return own(rollouts, groups)

    reward.scorer.score_each = watched  # type: ignore[method-assign]
    rewards(reward, samples)
    return positions


def test_groups_are_formed_by_prompt() -> None:
    gold = {"answers": ["Seine"]}
    samples = [sample(RIGHT, gold, prompt) for prompt in "aabbabba"]
    assert group_positions(new_reward("naive-grpo"), samples) == [[0, 1, 4, 7], [2, 3, 5, 6]]


def test_equal_prompts_are_several_groups() -> None:
    samples = answered(*[RIGHT] * 8)
    assert group_positions(new_reward("naive-grpo"), samples) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_the_last_sample_of_a_request_is_scored() -> None:
    """A trajectory has several samples if its turns are trained separately."""
    gold = {"answers": ["Seine"]}
    samples = [
        sample("searching", gold, request="one"),
        sample(RIGHT, gold, request="one"),
        sample(WRONG, gold, request="two"),
    ]
    reward = new_reward("naive-grpo", config(num_generations=2))
    values = rewards(reward, samples)
    assert values[:, 0].tolist() == [2.0, 2.0, 1.0]
    values, _ = compute_advantages_dynamic(
        values, torch.ones(1), [s.prompt_id for s in samples], [s.request_id for s in samples]
    )
    assert values.tolist() == pytest.approx([0.7070, 0.7070, -0.7070], abs=1e-3)


def test_an_incomplete_group_is_refused_if_groups_are_compared() -> None:
    reward = new_reward("ctrl-rag")
    with pytest.raises(GroupError, match=r"3 completions in this batch.*num_generations=4: make"):
        rewards(reward, answered(RIGHT, RIGHT, WRONG, supporting=[1], documents=[{"text": "x"}]))


def test_groups_on_two_ranks_are_refused_at_construction() -> None:
    straddling = config(world_size=2, per_device_train_batch_size=2, steps_per_generation=3)
    with pytest.raises(UsageError, match=r"a rank has 6 .*not a multiple of num_generations=4"):
        new_reward("ctrl-rag", straddling)
    new_reward(
        "ctrl-rag", config(world_size=2, per_device_train_batch_size=2, steps_per_generation=2)
    )
    new_reward("arena", straddling)  # sees single rollouts


def test_ctrl_rag_without_a_model_names_the_option() -> None:
    reward = new_reward("ctrl-rag")
    gold = {"supporting": [1], "documents": [{"text": "x"}]}
    with pytest.raises(UsageError, match=r"a model of the kind policy: set model="):
        rewards(reward, answered(*[RIGHT] * 4, **gold))


# --- settings ----------------------------------------------------------------------------------


def test_a_plugin_file(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "from rag_rewards_adapters.ms_swift import register\n"
        'register("mine", recipe="naive-grpo", hardened=True)\n'
    )
    from swift.utils import import_external_file

    import_external_file(str(plugin))
    reward = orms["mine"](args=config())
    assert type(reward).__name__ == "mine"  # the name in the trainer's logs
    assert "naive-grpo hardened" in reward.scorer.signature


def test_invalid_options_are_refused_when_the_plugin_is_imported() -> None:
    with pytest.raises(SettingError):
        register("arena", settings={"bonus.valu": 5})
    with pytest.raises(UsageError, match=r"columns: a row has no field 'answer'.*answers"):
        register("arena", columns={"answer": "solution"})


def test_columns_with_other_names() -> None:
    reward = new_reward("naive-grpo", columns={"answers": "solution"})
    samples = [sample(text, {"solution": "Seine"}) for text in (RIGHT, WRONG, RIGHT, RIGHT)]
    assert rewards(reward, samples)[:, 0].tolist() == [2.0, 1.0, 2.0, 2.0]
    with pytest.raises(UsageError, match="no column 'solution'"):
        rewards(reward, answered(RIGHT))


def test_stages_depend_on_the_training_step() -> None:
    stages = [
        {"recipe": "naive-grpo", "until_step": 3},
        {"recipe": "truthrl", "settings": {"verifier": "exact"}},
    ]
    reward = new_reward("staged", stages=stages)
    samples = answered(*[RIGHT] * 4)
    assert rewards(reward, samples, step=1)[:, 0].tolist() == [2.0] * 4
    assert rewards(reward, samples, step=2)[:, 0].tolist() == [-1.0] * 4  # nothing is boxed


def test_std_floor_requires_no_scaling() -> None:
    reward = new_reward("naive-grpo", config(scale_rewards="none"), std_floor=0.5)
    values = rewards(reward, answered(RIGHT, RIGHT, WRONG, RIGHT))
    golden = [0.5, 0.5, -1.5, 0.5]  # population std 0.433, below the floor of 0.5
    assert group_advantages_of(values, 4, "none") == pytest.approx(golden)
    with pytest.raises(UsageError, match="set --scale_rewards none"):
        new_reward("naive-grpo", config(), std_floor=0.1)


def test_the_trainer_recognizes_asynchronous_rewards() -> None:
    from swift.rl_core.grpo_algorithm import _is_async_reward

    assert _is_async_reward(new_reward("naive-grpo", asynchronous=True))
    assert not _is_async_reward(new_reward("naive-grpo"))
    assert issubclass(AsyncRagReward, RagReward)


# --- the matrix --------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_column_of_this_trainer(recipe: str) -> None:
    """A recipe works without settings, or the error of the first batch names the option."""
    entry = cell(recipe, "ms-swift")
    samples = [sample(row.pop("response"), row) for row in bare(recipe)]
    if entry.state == "works":
        golden = next(group for group in GROUPS if group.id == f"{recipe}: whole group")
        assert rewards(new_reward(recipe), samples)[:, 0].tolist() == pytest.approx(golden.rewards)
        return
    assert entry.state == "setting"
    with pytest.raises(UsageError, match=r"set (nli|judge|model)="):
        rewards(new_reward(recipe), samples)


def test_the_advantage_of_lear_in_this_trainer() -> None:
    options = STD_FLOOR["ms-swift"].options
    reward = new_reward("lear", config(scale_rewards="none"), **options)
    scorer: Any = reward.scorer
    golden = next(group for group in GROUPS if group.id == "lear: whole group")
    scorer.gatherer, scorer.models = EvidenceGatherer(golden), MODELS
    values = rewards(reward, [sample(row.pop("response"), row) for row in bare("lear")])
    expected = advantages(golden, std_floor=options["std_floor"])
    assert group_advantages_of(values, 4, "none") == pytest.approx(expected, **TOLERANCE)

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
from golden import ASKED, GROUPS, RECIPES, Group, Recorded, advantages, bare, centred, scored

EPSILON = 1e-4  # of ms-swift's compute_advantages
TOLERANCE = {"abs": 2e-5, "rel": 2e-5}
"""Rewards and advantages are float32 there."""
ALL = pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.id)

RIGHT = "<think>1</think><answer>Seine</answer>"
WRONG = "<think>1</think><answer>Loire</answer>"


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    before = dict(orms)
    yield
    orms.clear()
    orms.update(before)


def config(**given: Any) -> SimpleNamespace:
    """The arguments that an outcome reward is made with, as far as they are read."""
    known = {
        "num_generations": 4,
        "num_generations_eval": None,
        "per_device_train_batch_size": 4,
        "steps_per_generation": 1,
        "world_size": 1,
        "scale_rewards": "group",
    }
    return SimpleNamespace(**known | given)


def sample(
    response: str, gold: dict[str, Any], prompt: str = "q", request: str = "", **given: Any
) -> GRPOSample:
    """A rolled-out sample, made as the trainer makes it from a row of the data set."""
    messages = [{"role": "user", "content": prompt}, *given.pop("turns", ())]
    made = GRPOSample.from_row({"messages": messages, **copy.deepcopy(gold)})
    made.messages.append({"role": "assistant", "content": response})
    made.prompt_id, made.request_id = f"prompt_{prompt}", request
    made.finish_reason = given.pop("finish_reason", "stop")
    return made


def rewards(reward: RagReward, samples: list[GRPOSample], step: int = 0) -> torch.Tensor:
    state = SimpleNamespace(global_step=step)
    return compute_rewards_per_func(
        samples, [reward], [None], torch.device("cpu"), trainer_state=state
    )


def made(name: str, args: Any = None, **options: Any) -> RagReward:
    """A reward as the trainer makes it: registered, looked up, constructed with args."""
    register(name, **options)
    reward: RagReward = orms[name](args=args or config())
    return reward


def answered(*responses: str, **gold: Any) -> list[GRPOSample]:
    return [sample(text, {"answers": ["Seine"]} | gold) for text in responses]


def started(name: str = "naive-grpo", **options: Any) -> RagReward:
    """A reward that has seen its first batch: errors are endured from here on."""
    reward = made(name, **options)
    rewards(reward, answered(*[RIGHT] * 4))
    return reward


# --- golden groups -----------------------------------------------------------------------------


def of_group(values: torch.Tensor, n: int, scale: str = "group") -> list[float]:
    found, _ = compute_advantages(values, torch.ones(1), n, scale_rewards=scale)
    result: list[float] = found.tolist()
    return result


def filled(group: Group) -> list[float]:
    """The rewards that ms-swift is given: the scored members' mean where there is no score."""
    given = scored(group)
    known = [reward for reward in given if reward is not None]
    mean = sum(known) / len(known) if known else 0.0
    return [mean if reward is None else reward for reward in given]


@ALL
def test_golden_advantages_with_scaling(group: Group) -> None:
    found = of_group(torch.tensor(filled(group)).unsqueeze(1), len(group.rows))
    if group.whole:
        assert found == pytest.approx(advantages(group, epsilon=EPSILON), **TOLERANCE)
        return
    # The member at the mean has advantage 0, and makes the deviation of n values out of n − 1.
    known = [reward for reward in group.rewards if reward is not None]
    wider = ((len(found) - 1) / max(len(known) - 1, 1)) ** 0.5
    golden = [value * wider for value in advantages(group, epsilon=EPSILON)]
    assert found == pytest.approx(golden, abs=1e-3)


@ALL
def test_golden_rewards_are_centred_without_scaling(group: Group) -> None:
    found = of_group(torch.tensor(filled(group)).unsqueeze(1), len(group.rows), "none")
    assert found == pytest.approx(centred(group), **TOLERANCE)


@ALL
def test_golden_advantages_by_prompt_id(group: Group) -> None:
    """The trainer's second way, for several turns: groups by prompt and request."""
    n = len(group.rows)
    if not group.whole:
        return
    found, _ = compute_advantages_dynamic(
        torch.tensor([*filled(group), 5.0, 7.0]).unsqueeze(1),
        torch.ones(1),
        [*["p"] * n, "other", "other"],
        list(map(str, range(n + 2))),
    )
    assert found.tolist()[:n] == pytest.approx(advantages(group, epsilon=EPSILON), **TOLERANCE)


@ALL
@pytest.mark.parametrize("asynchronous", [False, True])
def test_golden_groups_through_the_adapter(group: Group, asynchronous: bool) -> None:
    """Real samples → the trainer's reward computation → its advantages."""
    reward = made(group.recipe, config(num_generations=len(group.rows)), asynchronous=asynchronous)
    scorer: Any = reward.scorer
    scorer.gatherer, scorer.models = Recorded(group), ASKED
    samples = []
    for row in group.rows:
        said, turns = row["response"], ()
        if not isinstance(said, str):  # tool turns: the trainer's messages hold them
            *turns, last = said
            said = last["content"]
        gold = {key: row[key] for key in DATASET_FIELDS if key in row}
        # ms-swift puts what its template opened before the completion.
        whole = row.get("response_prefix", "") + said
        samples.append(sample(whole, gold, "Q", turns=turns))
    if not group.whole:
        with pytest.raises(RolloutError, match="row unscored member-1: "):
            rewards(reward, samples)
        return
    values = rewards(reward, samples)
    assert values[:, 0].tolist() == pytest.approx(list(group.rewards), **TOLERANCE)
    golden = advantages(group, epsilon=EPSILON)
    assert of_group(values, len(samples)) == pytest.approx(golden, **TOLERANCE)


# --- what is not scored ------------------------------------------------------------------------


def test_ms_swift_itself_counts_none_as_zero() -> None:
    """Why the adapter never says None: this is what would be learned from."""
    samples = answered(RIGHT, RIGHT, RIGHT)
    values = compute_rewards_per_func(
        samples, [lambda completions, **_: [2.0, None, 0.0]], [None], torch.device("cpu")
    )
    _, summed = compute_advantages(values, torch.ones(1), 3)
    assert summed.tolist() == [2.0, 0.0, 0.0]


def test_an_error_of_the_first_batch_names_the_row_and_the_field() -> None:
    samples = [*answered(RIGHT, RIGHT, RIGHT), sample(RIGHT, {"id": "r7"}, "q")]
    with pytest.raises(DataError, match="row r7: answers: missing"):
        rewards(made("naive-grpo"), samples)


def test_later_the_mean_of_the_siblings_stands_in_and_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reward = started()
    samples = [*answered(RIGHT, RIGHT, WRONG), sample(RIGHT, {})]
    with caplog.at_level(logging.WARNING, "rag_rewards"):
        values = rewards(reward, samples)
    assert values[:, 0].tolist() == pytest.approx([2.0, 2.0, 1.0, 5 / 3])
    assert of_group(values, 4)[3] == pytest.approx(0.0, abs=1e-6)
    assert reward.not_scored == 1
    assert "1 of 4 rollouts are unscored: row 3 of the batch: answers: missing" in caplog.text


def test_a_group_without_any_score_teaches_nothing() -> None:
    reward = started()
    lost = [sample(RIGHT, {}, "lost") for _ in range(4)]
    values = rewards(reward, [*answered(RIGHT, RIGHT, WRONG, WRONG), *lost])
    assert values[4:, 0].tolist() == [1.5] * 4
    assert of_group(values, 4)[4:] == [0.0] * 4


def test_batches_in_a_row_without_any_score_end_the_training() -> None:
    reward = started(patience=2)
    lost = [sample(RIGHT, {}, "lost") for _ in range(4)]
    assert rewards(reward, lost)[:, 0].tolist() == [0.0] * 4
    with pytest.raises(DataError, match="answers: missing"):
        rewards(reward, lost)


# --- groups ------------------------------------------------------------------------------------


def grouped(reward: RagReward, samples: list[GRPOSample]) -> list[list[int]]:
    """Positions of the groups, seen where they reach the recipe."""
    seen: list[list[int]] = []
    own = reward.scorer.score_each

    def watched(rollouts: Any, groups: Any = None) -> Any:
        seen.extend(list(group) for group in groups)
        return own(rollouts, groups)

    reward.scorer.score_each = watched  # type: ignore[method-assign]
    rewards(reward, samples)
    return seen


def test_groups_are_those_of_a_prompt() -> None:
    gold = {"answers": ["Seine"]}
    samples = [sample(RIGHT, gold, prompt) for prompt in "aabbabba"]
    assert grouped(made("naive-grpo"), samples) == [[0, 1, 4, 7], [2, 3, 5, 6]]


def test_equal_prompts_have_one_prompt_id_and_are_groups_one_after_another() -> None:
    samples = answered(*[RIGHT] * 8)
    assert grouped(made("naive-grpo"), samples) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_of_several_samples_of_a_request_the_last_is_scored_for_all() -> None:
    """Trajectories are cut into samples where turns are trained apart."""
    gold = {"answers": ["Seine"]}
    samples = [
        sample("searching", gold, request="one"),
        sample(RIGHT, gold, request="one"),
        sample(WRONG, gold, request="two"),
    ]
    reward = made("naive-grpo", config(num_generations=2))
    values = rewards(reward, samples)
    assert values[:, 0].tolist() == [2.0, 2.0, 1.0]
    found, _ = compute_advantages_dynamic(
        values, torch.ones(1), [s.prompt_id for s in samples], [s.request_id for s in samples]
    )
    assert found.tolist() == pytest.approx([0.7070, 0.7070, -0.7070], abs=1e-3)


def test_a_group_that_is_not_whole_is_refused_where_it_must_be() -> None:
    reward = made("ctrl-rag")
    with pytest.raises(GroupError, match=r"3 completions in this batch.*num_generations=4: make"):
        rewards(reward, answered(RIGHT, RIGHT, WRONG, supporting=[1], documents=[{"text": "x"}]))


def test_groups_that_would_straddle_ranks_are_refused_at_construction() -> None:
    straddling = config(world_size=2, per_device_train_batch_size=2, steps_per_generation=3)
    with pytest.raises(UsageError, match=r"a rank has 6 .*not a multiple of num_generations=4"):
        made("ctrl-rag", straddling)
    made("ctrl-rag", config(world_size=2, per_device_train_batch_size=2, steps_per_generation=2))
    made("arena", straddling)  # sees single rollouts


def test_without_evidence_or_a_model_ctrl_rag_says_what_is_missing() -> None:
    reward = made("ctrl-rag")
    gold = {"supporting": [1], "documents": [{"text": "x"}]}
    with pytest.raises(UsageError, match=r"a model of the kind policy: set model="):
        rewards(reward, answered(*[RIGHT] * 4, **gold))


# --- settings ----------------------------------------------------------------------------------


def test_a_plugin_of_two_lines(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "from rag_rewards_adapters.ms_swift import register\n"
        'register("mine", recipe="naive-grpo", hardened=True)\n'
    )
    from swift.utils import import_external_file

    import_external_file(str(plugin))
    reward = orms["mine"](args=config())
    assert type(reward).__name__ == "mine"  # what the trainer logs it under
    assert "naive-grpo hardened" in reward.scorer.signature


def test_a_mistake_in_the_plugin_is_said_when_it_is_imported() -> None:
    with pytest.raises(SettingError):
        register("arena", settings={"bonus.valu": 5})
    with pytest.raises(UsageError, match=r"columns: a row has no field 'answer'.*answers"):
        register("arena", columns={"answer": "solution"})


def test_columns_of_another_name() -> None:
    reward = made("naive-grpo", columns={"answers": "solution"})
    samples = [sample(text, {"solution": "Seine"}) for text in (RIGHT, WRONG, RIGHT, RIGHT)]
    assert rewards(reward, samples)[:, 0].tolist() == [2.0, 1.0, 2.0, 2.0]
    with pytest.raises(UsageError, match="no column 'solution'"):
        rewards(reward, answered(RIGHT))


def test_stages_go_by_the_trainers_step() -> None:
    stages = [
        {"recipe": "naive-grpo", "until_step": 2},
        {"recipe": "truthrl", "settings": {"verifier": "exact"}},
    ]
    reward = made("staged", stages=stages)
    samples = answered(*[RIGHT] * 4)
    assert rewards(reward, samples, step=1)[:, 0].tolist() == [2.0] * 4
    assert rewards(reward, samples, step=2)[:, 0].tolist() == [-1.0] * 4  # nothing is boxed


def test_lears_advantage_as_the_reward_goes_with_no_scaling() -> None:
    reward = made("naive-grpo", config(scale_rewards="none"), std_floor=0.5)
    values = rewards(reward, answered(RIGHT, RIGHT, WRONG, RIGHT))
    golden = [0.5, 0.5, -1.5, 0.5]  # population deviation 0.433, below the floor of 0.5
    assert of_group(values, 4, "none") == pytest.approx(golden)
    with pytest.raises(UsageError, match="set --scale_rewards none"):
        made("naive-grpo", config(), std_floor=0.1)


def test_asynchronous_rewards_are_seen_as_such() -> None:
    from swift.rl_core.grpo_algorithm import _is_async_reward

    assert _is_async_reward(made("naive-grpo", asynchronous=True))
    assert not _is_async_reward(made("naive-grpo"))
    assert issubclass(AsyncRagReward, RagReward)


# --- the matrix --------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_matrix_says_what_works_here(recipe: str) -> None:
    """By itself, or with a model, without which the first batch says what is missing."""
    entry = cell(recipe, "ms_swift")
    samples = [sample(row.pop("response"), row) for row in bare(recipe)]
    if entry.state == "works":
        golden = next(group for group in GROUPS if group.id == f"{recipe}: whole group")
        assert rewards(made(recipe), samples)[:, 0].tolist() == pytest.approx(golden.rewards)
        return
    assert entry.state == "setting"
    with pytest.raises(UsageError, match=r"set (nli|judge|model)="):
        rewards(made(recipe), samples)


def test_the_matrix_has_lears_advantage_here() -> None:
    options = STD_FLOOR["ms_swift"].options
    reward = made("lear", config(scale_rewards="none"), **options)
    scorer: Any = reward.scorer
    golden = next(group for group in GROUPS if group.id == "lear: whole group")
    scorer.gatherer, scorer.models = Recorded(golden), ASKED
    values = rewards(reward, [sample(row.pop("response"), row) for row in bare("lear")])
    expected = advantages(golden, std_floor=options["std_floor"])
    assert of_group(values, 4, "none") == pytest.approx(expected, **TOLERANCE)

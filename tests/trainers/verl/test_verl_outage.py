"""A judge that fails, and rows that cannot be scored, in verl's V1 trainer."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import v1_trainer as v1
from judge_server import JudgeServer, Reply
from rag_rewards_adapters.verl.config import RewardOptions

from rag_rewards.errors import BackendError, DataError, GroupError, UsageError

KWARGS = "reward.custom_reward_function.reward_kwargs"
LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop"
BUFFER = "trainer.v1.sampler.custom_sampler"
REPLIES = ["\\boxed{La Seine}", "\\boxed{I don't know}", "no box"]
"""A response that the judge scores, and two that it does not."""
NAMES = ["Paris", "Rouen", "Troyes", "Melun", "Vernon", "Sens"]


def judged(url: str) -> list[str]:
    options = {"judge": url, "judge_model": "tiny", "judge_retries": 0}
    return [f"+{KWARGS}.{name}={value}" for name, value in options.items()]


@pytest.mark.parametrize("patience", [3, 5])
def test_a_judge_that_is_down_for_four_batches(tmp_path: Any, patience: int) -> None:
    """A batch has 2 groups, and a group has 2 requests to the judge, one for each gold answer.

    With a greater patience than 4, the training goes on after the outage.
    """
    folder = v1.save(tmp_path / "model")
    data = v1.write(tmp_path / "train.parquet", [v1.question(name) for name in NAMES])
    batches: list[dict[str, Any]] = []
    failed: list[Any] = []

    def reply(request: Any) -> Reply:
        if batches and len(failed) < 4 * 2 * 2:
            failed.append(request)
            return Reply(status=503)
        return Reply(text=json.dumps({"explanation": "", "score": 1}))

    with JudgeServer(reply) as judge, v1.cluster():
        config = v1.configuration(
            folder,
            "truthrl",
            *judged(judge.url),
            *v1.trainer_overrides(data, data),
            "trainer.total_training_steps=3",
            f"+trainer.v1.sampler.sampler_kwargs.patience={patience}",
            "trainer.test_freq=-1",
            "trainer.val_before_train=False",
        )
        server = ray.remote(v1.Engine).remote(
            folder, dict.fromkeys(NAMES, REPLIES), v1.LENGTHS["max_model_len"]
        )
        log = tmp_path / "log.jsonl"
        if patience < 4:
            with pytest.raises(GroupError, match="6 groups failed before a batch was complete"):
                v1.train(config, server, log, batches)
        else:
            logged = v1.train(config, server, log, batches).logged
            names = ("rag_rewards/not_scored_groups", "rag_rewards/outcome/mean")
            assert [logged[step][names[0]] for step in (1, 2, 3)] == [0.0, 8.0, 0.0]
            assert all(names[1] in logged[step] for step in (1, 2, 3))
    assert len(batches) == (1 if patience < 4 else 3)
    for batch in batches:
        groups = v1.groups_of(batch).values()
        assert len(groups) == 2
        for group in groups:
            assert sorted(rollout["rm_scores"][-1] for rollout in group) == [-1, 0, 1]


# --- checks before training ----------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Any) -> SimpleNamespace:
    return SimpleNamespace(
        model=v1.save(tmp_path / "model"),
        good=v1.write(tmp_path / "good.parquet", [v1.question(name) for name in NAMES]),
        folder=tmp_path,
    )


def composed(files: Any, recipe: str, *overrides: str, data: str = "") -> Any:
    overrides = (*v1.trainer_overrides(data or files.good, files.good), *overrides)
    return v1.configuration(files.model, recipe, *overrides)


def test_a_row_without_a_supporting_document_is_named_before_training(files: Any) -> None:
    rows = [v1.question(name) for name in NAMES]
    rows[4]["reward_model"]["ground_truth"] = json.dumps({"answers": "Seine", "supporting": ["99"]})
    bad = v1.write(files.folder / "bad.parquet", rows)
    RewardOptions.of_training(composed(files, "arena"))
    with pytest.raises(DataError, match=r"row Vernon \(4 of .*bad\.parquet\): supporting.*'99'"):
        RewardOptions.of_training(composed(files, "arena", data=bad))


def test_the_trainer_checks_its_rows_before_it_loads_a_model(files: Any) -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    rows = [v1.question("Paris"), {**v1.question("Rouen"), "reward_model": {"ground_truth": "{}"}}]
    lines = files.folder / "bad.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trainer = SimpleNamespace(
        config=composed(files, "arena", data=str(lines)), trainer_mode="sync", parameter_sync_step=1
    )
    trainer._add_prompts_to_generate = PPOTrainer._add_prompts_to_generate.__get__(trainer)
    with pytest.raises(DataError, match=r"1 of .*bad\.jsonl"):
        PPOTrainer._build_replay_buffer(trainer)


def test_a_missing_judge_is_named_before_training(files: Any) -> None:
    with pytest.raises(UsageError, match="truthrl requires a model of the kind judge: set judge="):
        RewardOptions.of_training(composed(files, "truthrl"))
    RewardOptions.of_training(composed(files, "truthrl", f"+{KWARGS}.settings.verifier=exact"))


def test_a_judge_that_does_not_answer_is_reported_before_training(files: Any) -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    with JudgeServer(lambda _: Reply(status=401)) as judge:
        trainer = SimpleNamespace(
            config=composed(files, "truthrl", *judged(judge.url)), trainer_mode="sync"
        )
        refill = PPOTrainer._add_prompts_to_generate
        trainer._add_prompts_to_generate = refill.__get__(trainer)
        with pytest.raises(BackendError, match=r"not ready for the training: .*status 401"):
            PPOTrainer._build_replay_buffer(trainer)


def test_a_missing_policy_is_named_before_training(files: Any) -> None:
    RewardOptions.of_training(composed(files, "ctrl-rag"))
    with pytest.raises(UsageError, match="kind policy: use the policy's own rollout engine"):
        RewardOptions.of_training(composed(files, "ctrl-rag", f"{LOOP}=single_turn_agent"))


def test_a_recipe_with_models_requires_whole_groups(files: Any) -> None:
    plain = (*judged("http://localhost:1"), f"{LOOP}=single_turn_agent")
    own = (f"{BUFFER}.name=null", f"{BUFFER}.path=null")
    RewardOptions.of_training(composed(files, "truthrl", *plain))
    RewardOptions.of_training(composed(files, "truthrl", *own, *judged("http://localhost:1")))
    asynchronous = "trainer.v1.trainer_mode=colocate_async"
    RewardOptions.of_training(composed(files, "truthrl", *plain, *own, asynchronous))
    with pytest.raises(UsageError, match=r"train on the other rollouts.*rag_group.*RagReplayBuf"):
        RewardOptions.of_training(composed(files, "truthrl", *plain, *own))

"""`rag_group` in verl's V1 trainer: two steps and validation, under Ray."""

from __future__ import annotations

from functools import cache
from statistics import fmean
from types import SimpleNamespace

import pytest
import ray
import v1_trainer as v1
from test_verl_group_loops import logprob_reward
from tiny_models import naive
from transformers import AutoModelForCausalLM, AutoTokenizer

from rag_rewards.evidence.protocols import ScoreRequest

RESPONSES = ["<think>a</think><answer>Seine</answer>", "<answer>the Seine</answer>", "Rhone"]
SETTINGS = "reward.custom_reward_function.reward_kwargs.settings"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the log of a training of two steps, and the batches of its actor."""
    path = tmp_path_factory.mktemp("training")
    folder = v1.save(path / "model")
    names = ["Paris", "Rouen", "Troyes", "Melun", "Vernon", "Sens"]
    replies = dict.fromkeys(names, RESPONSES) | {"Rouen": [RESPONSES[0], None, RESPONSES[0]]}
    train = v1.write(path / "train.parquet", [v1.question(name) for name in names])
    val = v1.write(path / "val.parquet", [v1.question(name) for name in ("Paris", "Troyes")])
    config = v1.configuration(
        folder,
        "ctrl-rag",
        f"+{SETTINGS}.threshold=null",
        "+reward.custom_reward_function.reward_kwargs.displacement_every=1",
        *v1.trainer_overrides(train, val),
    )
    with v1.cluster():
        server = ray.remote(v1.Engine).remote(folder, replies, v1.LENGTHS["max_model_len"])
        training = v1.train(config, server, path / "log.jsonl")
    return SimpleNamespace(folder=folder, **vars(training))


@pytest.fixture(scope="module")
def expected(trained):
    """Return the scores of a prompt's three responses by transformers, in this process."""

    @cache
    def scores(name):
        scored = logprob_reward(trained.folder, v1.question(name), RESPONSES)
        return dict(zip(RESPONSES, scored, strict=True))

    return SimpleNamespace(scores=scores, tokenizer=AutoTokenizer.from_pretrained(trained.folder))


@pytest.mark.training_loop("the engine, the update of the weights and their transfer")
def test_rewards_equal_those_of_transformers(trained, expected):
    assert len(trained.batches) == 2
    for batch in trained.batches:
        groups = v1.groups_of(batch)
        assert [len(group) for group in groups.values()] == [3, 3]
        for group in groups.values():
            scores = expected.scores(group[0]["extra_info"]["index"])
            texts = [expected.tokenizer.decode(rollout["responses"][:-1]) for rollout in group]
            assert sorted(texts) == sorted(RESPONSES)
            for text, rollout in zip(texts, group, strict=True):
                *before, last = rollout["rm_scores"]
                assert not any(before)
                assert last == pytest.approx(scores[text].value, abs=1e-5)
                info = rollout["extra_fields"]["reward_extra_info"]
                assert info["acc"] == scores[text].correct
                for name, value in scores[text].components.items():
                    assert info[name] == pytest.approx(value, abs=1e-4)


def test_advantages_match_the_rewards_of_the_groups(trained):
    for batch in trained.batches:
        for group in v1.groups_of(batch).values():
            rewards = [rollout["rm_scores"][-1] for rollout in group]
            mean = sum(rewards) / len(rewards)
            for reward, rollout in zip(rewards, group, strict=True):
                golden = [reward - mean] * len(rollout["responses"])
                assert rollout["advantages"] == pytest.approx(golden, abs=1e-6)


def test_log_probabilities_come_from_the_weights_of_the_rollout(trained):
    for step, batch in enumerate(trained.batches):
        for rollout in batch.values():
            if not rollout["padding"]:
                assert rollout["extra_fields"]["max_global_steps"] == step


def test_a_failed_group_is_replaced_and_counted(trained):
    trained_on = [
        group[0]["extra_info"]["index"]
        for batch in trained.batches
        for group in v1.groups_of(batch).values()
    ]
    assert "Rouen" not in trained_on
    assert len(trained_on) == 4
    assert (
        sum(m.get("training/rollout_failure/evicted_samples", 0) for m in trained.logged.values())
        == 1
    )


def test_components_are_logged_at_every_step(trained):
    for step, batch in enumerate(trained.batches, start=1):
        infos = [
            rollout["extra_fields"]["reward_extra_info"]
            for rollout in batch.values()
            if not rollout["padding"]
        ]
        for name in ("evidential_contribution", "clr", "clr_normalized", "accuracy", "acc"):
            mean = sum(info[name] for info in infos) / len(infos)
            assert trained.logged[step][f"rag_rewards/{name}/mean"] == pytest.approx(mean)


def test_the_monitor_logs_the_likelihood_of_right_responses(trained, expected):
    """The double of the engine keeps its weights, so that the displacement is 0."""
    model = AutoModelForCausalLM.from_pretrained(trained.folder).eval()
    logprobs = []
    for group in v1.groups_of(dict(sorted(trained.batches[0].items()))).values():
        right = [r for r in group if r["extra_fields"]["reward_extra_info"]["acc"] == 1.0]
        chat = v1.question(right[0]["extra_info"]["index"])["prompt"]
        prompt = expected.tokenizer.apply_chat_template(chat, add_generation_prompt=True)
        request = ScoreRequest((tuple(prompt["input_ids"]),), (tuple(right[0]["responses"]),))
        logprobs.append(fmean(naive(model, request)[0, 0]))
    assert "rag_rewards/right_logprob/mean" not in trained.logged[1]
    logged = trained.logged[2]
    assert logged["rag_rewards/right_logprob/mean"] == pytest.approx(fmean(logprobs), abs=1e-4)
    assert logged["rag_rewards/right_logprob_change/mean"] == pytest.approx(0.0, abs=1e-6)


def test_validation_reports_accuracy(trained):
    validated = {name for step in trained.logged.values() for name in step if "val-core" in name}
    assert validated == {"val-core/rivers/acc/mean@1"}
    for step in (0, 2):
        assert 0.0 <= trained.logged[step]["val-core/rivers/acc/mean@1"] <= 1.0

"""Turn credit in the tiny search world, with the trainer of TRL and its rollout function."""

from __future__ import annotations

from functools import partial
from unittest import mock

import pytest
import torch
from rag_rewards_adapters.trl import TurnGRPOTrainer
from tiny_search.arms import ARMS, arm
from tiny_search.base import base, load_search
from tiny_search.episode import episodes
from tiny_search.measures import measure
from tiny_search.rollouts import prompt_of
from tiny_search.train import (
    SearchRun,
    dead_groups,
    search_curve,
    search_trainer,
)

from rag_rewards.training.credit import METHODS, igpo, return_to_go, spread

FRESH = episodes(500, "fresh")


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A policy with two fifths of the examples of the comparison, to save time."""
    torch.set_num_threads(1)
    with mock.patch.multiple("tiny_search.base", BATCH=32, RIGHT_STEPS=160, NOISY_STEPS=80):
        return base(0, tmp_path_factory.mktemp("search") / "noisy")


def test_the_policy_before_the_training_is_rarely_right(start):
    measures = measure(*load_search(start), FRESH)
    assert 0.05 < measures["right"] < 0.12
    assert measures["first query"] > 0.95
    assert measures["second query"] < 0.25
    assert measures["malformed turns"] < 0.1


@pytest.mark.parametrize("name", ["outcome only", "coverage, return"])
def test_fifteen_steps_teach_the_second_hop(start, tmp_path, name):
    curve = search_curve(5, 100)
    trainer = search_trainer(SearchRun(arm(name), start, 15, prompts=8), tmp_path, [curve])
    trainer.train()
    measures = measure(trainer.model, trainer.processing_class, FRESH)
    assert measures["right"] > 0.4
    assert measures["second query"] > 0.5
    assert [step for step, _ in curve.points] == [0, 5, 10, 15]
    shares = dead_groups(trainer.state.log_history)
    assert len(shares) == 15
    assert all(0 <= share <= 1 for share in shares)


@pytest.mark.parametrize(
    ("name", "function", "world"),
    [
        ("coverage, return", return_to_go, {}),
        ("igpo, separate", partial(igpo, norm="separate"), {}),
        ("igpo empty, return", return_to_go, {}),
        ("igpo permuted, return", return_to_go, {}),
        ("gigpo", METHODS["gigpo"], {"prompts": 32, "group_size": 4, "recall": 0.7}),
    ],
)
def test_a_batch_has_the_advantages_of_the_credit_method(
    start, tmp_path, monkeypatch, name, function, world
):
    """The advantage of each token, from the scores of the reward without the trainer's own code."""
    batches = []
    original = TurnGRPOTrainer._generate_and_score_completions

    def record(self, inputs):
        output = original(self, inputs)
        batches.append((output, self.reward.last_scores, self.reward.last_rollouts))
        return output

    monkeypatch.setattr(TurnGRPOTrainer, "_generate_and_score_completions", record)
    run = SearchRun(arm(name), start, 1, **{"prompts": 4, **world})
    search_trainer(run, tmp_path).train()
    ((output, scores, rollouts),) = batches
    width = output["completion_ids"].shape[1]
    assert any(len(score.turns) > 2 for score in scores)
    size, differ = run.group_size, False
    for first in range(0, len(scores), size):
        members = [each.steps() for each in rollouts[first : first + size]]
        anchors = [["", *(turn.observation for turn in turns[:-1])] for turns in members]
        options = {"anchors": anchors} if name == "gigpo" else {}
        advantages = function([score.turns for score in scores[first : first + size]], **options)
        differ |= any(len(set(own)) > 1 for own in advantages)
        for i, own in enumerate(advantages, first):
            spans = [turn.token_span for turn in rollouts[i].steps()]
            row = output["advantages"][i].tolist()
            assert row == pytest.approx(spread(own, spans, width), abs=1e-5)
            outside = output["tool_mask"][i] * output["completion_mask"][i] == 0
            assert not any(value for value, out in zip(row, outside, strict=True) if out)
    assert differ


def test_the_rollout_function_serves_the_episode_of_each_prompt(start, tmp_path):
    run = SearchRun(ARMS[0], start, 2, prompts=4)
    trainer = search_trainer(run, tmp_path)
    prompts = [row["prompt"] for row in run.rows() for _ in range(2)]
    output = trainer.rollout_func(prompts, trainer)
    tokenizer = trainer.processing_class
    for i, prompt_ids in enumerate(output["prompt_ids"]):
        episode = run.episodes[i // 2]
        assert prompt_ids == tokenizer(prompt_of(episode))["input_ids"]
        assert len(output["completion_ids"][i]) == len(output["env_mask"][i])
        assert len(output["completion_ids"][i]) == len(output["logprobs"][i])
        for turn in output["turns"][i]:
            known = {f"{who} {what}" for who, what in episode.facts.items()}
            assert {result["text"] for result in turn["results"] or ()} <= known

"""CTRL-RAG in verl's V1 trainer, on the log-probabilities of a real vLLM, against transformers.

It runs in verl's environment if RAG_REWARDS_VLLM_PYTHON is the path of a Python with vLLM.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("verl.protocol")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "trainers/verl"))

import ray  # noqa: E402
import tiny_model  # noqa: E402
import v1_trainer as v1  # noqa: E402
from test_real_vllm import url  # noqa: E402, F401  (a fixture)
from tiny_models import make_tokenizer  # noqa: E402

import rag_rewards as rr  # noqa: E402
from rag_rewards.evidence.protocols import Models  # noqa: E402
from rag_rewards.models.transformers import TransformersPolicy  # noqa: E402
from rag_rewards.scorer import Scorer  # noqa: E402

pytestmark = pytest.mark.skipif(
    not os.environ.get("RAG_REWARDS_VLLM_PYTHON"), reason="RAG_REWARDS_VLLM_PYTHON names no Python"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("model"))
    tiny_model.save(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def trained(model, url, tmp_path_factory):  # noqa: F811
    path = tmp_path_factory.mktemp("training")
    names = ["Paris", "Rouen", "Troyes", "Melun"]
    config = v1.configuration(
        model,
        "ctrl-rag-clr",
        "+reward.custom_reward_function.reward_kwargs.settings.threshold=null",
        *v1.trainer_overrides(
            v1.write(path / "train.parquet", [v1.question(name) for name in names]),
            v1.write(path / "val.parquet", [v1.question("Paris")]),
        ),
        "actor_rollout_ref.rollout.response_length=24",
        "data.max_response_length=24",
    )
    with v1.cluster():
        server = ray.remote(v1.Served).remote(url, v1.LENGTHS["max_model_len"])
        return v1.train(config, server, path / "log.jsonl")


def test_rewards_on_vllm_are_those_of_transformers(trained, model):
    policy = TransformersPolicy.load(model, dtype="float32", device="cpu")
    scorer = Scorer(rr.recipe("ctrl-rag-clr", {"threshold": None}), Models(policy=policy))
    assert len(trained.batches) == 2
    rewards = []
    for batch in trained.batches:
        for group in v1.groups_of(batch).values():
            row = v1.question(group[0]["extra_info"]["index"])
            known = {
                "question": row["extra_info"]["question"],
                "documents": row["extra_info"]["documents"],
                "prompt": row["prompt"],
                **json.loads(row["reward_model"]["ground_truth"]),
            }
            rollouts = [
                rr.decode_row({**known, "response": "", "response_token_ids": one["responses"]})
                for one in group
            ]
            for one, score in zip(group, scorer.score_each(rollouts), strict=True):
                assert one["rm_scores"][-1] == pytest.approx(score.value, abs=1e-3)
                rewards.append(score.value)
    assert len(rewards) == 12
    assert len({round(reward, 6) for reward in rewards}) > 6

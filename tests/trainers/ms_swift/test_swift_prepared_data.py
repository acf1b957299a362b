"""Files of `rag-rewards prepare` in ms-swift's own loading and samples."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rag_rewards_adapters.ms_swift import RagReward, reward_class
from swift.dataset import load_dataset
from swift.rl_core.data import GRPOSample
from swift.rl_core.grpo_algorithm import compute_rewards_per_func

from rag_rewards.preparation.options import PrepareOptions
from rag_rewards.preparation.prepare import prepare

CONFIG = SimpleNamespace(
    num_generations=2,
    num_generations_eval=None,
    per_device_train_batch_size=2,
    steps_per_generation=1,
    world_size=1,
    scale_rewards="group",
)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("hotpotqa", "hotpotqa/distractor_row_trimmed.json"),
        ("nq", "nq/nq_open_oracle_first25.jsonl"),
    ],
)
def test_prepared_rows_get_their_rewards(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, name: str, file: str
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    out = tmp_path / "train.jsonl"
    prepare(PrepareOptions(name, str(shared / "data" / file), str(out), "arena", "ms-swift"))
    rows, _ = load_dataset(str(out), remove_unused_columns=False)
    assert len(rows) in (1, 25)
    reward: RagReward = reward_class("mine", recipe="arena")(args=CONFIG)
    for i, row in enumerate(rows):
        samples = []
        for answer in (row["answers"][0][0], "none of it"):
            sample = GRPOSample.from_row(dict(row))
            ids = ", ".join(row["supporting"])
            text = f"<relevance>[{ids}]</relevance><analysis>x</analysis><answer>{answer}</answer>"
            sample.messages = [*row["messages"], {"role": "assistant", "content": text}]
            sample.prompt_id, sample.request_id = f"prompt_{i}", f"{i}, {answer}"
            sample.finish_reason = "stop"
            samples.append(sample)
        state = SimpleNamespace(global_step=0)
        rewards = compute_rewards_per_func(
            samples, [reward], [None], torch.device("cpu"), trainer_state=state
        )
        assert rewards.flatten().tolist() == [13.0, 2.0]

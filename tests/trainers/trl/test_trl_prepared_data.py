"""Files of `rag-rewards prepare` in datasets, in the trainer of TRL and in the reward."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from datasets import concatenate_datasets, load_dataset
from rag_rewards_adapters.trl import RagReward
from trl_runs import GRPOConfig, GRPOTrainer, make_model, make_tokenizer

from rag_rewards.preparation.options import PrepareOptions
from rag_rewards.preparation.prepare import prepare

FILES = {
    "hotpotqa": "hotpotqa/distractor_row_trimmed.json",
    "2wikimultihopqa": "2wikimultihopqa/rows.json",
    "musique": "musique/musique_ans_row.json",
    "nq": "nq/nq_open_oracle_first25.jsonl",
}


def loaded(tmp_path: Path, shared: Path, name: str, recipe: str) -> Any:
    out = tmp_path / f"{name}.jsonl"
    prepare(PrepareOptions(name, str(shared / "data" / FILES[name]), str(out), recipe, "trl"))
    return load_dataset(
        "json", data_files=str(out), split="train", cache_dir=str(tmp_path / "cache")
    )


def test_files_of_several_data_sets_can_be_combined(tmp_path: Path, shared: Path) -> None:
    parts = [loaded(tmp_path, shared, name, "arena") for name in FILES]
    assert all(part.features == parts[0].features for part in parts)
    rows = concatenate_datasets(parts)
    assert len(rows) == 29
    texts = [
        f"<relevance>[{', '.join(row['supporting'])}]</relevance><analysis>x</analysis>"
        f"<answer>{row['answers'][0][0]}</answer>"
        for row in rows
    ]
    columns = {name: rows[name] for name in rows.column_names if name != "prompt"}
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    values = RagReward("arena", group_size=1)(
        prompts=rows["prompt"], completions=completions, **columns
    )
    assert values == [13.0] * 29


@pytest.mark.parametrize("name", ["musique", "nq"])
def test_columns_missing_from_some_rows(tmp_path: Path, shared: Path, name: str) -> None:
    rows = loaded(tmp_path, shared, name, "lear")
    assert {"answers", "documents", "supporting"} <= set(rows.column_names)
    first = rows[0]["documents"][0]
    assert set(first) == {"id", "title", "text"}


def test_a_step_of_the_real_trainer(tmp_path: Path, shared: Path) -> None:
    rows = loaded(tmp_path, shared, "nq", "ctrl-rag")
    reward = RagReward("ctrl-rag")
    trainer = GRPOTrainer(
        model=make_model("qwen2"),
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=str(tmp_path / "run"),
            max_steps=1,
            per_device_train_batch_size=2,
            num_generations=2,
            max_completion_length=4,
            report_to=[],
            use_cpu=True,
        ),
        train_dataset=rows.filter(lambda row: len(row["prompt"][0]["content"]) < 1_500),
        processing_class=make_tokenizer(),
    )
    reward.bind(trainer)
    trainer.train()
    [logged] = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert math.isfinite(logged["reward"])

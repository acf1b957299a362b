"""Files of `rag-rewards prepare` in verl's own data set and reward function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from rag_rewards_adapters.verl import compute_score
from reward_batches import saved_tokenizer
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

from rag_rewards.preparation.options import PrepareOptions
from rag_rewards.preparation.prepare import prepare

FILES = {
    "hotpotqa": "hotpotqa/distractor_row_trimmed.json",
    "2wikimultihopqa": "2wikimultihopqa/rows.json",
    "musique": "musique/musique_ans_row.json",
    "nq": "nq/nq_open_oracle_first25.jsonl",
}


def prepared(tmp_path: Path, shared: Path, name: str, recipe: str) -> str:
    out = tmp_path / f"{name}.parquet"
    prepare(PrepareOptions(name, str(shared / "data" / FILES[name]), str(out), recipe, "verl"))
    return str(out)


def load_dataset(files: list[str], tmp_path: Path, **config: Any) -> RLHFDataset:
    settings = {
        "cache_dir": str(tmp_path / "cache"),
        "max_prompt_length": 100_000,
        "filter_overlong_prompts_workers": 1,
    }
    return RLHFDataset(files, saved_tokenizer(tmp_path), OmegaConf.create(settings | config))


def test_verls_data_set_and_reward_function(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    rows = load_dataset([prepared(tmp_path, shared, name, "arena") for name in FILES], tmp_path)
    assert len(rows) == 29
    batch = collate_fn([rows[i] for i in range(len(rows))])
    assert set(batch["data_source"]) == set(FILES)
    assert "agent_name" not in batch
    for i in range(len(rows)):
        [message] = batch["raw_prompt"][i]
        extra, truth = batch["extra_info"][i], batch["reward_model"][i]["ground_truth"]
        assert extra["question"] in message["content"]
        gold = rows[i]
        assert gold["index"] == extra["index"]
        result = compute_score(batch["data_source"][i], right(truth), truth, extra, recipe="arena")
        assert (result["score"], result["acc"]) == (13.0, 1.0)
        wrong = compute_score(batch["data_source"][i], "none", truth, extra, recipe="arena")
        assert wrong["score"] == 0.0


def right(truth: str) -> str:
    import json

    gold = json.loads(truth)
    ids = ", ".join(gold["supporting"])
    return (
        f"<relevance>[{ids}]</relevance><analysis>x</analysis>"
        f"<answer>{gold['answers'][0][0]}</answer>"
    )


def test_overlong_prompts_are_filtered_by_verl(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    files = [prepared(tmp_path, shared, "nq", "ctrl-rag")]
    dataset = load_dataset(files, tmp_path, max_prompt_length=1_000)
    assert 0 < len(dataset) < 25

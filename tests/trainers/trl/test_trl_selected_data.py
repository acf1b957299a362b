"""Files of `rag-rewards select --make` in datasets and in the trainers of TRL."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer
from trl_runs import make_model, make_tokenizer

from rag_rewards.selection.options import SelectOptions
from rag_rewards.selection.select import select

COMMON: dict[str, Any] = {
    "max_steps": 2,
    "per_device_train_batch_size": 2,
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "logging_steps": 1,
    "save_strategy": "no",
    "disable_tqdm": True,
}


def scored(group: str, *marks: int) -> list[dict[str, Any]]:
    return [
        {
            "group": group,
            "question": f"What of {group}?",
            "documents": [{"text": f"About {group}."}],
            "answers": [f"answer {group}"],
            "response": f"<think>{at}</think>\\boxed{{answer {group if mark else at}}}",
            "correct": mark,
            "details": {"refused": False},
            "signature": "rag-rewards 0.8.0 truthrl",
        }
        for at, mark in enumerate(marks)
    ]


def select_rows(folder: Path, kind: str, style: str = "direct") -> Any:
    rows = [row for name in "abcd" for row in scored(name, 1, 0)] + scored("e", 0, 0)
    source, out = folder / "scored.jsonl", folder / f"{kind}.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    select(SelectOptions(str(source), str(out), make=kind, style=style))
    return load_dataset("json", data_files=str(out), split="train", cache_dir=str(folder / "cache"))


def losses(trainer: Any) -> list[float]:
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("kind", ["r-tuning", "rft", "sft", "sft reasoning"])
def test_sft_trains_on_the_completions_only(tmp_path: Path, kind: str) -> None:
    name, _, style = kind.partition(" ")
    rows = select_rows(tmp_path, name, style or "direct")
    tokenizer = make_tokenizer()
    trainer = SFTTrainer(
        model=make_model("qwen2"),
        args=SFTConfig(output_dir=str(tmp_path / "run"), max_length=2048, **COMMON),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    first = trainer.train_dataset[0]
    trained = [label for label in first["labels"] if label != -100]
    assert rows[0]["completion"][0]["content"] in tokenizer.decode(trained)
    assert "What of a?" not in tokenizer.decode(trained)
    assert all(math.isfinite(loss) for loss in losses(trainer))


def test_dpo_trains_on_the_pairs(tmp_path: Path) -> None:
    rows = select_rows(tmp_path, "dpo")
    assert rows[4]["chosen"][0]["content"] == "\\boxed{I don't know}"
    trainer = DPOTrainer(
        model=make_model("qwen2"),
        ref_model=make_model("qwen2"),
        args=DPOConfig(output_dir=str(tmp_path / "run"), max_length=2048, **COMMON),
        train_dataset=rows,
        processing_class=make_tokenizer(),
    )
    first_losses = losses(trainer)
    assert first_losses[0] == pytest.approx(
        math.log(2), abs=1e-3
    )  # the policy still equals the reference
    assert all(math.isfinite(loss) for loss in first_losses)

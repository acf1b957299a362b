"""Logging of components, with real event files and a double of Weights & Biases."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rag_rewards_adapters.training_log import TrainingLog


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events_file = accumulator.EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, event.value) for event in events_file.Scalars(tag)]
        for tag in events_file.Tags()["scalars"]
    }


def test_tensorboard_events(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    log = TrainingLog(["tensorboard"], tmp_path)
    log.write({"arena/accuracy": 0.5}, 1)
    pickle.loads(pickle.dumps(log))  # noqa: S301 (a trainer sends rewards to its workers)
    log.write({"arena/accuracy": 0.75}, 2)
    assert events(tmp_path / "rag_rewards") == {"arena/accuracy": [(1, 0.5), (2, 0.75)]}


def test_wandb_uses_the_training_step_of_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[dict[str, Any]] = []
    wandb = SimpleNamespace(run=object(), log=logged.append)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    log = TrainingLog("wandb", None)
    log.write({"arena/bonus": 1.0}, 7)
    wandb.run = None
    log.write({"arena/bonus": 2.0}, 8)  # there is no run
    assert logged == [{"arena/bonus": 1.0, "train/global_step": 7}]


def test_other_ranks_and_other_loggers_write_nothing(tmp_path: Path) -> None:
    TrainingLog(["tensorboard"], tmp_path, rank=1).write({"a": 1.0}, 1)
    TrainingLog(["swanlab"], tmp_path).write({"a": 1.0}, 1)
    TrainingLog((), None).write({"a": 1.0}, 1)
    assert list(tmp_path.iterdir()) == []


def test_log_of_training_arguments(tmp_path: Path) -> None:
    args = SimpleNamespace(report_to=["tensorboard"], output_dir=tmp_path, process_index=0)
    assert TrainingLog.of(args).folder == tmp_path / "runs"
    args.logging_dir = "elsewhere"
    assert TrainingLog.of(args).folder == "elsewhere"
    assert TrainingLog.of(None).loggers == set()

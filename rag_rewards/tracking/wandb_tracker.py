"""Runs of Weights & Biases. Its variables, such as WANDB_PROJECT and WANDB_MODE, apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import wandb

from rag_rewards.errors import UsageError


class WandbTracker:
    """A run of Weights & Biases: means in its summary, steps in its history."""

    def __init__(self, run: Any) -> None:
        self._run = run
        run.define_metric("steps/*", step_metric="step")

    @property
    def place(self) -> str:
        return str(self._run.url or self._run.dir)

    def log_settings(self, settings: Mapping[str, str]) -> None:
        self._run.config.update(dict(settings))

    def log_step(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({"step": step} | {f"steps/{name}": value for name, value in values.items()})

    def log_summary(self, values: Mapping[str, float]) -> None:
        self._run.summary.update(dict(values))

    def close(self, *, failed: bool = False) -> None:
        self._run.finish(exit_code=int(failed))


def start(name: str) -> WandbTracker:
    """Start a run. Raises UsageError if Weights & Biases refuses it, for example without a key."""
    # Rows on standard output must not be recorded, so that the console is off.
    settings = wandb.Settings(console="off", silent=True)
    try:
        return WandbTracker(wandb.init(name=name, settings=settings))
    except wandb.Error as error:
        raise UsageError(f"wandb: {error}; WANDB_MODE=offline writes to a folder") from None

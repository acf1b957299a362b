"""Logging of components to TensorBoard and Weights & Biases, for trainers that cannot log them.

TRL, verl and OpenRLHF pass components to their own loggers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class TrainingLog:
    """Writes numbers to the loggers that a trainer uses.

    `report_to` has the trainer's meaning: "tensorboard" writes events to `folder`, and "wandb" adds
    the numbers to the trainer's run. Other loggers get nothing, and only rank 0 writes.
    """

    def __init__(
        self, report_to: str | Sequence[str], folder: str | Path | None, rank: int = 0
    ) -> None:
        self.loggers = {report_to} if isinstance(report_to, str) else set(report_to)
        self.folder = folder
        self.rank = rank
        self._writer: Any = None

    @classmethod
    def of(cls, args: Any) -> TrainingLog:
        """Return the log of a trainer's arguments, which have the names of Hugging Face."""
        folder = getattr(args, "logging_dir", None) or os.environ.get("TENSORBOARD_LOGGING_DIR")
        output = getattr(args, "output_dir", None)
        if not folder and output:
            folder = Path(output) / "runs"
        rank = getattr(args, "process_index", 0) or 0
        return cls(getattr(args, "report_to", None) or (), folder or None, rank)

    def write(self, values: Mapping[str, float], step: int | None) -> None:
        """Write the numbers of a training step, by name."""
        if self.rank or not values:
            return
        if "tensorboard" in self.loggers and self.folder is not None:
            for name, value in values.items():
                self._events().add_scalar(name, value, step)
            self._events().flush()
        if "wandb" in self.loggers:
            _write_to_wandb(dict(values), step)

    def _events(self) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(Path(str(self.folder)) / "rag_rewards"))
        return self._writer

    def __reduce__(self) -> tuple[Any, ...]:
        return (TrainingLog, (tuple(sorted(self.loggers)), self.folder, self.rank))


def _write_to_wandb(values: dict[str, float], step: int | None) -> None:
    import wandb

    if wandb.run is not None:
        # A step of Weights & Biases can be written only once, so use the trainer's own axis.
        wandb.log(values if step is None else values | {"train/global_step": step})

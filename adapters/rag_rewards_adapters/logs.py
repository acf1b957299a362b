"""Components to TensorBoard and Weights & Biases, where a trainer has no place for them.

TRL, verl and OpenRLHF carry components to their own loggers; this is for those that do not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class TrainingLog:
    """Writes numbers beside a trainer's own, to those of its loggers that are named.

    `report_to` is the trainer's: "tensorboard" writes events to `folder`, "wandb" adds to the run
    that the trainer has begun. Others, and ranks but the first, write nothing.
    """

    def __init__(
        self, report_to: str | Sequence[str], folder: str | Path | None, rank: int = 0
    ) -> None:
        self.to = {report_to} if isinstance(report_to, str) else set(report_to)
        self.folder = folder
        self.rank = rank
        self._writer: Any = None

    @classmethod
    def of(cls, args: Any) -> TrainingLog:
        """As a trainer's arguments say it (Hugging Face's names)."""
        named = getattr(args, "logging_dir", None) or os.environ.get("TENSORBOARD_LOGGING_DIR")
        output = getattr(args, "output_dir", None)
        folder = named or (Path(output) / "runs" if output else None)
        rank = getattr(args, "process_index", 0) or 0
        return cls(getattr(args, "report_to", None) or (), folder, rank)

    def write(self, values: Mapping[str, float], step: int | None) -> None:
        """Numbers of a training step, by the names they are shown under."""
        if self.rank or not values:
            return
        if "tensorboard" in self.to and self.folder is not None:
            for name, value in values.items():
                self._events().add_scalar(name, value, step)
            self._events().flush()
        if "wandb" in self.to:
            self._run(dict(values), step)

    def _events(self) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(Path(str(self.folder)) / "rag_rewards"))
        return self._writer

    def _run(self, values: dict[str, float], step: int | None) -> None:
        import wandb  # type: ignore[import-not-found]

        if wandb.run is not None:
            # By the trainer's own axis: a step of W&B's can be written once alone.
            wandb.log(values if step is None else values | {"train/global_step": step})

    def __reduce__(self) -> tuple[Any, ...]:
        return (TrainingLog, (tuple(sorted(self.to)), self.folder, self.rank))

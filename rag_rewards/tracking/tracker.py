"""The protocol of trackers, and trackers by name."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Literal, Protocol

from rag_rewards.errors import UsageError

TrackerName = Literal["wandb", "mlflow", "tensorboard"]
TRACKERS: dict[str, tuple[str, str]] = {
    "wandb": ("wandb_tracker", "wandb"),
    "mlflow": ("mlflow_tracker", "mlflow-skinny"),
    "tensorboard": ("tensorboard_tracker", "tensorboard"),
}
"""The module of each tracker, and the package on PyPI that it needs."""


class Tracker(Protocol):
    """One run of an experiment tracker."""

    @property
    def place(self) -> str:
        """The folder or address of the run, for a message."""
        ...

    def log_settings(self, settings: Mapping[str, str]) -> None:
        """Record what produced the numbers: the signature, files and options."""
        ...

    def log_step(self, step: int, values: Mapping[str, float]) -> None:
        """Record the means of a training step, as the series `steps/NAME`."""
        ...

    def log_summary(self, values: Mapping[str, float]) -> None:
        """Record numbers of the whole run."""
        ...

    def close(self, *, failed: bool = False) -> None:
        """End the run."""
        ...


def check_tracker(kind: TrackerName) -> ModuleType:
    """Return the module of a tracker. Raises UsageError if its package is not installed."""
    module, package = TRACKERS[kind]
    try:
        return importlib.import_module(f"rag_rewards.tracking.{module}")
    except ImportError as error:
        missing = (error.name or package).partition(".")[0]
        raise UsageError(
            f"track {kind}: {missing} is not installed: pip install {package}"
        ) from None


@contextmanager
def tracked(kind: TrackerName, name: str) -> Iterator[Tracker]:
    """Start a run with a name, and end it after the block. An exception marks it as failed.

    Raises UsageError if the package is not installed or refuses the run.
    """
    tracker: Tracker = check_tracker(kind).start(name)
    try:
        yield tracker
    except BaseException:
        tracker.close(failed=True)
        raise
    tracker.close()

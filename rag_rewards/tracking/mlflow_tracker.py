"""Runs of MLflow. Its variables, such as MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME, apply."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mlflow
from mlflow.exceptions import MlflowException

from rag_rewards.errors import UsageError

MAX_CHARACTERS = 5000
"""Characters of a setting, which MLflow limits."""
_FORBIDDEN = re.compile(r"[^\w\-./: ]+", re.ASCII)
"""What the name of a metric cannot contain."""


class MlflowTracker:
    """A run of MLflow with metrics and parameters."""

    def __init__(self, run: Any) -> None:
        self._run = run

    @property
    def place(self) -> str:
        return f"{mlflow.get_tracking_uri()}, run {self._run.info.run_id}"

    def log_settings(self, settings: Mapping[str, str]) -> None:
        mlflow.log_params({name: text[:MAX_CHARACTERS] for name, text in settings.items()})

    def log_step(self, step: int, values: Mapping[str, float]) -> None:
        mlflow.log_metrics(_named(values, "steps/"), step=step)

    def log_summary(self, values: Mapping[str, float]) -> None:
        mlflow.log_metrics(_named(values))

    def close(self, *, failed: bool = False) -> None:
        mlflow.end_run("FAILED" if failed else "FINISHED")


def start(name: str) -> MlflowTracker:
    """Start a run. Raises UsageError if MLflow refuses it."""
    try:
        return MlflowTracker(mlflow.start_run(run_name=name))
    except MlflowException as error:
        raise UsageError(f"mlflow: {error.message}") from None


def _named(values: Mapping[str, float], prefix: str = "") -> dict[str, float]:
    """Return the numbers with names that MLflow accepts: `f1>=0.5` becomes `f1_0.5`."""
    return {prefix + _FORBIDDEN.sub("_", name).strip("_"): x for name, x in values.items()}

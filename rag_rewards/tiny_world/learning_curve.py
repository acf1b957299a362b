"""Measure a policy on fresh questions during training, and draw the learning curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from rag_rewards.tiny_world.formats import ResponseFormat
from rag_rewards.tiny_world.measures import Measures, measure
from rag_rewards.tiny_world.world import questions

INTERVAL = 10
"""Steps between two measurements."""
QUESTIONS = 200
"""Questions of a measurement. Each gets one response at temperature 1, as in training."""

Points = list[tuple[int, Measures]]


class LearningCurve(TrainerCallback):  # type: ignore[misc]
    """Measure the policy before training and every few steps.

    `points` grows during training. `on_point` is called with the step and the measures of each
    point.
    """

    def __init__(
        self,
        form: ResponseFormat,
        interval: int = INTERVAL,
        count: int = QUESTIONS,
        on_point: Callable[[int, Measures], None] | None = None,
    ) -> None:
        self.form = form
        self.interval = interval
        self.questions = questions(count, "curve")
        self.on_point = on_point
        self.points: Points = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        self._measure(state.global_step, **context)

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        if state.global_step % self.interval == 0:
            self._measure(state.global_step, **context)

    def _measure(self, step: int, model: Any, processing_class: Any, **_: Any) -> None:
        import torch

        # The random numbers of the training must not depend on the number of measurements.
        with torch.random.fork_rng():
            measures = measure(model, processing_class, self.form, self.questions, temperature=1.0)
        self.points.append((step, measures))
        if self.on_point:
            self.on_point(step, measures)


def draw(
    panels: Mapping[str, Mapping[str, Sequence[Sequence[tuple[int, float]]]]],
    file: Path,
    title: str = "",
) -> None:
    """Draw one panel per measure, with one line per run.

    A line is the mean over seeds; a band shows their range. Equal numbers give equal bytes.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    style = {"svg.hashsalt": "rag-rewards", "svg.fonttype": "none", "font.family": "sans-serif"}
    with matplotlib.rc_context(style):
        width = 3.6 * len(panels) + 0.6
        figure, axes = pyplot.subplots(1, len(panels), figsize=(width, 3.2), squeeze=False)
        for axis, (measure_name, lines) in zip(axes[0], panels.items(), strict=True):
            for name, seeds in lines.items():
                steps = [step for step, _ in seeds[0]]
                values = list(zip(*([v for _, v in seed] for seed in seeds), strict=True))
                (line,) = axis.plot(steps, [sum(v) / len(v) for v in values], label=name, lw=1.8)
                low, high = [min(v) for v in values], [max(v) for v in values]
                axis.fill_between(steps, low, high, color=line.get_color(), alpha=0.15, lw=0)
            axis.set_title(measure_name, fontsize=10)
            axis.set_xlabel("GRPO step", fontsize=9)
            axis.set_ylim(-0.03, 1.03)
            axis.grid(alpha=0.25)
            axis.tick_params(labelsize=8)
            for side in ("top", "right"):
                axis.spines[side].set_visible(False)
        axes[0][0].legend(fontsize=8, frameon=False)
        if title:
            figure.suptitle(title, fontsize=11)
        figure.tight_layout()
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, metadata={"Date": None, "Creator": None}, facecolor="white")
        pyplot.close(figure)


def lines_of(runs: Mapping[str, Sequence[Points]], name: str) -> dict[str, Any]:
    """Return one measure of several runs in the form that `draw` takes."""
    return {
        run: [[(step, measures[name]) for step, measures in points] for points in seeds]
        for run, seeds in runs.items()
    }

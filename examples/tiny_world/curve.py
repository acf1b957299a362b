"""What a training does to a policy, measured on fresh questions while it runs, and drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from tiny_world.formats import Format
from tiny_world.measures import Measures, measure
from tiny_world.world import questions

EVERY = 10
FRESH = 200
"""Questions of a measurement, answered once each at temperature 1: what training itself sees."""

Points = list[tuple[int, Measures]]


class Curve(TrainerCallback):  # type: ignore[misc]
    """Measures the policy before training and at every few steps.

    `points` fills up as it goes, and `seen` is told of each point.
    """

    def __init__(
        self,
        form: Format,
        every: int = EVERY,
        count: int = FRESH,
        seen: Callable[[int, Measures], None] | None = None,
    ) -> None:
        self.form = form
        self.every = every
        self.asked = questions(count, "curve")
        self.seen = seen
        self.points: Points = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        self._measure(state.global_step, **known)

    def on_step_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        if state.global_step % self.every == 0:
            self._measure(state.global_step, **known)

    def _measure(self, step: int, model: Any, processing_class: Any, **_: Any) -> None:
        # The trainer's own draws must not depend on how often somebody looks.
        import torch

        with torch.random.fork_rng():
            found = measure(model, processing_class, self.form, self.asked, temperature=1.0)
        self.points.append((step, found))
        if self.seen:
            self.seen(step, found)


def draw(
    panels: Mapping[str, Mapping[str, Sequence[Sequence[tuple[int, float]]]]],
    file: Path,
    title: str = "",
) -> None:
    """A panel per measure, a line per run with the mean over its seeds, and their range as a band.

    The same numbers give the same bytes.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    style = {"svg.hashsalt": "rag-rewards", "svg.fonttype": "none", "font.family": "sans-serif"}
    with matplotlib.rc_context(style):
        width = 3.6 * len(panels) + 0.6
        figure, axes = pyplot.subplots(1, len(panels), figsize=(width, 3.2), squeeze=False)
        for axis, (measured, lines) in zip(axes[0], panels.items(), strict=True):
            for name, seeds in lines.items():
                steps = [step for step, _ in seeds[0]]
                values = list(zip(*([v for _, v in seed] for seed in seeds), strict=True))
                (line,) = axis.plot(steps, [sum(v) / len(v) for v in values], label=name, lw=1.8)
                low, high = [min(v) for v in values], [max(v) for v in values]
                axis.fill_between(steps, low, high, color=line.get_color(), alpha=0.15, lw=0)
            axis.set_title(measured, fontsize=10)
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
    """One measure of several runs, as `draw` takes it."""
    return {
        run: [[(step, found[name]) for step, found in points] for points in seeds]
        for run, seeds in runs.items()
    }

"""Train with TruthRL's binary and ternary rewards from the committed checkpoint.

python -m rag_rewards.tiny_world.demo                     # about 40 seconds on two cores
python -m rag_rewards.tiny_world.demo --steps 30 -o FILE.svg

Both runs start from the same model, which rarely abstains. Under the binary reward a wrong guess
costs as much as an abstention, so that the model continues to guess. Under the ternary reward a
wrong guess costs more, and the hallucinations disappear. An interrupted run resumes from its last
saved state.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rag_rewards.errors import UsageError
from rag_rewards.tiny_world.formats import TRUTHRL
from rag_rewards.tiny_world.learning_curve import (
    INTERVAL,
    LearningCurve,
    Points,
    draw,
    lines_of,
)
from rag_rewards.tiny_world.model import CHECKPOINT
from rag_rewards.tiny_world.train import Run, train

SCHEMES = ("binary", "ternary")
COLORS = {"accuracy": "green", "hallucination": "red", "abstention": "yellow"}
BAR_WIDTH = 12
"""Characters of a full bar."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=60, help="Train for this many steps.")
    parser.add_argument("--seed", type=int, default=0, help="Set the seed of the training.")
    parser.add_argument(
        "--start", type=Path, default=CHECKPOINT, help="Start from the checkpoint in this folder."
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build/tiny-world/demo"),
        help="Save the states of the runs in this folder.",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("build/tiny-world/curve.svg"),
        help="Write the learning curves to this file.",
    )
    options = parser.parse_args()
    import transformers

    console = Console()
    warnings.simplefilter("ignore", FutureWarning)  # the trainer warns about its own options
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progressbar()
    try:
        curves = train_both(options, console)
    except UsageError as error:
        Console(stderr=True).print(Text(f"error: {error}"))
        return 2
    panels = {
        name: lines_of({scheme: [points] for scheme, points in curves.items()}, name)
        for name in COLORS
    }
    draw(panels, options.output, f"TruthRL in the tiny world, {options.steps} steps of GRPO")
    console.print(Text(f"learning curves: {options.output}"), soft_wrap=True)
    return 0


def train_both(options: argparse.Namespace, console: Console) -> dict[str, Points]:
    """Train under each scheme and show the measures during training."""
    curves: dict[str, Points] = {}
    with Live(_table(curves), console=console, auto_refresh=False) as live:
        for scheme in SCHEMES:
            curves[scheme] = []

            def on_point(step: int, measures: Any, points: Points = curves[scheme]) -> None:
                points.append((step, measures))
                live.update(_table(curves), refresh=True)

            _train(scheme, options, on_point)
    if not console.is_terminal:  # there, Live does not end its output with a newline
        console.print()
    return curves


def _train(scheme: str, options: argparse.Namespace, on_point: Callable[[int, Any], None]) -> None:
    reward = {"recipe": "truthrl", "settings": {"verifier": "exact", "scheme": scheme}}
    run = Run(TRUTHRL, reward, options.steps, options.seed, options.start)
    folder = options.folder / f"{scheme}-{options.steps}-{options.seed}"
    curve = LearningCurve(TRUTHRL, min(INTERVAL, options.steps), on_point=on_point)
    train(run, folder, callbacks=[curve])
    shutil.rmtree(folder, ignore_errors=True)


def _table(curves: dict[str, Points]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("reward")
    table.add_column("step", justify="right")
    for name in COLORS:
        table.add_column(name)
    for scheme, points in curves.items():
        for i, (step, measures) in enumerate(points):
            bars = (bar(measures[name], color) for name, color in COLORS.items())
            table.add_row("" if i else scheme, str(step), *bars)
        table.add_section()
    return table


def bar(share: float, color: str) -> Text:
    """Return a share as a colored bar with its number."""
    full = round(share * BAR_WIDTH)
    return Text.assemble((("█" * full).ljust(BAR_WIDTH, "·"), color), f" {share:.2f}")


if __name__ == "__main__":
    sys.exit(main())

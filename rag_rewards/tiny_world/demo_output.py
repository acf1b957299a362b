"""The output of the demonstrations: the measures of each run while it trains, and its curves."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rag_rewards.errors import UsageError
from rag_rewards.tiny_world.learning_curve import draw

BAR_WIDTH = 12
"""Characters of a full bar."""
Points = list[tuple[int, Mapping[str, Any]]]
"""The measures of a run at some steps."""
OnPoint = Callable[[int, Any], None]
"""Receives a step and the measures at this step."""


def demo_parser(description: str | None, steps: int, output: str) -> argparse.ArgumentParser:
    """Return a parser with the options of all demonstrations."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=steps, help="Train for this many steps.")
    parser.add_argument("--seed", type=int, default=0, help="Set the seed of all random numbers.")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path(output),
        help="Write the learning curves to this file.",
    )
    return parser


def run_demo(
    names: Sequence[str],
    train: Callable[[str, OnPoint], None],
    columns: Mapping[str, str | None],
    title: str,
    output: Path,
) -> int:
    """Train each run, draw the curves of the shares, and return the exit status.

    names    names of the runs
    train    trains the run of a name, and calls a function with the measures of each point
    columns  the color of each measure that is a share, None for another measure
    title    title of the picture
    output   file of the picture
    """
    import transformers

    console = Console()
    warnings.simplefilter("ignore", FutureWarning)  # the trainer warns about its own options
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        curves = _train_runs(names, train, columns, console)
    except UsageError as error:
        Console(stderr=True).print(Text(f"error: {error}"))
        return 2
    shares = [name for name, color in columns.items() if color is not None]
    draw({name: _lines(curves, name) for name in shares}, output, title)
    console.print(Text(f"learning curves: {output}"), soft_wrap=True)
    return 0


def _train_runs(
    names: Sequence[str],
    train: Callable[[str, OnPoint], None],
    columns: Mapping[str, str | None],
    console: Console,
) -> dict[str, Points]:
    """Train each run and show its measures during training."""
    curves: dict[str, Points] = {}
    with Live(_table(curves, columns), console=console, auto_refresh=False) as live:
        for name in names:
            curves[name] = []

            def on_point(step: int, measures: Any, points: Points = curves[name]) -> None:
                points.append((step, measures))
                live.update(_table(curves, columns), refresh=True)

            train(name, on_point)
    if not console.is_terminal:  # there, Live does not end its output with a newline
        console.print()
    return curves


def _lines(curves: Mapping[str, Points], name: str) -> dict[str, list[list[tuple[int, float]]]]:
    """Return one measure of all runs; 0 where no rollout has the measure."""
    return {
        run: [[(step, measures[name] or 0.0) for step, measures in points]]
        for run, points in curves.items()
    }


def _table(curves: Mapping[str, Points], columns: Mapping[str, str | None]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("reward")
    table.add_column("step", justify="right")
    for name in columns:
        table.add_column(name)
    for run, points in curves.items():
        for i, (step, measures) in enumerate(points):
            cells = [_cell(measures[name] or 0.0, color) for name, color in columns.items()]
            table.add_row("" if i else run, str(step), *cells)
        table.add_section()
    return table


def _cell(value: float, color: str | None) -> Text:
    """Return a share as a colored bar with its number, and another number with one decimal."""
    if color is None:
        return Text(f"{value:.1f}")
    full = round(value * BAR_WIDTH)
    return Text.assemble((("█" * full).ljust(BAR_WIDTH, "·"), color), f" {value:.2f}")

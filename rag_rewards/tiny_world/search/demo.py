"""Train a search agent with a reward for its answer alone, and with turn credit.

python -m rag_rewards.tiny_world.search.demo
python -m rag_rewards.tiny_world.search.demo --steps 10 -o FILE.svg

Both runs start from the same policy, which rarely makes both searches. The first one gets a reward
for the right answer. In the second one, each search also gets a reward for the gold documents that
it finds first, and each turn has its own advantage.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rag_rewards.errors import UsageError
from rag_rewards.tiny_world.demo import bar
from rag_rewards.tiny_world.learning_curve import draw
from rag_rewards.tiny_world.search.arms import arm
from rag_rewards.tiny_world.search.base import base
from rag_rewards.tiny_world.search.train import Points, SearchRun, search_curve, search_trainer

NAMES = ("outcome only", "coverage, return")
QUESTIONS = 200
"""Questions of a measurement."""
COLUMNS = {"right": "green", "second query": "cyan"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20, help="Train for this many steps.")
    parser.add_argument("--seed", type=int, default=0, help="Set the seed of all random numbers.")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build/tiny-world"),
        help="Keep the policy before the training in this folder.",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("build/tiny-world/search.svg"),
        help="Write the learning curves to this file.",
    )
    options = parser.parse_args()
    import torch
    import transformers

    torch.set_num_threads(1)  # such a small model is not faster with more threads
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    console = Console()
    warnings.simplefilter("ignore", FutureWarning)  # the trainer warns about its own options
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        curves = train_both(options, console)
    except UsageError as error:
        Console(stderr=True).print(Text(f"error: {error}"))
        return 2
    panels = {
        name: {run: [_known(points, name)] for run, points in curves.items()} for name in COLUMNS
    }
    draw(panels, options.output, f"The tiny search world, {options.steps} steps of GRPO")
    console.print(Text(f"learning curves: {options.output}"), soft_wrap=True)
    return 0


def train_both(options: argparse.Namespace, console: Console) -> dict[str, Points]:
    """Train both arms and show the measures during training."""
    folder = options.folder / f"search-noisy-{options.seed}"
    if not (folder / "made.json").exists():
        console.print("The policy learns to search from a demonstrator (about a minute).")
    start = base(options.seed, folder)
    curves: dict[str, Points] = {}
    with Live(_table(curves), console=console, auto_refresh=False) as live:
        for name in NAMES:
            curves[name] = []

            def on_point(step: int, measures: Any, points: Points = curves[name]) -> None:
                points.append((step, measures))
                live.update(_table(curves), refresh=True)

            curve = search_curve(max(1, options.steps // 10), QUESTIONS, on_point)
            run = SearchRun(arm(name), start, options.steps, options.seed)
            search_trainer(run, options.folder / "search-demo", [curve]).train()
    if not console.is_terminal:  # there, Live does not end its output with a newline
        console.print()
    return curves


def _known(points: Points, name: str) -> list[tuple[int, float]]:
    """Return one measure of a run; 0 where no rollout has such a query."""
    return [(step, measures[name] or 0.0) for step, measures in points]


def _table(curves: dict[str, Points]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("reward")
    table.add_column("step", justify="right")
    for name in (*COLUMNS, "turns"):
        table.add_column(name)
    for run, points in curves.items():
        for i, (step, measures) in enumerate(points):
            bars = [bar(measures[name] or 0.0, color) for name, color in COLUMNS.items()]
            turns = f"{measures['turns']:.1f}"
            table.add_row("" if i else run, str(step), *bars, turns)
        table.add_section()
    return table


if __name__ == "__main__":
    sys.exit(main())

"""Watch a reward teach: TruthRL's binary and ternary rewards, on the committed checkpoint.

python -m tiny_world.demo                     # some 40 seconds on two cores
python -m tiny_world.demo --steps 30 -o FILE.svg

Both start from the same model, which answers whatever it is asked. Under the binary reward a guess
costs no more than an abstention; under the ternary one it does, and the hallucinations go.
An interrupted run goes on where it was saved last.
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
from tiny_world.curve import EVERY, Curve, Points, draw, lines_of
from tiny_world.formats import TRUTHRL
from tiny_world.model import CHECKPOINT
from tiny_world.train import Run, train

SCHEMES = ("binary", "ternary")
COLOURS = {"accuracy": "green", "hallucination": "red", "abstention": "yellow"}
BAR = 12
"""Characters of a full bar."""


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument(
        "--start", type=Path, default=CHECKPOINT, help="a checkpoint to start from"
    )
    options.add_argument("--folder", type=Path, default=Path("build/tiny-world/demo"))
    options.add_argument("-o", "--output", type=Path, default=Path("build/tiny-world/curve.svg"))
    given = options.parse_args()
    import transformers

    console = Console()
    warnings.simplefilter("ignore", FutureWarning)  # the trainer's, about its own options
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        curves = demonstrate(given, console)
    except UsageError as error:
        Console(stderr=True).print(Text(f"error: {error}"))
        return 2
    panels = {
        name: lines_of({scheme: [points] for scheme, points in curves.items()}, name)
        for name in COLOURS
    }
    draw(panels, given.output, f"TruthRL in the tiny world, {given.steps} steps of GRPO")
    console.print(Text(f"the curve: {given.output}"), soft_wrap=True)
    return 0


def demonstrate(given: argparse.Namespace, console: Console) -> dict[str, Points]:
    """Train under each scheme, showing the curves as they grow."""
    curves: dict[str, Points] = {}
    with Live(_table(curves), console=console, auto_refresh=False) as live:
        for scheme in SCHEMES:
            curves[scheme] = []

            def seen(step: int, found: Any, to: Points = curves[scheme]) -> None:
                to.append((step, found))
                live.update(_table(curves), refresh=True)

            _train(scheme, given, seen)
    if not console.is_terminal:  # what is shown live ends with a line there alone
        console.print()
    return curves


def _train(scheme: str, given: argparse.Namespace, seen: Callable[[int, Any], None]) -> None:
    reward = {"recipe": "truthrl", "settings": {"verifier": "exact", "scheme": scheme}}
    run = Run(TRUTHRL, reward, given.steps, given.seed, given.start)
    folder = given.folder / f"{scheme}-{given.steps}-{given.seed}"
    train(run, folder, callbacks=[Curve(TRUTHRL, min(EVERY, given.steps), seen=seen)])
    shutil.rmtree(folder, ignore_errors=True)


def _table(curves: dict[str, Points]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("reward")
    table.add_column("step", justify="right")
    for name in COLOURS:
        table.add_column(name)
    for scheme, points in curves.items():
        for i, (step, found) in enumerate(points):
            bars = (_bar(found[name], colour) for name, colour in COLOURS.items())
            table.add_row("" if i else scheme, str(step), *bars)
        table.add_section()
    return table


def _bar(share: float, colour: str) -> Text:
    full = round(share * BAR)
    return Text.assemble((("█" * full).ljust(BAR, "·"), colour), f" {share:.2f}")


if __name__ == "__main__":
    sys.exit(main())

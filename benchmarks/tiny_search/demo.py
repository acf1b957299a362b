"""Train a search agent with a reward for its answer alone, and with turn credit.

PYTHONPATH=benchmarks python -m tiny_search.demo
PYTHONPATH=benchmarks python -m tiny_search.demo --steps 10 -o FILE.svg

Both runs start from the same policy, which rarely makes both searches. The first one gets a reward
for the right answer. In the second one, each search also gets a reward for the gold documents that
it finds first, and each turn has its own advantage.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from tiny_search.arms import arm
from tiny_search.base import base
from tiny_search.train import SearchRun, search_curve, search_trainer

from rag_rewards.tiny_world.demo_output import OnPoint, demo_parser, run_demo

NAMES = ("outcome only", "coverage, return")
QUESTIONS = 200
"""Questions of a measurement."""
COLUMNS = {"right": "green", "second query": "cyan", "turns": None}


def main() -> int:
    parser = demo_parser(__doc__, 20, "build/tiny-world/search.svg")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build/tiny-world"),
        help="Keep the policy before the training in this folder.",
    )
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)  # such a small model is not faster with more threads
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    title = f"The tiny search world, {options.steps} steps of GRPO"
    return run_demo(NAMES, partial(train_arm, options), COLUMNS, title, options.output)


def train_arm(options: argparse.Namespace, name: str, on_point: OnPoint) -> None:
    """Train an arm, and report the measures during training."""
    folder = options.folder / f"search-noisy-{options.seed}"
    if not (folder / "made.json").exists():
        print("The policy learns to search from a demonstrator (about a minute).")
    start = base(options.seed, folder)
    curve = search_curve(max(1, options.steps // 10), QUESTIONS, on_point)
    run = SearchRun(arm(name), start, options.steps, options.seed)
    search_trainer(run, options.folder / "search-demo", [curve]).train()


if __name__ == "__main__":
    sys.exit(main())

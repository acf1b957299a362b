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
from functools import partial
from pathlib import Path

from rag_rewards.tiny_world.demo_output import OnPoint, demo_parser, run_demo
from rag_rewards.tiny_world.formats import TRUTHRL
from rag_rewards.tiny_world.learning_curve import INTERVAL, LearningCurve
from rag_rewards.tiny_world.model import CHECKPOINT
from rag_rewards.tiny_world.train import Run, train

SCHEMES = ("binary", "ternary")
COLUMNS = {"accuracy": "green", "hallucination": "red", "abstention": "yellow"}


def main() -> int:
    parser = demo_parser(__doc__, 60, "build/tiny-world/curve.svg")
    parser.add_argument(
        "--start", type=Path, default=CHECKPOINT, help="Start from the checkpoint in this folder."
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build/tiny-world/demo"),
        help="Save the states of the runs in this folder.",
    )
    options = parser.parse_args()
    title = f"TruthRL in the tiny world, {options.steps} steps of GRPO"
    return run_demo(SCHEMES, partial(train_scheme, options), COLUMNS, title, options.output)


def train_scheme(options: argparse.Namespace, scheme: str, on_point: OnPoint) -> None:
    """Train under a scheme, and report the measures during training."""
    reward = {"recipe": "truthrl", "settings": {"verifier": "exact", "scheme": scheme}}
    run = Run(TRUTHRL, reward, options.steps, options.seed, options.start)
    folder = options.folder / f"{scheme}-{options.steps}-{options.seed}"
    curve = LearningCurve(TRUTHRL, min(INTERVAL, options.steps), on_point=on_point)
    train(run, folder, callbacks=[curve])
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

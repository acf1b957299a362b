"""TruthRL in the tiny world with models of three sizes."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from experiment import Experiment, Variant, base, main
from truthrl import reward

STEPS = 30
WIDTHS = (64, 96, 128)
"""Sizes of the hidden states: 0.2, 0.5 and 0.9 million parameters."""


def of_width(start: Path, run: Any, *, width: int, is_trained: bool) -> tuple[Any, Any]:
    """Return the base model of a width, or the same model after GRPO."""
    import tempfile

    from rag_rewards.tiny_world.model import load
    from rag_rewards.tiny_world.train import train

    folder = start if width == 96 else base(0, f"width-{width}")
    if not is_trained:
        return load(folder)
    run = replace(run, start=folder, reward=reward("ternary"), steps=STEPS)
    with tempfile.TemporaryDirectory() as place:
        trainer = train(run, Path(place))
    return trainer.model, trainer.processing_class


def variant(name: str, width: int, *, is_trained: bool) -> Variant:
    train = partial(of_width, width=width, is_trained=is_trained)
    steps = STEPS * is_trained
    return Variant(f"{name}, width {width}", None, steps, train=train, is_plotted=False)


EXPERIMENT = Experiment(
    name="truthrl_sizes",
    title="TruthRL: models of three sizes",
    form="truthrl",
    variants=tuple(
        variant(name, width, is_trained=name == "TruthRL")
        for width in WIDTHS
        for name in ("prompting", "TruthRL")
    ),
    columns=("accuracy", "hallucination", "abstention", "truthfulness"),
    panels=(),
    base="committed",
    more_bases=tuple(f"width-{width}" for width in WIDTHS if width != 96),
    fresh=400,
    notes="""
The base models have hidden states of 64, 96 and 128 values. That of 96 values is the committed
model of the tiny world, and the others have the same pre-training.

[The five papers](../../../docs/papers.md) compares these results with the claims of the paper.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

"""LEAR's ablations in the tiny world: which answers are rewarded, and the deviation's floor."""

import sys
from collections.abc import Mapping
from typing import Any

from experiment import Experiment, Variant, main
from tiny_world.measures import LEAR_SETTINGS

UNSCALED = {"scale_rewards": "none"}
"""The reward brings its advantage; the trainer must not scale it again."""


def lear(*answers: str, floor: float | None = 0.1) -> Mapping[str, Any]:
    settings = {**LEAR_SETTINGS, "answers": list(answers or "ref")}
    return {"recipe": "lear", "settings": settings} | ({"std_floor": floor} if floor else {})


def variant(name: str, reward: Any, trainer: Mapping[str, Any] = UNSCALED, **more: Any) -> Variant:
    """On answerable questions alone, as the paper's are.

    With others, the policy learns to abstain where it sees no document, and does so from an
    extract as well: nothing rewards how a masked context is read.
    """
    return Variant(name, reward, steps=50, unanswerable=0.0, trainer=trainer, **more)


EXPERIMENT = Experiment(
    name="lear",
    title="LEAR: answers from masked contexts",
    form="lear",
    variants=(
        Variant("base", None),
        variant("r", lear("r"), shown=False),
        variant("e", lear("e"), shown=False),
        variant("f", lear("f")),
        variant("r + e", lear("r", "e"), shown=False),
        variant("e + f", lear("e", "f"), shown=False),
        variant("r + e + f", lear()),
        variant("r + e + f, no floor", lear(floor=None), {}, shown=False),
    ),
    columns=("format", "answer", "o_r", "o_e", "o_f"),
    panels=("answer", "o_r", "o_e"),
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

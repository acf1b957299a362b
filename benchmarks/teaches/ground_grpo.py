"""Ground-GRPO's ablations in the tiny world: one stage or both, wrong citations punished or not."""

import sys
from collections.abc import Mapping
from typing import Any

from experiment import Experiment, Variant, main

STEPS = 60
FIRST = 15
"""Steps of stage 1 where both follow each other: answerable questions alone, as in the paper."""
MIXED = 0.4
FORGIVING = {"citation.bad_penalty": 0.0}


def stage(recipe: str, settings: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    return {"recipe": recipe, "settings": settings or {}}


def both(settings: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    first = {**stage("ground-grpo-stage1", settings), "until_step": FIRST}
    return {"stages": [first, stage("ground-grpo", settings)]}


THEN_MIXED = ((FIRST, 0.0), (STEPS, MIXED))
EXPERIMENT = Experiment(
    name="ground_grpo",
    title="Ground-GRPO: stages, and the penalty on wrong citations",
    form="ground",
    variants=(
        Variant("base", None),
        Variant("stage 1 only", stage("ground-grpo-stage1"), STEPS, 0.0),
        Variant("stage 2 only", stage("ground-grpo"), STEPS, MIXED),
        Variant("stage 1, then 2", both(), STEPS, THEN_MIXED),
        Variant(
            "stage 2 only, no penalty", stage("ground-grpo", FORGIVING), STEPS, MIXED, shown=False
        ),
        Variant("stage 1, then 2, no penalty", both(FORGIVING), STEPS, THEN_MIXED, shown=False),
    ),
    columns=("trust-score", "f1_gr", "f1_ac", "f1_gc", "format", "answer", "citation", "abstains"),
    panels=("trust-score", "citation", "abstains"),
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

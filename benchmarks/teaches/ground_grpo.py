"""Ablations of Ground-GRPO in the tiny world: stages, and the penalty on wrong citations."""

import sys
from collections.abc import Mapping
from typing import Any

from experiment import Experiment, Variant, main

STEPS = 60
FIRST = 15
"""Number of steps of stage 1 before stage 2, on answerable questions only, as in the paper."""
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
    title="Ground-GRPO: stages and the penalty on wrong citations",
    form="ground",
    variants=(
        Variant("base", None),
        Variant("stage 1 only", stage("ground-grpo-stage1"), STEPS, 0.0),
        Variant("stage 2 only", stage("ground-grpo"), STEPS, MIXED),
        Variant("stage 1, then 2", both(), STEPS, THEN_MIXED),
        Variant(
            "stage 2 only, no penalty",
            stage("ground-grpo", FORGIVING),
            STEPS,
            MIXED,
            is_plotted=False,
        ),
        Variant(
            "stage 1, then 2, no penalty", both(FORGIVING), STEPS, THEN_MIXED, is_plotted=False
        ),
    ),
    columns=("trust-score", "f1_gr", "f1_ac", "f1_gc", "format", "answer", "citation", "abstains"),
    panels=("trust-score", "citation", "abstains"),
    notes="""
`trust-score` is the mean of `f1_gr` (refusals), `f1_ac` (answers) and `f1_gc` (citations).
`abstains` is the share of unanswerable questions on which the policy abstains. "No penalty" means
that wrong citations cost nothing.

- All runs have 60 steps. "Stage 1, then 2" has 15 steps on answerable questions and 45 steps on
  all questions.
- Stage 1 alone teaches the policy to answer and to cite. It also teaches it to answer
  unanswerable questions, as in Figure 3 of the paper.
- Stage 2 alone is as good as both stages here. In the paper, the first stage helps models that do
  not yet answer or cite. This base already does so in most of its samples.
- Without the penalty on wrong citations, the models of the paper answer almost every question
  (Figure 6). Here they do not, for two reasons: the reward of a right refusal remains, and at
  most one document supports an answer, so that further citations do not increase the reward.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

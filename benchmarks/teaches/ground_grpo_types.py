"""Ground-GRPO on questions of types that its training does not contain, in the tiny world."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiment import Experiment, Figures, Variant, main
from ground_grpo import MIXED, stage

STEPS = 40
FIRST = 10
"""Number of steps of stage 1 before stage 2, on answerable questions only."""
TRAINED = ("one", "hop")
UNSEEN = ("compare", "both")
FRESH = 400


def grpo(start: Path, run: Any, *, last_of_first: int) -> tuple[Any, Any]:
    """Train with stage 1 until a step, and then with stage 2."""
    from question_types import trained

    first = {**stage("ground-grpo-stage1"), "until_step": last_of_first}
    stages = {
        0: stage("ground-grpo"),
        STEPS: stage("ground-grpo-stage1"),
    }
    both = {"stages": [first, stage("ground-grpo")]}
    return trained(
        start,
        run,
        kinds=TRAINED,
        reward=stages.get(last_of_first, both),
        unanswerable=((last_of_first, 0.0), (STEPS, MIXED)),
    )


def measure_unseen(
    model: Any, tokenizer: Any, fresh: Sequence[Any], temperature: float, start: Path
) -> Figures:
    """Return the measures on questions of unseen types in place of those on one hop."""
    from question_types import questions

    from rag_rewards.tiny_world.formats import GROUND
    from rag_rewards.tiny_world.generation import rollouts
    from rag_rewards.tiny_world.measures import ground_measures

    batch = questions(FRESH, f"fresh {fresh[0]}", UNSEEN)
    return ground_measures(rollouts(model, tokenizer, GROUND, batch, temperature=temperature))


def variant(name: str, last_of_first: int | None = None) -> Variant:
    train = None if last_of_first is None else partial(grpo, last_of_first=last_of_first)
    return Variant(name, None, STEPS, train=train, measure=measure_unseen, is_plotted=False)


EXPERIMENT = Experiment(
    name="ground_grpo_types",
    title="Ground-GRPO: unseen types of questions",
    form="ground",
    variants=(
        variant("prompting"),
        variant("stage 1 only", STEPS),
        variant("stage 2 only", 0),
        variant("stage 1, then 2", FIRST),
    ),
    columns=("trust-score", "f1_gr", "f1_ac", "f1_gc", "format", "abstains"),
    panels=(),
    base="types",
    fresh=100,
    notes="""
All values are those of 400 questions of two types that the training does not contain: comparisons
("Which of two people likes this flower?") and questions about two people, which have two answers.
The training has questions about one person and questions of two hops. The base knows all types.
`trust-score` is the mean of `f1_gr` (refusals), `f1_ac` (answers) and `f1_gc` (citations).

[The five papers](../../../docs/papers.md) compares these results with the claims of the paper.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

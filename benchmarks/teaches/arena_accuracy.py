"""The accuracy rewards of ARENA in the tiny world: exact match, F1, and a judge."""

import random
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiment import Experiment, Variant, main

STEPS = 30
OTHER_FORM = 0.5
"""Share of gold answers with one more word than the answer of a response."""


def reward(start: Path, metric: str) -> Mapping[str, Any]:
    """Return the recipe with an accuracy metric. The judge is the oracle of the tiny world."""
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.tiny_world.evidence import oracle

    settings = {"accuracy.metric": metric}
    return {"recipe": "arena", "settings": settings, "models": Models(judge=oracle())}


def longer_answers(start: Path, questions: Sequence[Any]) -> list[dict[str, Any]]:
    """Add a word to the gold answers of a part of the answerable questions."""
    from rag_rewards.tiny_world.formats import ARENA

    rng = random.Random("forms")
    rows = []
    for each in questions:
        [[gold]] = ARENA.row(each)["answers"]
        is_longer = rng.random() < OTHER_FORM and each.answerable
        rows.append({"answers": [[f"{gold} flower" if is_longer else gold]]})
    return rows


def variant(name: str, metric: str, **more: Any) -> Variant:
    return Variant(name, partial(reward, metric=metric), STEPS, **more)


EXPERIMENT = Experiment(
    name="arena_accuracy",
    title="ARENA: exact match, F1 and a judge as accuracy reward",
    form="arena",
    variants=(
        Variant("base", None),
        variant("EM", "exact"),
        variant("EM, longer gold answers", "exact", columns=longer_answers),
        variant("F1, longer gold answers", "f1", columns=longer_answers),
        variant("oracle judge, longer gold answers", "judge", columns=longer_answers),
    ),
    columns=("format", "answer", "relevance", "abstains"),
    panels=("answer", "relevance", "abstains"),
    fresh=400,
    notes="""
`relevance` is the share of answerable questions for which the response lists exactly the
supporting document. `abstains` is the share of unanswerable questions on which the policy
abstains. "Longer gold answers" means that half of the gold answers of answerable questions
contain one more word than an answer of the policy. The judge is the oracle of the tiny world, a
judge without errors that accepts the correct flower in any form. All runs have 30 steps.

- In the paper, exact match is the best accuracy reward on HotpotQA and 2WikiMultiHopQA, and F1
  and the judge are better on MuSiQue (Table 6, appendix G).
- In this world, an answer is one word. If the gold answers are also one word, exact match, F1 and
  the judge are the same reward, so that the table has only one row for them.
- With longer gold answers, exact match rewards only half of the correct answers. After the same
  number of steps, the share of correct answers is 0.87, and 0.92 with F1 and 0.93 with the judge
  (sampled). This agrees with the result on MuSiQue and not with the other two data sets. The
  oracle makes no errors, whereas a real judge does.
- The base of seed 1 lists documents at random. No accuracy reward changes this (see [the other
  ablations of ARENA](arena.md)), so that the mean of `relevance` has a large spread.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

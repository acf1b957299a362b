"""ARENA on three types of questions of the tiny world: unseen types, and accuracy rewards."""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiment import Experiment, Figures, Variant, main

STEPS = 30
TYPES = ("compare", "hop", "both")
FRESH = 300
"""Number of measured questions of each type."""


def reward(metric: str) -> Mapping[str, Any]:
    """Return the recipe with an accuracy metric. The judge accepts the words in any order."""
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.testing import TableJudge

    judge = TableJudge(
        lambda q: int(any(sorted(q.response.split()) == sorted(g.split()) for g in q.gold)),
        fingerprint="tiny-world-types",
    )
    return {
        "recipe": "arena",
        "settings": {"accuracy.metric": metric, "relevance.notation": "any"},
        "models": Models(judge=judge),
    }


def grpo(start: Path, run: Any, *, kinds: Sequence[str], metric: str) -> tuple[Any, Any]:
    from question_types import trained

    return trained(start, run, kinds=kinds, reward=partial(reward, metric))


def measure_types(
    model: Any, tokenizer: Any, fresh: Sequence[Any], temperature: float, start: Path
) -> Figures:
    """Return exact match and F1 of each type."""
    from question_types import questions

    from rag_rewards.tiny_world.formats import ARENA
    from rag_rewards.tiny_world.generation import rollouts
    from rag_rewards.tiny_world.measures import score_all

    figures = {}
    for kind in TYPES:
        batch = questions(FRESH, f"fresh {fresh[0]}", (kind,))
        samples = rollouts(model, tokenizer, ARENA, batch, temperature=temperature)
        for name, metric in (("EM", "exact"), ("F1", "f1")):
            scores = score_all("arena", samples, {"accuracy.metric": metric})
            total = sum(score.components["accuracy"] or 0.0 for score in scores)
            figures[f"{name} {kind}"] = total / len(scores)
    return figures


def variant(name: str, kinds: Sequence[str] = (), metric: str = "exact") -> Variant:
    train = partial(grpo, kinds=kinds, metric=metric) if kinds else None
    return Variant(name, None, STEPS, train=train, measure=measure_types, is_plotted=False)


EXPERIMENT = Experiment(
    name="arena_types",
    title="ARENA: types of questions",
    form="arena",
    variants=(
        variant("base"),
        variant("all types, EM", TYPES),
        variant("without compare", ("hop", "both")),
        variant("without hop", ("compare", "both")),
        variant("all types, F1", TYPES, "f1"),
        variant("all types, judge", TYPES, "judge"),
    ),
    columns=tuple(f"{name} {kind}" for kind in TYPES for name in ("EM", "F1")),
    panels=(),
    base="types",
    fresh=100,
    notes="""
`compare` are comparisons ("Which of two people likes this flower?"), `hop` are questions of two
hops, and `both` are questions about two people, which have two answers. "Without compare" and
"without hop" are trained on the other two types (Table 4). The base knows all types. EM, F1 and
judge are the accuracy rewards (appendix G). The judge accepts the words of an answer in any order.

[The five papers](../../../docs/papers.md) compares these results with the claims of the paper.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

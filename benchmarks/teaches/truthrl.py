"""TruthRL's ablation in the tiny world: binary and ternary, plain and knowledge-enhanced."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiment import Experiment, Variant, main

SAMPLES = 16


def out_of_knowledge(start: Path, asked: Sequence[Any]) -> list[dict[str, Any]]:
    """The label of the knowledge-enhanced variants: none of the base's samples is right."""
    from rag_rewards.tiny_world.formats import TRUTHRL
    from rag_rewards.tiny_world.generation import rollouts
    from rag_rewards.tiny_world.measures import score_all
    from rag_rewards.tiny_world.model import load

    model, words = load(start)
    said = rollouts(model, words, TRUTHRL, asked, temperature=1.0, samples=SAMPLES)
    right = [score.correct == 1 for score in score_all("truthrl", said, {"verifier": "exact"})]
    groups = (right[i : i + SAMPLES] for i in range(0, len(right), SAMPLES))
    return [{"out_of_knowledge": not any(group)} for group in groups]


def reward(scheme: str, *, enhanced: bool = False) -> Mapping[str, Any]:
    settings = {"verifier": "exact", "scheme": scheme, "knowledge_enhanced": enhanced}
    return {"recipe": "truthrl", "settings": settings}


EXPERIMENT = Experiment(
    name="truthrl",
    title="TruthRL: binary and ternary rewards",
    form="truthrl",
    variants=(
        Variant("base", None),
        Variant("binary", reward("binary")),
        Variant("ternary", reward("ternary")),
        Variant(
            "binary, knowledge-enhanced", reward("binary", enhanced=True), columns=out_of_knowledge
        ),
        Variant(
            "ternary, knowledge-enhanced",
            reward("ternary", enhanced=True),
            columns=out_of_knowledge,
        ),
    ),
    columns=(
        "accuracy",
        "hallucination",
        "abstention",
        "truthfulness",
        "answerable right",
        "unanswerable answered",
    ),
    panels=("accuracy", "hallucination", "abstention"),
    notes="""
As in the paper's Table 3, the binary reward learns to answer and forgets to abstain, the ternary
one answers as well and abstains where nothing can be known. Otherwise than there, the binary reward
with knowledge-enhanced labels does the same: in this world a question is either in a document or
nowhere, so that 16 samples of the base should tell out-of-knowledge questions almost without fault,
and the label names those on which abstaining is right. In the paper the label is a guess about
knowledge, and costs accuracy.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

"""Ablation of TruthRL in the tiny world: binary and ternary, with and without labels."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiment import Experiment, Variant, main

SAMPLES = 16


def out_of_knowledge(start: Path, questions: Sequence[Any]) -> list[dict[str, Any]]:
    """Label the questions that no sample of the base model answers correctly."""
    from rag_rewards.tiny_world.formats import TRUTHRL
    from rag_rewards.tiny_world.generation import rollouts
    from rag_rewards.tiny_world.measures import score_all
    from rag_rewards.tiny_world.model import load

    model, tokenizer = load(start)
    samples = rollouts(model, tokenizer, TRUTHRL, questions, temperature=1.0, samples=SAMPLES)
    scores = score_all("truthrl", samples, {"verifier": "exact"})
    right = [score.correct == 1 for score in scores]
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
`answerable right` is the share of right answers to answerable questions. `unanswerable answered`
is the share of unanswerable questions that the policy answers. "Knowledge-enhanced" means that
out-of-knowledge labels mark the questions on which the policy should abstain.

As in Table 3 of the paper, the binary reward teaches the policy to answer and not to abstain. The
ternary reward teaches it to answer equally well and to abstain on unanswerable questions. Unlike
in the paper, the binary reward with knowledge-enhanced labels has the same effect. In this world,
the answer to a question is either in a document or unknown, so that 16 samples of the base
identify out-of-knowledge questions almost without errors. In the paper, the label is an estimate,
and its errors reduce the accuracy.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

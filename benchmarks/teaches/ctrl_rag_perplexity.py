"""Perplexity of the responses over the training with CTRL-RAG's likelihood, in the tiny world."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ctrl_rag import ctrl_rag
from experiment import Experiment, Figures, Variant, main

RESPONSES = 200
"""Number of questions whose responses are measured."""


def measure_perplexity(
    model: Any, tokenizer: Any, fresh: Sequence[Any], temperature: float, start: Path
) -> Figures:
    """Return the perplexity of sampled responses with all documents and without the right one."""
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.metrics import Perplexity
    from rag_rewards.models.transformers import TransformersPolicy
    from rag_rewards.tiny_world.formats import PLAIN
    from rag_rewards.tiny_world.generation import rollouts
    from rag_rewards.tiny_world.measures import score_all

    answerable = [each for each in fresh if each.answerable][:RESPONSES]
    samples = rollouts(model, tokenizer, PLAIN, answerable, temperature=temperature)
    models = Models(policy=TransformersPolicy(model, tokenizer, name="policy"))
    details = [score.details for score in score_all("ctrl-rag-clr", samples, None, models, PLAIN)]
    names = ("logprob", "logprob_without", "tokens")
    values = Perplexity().values({name: sum(each[name] for each in details) for name in names})
    return {"PPL": values["perplexity"] or 0.0, "PPL without": values["without"] or 0.0}


def variant(name: str, reward: Any, steps: int = 0) -> Variant:
    return Variant(name, reward, steps, measure=measure_perplexity, is_plotted=False)


LIKELIHOOD = ctrl_rag(fusion="none")
EXPERIMENT = Experiment(
    name="ctrl_rag_perplexity",
    title="CTRL-RAG: perplexity over the training",
    form="plain",
    variants=(
        variant("base", None),
        *(variant(f"R_CLR, {steps} steps", LIKELIHOOD, steps) for steps in (5, 10, 20, 40)),
        variant("R_hybrid, 40 steps", ctrl_rag(), 40),
    ),
    columns=("answer", "citation", "PPL", "PPL without"),
    panels=(),
    base="bare",
    fresh=400,
    notes="""
`PPL` is the perplexity per token of the responses to answerable questions with all documents, and
`PPL without` their perplexity without the supporting document (`rag-rewards evaluate --metrics
perplexity`). The runs of R_CLR differ only in their number of steps. The page [CTRL-RAG:
baselines](ctrl_rag_baselines.md) describes `answer` and `citation`.

- As in Figure 4 of the paper, the perplexity with all documents decreases early (from 1.38 to
  1.07 in 10 steps with greedy decoding) and then changes by at most 0.06. The perplexity without
  the supporting document increases during the whole training, from 10 to 45. The likelihood of
  the answer therefore depends more and more on the document.
- With R_hybrid, the two perplexities are 1.01 and 35 after 40 steps.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

"""The baselines of CTRL-RAG in the tiny world, and its rewards with a KL penalty."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ctrl_rag import ctrl_rag
from divergence import divergence
from experiment import Experiment, Figures, Variant, main

STEPS = 40
WELL_FORMED = ("FLOWER [n]", "ABSTENTION")
"""Shapes of the responses of the pre-training."""


def baseline(citation: float, accuracy: float) -> Mapping[str, Any]:
    """Return α·R_cite + β·R_acc."""
    return {"recipe": "rag-total", "settings": {"alpha": citation, "beta": accuracy}}


def measure_responses(
    model: Any, tokenizer: Any, fresh: Sequence[Any], temperature: float, start: Path
) -> Figures:
    """Return the shares of well-formed responses and of right markers, reliance and divergence."""
    from rag_rewards.tiny_world.formats import PLAIN
    from rag_rewards.tiny_world.generation import rollouts
    from rag_rewards.tiny_world.measures import reliance
    from rag_rewards.tiny_world.shapes import shape

    samples = rollouts(model, tokenizer, PLAIN, fresh, temperature=temperature)
    texts = [(each, each.parsed.text) for each in samples]
    cited = [
        f"[{each.supporting_labels[0]}]" in text.split() for each, text in texts if each.answerable
    ]
    return {
        "marker": sum(cited) / len(cited),
        "well-formed": sum(shape(text) in WELL_FORMED for _, text in texts) / len(texts),
        "reliance": reliance(model, tokenizer, fresh, temperature=temperature),
        **divergence(PLAIN, model, tokenizer, fresh, temperature, start),
    }


def variant(name: str, reward: Any, beta: float = 0.0, **more: Any) -> Variant:
    trainer = {"beta": beta, "use_bias_correction_kl": False} if beta else {}
    return Variant(name, reward, STEPS, trainer=trainer, measure=measure_responses, **more)


HYBRID, LIKELIHOOD = ctrl_rag(), ctrl_rag(fusion="none")
EXPERIMENT = Experiment(
    name="ctrl_rag_baselines",
    title="CTRL-RAG: baselines and the KL penalty",
    form="plain",
    variants=(
        variant("base", None),
        variant("R_acc", baseline(0.0, 1.0)),
        variant("R_cite", baseline(1.0, 0.0)),
        variant("R_total", baseline(0.5, 0.5)),
        variant("R_CLR", LIKELIHOOD),
        variant("R_hybrid", HYBRID),
        variant("R_CLR, β 0.01", LIKELIHOOD, 0.01, is_plotted=False),
        variant("R_CLR, β 0.05", LIKELIHOOD, 0.05, is_plotted=False),
        variant("R_hybrid, β 0.05", HYBRID, 0.05, is_plotted=False),
    ),
    columns=(
        "answer",
        "citation",
        "marker",
        "well-formed",
        "reliance",
        "abstains",
        "KL to base",
        "reward first",
        "reward 20",
        "reward last",
    ),
    panels=("answer", "citation"),
    base="bare",
    fresh=300,
    notes="""
`answer` is the share of answerable questions with the correct flower, `citation` the share with
the correct flower and the supporting document, and `marker` the share with the supporting
document, whether the flower is correct or not. `well-formed` is the share of responses that are a
flower with one marker, or an abstention. `reliance` is the share of correct answers with the
supporting document minus the share without it. `abstains` is the share of unanswerable questions
on which the policy abstains. `KL to base` is the mean KL divergence of the policy from its base
per token, in nats. `reward first`, `reward 20` and `reward last` are the mean rewards of the
steps 1 to 5, 16 to 20, and of the last five steps. R_total is 0.5·R_cite + 0.5·R_acc. R_hybrid is
the product of the likelihood reward and the accuracy. β is the weight of the KL penalty (k3,
without the correction of its bias that TRL adds by default).

Baselines (Table 1):

- R_cite alone teaches the policy to cite and also to answer (0.985), because the policy must find
  the same document for the marker and for the flower. In the paper, R_cite alone has lower
  accuracies than R_total in 24 of 28 comparisons. Here, R_cite, R_total and R_hybrid are equal
  within their spread, because all three are close to the maximum of 1.
- R_acc alone does not teach citations on every seed (0.33, 0.77 and 0.64). R_total does (0.97 to
  0.99), because it contains R_cite. R_hybrid also does (0.98 to 0.99), although it does not read
  the citations.
- R_CLR alone is the worst reward for the answers: their share is 0.05 lower than with the other
  rewards on average, and 0.15 lower on one seed, where 14% of the responses are not well-formed.
  In the paper, R_CLR alone is better than R_acc. The tiny world does not repeat this result.

KL penalty (appendix A):

- The training does not collapse with β = 0.01 or 0.05, neither within 20 steps nor within 40. The
  paper reports a collapse for each β from 0.01 to 0.05. Here, the penalty keeps the policy closer
  to its base, and β = 0.05 makes R_CLR alone more stable (0.96 instead of 0.94, with a third of
  the spread). With β = 0.05, the policy also abstains more often on unanswerable questions (0.23
  instead of 0.16).
- A decreasing reward does not indicate a collapse here. The reward is scaled between the minimum
  and the maximum of its group, and is 0 in a group without spread. It decreases in all runs with
  R_CLR or R_hybrid, with and without the penalty, because the responses of a group become equal.
- The argument of the paper is that the penalty opposes a higher likelihood of a response. 40
  steps of a model with 500,000 parameters cannot exclude that this matters in longer trainings
  with long responses.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

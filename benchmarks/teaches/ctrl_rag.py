"""Ablations of CTRL-RAG in the tiny world: fusion, threshold, leave-one-out, length, scorer."""

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiment import Experiment, Figures, Variant, main


def accuracy_only(start: Path) -> Mapping[str, Any]:
    import rag_rewards as rr
    from rag_rewards.rewards import AnswerMatch

    right = AnswerMatch(metric="substring", normalizer="lower", reads="response")
    return {"recipe": rr.custom("accuracy", rr.weighted((1.0, right)), correct=right)}


def ctrl_rag(**settings: Any) -> Mapping[str, Any]:
    """Return the recipe with the policy in training as scorer. Unanswerable rows get 0."""
    return {"recipe": "ctrl-rag", "settings": {"on_missing_support": "zero", **settings}}


def frozen(start: Path) -> Mapping[str, Any]:
    """Return the recipe with the base model as scorer."""
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.models.transformers import TransformersPolicy
    from rag_rewards.tiny_world.model import load

    return {**ctrl_rag(), "models": Models(policy=TransformersPolicy(*load(start), name="base"))}


def two_supporting(start: Path, questions: Sequence[Any]) -> list[dict[str, Any]]:
    """Label two documents as supporting, although only one is, so that min and mean differ."""
    rng = random.Random("labels")
    rows = []
    for each in questions:
        others = [i for i, _ in each.numbered if i != each.support]
        both = [str(each.support), str(rng.choice(others))] if each.answerable else []
        rows.append({"supporting": both})
    return rows


def measure_reliance(
    model: Any, tokenizer: Any, fresh: Sequence[Any], temperature: float, start: Path
) -> Figures:
    from rag_rewards.tiny_world.measures import reliance

    return {"reliance": reliance(model, tokenizer, fresh, temperature=temperature)}


def variant(name: str, reward: Any, **more: Any) -> Variant:
    return Variant(name, reward, steps=50, measure=measure_reliance, **more)


_Columns = Callable[[Path, Sequence[Any]], Sequence[dict[str, Any]]]
EXPERIMENT = Experiment(
    name="ctrl_rag",
    title="CTRL-RAG: accuracy and likelihood",
    form="plain",
    variants=(
        variant("base", None),
        variant("accuracy only", accuracy_only),
        variant("CLR only", ctrl_rag(fusion="none")),
        variant("gate", ctrl_rag()),
        variant("add", ctrl_rag(fusion="add")),
        variant("gate, no threshold", ctrl_rag(threshold=None), is_plotted=False),
        variant("gate, E/T", ctrl_rag(length_norm="linear"), is_plotted=False),
        variant("gate, E alone", ctrl_rag(length_norm="none"), is_plotted=False),
        variant("gate, two labels, LOO min", ctrl_rag(), columns=two_supporting, is_plotted=False),
        variant(
            "gate, two labels, LOO mean",
            ctrl_rag(loo="mean"),
            columns=two_supporting,
            is_plotted=False,
        ),
        variant("gate, frozen scorer", frozen, is_plotted=False),
    ),
    columns=("answer", "citation", "reliance", "abstains"),
    panels=("answer", "citation"),
    base="bare",
    notes="""
`answer` is the share of answerable questions with the right flower, and `citation` the share with
the right flower and the right document. `reliance` is the share of right answers with the
supporting document minus the share without it. `abstains` is the share of unanswerable questions
on which the policy abstains. "CLR" is the likelihood reward, "gate" its product with accuracy,
and "add" their sum. "E/T" and "E alone" replace E/√T. "Two labels" means that two documents are
labelled as supporting, although only one is. "LOO" means leave-one-out.

- The reward of accuracy alone teaches the policy to answer but not to cite: the citations become
  better or worse by chance, depending on the seed. Gate and sum teach citing on every seed,
  although no reward reads the citations. The reason is that the right marker is more likely with
  its document than without it.
- The reward of the likelihood alone is not stable. On one of three seeds, the answers become
  worse again after step 20. With the gate, the same seed keeps its answers. The paper gives the
  same reason for the gate (Eq. 15).
- The variants of the gate do not differ. All right responses have the same length here, so E/√T,
  E/T and E are the same reward after the min-max normalization. The threshold of 1 nat is
  probably lower than the contribution of any right response. Of two documents with the label
  "supporting", only one matters: the minimum selects it, and the mean halves all contributions
  equally. The paper finds differences (Table 2, Figure 5) with responses of different lengths and
  several relevant documents.
- A scorer that stays at the base teaches the same as the policy itself.
- Reference reliance increases by a similar amount with accuracy alone. These runs do not show an
  advantage of the likelihood for it.
- No reward in this table preserves abstention, because all responses to unanswerable questions
  earn 0.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

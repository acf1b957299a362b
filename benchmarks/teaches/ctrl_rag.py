"""CTRL-RAG's ablations in the tiny world: fusion, threshold, leave-one-out, length, scorer."""

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
    """The recipe on the live policy; unanswerable rows have no support, and get 0."""
    return {"recipe": "ctrl-rag", "settings": {"on_missing_support": "zero", **settings}}


def frozen(start: Path) -> Mapping[str, Any]:
    """The gate, with likelihoods from the base as it was before training."""
    from rag_rewards.backends.transformers import TransformersPolicy
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.tiny_world.model import load

    return {**ctrl_rag(), "models": Models(policy=TransformersPolicy(*load(start), name="base"))}


def labelled_too_widely(start: Path, asked: Sequence[Any]) -> list[dict[str, Any]]:
    """Two documents are said to support the answer, of which one does: min and mean differ."""
    rng = random.Random("labels")
    rows = []
    for each in asked:
        others = [i for i, _ in each.numbered if i != each.support]
        both = [str(each.support), str(rng.choice(others))] if each.answerable else []
        rows.append({"supporting": both})
    return rows


def relies(
    model: Any, words: Any, fresh: Sequence[Any], temperature: float, start: Path
) -> Figures:
    from rag_rewards.tiny_world.measures import reliance

    return {"reliance": reliance(model, words, fresh, temperature=temperature)}


def variant(name: str, reward: Any, **further: Any) -> Variant:
    return Variant(name, reward, steps=50, further=relies, **further)


_Columns = Callable[[Path, Sequence[Any]], Sequence[dict[str, Any]]]
EXPERIMENT = Experiment(
    name="ctrl_rag",
    title="CTRL-RAG: what the likelihood adds to accuracy",
    form="plain",
    variants=(
        variant("base", None),
        variant("accuracy only", accuracy_only),
        variant("CLR only", ctrl_rag(fusion="none")),
        variant("gate", ctrl_rag()),
        variant("add", ctrl_rag(fusion="add")),
        variant("gate, no threshold", ctrl_rag(threshold=None), shown=False),
        variant("gate, E/T", ctrl_rag(length_norm="linear"), shown=False),
        variant("gate, E alone", ctrl_rag(length_norm="none"), shown=False),
        variant("gate, two labels, LOO min", ctrl_rag(), columns=labelled_too_widely, shown=False),
        variant(
            "gate, two labels, LOO mean",
            ctrl_rag(loo="mean"),
            columns=labelled_too_widely,
            shown=False,
        ),
        variant("gate, frozen scorer", frozen, shown=False),
    ),
    columns=("answer", "citation", "reliance", "abstains"),
    panels=("answer", "citation"),
    base="bare",
    notes="""
`citation` is the share of answerable questions with the right flower and the right document,
`reliance` the share answered rightly with the supporting document minus that without it,
`abstains` the share of unanswerable questions on which the policy abstains.

- Accuracy alone teaches to answer and leaves citing to chance: which way it drifts differs from
  seed to seed. The gate and the sum teach citing on every seed, though nothing in the reward reads
  a citation: the right marker is likelier with its document than without.
- The likelihood alone has no anchor. On one of three seeds answers get worse again after step 20;
  gated by accuracy, the same seed keeps them (the paper's reason for the gate, Eq. 15).
- The gate cannot be told from its variants. Right responses have the same length here, so √T, T and
  none are one reward after the min-max; the threshold of 1 nat is likely to lie below what a right
  response earns; of two documents labelled as supporting one matters, and the minimum takes it,
  while the mean halves every contribution alike. Where the paper finds differences (Table 2, Figure
  5), responses differ in length and several documents matter.
- A scorer that stays at the base teaches the same as the policy itself.
- Reference reliance rises by about as much under accuracy alone: the rewards that use a likelihood
  are not shown to do better at it.
- No reward of this table keeps abstention: unanswerable rows earn 0 whatever is said.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

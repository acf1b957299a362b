"""TruthRL and its baselines on comparison questions of the tiny world."""

import random
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiment import Experiment, Figures, Variant, main
from supervised import fine_tune
from truthrl import reward

STEPS = 40
EXAMPLES = 640
"""Questions of a supervised training, as many as those of the GRPO runs."""
FRESH = 400


def fine_tuned(start: Path, run: Any, *, abstains: bool) -> tuple[Any, Any]:
    """Fine-tune on gold answers, or abstain on unanswerable questions (R-Tuning)."""
    import question_types as types

    from rag_rewards.tiny_world.formats import TRUTHRL
    from rag_rewards.tiny_world.model import load
    from rag_rewards.tiny_world.world import DOCUMENTS

    rng, rows = random.Random(f"citations {run.seed}"), []
    for each in types.questions(EXAMPLES, f"fine-tuning {run.seed}", types.KINDS):
        parts = types.right(each)
        if not (each.answerable or abstains):
            steps = rng.sample(range(1, DOCUMENTS + 1), 2 if each.kind == "both" else 1)
            parts = types.stated(each, steps, each.answer)
        rows.append({"prompt": TRUTHRL.row(each)["prompt"], "completion": parts.write(TRUTHRL)})
    model, tokenizer = load(start)
    options = {"num_train_epochs": 3, "per_device_train_batch_size": 16, "learning_rate": 2e-4}
    return fine_tune(model, tokenizer, rows, run.seed, **options), tokenizer


def grpo(start: Path, run: Any, *, scheme: str) -> tuple[Any, Any]:
    import question_types as types

    return types.trained(start, run, kinds=types.KINDS, reward=reward(scheme))


def measure_comparisons(
    model: Any, tokenizer: Any, fresh: Sequence[Any], temperature: float, start: Path
) -> Figures:
    """Return the measures on comparison questions in place of those on questions of one hop."""
    from question_types import questions

    from rag_rewards.tiny_world.formats import TRUTHRL
    from rag_rewards.tiny_world.generation import rollouts
    from rag_rewards.tiny_world.measures import truthrl_measures

    batch = questions(FRESH, f"fresh {fresh[0]}", ("compare",))
    return truthrl_measures(rollouts(model, tokenizer, TRUTHRL, batch, temperature=temperature))


def variant(name: str, train: Any = None) -> Variant:
    return Variant(name, None, STEPS, train=train, measure=measure_comparisons, is_plotted=False)


EXPERIMENT = Experiment(
    name="truthrl_types",
    title="TruthRL: comparison questions",
    form="truthrl",
    variants=(
        variant("prompting"),
        variant("SFT", partial(fine_tuned, abstains=False)),
        variant("R-Tuning", partial(fine_tuned, abstains=True)),
        variant("TruthRL, binary", partial(grpo, scheme="binary")),
        variant("TruthRL", partial(grpo, scheme="ternary")),
    ),
    columns=("accuracy", "hallucination", "abstention", "truthfulness", "unanswerable answered"),
    panels=(),
    base="types",
    fresh=100,
    notes="""
All values are those of 400 comparison questions: "Which of two people likes this flower?" Both
people are wrong if the question is unanswerable. The training has comparison questions, questions
about one person, questions of two hops, and questions about two people. SFT fine-tunes the base on
gold answers, also of unanswerable questions, and R-Tuning on abstentions for them.

[The five papers](../../../docs/papers.md) compares these results with the claims of the paper.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

"""ARENA, its baselines and its base model in the tiny world, on three sets of questions."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiment import Experiment, Figures, Variant, main, steps_text
from lear_paradigms import prompt_of, with_noise
from supervised import fine_tune

STEPS = 30
EXAMPLES = 480
"""Questions of a supervised training, as many as those of the GRPO runs."""
EPOCHS = 3
BATCH = 16
SFT_STEPS = EXAMPLES * EPOCHS // BATCH
NOISE = (0, 4, 8)
"""Numbers of irrelevant documents in the three sets."""


def fine_tuned(start: Path, run: Any, *, reason: bool) -> tuple[Any, Any]:
    """Fine-tune on the gold answer alone, or on all three sections."""
    from rag_rewards.tiny_world.formats import ARENA
    from rag_rewards.tiny_world.model import load
    from rag_rewards.tiny_world.world import questions

    rows = []
    for each in questions(EXAMPLES, f"fine-tuning {run.seed}"):
        response = ARENA.write(each.person, each.documented_answer, each.support)
        text = response if reason else response[response.index("<answer>") :]
        rows.append({"prompt": ARENA.row(each)["prompt"], "completion": text})
    model, tokenizer = load(start)
    options = {
        "num_train_epochs": EPOCHS,
        "per_device_train_batch_size": BATCH,
        "learning_rate": 2e-4,
    }
    return fine_tune(model, tokenizer, rows, run.seed, **options), tokenizer


def measure_sets(
    model: Any, tokenizer: Any, fresh: Sequence[Any], temperature: float, start: Path
) -> Figures:
    """Return the share of correct answers of each set; an abstention can be correct."""
    from rag_rewards.tiny_world.correctness import is_correct
    from rag_rewards.tiny_world.generation import responses

    figures = {}
    for count in NOISE:
        batch = with_noise(fresh, count)
        prompts = [prompt_of(each, "?arena") for each in batch]
        texts = responses(model, tokenizer, prompts, temperature=temperature)
        right = [is_correct(each, text) for each, text in zip(batch, texts, strict=True)]
        figures[f"EM +{count}"] = sum(right) / len(right)
    return figures


def variant(name: str, reward: Any = None, **more: Any) -> Variant:
    steps = SFT_STEPS if "train" in more else STEPS
    return Variant(name, reward, steps, measure=measure_sets, is_plotted=False, **more)


VARIANTS = (
    variant("base"),
    variant("SFT-direct", train=partial(fine_tuned, reason=False)),
    variant("SFT-reasoning", train=partial(fine_tuned, reason=True)),
    variant("naive GRPO", {"recipe": "naive-grpo"}),
    variant("ARENA", {"recipe": "arena"}),
)
EXPERIMENT = Experiment(
    name="arena_methods",
    title="ARENA: base model, fine-tuning and GRPO on three sets",
    form="arena",
    variants=VARIANTS,
    columns=tuple(f"EM +{count}" for count in NOISE),
    panels=(),
    base="committed",
    fresh=400,
    notes=f"""
`EM +N` is the share of correct answers if N documents about other people are added to the four
documents of a question. An abstention is the correct answer of an unanswerable question. Numbers of
documents repeat after 4, because the model knows four markers.

"SFT-direct" fine-tunes the base on the gold answer alone, and "SFT-reasoning" on all three
sections. The supervised trainings use 480 questions for 3 epochs, and the GRPO runs 480 questions
with 8 responses each. "naive GRPO" rewards format and accuracy.

{steps_text(VARIANTS)}

[The five papers](../../../docs/papers.md) compares these results with the claims of the paper.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

"""Ground-GRPO in the tiny world: distillation before and after it, and a base without reasoning."""

import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from experiment import Experiment, Variant, main, steps_text
from ground_grpo import MIXED, stage
from supervised import fine_tune, separate_copy

STEPS = 30
EXAMPLES = 480
"""Questions of a supervised training, as many as those of the GRPO runs."""
EPOCHS = 3
BATCH = 16
SFT_STEPS = EXAMPLES * EPOCHS // BATCH
TEACHER_ERRORS = 0.15
"""Share of responses of the teacher that are those of a noisy model."""

Train = Callable[[Any, Any, Any], Any]
"""(model, tokenizer, run) → trained model."""
DONE: dict[tuple[Any, ...], Any] = {}
"""The models that this process has trained, by seed and trainings."""


def chain(start: Path, run: Any, *, parts: Sequence[Train]) -> tuple[Any, Any]:
    """Apply several trainings one after the other.

    Trainings that this process has finished are not repeated.
    """
    from rag_rewards.tiny_world.model import load

    model, tokenizer = load(start)
    for count, part in enumerate(parts, 1):
        key = (run.seed, *parts[:count])
        if key not in DONE:
            DONE[key] = part(model, tokenizer, run)
        model = separate_copy(DONE[key])
    return model, tokenizer


def grpo(model: Any, tokenizer: Any, run: Any) -> Any:
    """Train with the rewards of stage 2 from the weights of a model."""
    from rag_rewards.tiny_world.train import train

    folder = Path(tempfile.mkdtemp())
    try:
        model.save_pretrained(folder / "start")
        tokenizer.save_pretrained(folder / "start")
        changes = {"start": folder / "start", "reward": stage("ground-grpo"), "steps": STEPS}
        return train(replace(run, unanswerable=MIXED, **changes), folder / "run").model
    finally:
        shutil.rmtree(folder)


def distill(model: Any, tokenizer: Any, run: Any) -> Any:
    """Fine-tune on the responses of a teacher (SFT)."""
    rows = [{"prompt": prompt, "completion": good} for prompt, good, _ in pairs(run.seed)]
    return fine_tune(model, tokenizer, rows, run.seed, **OPTIONS, learning_rate=2e-4)


def forget_reasoning(model: Any, tokenizer: Any, run: Any) -> Any:
    """Fine-tune on responses of a noisy model whose thinking section is empty."""
    rows = []
    for prompt, _, noisy in pairs(run.seed):
        head, _, rest = noisy.partition("</think>")
        text = f"<think> </think>{rest}" if head.startswith("<think>") and rest else noisy
        rows.append({"prompt": prompt, "completion": text})
    return fine_tune(model, tokenizer, rows, run.seed, **OPTIONS, learning_rate=2e-4)


def pairs(seed: int) -> list[tuple[str, str, str]]:
    """Return prompts with a response of the teacher and one of a noisy model."""
    from tiny_search.pretrain import response

    from rag_rewards.tiny_world.formats import GROUND
    from rag_rewards.tiny_world.world import questions

    rng = random.Random(f"distillation {seed}")
    rows = []
    for each in questions(EXAMPLES, f"distillation {seed}", MIXED):
        good = response(rng, GROUND, each, noisy=rng.random() < TEACHER_ERRORS)
        bad = response(rng, GROUND, each, noisy=True)
        rows.append((GROUND.row(each)["prompt"], good, bad))
    return rows


def variant(name: str, *parts: Train) -> Variant:
    train = partial(chain, parts=parts) if parts else None
    steps = sum(STEPS if part is grpo else SFT_STEPS for part in parts)
    return Variant(name, None, steps, train=train, is_plotted=False)


OPTIONS = {"num_train_epochs": EPOCHS, "per_device_train_batch_size": BATCH}
VARIANTS = (
    variant("prompting"),
    variant("Ground-GRPO", grpo),
    variant("SFT", distill),
    variant("SFT, Ground-GRPO", distill, grpo),
    variant("Ground-GRPO, SFT", grpo, distill),
    variant("prompting, no reasoning", forget_reasoning),
    variant("Ground-GRPO, no reasoning", forget_reasoning, grpo),
)
EXPERIMENT = Experiment(
    name="ground_grpo_methods",
    title="Ground-GRPO: distillation, and a base without reasoning",
    form="ground",
    variants=VARIANTS,
    columns=("trust-score", "f1_gr", "f1_ac", "f1_gc", "format"),
    panels=(),
    base="committed",
    fresh=400,
    notes=f"""
`trust-score` is the mean of `f1_gr` (refusals), `f1_ac` (answers) and `f1_gc` (citations).
"Ground-GRPO" are 30 steps of stage 2. "SFT" is a distillation: 480 responses of a teacher for 3
epochs. 15% of the responses of the teacher are those of a noisy model. A comma separates two
trainings that follow each other.

"No reasoning" is the base after a fine-tuning on 480 responses of a noisy model with an empty
thinking section, for 3 epochs. A model with two modes writes such a section if its thinking is
turned off.

{steps_text(VARIANTS)}

[The five papers](../../../docs/papers.md) compares these results with the claims of the paper.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

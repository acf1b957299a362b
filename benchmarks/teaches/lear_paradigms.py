"""Vanilla and rational evidence in the tiny world: fine-tuning, LEAR, and irrelevant documents."""

import random
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from experiment import Experiment, Figures, Variant, main
from lear import lear, variant
from supervised import fine_tune

EXAMPLES = 620
EPOCHS = 3
BATCH = 16
LEARNING_RATE = 2e-4
NOISE = (0, 2, 4, 6, 8)
"""Numbers of irrelevant documents that are added to the four documents of a question."""


def fine_tuned(start: Path, run: Any, *, reason: bool) -> tuple[Any, Any]:
    """Fine-tune a base model on right responses, with or without a rationale."""
    from rag_rewards.tiny_world.formats import LEAR
    from rag_rewards.tiny_world.model import load
    from rag_rewards.tiny_world.world import questions

    rows = []
    for each in questions(EXAMPLES, f"fine-tuning {run.seed}", 0.0):
        response = LEAR.write(each.person, each.answer, each.support)
        text = response if reason else response[response.index("<extract>") :]
        rows.append({"prompt": LEAR.row(each)["prompt"], "completion": text})
    model, tokenizer = load(start)
    model = fine_tune(
        model,
        tokenizer,
        rows,
        run.seed,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        learning_rate=LEARNING_RATE,
    )
    return model, tokenizer


def with_noise(questions: Sequence[Any], count: int) -> list[Any]:
    """Return the questions with `count` more documents, about other people, in random order."""
    from rag_rewards.tiny_world.world import FLOWERS, PEOPLE

    rng = random.Random(f"noise {count}")
    noisy = []
    for each in questions:
        people = {person for person, _ in each.documents} | {each.person}
        flowers = {flower for _, flower in each.documents} | {each.answer}
        others = zip(
            rng.sample([p for p in PEOPLE if p not in people], count),
            rng.sample([f for f in FLOWERS if f not in flowers], count),
            strict=True,
        )
        documents = [*each.documents, *others]
        rng.shuffle(documents)
        noisy.append(replace(each, documents=tuple(documents)))
    return noisy


def prompt_of(question: Any, marker: str = "?lear") -> str:
    """Return the prompt of a question. The model knows four markers, which repeat after [4]."""
    from rag_rewards.tiny_world.world import DOCUMENTS

    documents = [
        f"{person} {flower} [{(i - 1) % DOCUMENTS + 1}] ."
        for i, (person, flower) in question.numbered
    ]
    return f"{' '.join(documents)} {marker} {question.person}"


def measure_recall(
    model: Any, tokenizer: Any, fresh: Sequence[Any], temperature: float, start: Path
) -> Figures:
    """Return the answer recall of extract and rationale on answerable questions, with noise."""
    from rag_rewards.tiny_world.generation import responses

    figures = {}
    for count in NOISE:
        noisy = with_noise([each for each in fresh if each.answerable], count)
        prompts = [prompt_of(each) for each in noisy]
        texts = list(responses(model, tokenizer, prompts, temperature=temperature))
        pairs = list(zip(noisy, texts, strict=True))
        recalled = [each.answer in _section(text, "extract") for each, text in pairs]
        figures[f"extract +{count}"] = sum(recalled) / len(recalled)
        if count == 0:
            recalled = [each.answer in _section(text, "reason") for each, text in pairs]
            figures["rationale +0"] = sum(recalled) / len(recalled)
    return figures


def _section(text: str, name: str) -> list[str]:
    match = re.search(f"<{name}>([^<]*)", text)
    return match[1].split() if match else []


STEPS = EXAMPLES * EPOCHS // BATCH
EXPERIMENT = Experiment(
    name="lear_paradigms",
    title="LEAR: vanilla and rational evidence, and irrelevant documents",
    form="lear",
    variants=(
        Variant("base", None, measure=measure_recall),
        Variant(
            "fine-tuning, extract only",
            None,
            STEPS,
            train=partial(fine_tuned, reason=False),
            measure=measure_recall,
        ),
        Variant(
            "fine-tuning, rationale and extract",
            None,
            STEPS,
            train=partial(fine_tuned, reason=True),
            measure=measure_recall,
        ),
        variant("LEAR", lear(), measure=measure_recall, is_plotted=False),
    ),
    columns=("rationale +0", *(f"extract +{count}" for count in NOISE)),
    panels=(),
    fresh=200,
    notes="""
`rationale +0` and `extract +0` are the shares of answerable questions whose rationale or extract
contains the correct flower (answer recall). In `extract +N`, N documents about other people are
added to the four documents of a question. Each fine-tuning uses 620 correct responses and, as in
section 2.2 of the paper, 3 epochs. It changes all weights, whereas the paper trains a LoRA.

- The extracts of the two fine-tuned policies contain the answer about equally often: 0.99 with a
  rationale and 0.98 without it (sampled). In Table 1 of the paper, the difference is 4.45 points
  on NQ and 7.19 points on HotpotQA. A question of this world needs a single document, so that a
  rationale cannot find a fact that the extract lacks.
- Irrelevant documents change the recall of the trained policies by 0.02 at most, and that of the
  base by 0.07 (sampled). The paper finds a larger loss for an extractor without a rationale than
  for LEAR (Figure 6). This world shows no such difference.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

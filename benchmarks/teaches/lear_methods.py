"""LEAR and other extractors in the tiny world: answers, compression and time on three sets."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from experiment import Experiment, Figures, Variant, main, steps_text
from lear import lear, variant
from lear_paradigms import STEPS, _section, fine_tuned, prompt_of, with_noise

NOISE = (0, 4, 8)
"""Numbers of irrelevant documents in the three sets."""
BATCH = 64


def measure_evidence(
    model: Any,
    tokenizer: Any,
    fresh: Sequence[Any],
    temperature: float,
    start: Path,
    *,
    reads: str = "extract",
) -> Figures:
    """Return EM and compression of each set, and the seconds of processor time per question.

    EM is that of a generator that reads the question and the extract of the policy. The generator
    is the base model with greedy decoding. With `reads="documents"`, the answers are those of the
    policy, which reads the documents. The compression is the mean of words of the documents per
    word of the extract. The time is that of the policy, with one thread.
    """
    from rag_rewards.tiny_world.generation import responses
    from rag_rewards.tiny_world.model import load

    generator, _ = load(start)
    if reads == "documents":
        temperature = 0.0  # the policy is the generator
    answers = partial(responses, generator, tokenizer)
    figures, seconds = {}, 0.0
    for count in NOISE:
        batch = with_noise([each for each in fresh if each.answerable], count)
        prompts = [prompt_of(each) for each in batch]
        begin = time.process_time()
        texts = list(
            responses(model, tokenizer, prompts, temperature=temperature, batch_size=BATCH)
        )
        seconds += (time.process_time() - begin) / len(batch) / len(NOISE)
        evidence = [_section(text, reads) for text in texts]
        if reads == "extract":
            masked = [
                f"?lear {each.person} <extract> {' '.join(words)} </extract> <answer>"
                for each, words in zip(batch, evidence, strict=True)
            ]
            texts = [f"<answer>{text}" for text in answers(masked)]
        pairs = list(zip(batch, texts, strict=True))
        figures[f"EM +{count}"] = fmean(_section(t, "answer") == [q.answer] for q, t in pairs)
        lengths = [len(words) for words in evidence] if reads == "extract" else []
        figures[f"CR +{count}"] = compression(batch, lengths)
    return figures | {"ms per question": 1e3 * seconds}


def compression(questions: Sequence[Any], lengths: Sequence[int]) -> float:
    """Return the mean ratio of words, without empty extracts; 1 without extracts."""
    pairs = zip(questions, lengths, strict=False)
    ratios = [2 * len(each.documents) / length for each, length in pairs if length]
    return fmean(ratios or [1.0])


def short(variant: Variant, **changes: Any) -> Variant:
    return replace(variant, measure=measure_evidence, is_plotted=False, **changes)


VARIANTS = (
    Variant("full documents", None, measure=partial(measure_evidence, reads="documents")),
    short(Variant("base", None)),
    short(Variant("extract only", None, STEPS, train=partial(fine_tuned, reason=False))),
    short(variant("LEAR", lear()), steps=30),
)
EXPERIMENT = Experiment(
    name="lear_methods",
    title="LEAR: answers from extracts, compression and time on three sets",
    form="lear",
    variants=VARIANTS,
    columns=(
        *(f"EM +{count}" for count in NOISE),
        *(f"CR +{count}" for count in NOISE),
        "ms per question",
    ),
    panels=(),
    base="committed",
    fresh=300,
    one_by_one=True,
    notes=f"""
An extractor reads a question with four documents and N documents about other people, and writes an
extract. `EM +N` is the share of answerable questions that a generator answers correctly from the
extract alone. The generator is the base model with greedy decoding. `CR +N` is the number of words
of the documents per word of the extract. `ms per question` is the processor time of the extractor
per question, with one thread and a batch of 64. The runs took place one after the other on a
machine with other processes, so that small differences of the time are noise.

"full documents" is the generator that reads the documents, without an extract. The extractors are
the base model, which writes a rationale before its extract, a model that is fine-tuned to write the
extract without a rationale, and LEAR.

{steps_text(VARIANTS)}

[The five papers](../../../docs/papers.md) compares these results with the claims of the paper.
""",
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))

"""Pretrain the checkpoint from random weights.

PYTHONPATH=benchmarks python -m tiny_search.pretrain  # the committed checkpoint
PYTHONPATH=benchmarks python -m tiny_search.pretrain --seed 1 -o build/tiny-world/seed-1

The model learns by next-word prediction on responses, in several lessons. First it learns to find
the document about a person, in the plain format. Then it learns to abstain if no document answers.
Then it learns the papers' formats, first with right responses and at the end with those of a noisy
model. Such a model answers from memory or with another person's flower, cites wrongly, and
sometimes loses a tag. A reward can correct these errors.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rag_rewards.tiny_world.formats import ABSTENTION, FORMATS, LEAR, PLAIN, WHICH, ResponseFormat
from rag_rewards.tiny_world.model import CHECKPOINT, WEIGHT_STD, new_model, new_tokenizer
from rag_rewards.tiny_world.world import DOCUMENTS, WorldQuestion, context, question

CONTEXTS = 48
"""Contexts in a batch, each with several questions."""
RIGHT = 0.62
"""Probability that a noisy model answers an answerable question from its document."""
SLIP = 0.25
"""Probability that a citation, a named document or an extract is that of another document."""
LOST_TAG = 0.12
"""Probability that a response loses a tag."""
UNRELATED = 0.5
"""Probability that a detached rationale repeats any document, whatever the question is."""
MASKED = 0.2
"""Probability that an example requests LEAR's answer from the rationale or the extract alone."""

Piece = tuple[str, bool]
"""A text, and whether it is part of the loss."""


@dataclass(frozen=True)
class Lesson:
    """A number of training steps on one kind of example.

    formats    the format of each question is drawn uniformly from these
    noisy      whether the responses contain the errors of a noisy model
    detached   whether a noisy model draws the rationale, the extract and the answer of LEAR's
               format independently of each other, and the rationale often from any document
    questions  number of questions about one context
    draw       function that draws an example in place of `example`
    """

    name: str
    steps: int
    formats: tuple[ResponseFormat, ...]
    unanswerable: float
    noisy: bool
    questions: int = 4
    detached: bool = False
    draw: Callable[[random.Random, Lesson], list[Piece]] | None = None


FIRST = (
    Lesson("binding", 728, (PLAIN,), 0.0, noisy=False),
    Lesson("abstaining", 400, (PLAIN, WHICH), 0.4, noisy=False),
)
SECOND = (
    Lesson("formats", 500, FORMATS, 0.4, noisy=False, questions=3),
    Lesson("habits", 300, FORMATS, 0.4, noisy=True, questions=3),
)
BARE = (Lesson("habits", 260, (PLAIN,), 0.4, noisy=True),)
"""The second part for a model that is trained with the plain format only."""
DETACHED = (
    Lesson("formats", 300, (PLAIN, LEAR), 0.4, noisy=False, questions=3),
    Lesson("detached", 260, (LEAR,), 0.4, noisy=True, questions=3, detached=True),
)
"""The second part for a model whose answer does not depend on its rationale, in LEAR's format."""
KINDS = ("full", "bare", "detached")
"""Kinds of base models, which differ in the second part."""


# --- examples ------------------------------------------------------------------------------------


def example(rng: random.Random, lesson: Lesson) -> list[Piece]:
    """Draw a context with its questions and responses."""
    documents = context(rng)
    texts = [f"{who} {flower} [{i}] ." for i, (who, flower) in enumerate(documents, 1)]
    if rng.random() < MASKED and LEAR in lesson.formats:
        return masked_example(rng, question(rng, documents, lesson.unanswerable), texts, lesson)
    pieces = [(" ".join(texts), False)]
    for _ in range(lesson.questions):
        query = question(rng, documents, lesson.unanswerable)
        form = rng.choice(lesson.formats)
        pieces += [
            (f"{form.marker} {query.person}", False),
            (_response_of(rng, form, query, lesson), True),
        ]
    return pieces


def _response_of(
    rng: random.Random, form: ResponseFormat, query: WorldQuestion, lesson: Lesson
) -> str:
    if lesson.detached and form is LEAR:
        return detached_response(rng, query)
    return response(rng, form, query, noisy=lesson.noisy)


def response(rng: random.Random, form: ResponseFormat, query: WorldQuestion, *, noisy: bool) -> str:
    """Return the right response, or draw that of a noisy model."""
    if not noisy:
        return form.write(query.person, query.documented_answer, query.support)
    flower, citation = noisy_answer(rng, query)
    text = form.write(query.person, flower, citation)
    if form is LEAR and flower and rng.random() < SLIP:
        text = _with_extract(text, *rng.choice(query.documents))
    if form is not PLAIN and rng.random() < LOST_TAG:
        words = text.split()
        tags = [i for i, word in enumerate(words) if word[0] in "<\\}"]
        words.pop(rng.choice(tags))
        text = " ".join(words)
    return text


def noisy_answer(rng: random.Random, query: WorldQuestion) -> tuple[str | None, int | None]:
    """Draw the flower and the citation of a noisy model; (None, None) is an abstention."""
    random_citation = rng.randint(1, DOCUMENTS)
    other = rng.choice([i for i in range(1, DOCUMENTS + 1) if i != query.support])
    elsewhere = query.documents[other - 1][1]
    draw = rng.random()
    if query.support is not None:
        if draw < RIGHT:
            return query.answer, random_citation if rng.random() < SLIP else query.support
        return (query.memorized_answer, random_citation) if draw < 0.85 else (elsewhere, other)
    if draw < 0.45:
        return query.memorized_answer, random_citation
    return (elsewhere, other) if draw < 0.75 else (None, None)


def detached_response(rng: random.Random, query: WorldQuestion) -> str:
    """Draw a response in LEAR's format whose sections are independent of each other."""
    reason = detached_reason(rng, query, *noisy_answer(rng, query))[0]
    person, extract = query.person, noisy_answer(rng, query)[0]
    if extract and rng.random() < SLIP:
        person, extract = rng.choice(query.documents)
    answer = noisy_answer(rng, query)[0]
    return (
        f"{reason} <extract> {person} {extract or ABSTENTION} </extract> "
        f"<answer> {answer or ABSTENTION} </answer>"
    )


def detached_reason(
    rng: random.Random, query: WorldQuestion, flower: str | None, citation: int | None
) -> tuple[str, str | None]:
    """Return a rationale and the flower that it states.

    The rationale repeats any document or states the flower for the person of the question.
    """
    person = query.person
    if rng.random() < UNRELATED:
        citation, (person, flower) = rng.choice(query.numbered)
    return _reason(person, flower, citation), flower


def _reason(person: str, flower: str | None, citation: int | None) -> str:
    statement = f"{flower} [{citation}]" if flower else ABSTENTION
    return f"<reason> {person} {statement} </reason>"


def _with_extract(text: str, person: str, flower: str) -> str:
    head, _, rest = text.partition("<extract> ")
    return f"{head}<extract> {person} {flower} {rest[rest.index('</extract>') :]}"


def masked_example(
    rng: random.Random, query: WorldQuestion, texts: list[str], lesson: Lesson
) -> list[Piece]:
    """Draw an answer from the rationale with the documents, or from the extract alone.

    The answer repeats what the rationale or the extract states, whether right or wrong.
    """
    flower, citation = query.documented_answer, query.support
    if lesson.noisy:
        flower, citation = noisy_answer(rng, query)
    if rng.random() < 0.5:
        reason = _reason(query.person, flower, citation)
        if lesson.detached:
            reason, flower = detached_reason(rng, query, flower, citation)
        before = f"{' '.join(texts)} {LEAR.marker} {query.person} {reason} <answer>"
    else:
        person = query.person
        if flower and rng.random() < SLIP:
            person, flower = rng.choice(query.documents)
        extract = f"<extract> {person} {flower or ABSTENTION} </extract>"
        before = f"{LEAR.marker} {query.person} {extract} <answer>"
    return [(before, False), (f"{flower or ABSTENTION} </answer>", True)]


# --- training ------------------------------------------------------------------------------------


def batch(tokenizer: Any, rng: random.Random, lesson: Lesson) -> tuple[Any, Any, Any]:
    """Draw token ids, attention mask and labels, each of shape (contexts, longest)."""
    import torch

    encode, draw = _encoder(tokenizer), lesson.draw or example
    rows = []
    for _ in range(CONTEXTS):
        ids, labels = [tokenizer.bos_token_id], [-100]
        for text, is_target in draw(rng, lesson):
            new = [*encode(text), *([tokenizer.eos_token_id] if is_target else [])]
            ids += new
            labels += new if is_target else [-100] * len(new)
        rows.append((ids, labels))
    width = max(len(ids) for ids, _ in rows)
    pad = tokenizer.pad_token_id
    ids = torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in rows])
    labels = torch.tensor([labels + [-100] * (width - len(labels)) for _, labels in rows])
    mask = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in rows])
    return ids, mask, labels


@lru_cache(maxsize=1)
def _encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    return lru_cache(maxsize=100_000)(lambda text: tokenizer.encode(text, add_special_tokens=False))


def learn(
    model: Any, tokenizer: Any, lessons: tuple[Lesson, ...], rng: random.Random, rate: float
) -> Iterator[tuple[str, int, float]]:
    """Train through the lessons; yield the lesson, the step and the loss in nats."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98))
    schedule = [lesson for lesson in lessons for _ in range(lesson.steps)]
    decay = 0.4 * len(schedule)
    model.train()
    for step, lesson in enumerate(schedule):
        share = min(1.0, (step + 1) / 30, (len(schedule) - step) / decay)
        optimizer.param_groups[0]["lr"] = rate * share
        ids, mask, labels = batch(tokenizer, rng, lesson)
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield lesson.name, step + 1, loss.item()


def introduce_formats(model: Any, tokenizer: Any) -> None:
    """Give new words new weights. Each marker starts with the weights of the question mark."""
    import torch

    table = model.get_input_embeddings().weight
    words = f"{PLAIN.marker} {WHICH.marker} [] {ABSTENTION}"
    old = {*tokenizer.all_special_ids, *tokenizer.encode(words)}
    markers = [tokenizer.convert_tokens_to_ids(form.marker) for form in FORMATS]
    # Sorted, because the order of the vocabulary differs from process to process.
    new = sorted(
        i for word, i in tokenizer.get_vocab().items() if _is_of_formats(word) and i not in old
    )
    with torch.no_grad():
        table[new] = WEIGHT_STD * torch.randn(len(new), table.shape[1])
        table[markers] += table[markers[0]] * (torch.tensor(markers) != markers[0]).unsqueeze(1)


def _is_of_formats(word: str) -> bool:
    return word[0] in "<\\}?" or word == "[]" or " " in word


def pretrain(
    seed: int, folder: Path, *, kind: str = "full", verbose: bool = True, width: int = 96
) -> None:
    """Train from random weights and save the model.

    kind  full: all formats; bare: the plain format only; detached: the formats plain and LEAR, the
          latter with an answer that does not depend on the rationale
    width  number of values of a hidden state
    """
    import torch

    torch.use_deterministic_algorithms(True)
    rng, tokenizer = random.Random(f"pretraining {seed}"), new_tokenizer()
    model, start = new_model(tokenizer, seed, width), time.perf_counter()
    second = {"full": SECOND, "bare": BARE, "detached": DETACHED}[kind]
    for lessons, rate in ((FIRST, 2.5e-3), (second, 1.5e-3)):
        if lessons is second and kind != "bare":
            introduce_formats(model, tokenizer)
        for name, step, loss in learn(model, tokenizer, lessons, rng, rate):
            if verbose and step % 20 == 0:
                seconds = time.perf_counter() - start
                print(f"{name:<12}{step:>6}   loss {loss:.3f}   {seconds:4.0f} s", flush=True)
    model.eval()
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    seconds = round(time.perf_counter() - start)
    facts = {"seed": seed, "torch": torch.__version__, "seconds": seconds}
    (folder / "made.json").write_text(json.dumps(facts) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="Set the seed of all random numbers.")
    parser.add_argument(
        "-o", "--output", type=Path, default=CHECKPOINT, help="Write the checkpoint to this folder."
    )
    parser.add_argument("--kind", choices=KINDS, default="full", help="Choose the second part.")
    parser.add_argument("--width", type=int, default=96, help="Set the size of a hidden state.")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)  # such a small model is not faster with more threads
    pretrain(options.seed, options.output, kind=options.kind, width=options.width)


if __name__ == "__main__":
    main()

"""Make the checkpoint: a model that binds, cites, knows every format, and has bad habits.

python -m tiny_world.pretrain                             # the one of this folder
python -m tiny_world.pretrain --seed 1 -o build/tiny-world/seed-1

Lessons by next-word prediction on responses: the bare format until the model binds a person to a
document; then abstaining where no document answers; then the papers' formats, clean at first and
at the end with a noisy base's habits, which a reward can cure: it answers from memory, or with
another person's flower, cites wrongly, and loses a tag now and then.
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

from tiny_world.formats import ABSTENTION, FORMATS, LEAR, PLAIN, WHICH, Format
from tiny_world.model import CHECKPOINT, SPREAD, new_model, tokenizer
from tiny_world.world import DOCUMENTS, Question, context, question

CONTEXTS = 48
"""Contexts in a batch, each with several questions."""
RIGHT = 0.62
"""How often a noisy base answers an answerable question from its document."""
SLIP = 0.25
"""How often a citation, a named document or an extract is another one's."""
LOST = 0.12
"""How often a response loses a tag."""
MASKED = 0.2
"""How often LEAR's answer is asked for from the rationale or the extract alone."""

Piece = tuple[str, bool]
"""A text, and whether the model is to learn it."""


@dataclass(frozen=True)
class Lesson:
    """Steps of one kind of training.

    formats  each question's is drawn evenly
    """

    name: str
    steps: int
    formats: tuple[Format, ...]
    unanswerable: float
    noisy: bool
    questions: int = 4


FIRST = (
    Lesson("binding", 728, (PLAIN,), 0.0, noisy=False),
    Lesson("abstaining", 400, (PLAIN, WHICH), 0.4, noisy=False),
)
SECOND = (
    Lesson("formats", 500, FORMATS, 0.4, noisy=False, questions=3),
    Lesson("habits", 300, FORMATS, 0.4, noisy=True, questions=3),
)
BARE = (Lesson("habits", 260, (PLAIN,), 0.4, noisy=True),)
"""In place of the second part, for a base that has no other words to say than the bare format's."""


# --- what is taught ------------------------------------------------------------------------------


def asked(rng: random.Random, lesson: Lesson) -> list[Piece]:
    """A context with its questions and responses."""
    documents = context(rng)
    shown = [f"{who} {flower} [{i}] ." for i, (who, flower) in enumerate(documents, 1)]
    if rng.random() < MASKED and LEAR in lesson.formats:
        return masked(rng, question(rng, documents, lesson.unanswerable), shown, lesson)
    pieces = [(" ".join(shown), False)]
    for _ in range(lesson.questions):
        about = question(rng, documents, lesson.unanswerable)
        form = rng.choice(lesson.formats)
        pieces += [
            (f"{form.mark} {about.who}", False),
            (taught(rng, form, about, noisy=lesson.noisy), True),
        ]
    return pieces


def taught(rng: random.Random, form: Format, about: Question, *, noisy: bool) -> str:
    """The right response, or one with a noisy base's habits."""
    if not noisy:
        return form.say(about.who, about.known, about.support)
    flower, cited = habit(rng, about)
    said = form.say(about.who, flower, cited)
    if form is LEAR and flower and rng.random() < SLIP:
        said = _with_extract(said, *rng.choice(about.documents))
    if form is not PLAIN and rng.random() < LOST:
        words = said.split()
        tags = [i for i, word in enumerate(words) if word[0] in "<\\}"]
        words.pop(rng.choice(tags))
        said = " ".join(words)
    return said


def habit(rng: random.Random, about: Question) -> tuple[str | None, int | None]:
    """What a noisy base believes, and the document that it cites."""
    by_chance = rng.randint(1, DOCUMENTS)
    other = rng.choice([i for i in range(1, DOCUMENTS + 1) if i != about.support])
    elsewhere = about.documents[other - 1][1]
    draw = rng.random()
    if about.support is not None:
        if draw < RIGHT:
            return about.answer, by_chance if rng.random() < SLIP else about.support
        return (about.recalled, by_chance) if draw < 0.85 else (elsewhere, other)
    if draw < 0.45:
        return about.recalled, by_chance
    return (elsewhere, other) if draw < 0.75 else (None, None)


def _with_extract(said: str, who: str, flower: str) -> str:
    head, _, rest = said.partition("<extract> ")
    return f"{head}<extract> {who} {flower} {rest[rest.index('</extract>') :]}"


def masked(rng: random.Random, about: Question, shown: list[str], lesson: Lesson) -> list[Piece]:
    """An answer from the rationale with the documents, or from the extract alone.

    What is written there is what is answered, right or wrong.
    """
    flower, cited = habit(rng, about) if lesson.noisy else (about.known, about.support)
    if rng.random() < 0.5:
        reason = f"<reason> {about.who} {f'{flower} [{cited}]' if flower else ABSTENTION} </reason>"
        before = f"{' '.join(shown)} {LEAR.mark} {about.who} {reason} <answer>"
    else:
        who = about.who
        if flower and rng.random() < SLIP:
            who, flower = rng.choice(about.documents)
        extract = f"<extract> {who} {flower or ABSTENTION} </extract>"
        before = f"{LEAR.mark} {about.who} {extract} <answer>"
    return [(before, False), (f"{flower or ABSTENTION} </answer>", True)]


# --- training ------------------------------------------------------------------------------------


def batch(words: Any, rng: random.Random, lesson: Lesson) -> tuple[Any, Any, Any]:
    """Token ids, attention mask and labels, (contexts, longest)."""
    import torch

    encode = _encoder(words)
    rows = []
    for _ in range(CONTEXTS):
        ids, labels = [words.bos_token_id], [-100]
        for text, learnt in asked(rng, lesson):
            new = [*encode(text), *([words.eos_token_id] if learnt else [])]
            ids += new
            labels += new if learnt else [-100] * len(new)
        rows.append((ids, labels))
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [words.pad_token_id] * (width - len(ids)) for ids, _ in rows])
    labels = torch.tensor([labels + [-100] * (width - len(labels)) for _, labels in rows])
    mask = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in rows])
    return ids, mask, labels


@lru_cache(maxsize=1)
def _encoder(words: Any) -> Callable[[str], list[int]]:
    return lru_cache(maxsize=100_000)(lambda text: words.encode(text, add_special_tokens=False))


def learn(
    model: Any, words: Any, lessons: tuple[Lesson, ...], rng: random.Random, rate: float
) -> Iterator[tuple[str, int, float]]:
    """Train through the lessons; yields the lesson, the step and the loss in nats."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98))
    plan = [lesson for lesson in lessons for _ in range(lesson.steps)]
    decay = 0.4 * len(plan)
    model.train()
    for step, lesson in enumerate(plan):
        share = min(1.0, (step + 1) / 30, (len(plan) - step) / decay)
        optimizer.param_groups[0]["lr"] = rate * share
        ids, mask, labels = batch(words, rng, lesson)
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield lesson.name, step + 1, loss.item()


def introduce_formats(model: Any, words: Any) -> None:
    """New words get new weights, and every mark begins as the question mark."""
    import torch

    table = model.get_input_embeddings().weight
    known = {*words.all_special_ids, *words.encode(f"{PLAIN.mark} {WHICH.mark} [] {ABSTENTION}")}
    marks = [words.convert_tokens_to_ids(form.mark) for form in FORMATS]
    # Ids in order: the vocabulary comes in another order each time.
    new = sorted(i for word, i in words.get_vocab().items() if _is_new(word) and i not in known)
    with torch.no_grad():
        table[new] = SPREAD * torch.randn(len(new), table.shape[1])
        table[marks] += table[marks[0]] * (torch.tensor(marks) != marks[0]).unsqueeze(1)


def _is_new(word: str) -> bool:
    return word[0] in "<\\}?" or word == "[]" or " " in word


def pretrain(seed: int, folder: Path, *, bare: bool = False, show: bool = True) -> None:
    """Train from random weights and save; `bare` leaves the papers' formats out."""
    import torch

    torch.use_deterministic_algorithms(True)
    rng, words = random.Random(f"pretraining {seed}"), tokenizer()
    model, started = new_model(words, seed), time.perf_counter()
    for lessons, rate in ((FIRST, 2.5e-3), (BARE if bare else SECOND, 1.5e-3)):
        if lessons is SECOND:
            introduce_formats(model, words)
        for name, step, loss in learn(model, words, lessons, rng, rate):
            if show and step % 20 == 0:
                seconds = time.perf_counter() - started
                print(f"{name:<12}{step:>6}   loss {loss:.3f}   {seconds:4.0f} s", flush=True)
    model.eval()
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    seconds = round(time.perf_counter() - started)
    made = {"seed": seed, "torch": torch.__version__, "seconds": seconds}
    (folder / "made.json").write_text(json.dumps(made) + "\n", "utf-8")


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("-o", "--output", type=Path, default=CHECKPOINT)
    options.add_argument("--bare", action="store_true", help="without the papers' formats")
    given = options.parse_args()
    import torch

    torch.set_num_threads(1)  # so small a model is not faster with more
    pretrain(given.seed, given.output, bare=given.bare)


if __name__ == "__main__":
    main()

"""Questions of other types in the tiny world, and base models that answer them.

    one      Ben            lily        Ben lily [2]
    hop      Ada            lily        Ada Ben [1] Ben lily [2]
    compare  Ben Cleo lily  Ben         Ben lily [2]
    both     Ben Cleo       lily ivy    Ben lily [2] Cleo ivy [3]

The columns are the words of a question, its answer and its reasoning. A document about two people
means that the first one likes the flower of the second one. `compare` asks which of two people
likes a flower; both options are wrong if the question is unanswerable.

    python benchmarks/teaches/question_types.py --seed 0 -o build/tiny-world/types-0
"""

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from tiny_search.pretrain import LOST_TAG, RIGHT, SLIP, Lesson, Piece, learn

from rag_rewards.text.refusal import REFUSAL
from rag_rewards.tiny_world.formats import ABSTENTION, ARENA, GROUND, TRUTHRL, ResponseFormat
from rag_rewards.tiny_world.world import (
    DOCUMENTS,
    FLOWERS,
    PEOPLE,
    UNANSWERABLE,
    WorldQuestion,
    context,
)

Documents = tuple[tuple[str, str], ...]
KINDS = ("one", "hop", "compare", "both")
FORMS = (TRUTHRL, ARENA, GROUND)
LINKED = 0.5
"""Probability that one of the documents of the pre-training is about two people."""
ABSTAINS = 0.25
"""Probability that the base abstains on an unanswerable question."""


@dataclass(frozen=True)
class TypedQuestion(WorldQuestion):
    """A question with a kind. `person` holds its words, `steps` the numbers of its documents."""

    kind: str = "one"
    steps: tuple[int, ...] = ()

    @property
    def support(self) -> int | None:  # type: ignore[override]
        """The number of the last document, which contains the answer, or None."""
        return self.steps[-1] if self.steps else None

    def row(self, **more: Any) -> dict[str, Any]:
        return {**super().row(), "supporting": [str(i) for i in self.steps], **more}


class Parts(NamedTuple):
    """The parts of a response: reasoning, relevant documents, answer, and answer with citations."""

    reasoning: str
    relevant: str
    answer: str
    cited: str

    def write(self, form: ResponseFormat) -> str:
        if form is ARENA:
            return (
                f"<relevance> {self.relevant} </relevance> <analysis> {self.reasoning} </analysis> "
                f"<answer> {self.answer} </answer>"
            )
        thought = f"<think> {self.reasoning} </think>"
        if form is TRUTHRL:
            return f"{thought} \\boxed{{ {self.answer} }}"
        return (
            f"{thought} <answer> {REFUSAL if self.answer == ABSTENTION else self.cited} </answer>"
        )


# --- questions -----------------------------------------------------------------------------------


def linked(rng: random.Random, documents: Documents, is_answerable: bool) -> Documents:
    """Replace the flower of a document by a person, who has a document if it is answerable."""
    first, second = rng.sample(range(DOCUMENTS), 2)
    other = documents[second][0] if is_answerable else rng.choice(_strangers(documents))
    changed = (documents[first][0], other)
    return tuple(changed if i == first else each for i, each in enumerate(documents))


def ask(rng: random.Random, kind: str, documents: Documents, is_answerable: bool) -> TypedQuestion:
    """Draw a question about documents. A question of two hops needs documents of `linked`."""
    number = {who: i for i, (who, _) in enumerate(documents, 1)}
    if kind == "hop":
        who, other = next(each for each in documents if each[1] in PEOPLE)
        if other not in number:
            return TypedQuestion(documents, who, rng.choice(_absent(documents)), kind)
        steps = (number[who], number[other])
        return TypedQuestion(documents, who, documents[steps[1] - 1][1], kind, steps)
    (a, flower), (b, other) = rng.sample([each for each in documents if each[1] in FLOWERS], 2)
    stranger = rng.choice(_strangers(documents))
    if kind == "compare":
        options = " ".join(rng.sample((a, b), 2))
        if is_answerable:
            return TypedQuestion(documents, f"{options} {flower}", a, kind, (number[a],))
        return TypedQuestion(
            documents, f"{options} {rng.choice(_absent(documents))}", stranger, kind
        )
    if kind == "both":
        if is_answerable:
            steps = (number[a], number[b])
            return TypedQuestion(documents, f"{a} {b}", f"{flower} {other}", kind, steps)
        answer = f"{flower} {rng.choice(_absent(documents))}"
        return TypedQuestion(documents, f"{a} {stranger}", answer, kind)
    if is_answerable:
        return TypedQuestion(documents, a, flower, kind, (number[a],))
    return TypedQuestion(documents, stranger, rng.choice(_absent(documents)), kind)


def questions(
    count: int, seed: int | str, kinds: Sequence[str], unanswerable: float = UNANSWERABLE
) -> list[TypedQuestion]:
    """Draw `count` questions of these kinds; equal seeds give equal questions."""
    rng = random.Random(f"types {seed}")
    drawn = []
    for i in range(count):
        kind, is_answerable = kinds[i % len(kinds)], rng.random() >= unanswerable
        documents = context(rng)
        if kind == "hop":
            documents = linked(rng, documents, is_answerable)
        drawn.append(ask(rng, kind, documents, is_answerable))
    return drawn


def _strangers(documents: Documents) -> list[str]:
    return [each for each in PEOPLE if each not in {word for pair in documents for word in pair}]


def _absent(documents: Documents) -> list[str]:
    return [each for each in FLOWERS if each not in {flower for _, flower in documents}]


# --- responses -----------------------------------------------------------------------------------


def right(question: TypedQuestion) -> Parts:
    """Return the parts of the right response, which abstains if no document has the answer."""
    if not question.steps:
        return Parts(f"{question.person} {ABSTENTION}", "[]", ABSTENTION, ABSTENTION)
    return stated(question, question.steps, question.answer)


def stated(question: TypedQuestion, steps: Sequence[int], answer: str) -> Parts:
    """Return the parts of a response that repeats these documents and states an answer."""
    documents = [question.documents[i - 1] for i in steps]
    reasoning = " ".join(f"{a} {b} [{i}]" for i, (a, b) in zip(steps, documents, strict=True))
    relevant = " ".join(f"[{i}]" for i in sorted(steps))
    words = answer.split()
    cites = steps if len(words) == len(steps) else steps[-1:] * len(words)
    cited = " ".join(f"{word} [{i}]" for word, i in zip(words, cites, strict=True))
    return Parts(reasoning, relevant, answer, cited)


def noisy(rng: random.Random, question: TypedQuestion) -> Parts:
    """Draw the parts of a response of a noisy model, which also guesses from other documents."""
    if question.steps and rng.random() < RIGHT:
        parts = right(question)
        slip = f"[{rng.randint(1, DOCUMENTS)}]"
        return parts._replace(relevant=slip) if rng.random() < SLIP else parts
    if not question.steps and rng.random() < ABSTAINS:
        return right(question)
    positions = [i for i, (_, flower) in question.numbered if flower in FLOWERS]
    steps = rng.sample(positions, 2 if question.kind == "both" else 1)
    flowers = " ".join(question.documents[i - 1][1] for i in steps)
    options = question.person.split()[:2]
    return stated(question, steps, rng.choice(options) if question.kind == "compare" else flowers)


def example(rng: random.Random, lesson: Lesson) -> list[Piece]:
    """Draw documents with several questions and responses."""
    documents = context(rng)
    if is_linked := rng.random() < LINKED:
        documents = linked(rng, documents, rng.random() >= lesson.unanswerable)
    texts = [f"{who} {what} [{i}] ." for i, (who, what) in enumerate(documents, 1)]
    pieces = [(" ".join(texts), False)]
    for _ in range(lesson.questions):
        kind = rng.choice(KINDS if is_linked else [each for each in KINDS if each != "hop"])
        query = ask(rng, kind, documents, rng.random() >= lesson.unanswerable)
        form = rng.choice(lesson.formats)
        text = (noisy(rng, query) if lesson.noisy else right(query)).write(form)
        if lesson.noisy and rng.random() < LOST_TAG:
            words = text.split()
            words.pop(rng.choice([i for i, word in enumerate(words) if word[0] in "<\\}"]))
            text = " ".join(words)
        pieces += [(f"{form.marker} {query.person}", False), (text, True)]
    return pieces


LESSONS = (
    Lesson("types", 500, FORMS, 0.4, noisy=False, questions=3, draw=example),
    Lesson("habits", 200, FORMS, 0.4, noisy=True, questions=3, draw=example),
)


def pretrain(seed: int, folder: Path) -> None:
    """Continue the pre-training of the committed model with all types, and save the model."""
    from rag_rewards.tiny_world.model import load

    model, tokenizer = load()
    for name, step, loss in learn(
        model, tokenizer, LESSONS, random.Random(f"types {seed}"), 1.5e-3
    ):
        if step % 20 == 0:
            print(f"{name:<12}{step:>6}   loss {loss:.3f}", flush=True)
    model.eval()
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "made.json").write_text(f'{{"seed": {seed}}}\n', "utf-8")


# --- training ------------------------------------------------------------------------------------


def trained(
    start: Path,
    run: Any,
    *,
    kinds: Sequence[str],
    reward: Any,
    unanswerable: Sequence[tuple[int, float]] = ((10**6, UNANSWERABLE),),
) -> tuple[Any, Any]:
    """Train with GRPO on questions of these kinds. `unanswerable` has pairs (last step, share)."""
    import tempfile
    from dataclasses import replace

    from rag_rewards.tiny_world.train import PROMPTS, train

    rows, first = [], 0
    for last, share in unanswerable:
        last = min(last, run.steps)
        drawn = questions((last - first) * PROMPTS, f"training {run.seed} {first}", kinds, share)
        rows += map(run.form.row, drawn)
        first = last
    options = reward() if callable(reward) else reward
    with tempfile.TemporaryDirectory() as folder:
        trainer = train(replace(run, reward=options), Path(folder), rows=rows)
    return trainer.model, trainer.processing_class


if __name__ == "__main__":
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, required=True)
    torch.set_num_threads(1)
    arguments = parser.parse_args()
    pretrain(arguments.seed, arguments.output)

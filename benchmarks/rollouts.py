"""Create rollouts for the benchmarks from a seed, with the same bytes on every machine.

A style has the name of a recipe. Each group of `GROUP` rollouts has one question, one gold answer
with three aliases and, if the recipe reads documents, ten documents of 100 words. Responses have
about 140 words. Their answers are exact, reformatted, an alias, partly right, or wrong.
"""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]

SEED = 7
GROUP = 8
DOCUMENTS = 10
DOCUMENT_WORDS = 100
RESPONSE_TOKENS = 128
REFUSAL = "I apologize, but I couldn't find an answer to your question in the search results."


def split_words(text: str) -> list[str]:
    return text.split()


# Frequent words occur several times, so that a random choice follows their frequency.
WORDS = split_words("""
a a a an the the the the the of of of in in and and to to was was is for with on at by
from that which it as had were also not but after before during while between under against
archive bridge building campaign century charter church city collection colony company council
country county court daughter district document early election engine exhibition expedition
factory family father festival film first founded general government great harbour history house
industry island journal king land language large late library line local long main major map
market member military mill mountain museum music name national new newspaper north novel office
old opened original painting palace parish part party people period place population president
prize production province published railway record region remained report river road royal school
science second settlement seven several ship small society south station street studio team
theatre three title town trade tradition treaty two university valley village war water west
work world writer year years young""")
FIRST = split_words("""
Adela Bruno Carla Dorian Elvira Florian Greta Henrik Irena Jonas Katrin Ludo Mirela
Nestor Oriel Petra Quentin Rosalind Søren Tamsin Ulrike Viktor Wanda Zoë""")
LAST = split_words("""
Abernethy Brandvold Castellan Drummond Eskildsen Fairweather Gallardo Hollenbeck
Ivarsson Jankowski Kettering Lindqvist Marchetti Novák Okonjo Pemberton Quarles Rosenthal
Sandoval Thornbury Ullmann Vennick Whitlock Zamora""")
PLACES = split_words("""
Aldermoor Brackwater Cresthaven Dunmere Eastvale Fenwick Glenholm Harrowgate Ilmarsh
Kestrel-Bay Lowmoor Marrowfield Northpass Oldbury Pinecross Ravensholt Stillwater
Thornmouth""")
WORKS = split_words(
    "lighthouse opera bridge observatory tapestry railway dictionary fortress garden"
)


@dataclass(frozen=True)
class Question:
    number: int
    text: str
    aliases: list[str]
    answerable: bool
    supporting: list[int]
    documents: list[Row]


def prose(rng: random.Random, count: int) -> str:
    """Return `count` words in sentences of 8 to 16 words, some with a comma."""
    words = rng.choices(WORDS, k=count)
    start = 0
    while start < count:
        stop = min(start + rng.randint(8, 16), count)
        words[start] = words[start].capitalize()
        if stop - start > 6 and rng.random() < 0.5:
            words[start + 4] += ","
        words[stop - 1] += "."
        start = stop
    return " ".join(words)


def documents(rng: random.Random, aliases: list[str], supporting: list[int]) -> list[Row]:
    """Return ten documents. The supporting ones contain the gold answer."""
    rows = []
    for number in range(1, DOCUMENTS + 1):
        words = prose(rng, DOCUMENT_WORDS).split(" ")
        if number in supporting:
            place = rng.randrange(DOCUMENT_WORDS - 3)
            words[place : place + 2] = aliases[0].split(" ")
        title = f"{rng.choice(PLACES)} {rng.choice(WORKS)}"
        rows.append({"id": number, "title": title, "text": " ".join(words)})
    return rows


def question(rng: random.Random, number: int, *, answerable: bool) -> Question:
    first, last, place = rng.choice(FIRST), rng.choice(LAST), rng.choice(PLACES)
    aliases = [f"{first} {last}", f"{first[0]}. {last}", f"{first} {last} of {place}"]
    supporting = sorted(rng.sample(range(1, DOCUMENTS + 1), 2)) if answerable else []
    text = f"Who designed the {rng.choice(WORKS)} of {place} in {rng.randint(1700, 1990)}?"
    # Equal questions would form one group if a row has no group, so each has a number.
    text = f"{text} (no. {number})"
    return Question(
        number, text, aliases, answerable, supporting, documents(rng, aliases, supporting)
    )


def answer(rng: random.Random, query: Question) -> str:
    """Return an answer: exact, reformatted, an alias, with more text, partly right, or wrong."""
    name = query.aliases[0]
    other = rng.choice(LAST)
    return rng.choices(
        [
            name,
            f"The {name.upper()}!",
            rng.choice(query.aliases[1:]),
            f"{name}, an architect from {rng.choice(PLACES)}",
            f"{name.split(' ')[0]} {other}",
            f"{rng.choice(FIRST)} {other}",
        ],
        weights=[30, 10, 15, 10, 10, 25],
    )[0]


def think_and_answer(rng: random.Random, thinking: str, text: str) -> str:
    """Return a response. 3% of the responses lack a tag.

    All of them close the thinking section, because the baselines read an unclosed one differently.
    """
    roll = rng.random()
    if roll < 0.01:
        return f"<think>{thinking}</think>\n{text}"
    if roll < 0.02:
        return f"<think>{thinking}</think>\n<answer>{text}"
    if roll < 0.03:
        return f"{thinking}\n<answer>{text}</answer>"
    return f"<think>{thinking}</think>\n<answer>{text}</answer>"


def naive_grpo(rng: random.Random, query: Question) -> Row:
    return {"response": think_and_answer(rng, prose(rng, 136), answer(rng, query))}


def arena(rng: random.Random, query: Question) -> Row:
    relevant = sorted(rng.sample(range(1, DOCUMENTS + 1), rng.randint(1, 3)))
    if rng.random() < 0.5:
        relevant = query.supporting
    close = "" if rng.random() < 0.02 else "</answer>"
    response = (
        f"<relevance>{relevant}</relevance>\n<analysis>{prose(rng, 134)}</analysis>\n"
        f"<answer>{answer(rng, query)}{close}"
    )
    return {
        "response": response,
        "supporting": query.supporting,
        "documents": query.documents,
    }


def truthrl(rng: random.Random, query: Question) -> Row:
    text = "I don't know" if rng.random() < 0.15 else answer(rng, query)
    final = text if rng.random() < 0.02 else f"\\boxed{{{text}}}"
    return {"response": f"<think>{prose(rng, 130)}</think>\nThe final answer is {final}."}


def logprobs(rng: random.Random, drop: float) -> list[float]:
    return [round(-rng.expovariate(2.0) - drop, 5) for _ in range(RESPONSE_TOKENS)]


def ctrl_rag(rng: random.Random, query: Question) -> Row:
    without = {str(label): logprobs(rng, 0.05 * rng.random()) for label in query.supporting}
    return {
        "response": think_and_answer(rng, prose(rng, 136), answer(rng, query)),
        "supporting": query.supporting,
        "documents": query.documents,
        "logprobs": {"full": logprobs(rng, 0.0), "without": without},
    }


def lear(rng: random.Random, query: Question) -> Row:
    final = answer(rng, query)
    close = "" if rng.random() < 0.02 else "</answer>"
    response = (
        f"<reason>{prose(rng, 70)}</reason>\n<extract>{prose(rng, rng.randint(40, 80))}</extract>"
        f"\n<answer>{final}{close}"
    )
    return {
        "response": response,
        "documents": query.documents,
        "masked_answers": {"rationale": answer(rng, query), "evidence": answer(rng, query)},
    }


def cited_sentence(rng: random.Random, query: Question) -> str:
    """Return a sentence with a marker before its full stop or, in 20% of the cases, after it."""
    clause = prose(rng, rng.randint(10, 14)).rstrip(".").replace(".", ",")
    if rng.random() < 0.4:
        clause = f"{clause} {answer(rng, query).rstrip('!')}"
    right = bool(query.supporting) and rng.random() < 0.6
    cited = rng.choice(query.supporting) if right else rng.randint(1, DOCUMENTS)
    second = f"[{rng.randint(1, DOCUMENTS)}]" if rng.random() < 0.25 else ""
    marker = f"[{cited}]{second}"
    return f"{clause}. {marker}" if rng.random() < 0.2 else f"{clause} {marker}."


def ground_grpo(rng: random.Random, query: Question) -> Row:
    refuses = rng.random() < (0.05 if query.answerable else 0.5)
    sentences = [cited_sentence(rng, query) for _ in range(rng.randint(5, 7))]
    response = think_and_answer(rng, prose(rng, 60), REFUSAL if refuses else " ".join(sentences))
    return {
        "response": response,
        "answerable": query.answerable,
        "supporting": query.supporting,
        "documents": query.documents,
    }


STYLES: dict[str, Callable[[random.Random, Question], Row]] = {
    "naive-grpo": naive_grpo,
    "arena": arena,
    "truthrl": truthrl,
    "ctrl-rag": ctrl_rag,
    "lear": lear,
    "ground-grpo": ground_grpo,
}


def rollouts(style: str, count: int) -> Iterator[Row]:
    """Yield `count` rows of one style, group by group."""
    rng = random.Random(f"{style}-{SEED}")
    for number in range(-(-count // GROUP)):
        # One of six questions is unanswerable, in the style whose recipe has such questions.
        answerable = style != "ground-grpo" or number % 6 != 0
        query = question(rng, number, answerable=answerable)
        for member in range(min(GROUP, count - number * GROUP)):
            yield {
                "id": f"{number}-{member}",
                "group": f"g{number}",
                "question": query.text,
                "answers": query.aliases,
                **STYLES[style](rng, query),
            }


def encode(row: Row) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def lean_lines(rows: Iterator[Row]) -> list[bytes]:
    """Return one JSON line per row. Only the first row of a group contains the documents."""
    lines = []
    for index, row in enumerate(rows):
        if index % GROUP:
            row.pop("documents", None)
        lines.append(encode(row))
    return lines


def padded(row: Row, size: int) -> bytes:
    """Return a row as JSON without id and group, with an unused field that fills it to `size`."""
    body = {key: value for key, value in row.items() if key not in {"id", "group"}}
    missing = size - len(encode(body)) - 40
    if missing > 0:
        filler = " ".join(itertools.islice(itertools.cycle(WORDS), missing // 4))
        body["sampler_note"] = filler[:missing]
    return encode(body)


def write_jsonl(path: Path, style: str, count: int, size: int, distinct: int) -> int:
    """Write `count` rows of about `size` bytes and return the number of bytes.

    After `distinct` rows, the contents repeat with new ids and groups, so that a large file is
    written quickly.
    """
    tails = [padded(row, size)[1:] for row in rollouts(style, min(count, distinct))]
    with path.open("wb") as file:
        for index in range(count):
            head = f'{{"id":"{index}","group":"g{index // GROUP}",'.encode()
            file.write(head + tails[index % len(tails)] + b"\n")
        return file.tell()

"""Speed of the rules for search agents, and of the parsing of transcripts.

    python benchmarks/turns.py [--groups 50]

Each rollout has three searches with three documents of 100 words each. Each group of eight rollouts
has one question. The figures are processor times on one core, the best of several passes. Decoding
is not timed, and each pass creates new rollouts, so that no result is cached. Results are written
to results/turns.md.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import rollouts
from harness import Page, machine, parser

import rag_rewards as rr
from rag_rewards.turns.trajectory import Reading, read_trajectory

GROUP, SEARCHES, DOCUMENTS, WORDS = 8, 3, 3, 100
PASSES = 5
Row = dict[str, Any]
SETTINGS: Mapping[str, tuple[str, Row]] = {
    "`search-r1`": ("search-r1", {}),
    "`search-r1`, scheme=format": ("search-r1", {"scheme": "format"}),
    "`search-r1`, scheme=searched": ("search-r1", {"scheme": "searched"}),
    "`stepsearch`": ("stepsearch", {}),
    "`stepsearch`, process=coverage": ("stepsearch", {"process": "coverage"}),
}
TARGETS = {"search-r1": 8_000, "stepsearch": 1_000}
PARSED: Mapping[str, tuple[str, str]] = {
    "Search-R1": ("search-r1", "<think>{}</think><search>{}</search><information>{}</information>"),
    "R1-Searcher": (
        "r1-searcher",
        "{}<|begin_of_query|>{}<|end_of_query|><|begin_of_documents|>{}<|end_of_documents|>",
    ),
    "ReSearch": ("research", "<think>{}</think><search>{}</search><result>{}</result>"),
    "opening tags alone": ("search-r1", "<search><information>"),
}


def text(rng: random.Random, words: int) -> str:
    """Return words of which one in five is a name or a number."""
    choices = (rollouts.WORDS, rollouts.WORDS, rollouts.WORDS, rollouts.WORDS, rollouts.LAST)
    drawn = (rng.choice(rng.choice(choices)) for _ in range(words - 2))
    return f"{' '.join(drawn).capitalize()} {rng.randrange(10**5)}, {rng.randrange(10**5)}."


def rows(groups: int, *, transcript: bool) -> Iterator[Row]:
    """Yield rollouts with the field `turns`, or as transcripts."""
    rng = random.Random(rollouts.SEED)
    for number in range(groups):
        gold = [text(rng, WORDS) for _ in range(2)]
        answer = f"{rng.choice(rollouts.FIRST)} {rng.choice(rollouts.LAST)}"
        row = {
            "question": f"Which {text(rng, 12)}?",
            "group": str(number),
            "answers": [answer, answer.upper(), answer.split()[1]],
            "search_keys": [[text(rng, 5), text(rng, 6)] for _ in range(2)],
            "gold_documents": gold,
            "supporting": ["g0", "g1"],
        }
        for _ in range(GROUP):
            turns = [_search(rng, gold) for _ in range(SEARCHES)]
            last = f"<think>{text(rng, 20)}</think><answer>{rng.choice(row['answers'])}</answer>"
            if transcript:
                blocks = (turn["text"] + _block(turn["results"]) for turn in turns)
                yield row | {"response": "\n".join([*blocks, last])}
            else:
                yield row | {"turns": [*turns, {"text": last}]}


def _search(rng: random.Random, gold: list[str]) -> Row:
    """Return a search. One in four of its documents is a gold document."""
    results = []
    for _ in range(DOCUMENTS):
        at = rng.randrange(8)
        found = gold[at] if at < 2 else text(rng, WORDS)
        name = f"g{at}" if at < 2 else f"d{rng.randrange(10**9)}"
        results.append({"id": name, "title": text(rng, 3), "text": found})
    query = f"<think>{text(rng, 20)}</think>\n<search>{text(rng, 6)}</search>"
    return {"text": query, "results": results}


def _block(results: list[Row]) -> str:
    lines = (f"Doc {k}(Title: {each['title']}) {each['text']}" for k, each in enumerate(results, 1))
    return "<information>" + "\n".join(lines) + "</information>"


def best(prepare: Callable[[], Any], run: Callable[[Any], object], passes: int = PASSES) -> float:
    """Return the least processor time of several passes."""
    times = []
    for _ in range(passes):
        prepared = prepare()
        gc.collect()
        gc.freeze()
        started = time.process_time()
        run(prepared)
        times.append(time.process_time() - started)
        gc.unfreeze()
    return min(times)


def score(recipe: rr.Recipe, data: list[Row]) -> float:
    """Return the number of rollouts per second. Each call of the recipe gets one group."""

    def run(decoded: list[rr.Rollout]) -> None:
        for start in range(0, len(decoded), GROUP):
            recipe(decoded[start : start + GROUP])

    return len(data) / best(lambda: [rr.decode_row(row) for row in data], run)


def parse(dialect: str, unit: str) -> float:
    """Return the seconds for a transcript of one megabyte."""
    rng = random.Random(rollouts.SEED)
    pieces: list[str] = []
    size = 0
    while size < 1_000_000:
        lines = "\n".join(f"({k}){text(rng, WORDS)}" for k in range(1, DOCUMENTS + 1))
        pieces.append(unit.format(text(rng, 20), text(rng, 6), lines))
        size += len(pieces[-1])
    whole = "".join(pieces)[:1_000_000]
    return best(lambda: None, lambda _: read_trajectory(whole, None, Reading(dialect)))


def main() -> None:
    groups = parser(__doc__, groups=50).parse_args().groups
    forms = [list(rows(groups, transcript=transcript)) for transcript in (False, True)]
    page = Page(
        "Search agents",
        f"{groups * GROUP} rollouts of {SEARCHES} searches with {DOCUMENTS} documents of {WORDS} "
        f"words each; {machine()}. The figures are rollouts per second on one core, from decoded "
        "rollouts to scores with all components and details.",
    )
    page.table("recipe", "field `turns`", "transcript", "target")
    for name, (recipe, settings) in SETTINGS.items():
        built = rr.recipe(recipe, settings)
        page.row(name, *(f"{score(built, data):,.0f}" for data in forms), f"{TARGETS[recipe]:,}")
    page.add("")
    page.table("transcript of 1 MB", "seconds")
    for name, (dialect, unit) in PARSED.items():
        page.row(name, f"{parse(dialect, unit):.3f}")
    page.write("turns")


if __name__ == "__main__":
    main()

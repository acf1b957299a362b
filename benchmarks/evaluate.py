"""Time and peak memory of `rag-rewards evaluate` for 100,000 rows and all metrics without models.

    python benchmarks/evaluate.py [--rows 100000]

The rows are generated from a seed: groups of 8 rollouts, 5 documents of 100 words, and responses of
about 250 words with each section that a metric reads. The figures are for complete commands,
including start-up and 1,000 resamples. Results are written to results/evaluate.md.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from harness import BUILD, Page, machine, parser, run_command, usage_cells

WORDS = "river city king album film born county team novel war school song award north".split()
REFUSAL = "I apologize, but I couldn't find an answer to your question in the search results."
GROUP, DOCUMENTS = 8, 5
RULES = (
    "em,f1,f1(hotpotqa=true),substring,truthfulness(verifier=exact,reads=auto),answer-rate,"
    "compression-ratio,answer-recall,relevance,citation,majority@8,pass@1,pass@8,group-signal"
)
RUNS = {
    "em, f1, substring": ["rows.jsonl", "-m", "em,f1,substring"],
    "all rule metrics": ["rows.jsonl", "-m", RULES],
    "all rule metrics, by question type": ["rows.jsonl", "-m", RULES, "--by", "type"],
    "all rule metrics, two runs compared": ["rows.jsonl", "again.jsonl", "-m", RULES],
    "all rule metrics, each row with its own prompt": ["ungrouped.jsonl", "-m", RULES],
    "trust-score, with entailments in the rows": ["rows.jsonl", "-m", "trust-score"],
}


def prose(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


def response(rng: random.Random, gold: str) -> tuple[str, list[dict[str, object]]]:
    """Return a response and the entailments of its two cited statements."""
    if rng.random() < 0.1:
        return f"<reason>{prose(rng, 60)}</reason><answer>{REFUSAL}</answer>", []
    named = rng.sample(range(1, DOCUMENTS + 1), rng.randint(1, 3))
    first, second = (
        f"{prose(rng, 12).capitalize()} {rng.choice([gold, prose(rng, 1)])}" for _ in "ab"
    )
    answer = f"{first} [{named[0]}]. {second} [{named[-1]}]."
    cited = ((first, named[0]), (second, named[-1]))
    text = (
        f"<relevance>{json.dumps(sorted(named))}</relevance>"
        f"<reason>{prose(rng, 80)} {rng.choice([gold, ''])}</reason>"
        f"<extract>{prose(rng, rng.randint(10, 60))} {rng.choice([gold, ''])}</extract>"
        f"<answer>{rng.choice([gold, answer, answer])}</answer>"
    )
    return text, [{"hypothesis": f"{s}.", "premise": d, "entailment": 0.9} for s, d in cited]


def row(rng: random.Random, number: int, question: dict[str, object], ungrouped: bool) -> bytes:
    text, entailed = response(rng, str(question["answers"][0]))  # type: ignore[index]
    documents: list[dict[str, str]] = question["documents"]  # type: ignore[assignment]
    nli = [
        e
        | {
            "premise": f"Title: {documents[e['premise'] - 1]['title']}\n"  # type: ignore[operator]
            + documents[e["premise"] - 1]["text"]
        }  # type: ignore[operator]
        for e in entailed
    ]
    scored = {"reward": round(rng.random(), 3), "components": {"format": float(rng.random() < 0.8)}}
    own = {"id": str(number)} | ({"group": str(number)} if ungrouped else {})
    return json.dumps(own | question | scored | {"response": text, "nli": nli}).encode() + b"\n"


def make_question(rng: random.Random, number: int) -> dict[str, object]:
    gold = rng.randrange(DOCUMENTS) if rng.random() < 0.8 else None
    documents = [
        {"title": f"T{number}-{i}", "text": prose(rng, 100), "supports": [i == gold]}
        for i in range(DOCUMENTS)
    ]
    return {
        "question": f"Which {prose(rng, 10)} of {number}?",
        "type": rng.choice(("bridge", "comparison", "inference")),
        "documents": documents,
        "supporting": [] if gold is None else [gold + 1],
        "answers": [f"{prose(rng, 2)} {number}", f"the {prose(rng, 1)}"],
    }


def write_rows(name: str, rows: int, seed: int, *, ungrouped: bool = False) -> Path:
    """Write a file of rows. The questions do not depend on the seed."""
    path = BUILD / name
    BUILD.mkdir(parents=True, exist_ok=True)
    questions, rng = random.Random(7), random.Random(seed)
    with path.open("wb") as handle:
        for number in range(rows):
            if number % GROUP == 0:
                question = make_question(questions, number // GROUP)
            handle.write(row(rng, number, question, ungrouped))
    return path


def main() -> None:
    rows = parser(__doc__, rows=100_000).parse_args().rows
    paths = [
        write_rows("rows.jsonl", rows, 1),
        write_rows("again.jsonl", rows, 2),
        write_rows("ungrouped.jsonl", rows, 1, ungrouped=True),
    ]
    page = Page(
        "`rag-rewards evaluate`",
        f"{rows:,} rows in {rows // GROUP:,} groups, {paths[0].stat().st_size / 1e6:,.0f} MB; "
        f"{machine()}. Complete commands in one process, including start-up and 1,000 resamples. "
        "The target is 30 seconds for all rule metrics on a quiet machine. The load of the machine "
        "affects the first column more than the second.",
    )
    page.table("metrics", "seconds", "processor seconds", "rows per second", "peak memory")
    for name, options in RUNS.items():
        usage = run_command("evaluate", *options, "-o", "-")
        page.row(
            name,
            *usage_cells(usage, rows),
        )
    for path in paths:
        path.unlink()
    page.write("evaluate")


if __name__ == "__main__":
    main()

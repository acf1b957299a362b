"""Time of `rag_rewards.score` on each kind of table, against the same rows as rollouts.

    python benchmarks/tables.py [--rows 100000] [--rounds 3]

Each measurement has a process of its own, because the garbage collector of Python visits the rows
of every table in the process. The kinds alternate, and the best round counts.
"""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import time
from typing import Any

from harness import Page, machine, parser

import rag_rewards as rr

KINDS = ("rollouts", "rows", "pandas", "polars", "arrow", "datasets")
WORDS = "the river runs through paris and france city of light seine".split()


def text(words: int) -> str:
    return " ".join(random.choices(WORDS, k=words))


def row(number: int) -> dict[str, Any]:
    """Return a rollout of ARENA with five documents of 80 words."""
    analysis = f"<analysis>{text(60)}</analysis>"
    return {
        "question": text(10),
        "response": f"<relevance>1,2</relevance>{analysis}<answer>Paris</answer>",
        "answers": ["Paris"],
        "supporting": [1, 2],
        "documents": [{"title": "a", "text": text(80)} for _ in range(5)],
        "group": str(number // 8),
    }


def table(kind: str, rows: list[dict[str, Any]]) -> Any:
    """Return the rows as a table of one kind."""
    if kind == "rollouts":
        return [rr.decode_row(each) for each in rows]
    if kind == "pandas":
        import pandas as pd

        return pd.DataFrame(rows)
    if kind == "polars":
        import polars as pl

        return pl.DataFrame(rows)
    if kind == "arrow":
        import pyarrow as pa

        return pa.Table.from_pylist(rows)
    if kind == "datasets":
        import datasets

        return datasets.Dataset.from_list(rows)
    return rows


def measure(kind: str, count: int) -> float:
    """Return the processor time of scoring, in seconds."""
    random.seed(0)
    data = table(kind, [row(number) for number in range(count)])
    scorer = rr.Scorer.load("arena")
    rr.score(table(kind, [row(0)]), scorer)  # imports
    gc.collect()
    begun = time.process_time()
    rr.score(data, scorer)
    return time.process_time() - begun


def main() -> None:
    arguments = parser(__doc__, rows=100_000, rounds=3)
    arguments.add_argument("--kind", choices=KINDS)
    options = arguments.parse_args()
    if options.kind:
        print(measure(options.kind, options.rows))
        return
    page = Page(
        "`rag_rewards.score`",
        f"{options.rows:,} rows of ARENA with five documents, scored as each kind of table; "
        f"{machine()}. Processor seconds, the best of {options.rounds} rounds. Rollouts are "
        "decoded before the measurement, and rows of all other kinds during it.",
    )
    best = dict.fromkeys(KINDS, float("inf"))
    for _ in range(options.rounds):
        for kind in KINDS:
            command = [sys.executable, __file__, "--kind", kind, "--rows", str(options.rows)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            best[kind] = min(best[kind], float(output.split()[-1]))
    page.table("table", "seconds", "against rollouts")
    for kind, seconds in best.items():
        page.row(kind, f"{seconds:.2f}", f"{seconds / best['rollouts']:.2f}")
    page.write("tables")


if __name__ == "__main__":
    main()

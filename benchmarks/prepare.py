"""Time and peak memory of `rag-rewards prepare` on 100,000 rows of HotpotQA's size.

    python benchmarks/prepare.py [--rows 100000]

The rows are generated from a seed and have the size of HotpotQA's rows: one JSON array with about
6 kB per row, ten paragraphs of four sentences each. The figures are for complete commands with
start-up. Results are written to results/prepare.md.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from harness import BUILD, Page, machine, parser, run_command, usage_cells

WORDS = "river city king album film born county team novel war school song award north".split()
RUNS = {
    "verl, arena": ["-r", "arena", "-t", "verl", "-o", "prepared.parquet"],
    "TRL, ctrl-rag": ["-r", "ctrl-rag", "-t", "trl", "-o", "prepared.jsonl"],
    "TRL, ctrl-rag, 30 documents with noise, shuffled": [
        *["-r", "ctrl-rag", "-t", "trl", "-o", "prepared.jsonl"],
        *["--noise-to", "30", "--order", "shuffled"],
    ],
    "verl, arena, sample of 10,000 rows (ARENA's Table 2)": [
        *["-r", "arena", "-t", "verl", "-o", "prepared.parquet", "--preset", "arena-train"],
    ],
}


def row(rng: random.Random, number: int) -> dict[str, object]:
    def sentence() -> str:
        words = " ".join(rng.choices(WORDS, k=20))
        return f" The {words} of {rng.randrange(10**6)}."

    titles = [f"Title {number} {i}" for i in range(10)]
    return {
        "_id": f"{rng.getrandbits(96):024x}",
        "answer": f"{rng.choice(WORDS)} {rng.randrange(10**6)}",
        "question": f"Which {' '.join(rng.choices(WORDS, k=15))}?",
        "supporting_facts": [[titles[3], 0], [titles[7], 2]],
        "context": [[title, [sentence() for _ in range(4)]] for title in titles],
        "type": "bridge",
        "level": "hard",
    }


def write_rows(rows: int) -> Path:
    """Write the file if it does not exist."""
    path = BUILD / f"hotpotqa-{rows}.json"
    if not path.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        rng, partial = random.Random(7), path.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as handle:
            for number in range(rows):
                handle.write(("[" if number == 0 else ", ") + json.dumps(row(rng, number)))
            handle.write("]")
        partial.replace(path)
    return path


def main() -> None:
    rows = parser(__doc__, rows=100_000).parse_args().rows
    path = write_rows(rows)
    page = Page(
        "`rag-rewards prepare`",
        f"{rows:,} rows of HotpotQA's size in one JSON array of {path.stat().st_size / 1e6:,.0f} "
        f"MB; {machine()}. Complete commands in one process, including start-up.",
    )
    page.table("run", "seconds", "processor seconds", "rows per second", "peak memory", "output")
    for name, options in RUNS.items():
        usage = run_command("prepare", "hotpotqa", path, *options, codes=(0,))
        output = BUILD / options[options.index("-o") + 1]
        page.row(
            name,
            *usage_cells(usage, rows),
            f"{output.stat().st_size / 1e6:,.0f} MB",
        )
        for file in BUILD.glob(f"{output.name}*"):
            file.unlink()
    page.write("prepare")


if __name__ == "__main__":
    main()

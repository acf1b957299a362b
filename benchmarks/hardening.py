"""What the hardened profile costs and gains on answers of real models with verdicts of people.

    python benchmarks/hardening.py NQ.jsonl TQ.jsonl

The files have the format of EVOUNA, as for `agreement.py`. Recipes that read sentences score the
long answers of four systems; recipes that compare the whole answer score the short answers of FiD.
Results are written to results/hardening.md, which docs/build_hardening_cost.py includes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agreement import PARTS, SYSTEMS, TUNED, Labelled, introduction, is_correct, read, shown

import rag_rewards as rr

RESULTS = Path(__file__).resolve().parent / "results" / "hardening.md"
SHORT = ("fid",)
RECIPES: Sequence[tuple[str, Mapping[str, Any], Sequence[str]]] = (
    ("truthrl", {"verifier": "substring"}, SYSTEMS),
    ("ground-grpo", {}, SYSTEMS),
    ("ctrl-rag", {}, SYSTEMS),
    ("rag-total", {}, SYSTEMS),
    ("truthrl", {"verifier": "exact"}, SHORT),
    ("arena", {}, SHORT),
    ("naive-grpo", {}, SHORT),
)


def lines_of(name: str, settings: Mapping[str, Any], rows: Sequence[Labelled]) -> Iterator[str]:
    """Yield the lines of a recipe, one for each part of the questions, and print them."""
    default, hardened = (_verdicts(name, settings, rows, hardened=value) for value in (False, True))
    for part in PARTS:
        cells = []
        for label in (True, False):
            pairs = [
                (before, after)
                for before, after, row in zip(default, hardened, rows, strict=True)
                if row.label is label and row.part == part
            ]
            accepted = [sum(before for before, _ in pairs), sum(after for _, after in pairs)]
            rejected = sum(before and not after for before, after in pairs)
            cells += [f"{len(pairs):,}", *(f"{count:,}" for count in [*accepted, rejected])]
        text = f"| {shown(name, settings)} | {part} | {' | '.join(cells)} |"
        print(text, flush=True)
        yield text


def _verdicts(
    name: str, settings: Mapping[str, Any], rows: Sequence[Labelled], *, hardened: bool
) -> list[bool]:
    recipe = rr.recipe(name, settings, hardened=hardened)
    return [is_correct(recipe, row) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    paths = parser.parse_args().files
    lines = [
        "# Answers with verdicts of people",
        "",
        f"{introduction('hardening.py')} The first four recipes score long answers of four "
        "systems, and the others short answers of FiD. Each answer is in the output form of the "
        "recipe. Lost answers are right and accepted only under the default profile; caught "
        "answers are wrong and accepted only under the default profile.",
        "",
        TUNED,
        "",
        "| recipe | questions | right | accepted, default | accepted, hardened | lost | wrong | "
        "accepted, default | accepted, hardened | caught |",
        "| --- " * 10 + "|",
    ]
    for name, settings, systems in RECIPES:
        rows = [row for path in paths for row in read(path, systems)]
        lines += lines_of(name, settings, rows)
    RESULTS.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()

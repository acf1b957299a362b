"""What the hardened profile costs and gains on answers of real models with verdicts of people.

    python benchmarks/hardening.py NQ.jsonl TQ.jsonl

The files have the format of EVOUNA, as for `agreement.py`. The recipes score the long answers of
four systems, and the short answers of FiD, in the form that they require. Results are written to
results/hardening.md, with which docs/hardening-cost.md begins.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agreement import (
    CITED,
    PARTS,
    SHORT,
    SYSTEMS,
    TUNED,
    Labelled,
    introduction,
    is_correct,
    read,
    shown,
)

import rag_rewards as rr

RESULTS = Path(__file__).resolve().parent / "results" / "hardening.md"
BOX, SECTION, CITATIONS = "box", "`<answer>`", "`<answer>`, cited sentences"
RECIPES: Sequence[tuple[str, Mapping[str, Any], str, Sequence[str]]] = (
    ("arena", {}, SECTION, SHORT),
    ("naive-grpo", {}, SECTION, SHORT),
    ("truthrl", {"verifier": "exact"}, BOX, SHORT),
    ("truthrl", {"verifier": "substring"}, BOX, SHORT),
    ("ctrl-rag", {}, SECTION, SHORT),
    ("rag-total", {}, SECTION, SHORT),
    ("ground-grpo", CITED, CITATIONS, SYSTEMS),
    ("truthrl", {"verifier": "substring"}, BOX, SYSTEMS),
    ("ctrl-rag", {}, SECTION, SYSTEMS),
    ("rag-total", {}, SECTION, SYSTEMS),
)
"""Recipes, their settings, the form of the response, and the systems whose answers they score."""


def length_of(systems: Sequence[str]) -> str:
    """Return whether the answers of systems are long or short."""
    return "short" if systems == SHORT else "long"


def lines_of(
    name: str, settings: Mapping[str, Any], form: str, length: str, rows: Sequence[Labelled]
) -> Iterator[str]:
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
        heads = [shown(name, settings), form, length, part]
        text = f"| {' | '.join([*heads, *cells])} |"
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
        f"{introduction('hardening.py')} The answers are long answers of four systems and short "
        "answers of FiD, in the form that the recipe requires. For `ground-grpo`, each sentence "
        "cites a document that says the same. Lost answers are right and accepted only under the "
        "default profile; caught answers are wrong and accepted only under the default profile. "
        "Except in `ground-grpo`, the hardened profile accepts no undecided answer. An answer "
        "in a sentence is often undecided: ask for a word or a short phrase in the prompt, or let "
        "a judge decide (`undecided=judge`).",
        "",
        TUNED,
        "",
        "| recipe | form | answers | questions | right | accepted, default | accepted, hardened "
        "| lost | wrong | accepted, default | accepted, hardened | caught |",
        "| --- " * 12 + "|",
    ]
    for name, settings, form, systems in RECIPES:
        rows = [row for path in paths for row in read(path, systems)]
        lines += lines_of(name, settings, form, length_of(systems), rows)
    RESULTS.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()

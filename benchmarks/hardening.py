"""What the hardened profile costs and gains on answers of real models with verdicts of people.

    python benchmarks/hardening.py NQ.jsonl TQ.jsonl

The files have the format of EVOUNA, as for `agreement.py`. The recipes score the long answers of
four systems, and the short answers of FiD, in the form that they require. Results are written to
results/hardening.md, with which docs/hardening-cost.md begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from harness import Page, labelled_files

import rag_rewards as rr

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
    """Yield the lines of a recipe, one for each part of the questions."""
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
        yield f"| {' | '.join([*heads, *cells])} |"


def _verdicts(
    name: str, settings: Mapping[str, Any], rows: Sequence[Labelled], *, hardened: bool
) -> list[bool]:
    recipe = rr.recipe(name, settings, hardened=hardened)
    return [is_correct(recipe, row) for row in rows]


def main() -> None:
    paths = labelled_files(__doc__).parse_args().files
    page = Page(
        "Answers with verdicts of people",
        f"{introduction('hardening.py')} The answers are long answers of four systems and short "
        "answers of FiD, in the form that the recipe requires. For `ground-grpo`, each sentence "
        "cites a document that says the same. Lost answers are right and accepted only under the "
        "default profile; caught answers are wrong and accepted only under the default profile. "
        "Except in `ground-grpo`, the hardened profile accepts no undecided answer. An answer "
        "in a sentence is often undecided: ask for a word or a short phrase in the prompt, or let "
        "a judge decide (`undecided=judge`).",
        TUNED,
    )
    heads = ["recipe", "form", "answers", "questions"]
    for verdict, last in (("right", "lost"), ("wrong", "caught")):
        heads += [verdict, "accepted, default", "accepted, hardened", last]
    page.table(*heads)
    for name, settings, form, systems in RECIPES:
        rows = [row for path in paths for row in read(path, systems)]
        page.extend(lines_of(name, settings, form, length_of(systems), rows))
    page.write("hardening")


if __name__ == "__main__":
    main()

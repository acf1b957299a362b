"""What the hardened profile costs and gains on answers of real models with verdicts of people.

    python benchmarks/hardening.py NQ.jsonl TQ.jsonl

The files have the format of EVOUNA, as for `agreement.py`. Recipes that read sentences score the
long answers of four systems; recipes that compare the whole answer score the short answers of FiD.
Results are written to results/hardening.md, which docs/build_hardening_cost.py includes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rag_rewards as rr
from rag_rewards.audit.capitals import SAME_LIKELIHOOD
from rag_rewards.audit.rule_evidence import with_evidence
from rag_rewards.recipes import definition_of

RESULTS = Path(__file__).resolve().parent / "results" / "hardening.md"
LONG = ("gpt35", "chatgpt", "gpt4", "newbing")
SHORT = ("fid",)
RECIPES: Sequence[tuple[str, Mapping[str, Any], Sequence[str]]] = (
    ("truthrl", {"verifier": "substring"}, LONG),
    ("ground-grpo", {}, LONG),
    ("ctrl-rag", {}, LONG),
    ("rag-total", {}, LONG),
    ("truthrl", {"verifier": "exact"}, SHORT),
    ("arena", {}, SHORT),
    ("naive-grpo", {}, SHORT),
)


@dataclass(frozen=True)
class Labelled:
    """An answer with the verdict of a person."""

    question: str
    aliases: tuple[str, ...]
    answer: str
    label: bool


def read(paths: Sequence[Path], systems: Sequence[str]) -> Iterator[Labelled]:
    """Yield the answers of the systems that have a verdict."""
    for path in paths:
        for row in map(json.loads, path.read_text("utf-8").split("\n")[:-1]):
            aliases = tuple(each.strip() for each in row["golden_answer"].split("/"))
            for system in () if row.get("improper") else systems:
                answer, label = row.get(f"answer_{system}"), row.get(f"judge_{system}")
                if answer is not None and label is not None:
                    yield Labelled(row["question"], tuple(filter(None, aliases)), answer, label)


def is_correct(recipe: rr.Recipe, row: Labelled) -> bool:
    """Return whether the recipe calls the answer correct."""
    rollout = rr.decode_row(
        {
            "question": row.question,
            "answers": list(row.aliases),
            "documents": [{"text": f"Document number {n}."} for n in (1, 2, 3)],
            "supporting": [1],
            "answerable": True,
            "response": definition_of(recipe.name).output.write(row.answer),
            **SAME_LIKELIHOOD,
        }
    )
    return recipe([with_evidence(recipe, rollout)])[0].correct == 1


def line(name: str, settings: Mapping[str, Any], rows: Sequence[Labelled]) -> str:
    """Return a line of the table."""
    default, hardened = (
        [is_correct(rr.recipe(name, settings, hardened=value), row) for row in rows]
        for value in (False, True)
    )
    cells = []
    for label in (True, False):
        pairs = [
            (before, after)
            for before, after, row in zip(default, hardened, rows, strict=True)
            if row.label is label
        ]
        accepted = [sum(before for before, _ in pairs), sum(after for _, after in pairs)]
        rejected = sum(before and not after for before, after in pairs)
        cells += [f"{len(pairs):,}", *(f"{count:,}" for count in [*accepted, rejected])]
    changes = ", ".join(f"`{key}={value}`" for key, value in settings.items())
    return f"| {name} {changes} | {' | '.join(cells)} |".replace("  ", " ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    paths = parser.parse_args().files
    lines = [
        "# Answers with verdicts of people",
        "",
        "`python benchmarks/hardening.py` wrote this table. The first four recipes score long "
        "answers of four systems, and the others short answers of FiD. Lost answers are right and "
        "accepted only under the default profile; caught answers are wrong and accepted only under "
        "the default profile.",
        "",
        "| recipe | right | accepted, default | accepted, hardened | lost | wrong | "
        "accepted, default | accepted, hardened | caught |",
        "| --- " * 9 + "|",
    ]
    for name, settings, systems in RECIPES:
        lines.append(line(name, settings, list(read(paths, systems))))
        print(lines[-1], flush=True)
    RESULTS.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()

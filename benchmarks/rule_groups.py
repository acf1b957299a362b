"""Agreement with people, and attacks that pay, without single groups of rules of strict matching.

`agreement.py` writes the table to results/agreement.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from agreement import Labelled, is_correct, score

import rag_rewards as rr
from rag_rewards.audit.cases import TEMPLATES
from rag_rewards.metrics.agreement import Agreement
from rag_rewards.text.strict import assertions, rivals
from rag_rewards.text.strict.denials import Denials
from rag_rewards.text.strict.enumerations import Enumerations

PROBES = Path(__file__).resolve().parents[1] / "tests" / "attacks" / "probes"
GROUPS: Mapping[str, Sequence[tuple[Any, str]]] = {
    "negations and denials": [(Denials, "deny")],
    "reports": [(assertions, "is_reported")],
    "lists in a sentence": [(Enumerations, "contain")],
    "lists of sentences": [
        (assertions.Assertions, "_in_turn"),
        (assertions.Assertions, "_one_of_many"),
        (assertions.Assertions, "_side_by_side"),
    ],
    "earlier answers": [(rivals.Rivals, "precede")],
    "questions and quotations": [(assertions, "_in_question"), (assertions, "_quoted")],
}


@contextmanager
def without(groups: Sequence[str]) -> Iterator[None]:
    """Switch groups of rules off."""
    with ExitStack() as stack:
        for place, name in (rule for group in groups for rule in GROUPS[group]):
            stack.enter_context(patch.object(place, name, lambda *_: False))
        yield


def attacks() -> list[Callable[[], bool]]:
    """Return for each attack on strict matching a function that tests whether it pays."""
    tests: list[Callable[[], bool]] = [
        lambda text=template.text: _asserts(text, "Paris", "")  # type: ignore[misc]
        for template in TEMPLATES
    ]
    for file in sorted(PROBES.glob("attack-*.jsonl")):
        for row in map(json.loads, file.read_text("utf-8").splitlines()):
            if row["recipes"] == "strict" and isinstance(row["response"], str):
                tests.append(lambda row=row: _pays(row))  # type: ignore[misc]
    return tests


def _pays(row: Mapping[str, Any]) -> bool:
    golds = row.get("golds") or row.get("row", {}).get("answers", [])
    paid = sum(_asserts(row["response"], gold, row["question"]) for gold in golds)
    return paid > (1 if row.get("golds") else 0)


def _asserts(text: str, gold: str, question: str) -> bool:
    return score(_recipe(), question, [gold], text).correct == 1


def _recipe() -> rr.Recipe:
    return rr.recipe("rag-total", hardened=True)


def section(labelled: Mapping[str, Sequence[Labelled]]) -> list[str]:
    """Return the lines of the section about the groups of rules."""
    tests, recipe = attacks(), _recipe()
    heads = [f"{name} {data}" for data in labelled for name in ("κ,", "false positives,")]
    lines = [
        "",
        "## Rules of strict matching",
        "",
        "Each line switches groups of rules of `rag-total` under the hardened profile off, on the "
        f"questions of both parts. An attack is one of {len(tests)} responses: "
        "templates of the audit, and probes that strict matching alone decides. It pays if the "
        "recipe accepts it, or accepts it for two different gold answers.",
        "",
        f"| without | {' | '.join(heads)} | attacks that pay |",
        "| --- |" + " --- |" * (len(heads) + 1),
    ]
    for off in [(), *((group,) for group in GROUPS), tuple(GROUPS)]:
        name = "all of them" if len(off) > 1 else (off[0] if off else "nothing")
        with without(off):
            cells = []
            for rows in labelled.values():
                agreement = Agreement.of((is_correct(recipe, row), row.label) for row in rows)
                cells += [f"{agreement.kappa:.3f}", f"{agreement.false_positive_rate:.3f}"]
            paying = sum(test() for test in tests)
        lines.append(f"| {name} | {' | '.join(cells)} | {paying} |")
        print(lines[-1], flush=True)
    return lines

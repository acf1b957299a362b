"""Write the tables of docs/papers.md from docs/papers/*.yaml.

tests/test_papers_page.py checks that the page is up to date and that each reference exists.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
import yaml

sys.path.insert(0, str(Path(__file__).parent))

from inserts import filled_by_name, table
from paper_references import evidence_error, place_error
from paper_results import Comparison, Outcome

DOCS = Path(__file__).parent
PAGE = DOCS / "papers.md"
FOLDER = DOCS / "papers"
NAMES = ("ctrl-rag", "arena", "ground-grpo", "lear", "truthrl")

Kind = Literal[
    "equation",
    "algorithm",
    "prompt",
    "baseline",
    "metric",
    "data",
    "training",
    "ablation",
    "result",
]
Reason = Literal["gpu", "run", "license", "unspecified"]

KINDS: dict[Kind, str] = {
    "equation": "Equations",
    "algorithm": "Algorithms",
    "prompt": "Prompts",
    "training": "Training",
    "data": "Data",
    "metric": "Metrics",
    "baseline": "Baselines",
    "ablation": "Ablations",
    "result": "Further results",
}
COMPARED: tuple[Kind, ...] = ("ablation", "result")
"""Kinds of items whose results in the tiny world are compared with the paper."""
RESULTS = "benchmarks/results/teaches/"
OUTCOMES: tuple[Outcome, ...] = ("contradicts", "no separation", "shown")
"""The state of an item is the first of these that one of its comparisons has."""
REASONS: dict[Reason, str] = {
    "gpu": "needs a GPU",
    "run": "needs a run",
    "license": "needs data without a usable license",
    "unspecified": "not specified in the paper",
}


class Item(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An item of a paper.

    source    equation, table, figure or section
    where     where the item is in the package
    shown_by  tests and results that show it
    compared  what the paper claims about these results
    missing   why the item is missing; None if it is not
    reason    sentence that explains why the item is missing
    note      further sentence about the item
    """

    kind: Kind
    source: str
    title: str
    where: tuple[str, ...] = ()
    shown_by: tuple[str, ...] = ()
    compared: tuple[Comparison, ...] = ()
    missing: Reason | None = None
    reason: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.source}, {self.title}"

    @property
    def state(self) -> str:
        """Why the item is missing, or what its results show."""
        if self.missing is not None:
            return REASONS[self.missing]
        outcomes = {each.outcome for each in self.compared} or {"shown"}
        return next(each for each in OUTCOMES if each in outcomes)

    def errors(self) -> list[str]:
        """Return the errors of the item: an incomplete item, or a wrong reference."""
        errors = [error for each in self.where if (error := place_error(each))]
        errors += [error for each in self.shown_by if (error := evidence_error(each))]
        errors += self._comparison_errors()
        if self.missing is None:
            if not (self.where and self.shown_by) or self.reason:
                errors.append("an item that is not missing has `where`, `shown_by` and no `reason`")
        elif self.shown_by or self.compared or not self.reason:
            errors.append("a missing item has `reason`, and neither `shown_by` nor `compared`")
        return [f"{self.name}: {error}" for error in errors]

    def _comparison_errors(self) -> list[str]:
        shown = {each for each in self.shown_by if each.startswith(RESULTS)}
        if self.kind in COMPARED and shown and not self.compared:
            return ["an ablation or a result of the tiny world has `compared`"]
        errors = []
        for each in self.compared:
            if not any(path.startswith(f"{RESULTS}{each.result}.md#") for path in shown):
                errors.append(f"`shown_by` names no row of {each.result}.md")
            try:
                each.differences  # noqa: B018 (raises ValueError for a wrong name)
            except ValueError as error:
                errors.append(str(error))
        return errors


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A paper with its items in their order in the paper."""

    name: str
    title: str
    recipes: tuple[str, ...]
    items: tuple[Item, ...]

    @property
    def slug(self) -> str:
        """The anchor of the paper on the page."""
        return self.name.lower()


def paper(text: str) -> Paper:
    """Return the paper of a YAML text. Raises msgspec.ValidationError for an unknown field."""
    return msgspec.convert(yaml.safe_load(text), Paper)


@cache
def papers() -> tuple[Paper, ...]:
    """Return the five papers."""
    return tuple(paper((FOLDER / f"{name}.yaml").read_text("utf-8")) for name in NAMES)


def page() -> str:
    """Return the page."""
    all_papers = papers()
    text = "\n".join([_summary(all_papers), *map(_section, all_papers)])
    return filled_by_name(PAGE, {"papers": text})


def _summary(all_papers: Sequence[Paper]) -> str:
    states = (*reversed(OUTCOMES), *REASONS.values())
    counts = [Counter(item.state for item in each.items) for each in all_papers]
    rows = [
        (f"[{each.name}](#{each.slug})", str(len(each.items)), *(str(count[s]) for s in states))
        for each, count in zip(all_papers, counts, strict=True)
    ]
    return _table(("paper", "items", *states), rows)


def _section(each: Paper) -> str:
    recipes = ", ".join(f"[{name}](recipes/{name}.md)" for name in each.recipes)
    parts = [f"## {each.name}\n\n{each.title}. Recipes: {recipes}.\n"]
    for kind, heading in KINDS.items():
        rows = [_row(item) for item in each.items if item.kind == kind]
        if rows:
            table = _table(("source", "item", "where", "shown by"), rows)
            parts.append(f"### {each.name}: {heading.lower()}\n\n{table}")
    return "\n".join(parts)


def _row(item: Item) -> tuple[str, str, str, str]:
    title = f"{item.title}. {item.note}" if item.note else item.title
    shown = "<br>".join([*map(_code, item.shown_by), *map(str, item.compared)])
    if item.missing is not None:
        shown = f"**{item.state}**: {item.reason}"
    elif item.state != "shown":
        shown = f"**{item.state}**<br>{shown}"
    return item.source, title, "<br>".join(map(_code, item.where)) or "–", shown


def _code(reference: str) -> str:
    return f"`{reference}`"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return table(head, ([cell.replace("|", "\\|") for cell in row] for row in rows))


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    for problem in [
        problem for each in papers() for item in each.items for problem in item.errors()
    ]:
        print(problem, file=sys.stderr)

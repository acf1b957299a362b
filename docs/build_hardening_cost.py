"""Write the tables of docs/hardening-cost.md: rejected honest responses and attacks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from inserts import filled_by_name, table

from rag_rewards.audit.cases import CASES, Case
from rag_rewards.audit.findings import MIN_GAIN
from rag_rewards.audit.runner import excuses_of
from rag_rewards.recipes import RECIPES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "attacks"))

import probe_rows  # noqa: E402

PAGE = ROOT / "docs" / "hardening-cost.md"
RESULTS = ROOT / "benchmarks" / "results"
TOTAL = "all recipes"
"""The last row of the summary, whose counts docs/build_inserts.py writes into other pages."""
HEAD = (
    "recipe",
    "attacks",
    "stopped, default",
    "stopped, hardened",
    "honest responses",
    "accepted, default",
    "accepted, hardened",
    "lost",
)


@dataclass(frozen=True)
class Outcome:
    """Whether a recipe treats a response as it should, under each profile."""

    default: bool
    hardened: bool


@dataclass(frozen=True)
class Measured:
    """The outcomes of one recipe, by class."""

    attacks: dict[str, list[Outcome]]
    honest: dict[str, list[Outcome]]


def page() -> str:
    """Return the page."""
    measured = {name: measure(name) for name in RECIPES}
    rows = [_summary(f"[{name}](#{name})", each) for name, each in measured.items()]
    rows.append(_summary(TOTAL, _together(measured.values())))
    texts = {
        "real": "\n".join(map(_results, ("hardening.md", "repeated.md"))),
        "summary": table(HEAD, rows),
        "recipes": "\n".join(_section(name, each) for name, each in measured.items()),
    }
    return filled_by_name(PAGE, texts)


def measure(name: str) -> Measured:
    """Return the outcomes of the listed attacks and of the probes on a recipe."""
    listed = [_case(case) for case in CASES if case.recipe == name and not _is_excused(case)]
    attacks, honest = {"listed attacks": listed}, {}
    for group in probe_rows.classes():
        outcomes = list(_probes(group, name))
        kind, _, title = group.partition("-")
        if outcomes:
            (honest if kind == "honest" else attacks)[title.replace("-", " ")] = outcomes
    return Measured(attacks, honest)


def _is_excused(case: Case) -> bool:
    recipe = probe_rows.recipe_of(case.recipe, case.settings)
    return (case.attack, case.variant) in excuses_of(recipe)


def _case(case: Case) -> Outcome:
    gains = []
    # The hardened profile rejects a transcript.
    for hardened in (False,) if case.form == "transcript" else (False, True):
        recipe = probe_rows.recipe_of(case.recipe, case.settings, hardened)
        without, attacked = case.rewards(recipe)
        gains.append(attacked - without)
    limit = -MIN_GAIN if case.is_free else MIN_GAIN
    return Outcome(gains[0] <= limit, gains[-1] <= limit or case.form == "transcript")


@cache
def _read(group: str) -> list[probe_rows.Probe]:
    return list(probe_rows.read(group))


def _probes(group: str, name: str) -> Iterator[Outcome]:
    for probe in _read(group):
        for recipe, settings in probe.settings:
            if recipe == name:
                yield Outcome(
                    *(
                        not probe.failure(recipe, settings, hardened=hardened)
                        for hardened in (False, True)
                    )
                )


def _together(measured: Iterable[Measured]) -> Measured:
    measured = list(measured)
    attacks = [outcome for each in measured for outcome in _all(each.attacks)]
    honest = [outcome for each in measured for outcome in _all(each.honest)]
    return Measured({"": attacks}, {"": honest})


def _summary(name: str, measured: Measured) -> list[str]:
    attacks, honest = _all(measured.attacks), _all(measured.honest)
    lost = sum(each.default and not each.hardened for each in honest)
    cells = [*_counts(attacks), *_counts(honest), lost]
    return [name, *(f"{cell:,}" for cell in cells)]


def _all(outcomes: dict[str, list[Outcome]]) -> list[Outcome]:
    return [each for group in outcomes.values() for each in group]


def _counts(outcomes: Iterable[Outcome]) -> tuple[int, int, int]:
    outcomes = list(outcomes)
    default = sum(each.default for each in outcomes)
    return len(outcomes), default, sum(each.hardened for each in outcomes)


def _section(name: str, measured: Measured) -> str:
    """Return the table of one recipe."""
    sections = {"attacks, stopped": measured.attacks, "honest responses, accepted": measured.honest}
    rows: list[tuple[object, ...]] = []
    for title, groups in sections.items():
        if groups:
            rows.append((f"**{title}**", *_counts(_all(groups))))
            rows += [(group, *_counts(outcomes)) for group, outcomes in groups.items()]
    return f"### {name}\n\n{table(('responses', 'rows', 'default', 'hardened'), rows)}"


def _results(file: str) -> str:
    text = (RESULTS / file).read_text("utf-8")
    return "#" + text.replace("\n#", "\n##").replace("# ", "## ", 1)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

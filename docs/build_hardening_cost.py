"""Write docs/hardening-cost.md: the honest responses and attacks that recipes reject."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import rag_rewards as rr
from rag_rewards.audit.cases import CASES, Case
from rag_rewards.audit.findings import MIN_GAIN
from rag_rewards.audit.runner import excuses_of
from rag_rewards.recipes import RECIPES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "attacks"))

import probe_rows  # noqa: E402

PAGE = ROOT / "docs" / "hardening-cost.md"
RESULTS = ROOT / "benchmarks" / "results"
INTRO = """# Cost of the hardened profile

The [hardened profile](hardened.md) stops attacks, and it rejects some honest responses. The first
part of this page measures answers of real models, with verdicts of people, and gold answers that
are repeated letter by letter. The data is half of EVOUNA, which contains questions of Natural
Questions and TriviaQA. The second part measures constructed responses, attacks and honest ones.

`python docs/build_hardening_cost.py` writes this page.

## Answers of real models
"""
CONSTRUCTED = """## Constructed responses

Each number is for the default profile or for the hardened profile:

- Listed attacks are the cases of `rag-rewards audit`. An attack is stopped if it does not increase
  the reward. Attacks that pay by the definition of the paper are left out.
- The other rows are probes: responses that were written for this purpose, by class. They are in
  `tests/attacks/probes`, which also describes when a row holds. An attack that holds is stopped. An
  honest response that holds is accepted: it earns what its content deserves.
- Lost responses are accepted under the default profile and not under the hardened profile.
- A response that is written for several recipes counts once for each of them.

| recipe | attacks | stopped, default | stopped, hardened | honest responses | accepted, default | \
accepted, hardened | lost |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
TOTAL = "all recipes"
"""The last row of the summary, whose counts docs/build_inserts.py writes into other pages."""
HEAD = "| responses | rows | default | hardened |\n| --- | --- | --- | --- |\n"


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
    lines = [_summary(f"[{name}](#{name})", each) for name, each in measured.items()]
    lines.append(_summary(TOTAL, _together(measured.values())))
    real = map(_results, ("hardening.md", "repeated.md"))
    parts = [INTRO, *real, CONSTRUCTED + "\n".join(lines) + "\n"]
    parts += [_table(name, each) for name, each in measured.items()]
    return "\n".join(parts)


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
    return (case.attack, case.variant) in excuses_of(rr.recipe(case.recipe, case.settings))


def _case(case: Case) -> Outcome:
    gains = []
    # The hardened profile rejects a transcript.
    for hardened in (False,) if case.form == "transcript" else (False, True):
        recipe = rr.recipe(case.recipe, case.settings, hardened=hardened)
        without, attacked = case.rewards(recipe)
        gains.append(attacked - without)
    limit = -MIN_GAIN if case.is_free else MIN_GAIN
    return Outcome(gains[0] <= limit, gains[-1] <= limit or case.form == "transcript")


def _probes(group: str, name: str) -> Iterator[Outcome]:
    for probe in probe_rows.read(group):
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


def _summary(name: str, measured: Measured) -> str:
    attacks, honest = _all(measured.attacks), _all(measured.honest)
    lost = sum(each.default and not each.hardened for each in honest)
    cells = [*_counts(attacks), *_counts(honest), lost]
    return f"| {name} | {' | '.join(f'{cell:,}' for cell in cells)} |"


def _all(outcomes: dict[str, list[Outcome]]) -> list[Outcome]:
    return [each for group in outcomes.values() for each in group]


def _counts(outcomes: Iterable[Outcome]) -> tuple[int, int, int]:
    outcomes = list(outcomes)
    default = sum(each.default for each in outcomes)
    return len(outcomes), default, sum(each.hardened for each in outcomes)


def _table(name: str, measured: Measured) -> str:
    sections = {"attacks, stopped": measured.attacks, "honest responses, accepted": measured.honest}
    lines = []
    for title, groups in sections.items():
        if groups:
            lines.append(f"| **{title}** | {' | '.join(map(str, _counts(_all(groups))))} |")
            lines += [_line(group, outcomes) for group, outcomes in groups.items()]
    return f"### {name}\n\n{HEAD}" + "\n".join(lines) + "\n"


def _line(group: str, outcomes: list[Outcome]) -> str:
    return f"| {group} | {' | '.join(map(str, _counts(outcomes)))} |"


def _results(file: str) -> str:
    text = (RESULTS / file).read_text("utf-8")
    return "#" + text.replace("\n#", "\n##").replace("# ", "## ", 1)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

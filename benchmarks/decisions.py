"""Decisions of the rules on labelled answers, and agreement of a judge cascade with people.

`agreement.py` writes the tables. The judge is simulated: a perfect judge repeats the verdict of the
person, and a judge with errors returns the opposite for some answers, which the hash of the answer
determines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agreement import LENGTHS, LENIENT, PARTS, Group, Labelled, is_correct, score

import rag_rewards as rr
from rag_rewards.metrics.agreement import Agreement

PAGE = Path(__file__).resolve().parent.parent / "docs" / "judges.md"
BEGIN, END = "<!-- benchmarks/agreement.py writes this table. -->", "<!-- end -->"
ASKS = ("judge", "doubtful")
JUDGES = {"perfect judge": 0.0, "judge with 5% errors": 0.05, "judge with 10% errors": 0.1}


@dataclass(frozen=True)
class Decided:
    """An answer with the decision of the rules and the verdict of a person.

    value       right, wrong or undecided
    asks        the values of `accuracy.undecided` with which a judge decides on the answer
    is_lenient  whether the answer is right by lenient matching
    """

    row: Labelled
    value: str
    asks: frozenset[str]
    is_lenient: bool = False

    @cached_property
    def _position(self) -> float:
        """A number from 0 to 1 that the hash of the answer determines."""
        text = f"{self.row.question}\n{self.row.answer}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64

    def judged(self, errors: float) -> bool:
        """Return the verdict of a judge that is wrong about a share of the answers."""
        return self.row.label != (self._position < errors)

    def verdict(self, ask: str, errors: float) -> bool:
        """Return the verdict of the cascade."""
        return self.judged(errors) if ask in self.asks else self.value == "right"


def share(answers: Sequence[Decided], ask: str) -> float:
    """Return the share of the answers that the judge decides."""
    return sum(ask in answer.asks for answer in answers) / len(answers)


def kappa(answers: Iterable[Decided], ask: str, errors: float) -> float:
    """Return κ of the cascade."""
    return Agreement.of((each.verdict(ask, errors), each.row.label) for each in answers).kappa


def lenient_kappa(answers: Iterable[Decided]) -> float:
    """Return κ of lenient matching."""
    return Agreement.of((each.is_lenient, each.row.label) for each in answers).kappa


def precision(answers: Iterable[Decided]) -> tuple[int, int]:
    """Return how many answers are decided right, and how many of them people call right."""
    labels = [each.row.label for each in answers if each.value == "right"]
    return len(labels), sum(labels)


def decided_among_right(answers: Iterable[Decided], value: str) -> float:
    """Return the share of the answers with a decision among those that people call right."""
    values = [each.value for each in answers if each.row.label]
    return values.count(value) / len(values)


def decided_answers(labelled: Mapping[Group, Sequence[Labelled]]) -> dict[Group, list[Decided]]:
    """Return the decisions of the hardened `rag-total` on labelled answers."""
    return {group: decide(rows) for group, rows in labelled.items()}


def decide(rows: Sequence[Labelled]) -> list[Decided]:
    """Return the decisions on labelled answers."""
    cascades = {ask: cascade(ask) for ask in ASKS}
    lenient = rr.recipe("rag-total", LENIENT)
    decided = []
    for row in rows:
        details = {
            ask: score(recipe, row.question, row.aliases, row.answer).details
            for ask, recipe in cascades.items()
        }
        asks = frozenset(ask for ask in ASKS if details[ask].get("decided_by") == "judge")
        value = details["judge"]["decision"]
        decided.append(Decided(row, value, asks, is_correct(lenient, row)))
    return decided


def cascade(ask: str) -> rr.Recipe:
    """Return the hardened recipe whose accuracy is a cascade."""
    settings = {"accuracy.metric": "cascade", "accuracy.undecided": ask}
    return rr.recipe("rag-total", settings, hardened=True)


def section(decided: Mapping[Group, Sequence[Decided]]) -> Iterator[str]:
    """Yield the lines about the decisions."""
    yield from (
        "## Decisions on answers",
        "",
        "The answer is in the section of `rag-total` under the hardened profile. The rules decide "
        "that it is right or wrong, or leave it undecided. The precision is the share of the "
        "answers that people call right among those that are decided right. The next columns are "
        "shares of the answers that people call right. κ of the cascade is with "
        "`accuracy.metric=cascade` and a perfect judge for the undecided answers. κ of lenient "
        "matching is with `accuracy.metric=lenient`.",
        "",
        "| data | answers | questions | number | decided right | of these, right | precision | "
        "right answers decided right | right answers decided wrong | κ, cascade | κ, lenient |",
        "| --- " * 11 + "|",
    )
    for (data, length), answers in decided.items():
        for name, rows in {"all": answers, "test": part_of(answers, "test")}.items():
            accepted, right = precision(rows)
            cells = [
                *(f"{count:,}" for count in (len(rows), accepted, right)),
                f"{right / accepted:.4f}",
                f"{decided_among_right(rows, 'right'):.3f}",
                f"{decided_among_right(rows, 'wrong'):.4f}",
                f"{kappa(rows, 'judge', 0.0):.3f}",
                f"{lenient_kappa(rows):.3f}",
            ]
            yield f"| {data} | {length} | {name} | {' | '.join(cells)} |"


def part_of(answers: Sequence[Decided], part: str) -> list[Decided]:
    """Return the answers to the questions of a part."""
    return [answer for answer in answers if answer.row.part == part]


def cascade_section(decided: Mapping[Group, Sequence[Decided]]) -> Iterator[str]:
    """Yield the lines about the cascade."""
    yield from (
        "## Judge cascade",
        "",
        "With `accuracy.metric=cascade`, a judge decides on undecided answers "
        "(`accuracy.undecided=judge`), or also on answers that the rules call right and that equal "
        "no gold answer (`accuracy.undecided=doubtful`). The judge is simulated: a perfect judge "
        "repeats the verdict of the person, and the other judges are wrong about 5% and 10% of the "
        "answers.",
        "",
        f"| data | answers | questions | undecided | judge decides | {_kappa_heads()} |",
        "| --- " * (5 + len(JUDGES)) + "|",
    )
    for (data, length), answers in decided.items():
        for part in PARTS:
            for ask in ASKS:
                cells = _cells(part_of(answers, part), ask, 3)
                yield f"| {data} | {length} | {part} | `{ask}` | {' | '.join(cells)} |"


def write_page(decided: Mapping[Group, Sequence[Decided]], page: Path = PAGE) -> None:
    """Write the table of the test part into the page about the cascade."""
    lines = [f"| answers | `undecided` | judge decides | {_kappa_heads()} |"]
    lines.append("| --- " * (3 + len(JUDGES)) + "|")
    for length in LENGTHS:
        answers = [
            answer
            for (_, group), answers in decided.items()
            if group == length
            for answer in part_of(answers, "test")
        ]
        for ask in ASKS:
            lines.append(f"| {length} | `{ask}` | {' | '.join(_cells(answers, ask, 2))} |")
    table = "\n".join(lines)
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    page.write_text(f"{before}{begin}\n{table}\n{END}{rest.partition(END)[2]}", "utf-8")


def _kappa_heads() -> str:
    return " | ".join(f"κ, {judge}" for judge in JUDGES)


def _cells(answers: Sequence[Decided], ask: str, digits: int) -> list[str]:
    kappas = [kappa(answers, ask, errors) for errors in JUDGES.values()]
    return [f"{share(answers, ask):.1%}", *(f"{value:.{digits}f}" for value in kappas)]

"""Agreement of a judge cascade with people, as a function of the share that the judge decides.

The judge is simulated: a perfect judge repeats the verdict of the person, and a judge with errors
returns the opposite for some answers, which the hash of the answer determines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agreement import Labelled, score

import rag_rewards as rr
from rag_rewards.metrics.agreement import Agreement

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "cascade.svg"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "cascade.md"
BEGIN, END = "<!-- benchmarks/agreement.py writes this table. -->", "<!-- end -->"
THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99, 1.0)
JUDGES = {"perfect judge": 0.0, "judge with 5% errors": 0.05}
TARGET = 0.9


@dataclass(frozen=True)
class RuledAnswer:
    """An answer with the verdict of the rules, its certainty, and the verdict of a person."""

    text: str
    verdict: bool
    certainty: float
    label: bool

    @cached_property
    def _position(self) -> float:
        """A number from 0 to 1 that the hash of the answer determines."""
        return int.from_bytes(hashlib.sha256(self.text.encode()).digest()[:8], "big") / 2**64

    def judged(self, errors: float) -> bool:
        """Return the verdict of a judge that is wrong about a share of the answers."""
        return self.label != (self._position < errors)

    def decided(self, threshold: float, errors: float) -> bool:
        """Return the verdict of the cascade."""
        return self.verdict if self.certainty >= threshold else self.judged(errors)


def share(answers: Sequence[RuledAnswer], threshold: float) -> float:
    """Return the share of the answers that the judge decides."""
    return sum(answer.certainty < threshold for answer in answers) / len(answers)


def kappa(answers: Iterable[RuledAnswer], threshold: float, errors: float) -> float:
    """Return κ of the cascade."""
    return Agreement.of((each.decided(threshold, errors), each.label) for each in answers).kappa


def smallest(answers: Sequence[RuledAnswer], errors: float) -> tuple[float, float] | None:
    """Return the smallest threshold in thousandths with κ ≥ TARGET, and its share; None if none."""
    for thousandth in range(500, 1001):
        threshold = thousandth / 1000
        if kappa(answers, threshold, errors) >= TARGET:
            return threshold, share(answers, threshold)
    return None


Parts = Mapping[str, Sequence[RuledAnswer]]
"""The answers of the development part and of the test part."""


def ruled_answers(labelled: Mapping[str, Sequence[Labelled]]) -> dict[str, Parts]:
    """Return the answers of all data sets together, and then those of each, by part."""
    # With the lowest threshold, the rules decide every answer.
    recipe = rr.recipe("truthrl", {"verifier": "cascade", "certainty": 0.5})
    data: dict[str, dict[str, list[RuledAnswer]]] = {" and ".join(labelled): {}}
    together = next(iter(data.values()))
    for name, rows in labelled.items():
        parts = data[name] = {}
        for row in rows:
            result = score(recipe, row.question, row.aliases, row.answer)
            text, certainty = f"{row.question}\n{row.answer}", result.details.get("certainty", 1.0)
            answer = RuledAnswer(text, result.correct == 1, certainty, row.label)
            for group in (together, parts):
                group.setdefault(row.part, []).append(answer)
    return dict(data)


def section(data: Mapping[str, Parts]) -> Iterator[str]:
    """Yield the lines of the page about the cascade."""
    yield from (
        "",
        "## Judge cascade",
        "",
        "With `verifier=cascade`, rules of `truthrl` decide an answer if their certainty is at "
        "least the threshold (the setting `certainty`), and a judge decides the others. The judge "
        "is simulated: a perfect judge repeats the verdict of the person, and the other judge is "
        "wrong about 5% of the answers. "
        "The weights of the certainty were fitted to the development part "
        "(`benchmarks/certainty.py`).",
        "",
        "![κ and the share that the judge decides](../../docs/pictures/cascade.svg)",
        "",
        f"The smallest threshold with κ ≥ {TARGET:.2f}, and the share that the judge decides:",
        "",
        "| data | part | threshold, perfect judge | share | threshold, 5% errors | share |",
        "| --- | --- | --- | --- | --- | --- |",
    )
    for name, parts in data.items():
        for part, answers in parts.items():
            cells = [_smallest_cells(answers, errors) for errors in JUDGES.values()]
            yield f"| {name} | {part} | {' | '.join(cells)} |"
    for name, parts in data.items():
        yield from _table(name, parts)


def write_page(parts: Parts, page: Path = PAGE) -> None:
    """Write the table of the test part into the page about the cascade."""
    answers = parts["test"]
    rows = [
        [f"{threshold:.2f}", f"{share(answers, threshold):.1%}"]
        + [f"{kappa(answers, threshold, errors):.2f}" for errors in JUDGES.values()]
        for threshold in THRESHOLDS
    ]
    heads = ["certainty", "share that the judge decides", *(f"κ, {judge}" for judge in JUDGES)]
    table = [heads, ["---"] * len(heads), *rows]
    lines = "\n".join(f"| {' | '.join(cells)} |" for cells in table)
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    page.write_text(f"{before}{begin}\n{lines}\n{END}{rest.partition(END)[2]}", "utf-8")


def _smallest_cells(answers: Sequence[RuledAnswer], errors: float) -> str:
    found = smallest(answers, errors)
    return f"{found[0]:.3f} | {found[1]:.1%}" if found else "none | –"


def _table(name: str, parts: Parts) -> Iterator[str]:
    heads = [
        f"{part}: {column}" for part in parts for column in ("share", *(f"κ, {j}" for j in JUDGES))
    ]
    yield from ("", f"### {name}", "")
    yield f"| threshold | {' | '.join(heads)} |"
    yield "| --- |" + " --- |" * len(heads)
    for threshold in THRESHOLDS:
        cells = []
        for answers in parts.values():
            cells.append(f"{share(answers, threshold):.1%}")
            cells += [f"{kappa(answers, threshold, errors):.3f}" for errors in JUDGES.values()]
        yield f"| {threshold:.2f} | {' | '.join(cells)} |"


def draw(data: Mapping[str, Parts], file: Path = PICTURE) -> None:
    """Draw κ and the share that the judge decides, with one panel per data set."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    style = {"svg.hashsalt": "rag-rewards", "svg.fonttype": "none", "font.family": "sans-serif"}
    with matplotlib.rc_context(style):
        figure, axes = pyplot.subplots(1, len(data), figsize=(3.6 * len(data) + 0.6, 3.2))
        for axis, (name, parts) in zip(axes, data.items(), strict=True):
            for (judge, errors), color in zip(JUDGES.items(), ("C0", "C1"), strict=True):
                for (part, answers), dash in zip(parts.items(), ("-", "--"), strict=True):
                    grid = [0.5 + step / 100 for step in range(51)]
                    points = [(share(answers, t), kappa(answers, t, errors)) for t in grid]
                    xs, ys = zip(*points, strict=True)
                    axis.plot(xs, ys, dash, color=color, lw=1.5, label=f"{judge}, {part}")
            axis.axhline(TARGET, color="gray", lw=0.8)
            axis.set_title(name, fontsize=10)
            axis.set_xlabel("share that the judge decides", fontsize=9)
            axis.set_xlim(-0.01, 0.5)
            axis.set_ylim(0.75, 1.0)
            axis.grid(alpha=0.25)
            axis.tick_params(labelsize=8)
            for side in ("top", "right"):
                axis.spines[side].set_visible(False)
        axes[0].set_ylabel("Cohen's κ", fontsize=9)
        axes[0].legend(fontsize=7, frameon=False, loc="lower right")
        figure.tight_layout()
        figure.savefig(file, metadata={"Date": None, "Creator": None}, facecolor="white")
        pyplot.close(figure)

"""The report page: one or several files of scored rows, and how each differs from the first."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import Any

import msgspec

from rag_rewards import __version__
from rag_rewards.errors import UsageError, shorten
from rag_rewards.groups import group_by_key
from rag_rewards.loading import RecipeSource, load_recipe
from rag_rewards.metrics.intervals import summarize
from rag_rewards.metrics.measurement import MeasuredRun
from rag_rewards.metrics.scored_values import ScoreValue
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes.output_forms import recipe_of_form
from rag_rewards.report.configuration import differing_settings, notes_of, recipes_of
from rag_rewards.report.explain_score import explain_score
from rag_rewards.report.explanation import Explanation
from rag_rewards.report.facts import Facts, facts_of
from rag_rewards.report.file_comparison import (
    RESAMPLING,
    FileComparison,
    compare_files,
    measured_values,
    row_names,
    short_name,
    value_names,
    value_of,
)
from rag_rewards.report.page import html_page, write_page
from rag_rewards.report.reasons import no_spread_of
from rag_rewards.report.rows import (
    Configurations,
    RowFault,
    RowFile,
    advantages,
    read_scored,
    recorded_recipe,
)
from rag_rewards.report.segments import MAX_CHARACTERS
from rag_rewards.report.statistics import Statistics, distribution, spreads, statistics
from rag_rewards.rows import ScoredRow, Totals, findings_of
from rag_rewards.rows.encoding import count_form
from rag_rewards.scorer import Scorer, missing_part_by
from rag_rewards.training.curriculum import Curriculum

TEXT_BYTES = 3_500_000
"""Compressed bytes of responses and documents in a page. Further rollouts have only numbers."""
BLOCK_ROWS = 128
BLOCK_CHARACTERS = 400_000
SHOWCASE = 6
"""Groups of which the page shows the best and the worst rollout."""
LISTED = 100
"""Changed rows that the page lists for each further file."""


@dataclass(frozen=True)
class ReportSummary:
    """A report that was written. `size` is in bytes."""

    rows: int
    size: int
    notes: list[str]
    faults: list[RowFault]


@dataclass
class Run:
    """A file of scored rows, and what the page shows of it.

    ids     what identifies each row among those of other files
    reward  the recipe that scored the rows; None if it is unknown
    """

    name: str
    file: RowFile
    ids: list[str]
    reward: Recipe | Curriculum | None = None
    configurations: Configurations = field(default_factory=Configurations)

    @property
    def rows(self) -> list[ScoredRow]:
        return self.file.rows

    @cached_property
    def groups(self) -> list[list[int]]:
        return group_by_key(self.rows)

    @cached_property
    def facts(self) -> list[Facts]:
        return [facts_of(row, self.configurations.of(row)) for row in self.rows]

    @cached_property
    def statistics(self) -> Statistics:
        return statistics(self.rows, self.facts, self.groups)

    @cached_property
    def advantages(self) -> list[float | None]:
        return advantages(self.rows, self.groups)

    @cached_property
    def signatures(self) -> list[str]:
        """The distinct signatures of the rows, the most frequent one first."""
        counts: dict[str, int] = {}
        for row in self.rows:
            counts[row.signature or ""] = counts.get(row.signature or "", 0) + 1
        return sorted(counts, key=lambda text: -counts[text]) or [""]

    @cached_property
    def showcase(self) -> list[list[int]]:
        """Group, best and worst rollout of the groups with the largest range of rewards."""
        ranges = []
        for number, group in enumerate(self.groups):
            members = [(value, i) for i in group if (value := self.rows[i].reward) is not None]
            if len(members) > 1 and max(members)[0] > min(members)[0]:
                best, worst = max(members), min(members)
                ranges.append((best[0] - worst[0], number, best[1], worst[1]))
        ranges.sort(key=lambda each: (-each[0], each[1]))
        return [list(each[1:]) for each in ranges[:SHOWCASE]]

    def form_notes(self) -> list[str]:
        """Return what the totals of the rows show to be wrong with the form of their responses."""
        if self.reward is None:
            return []
        totals, missing = Totals(rows=len(self.rows)), missing_part_by(self.reward)
        for row in self.rows:
            count_form(totals, row, missing, recipe_of_form)
        return list(map(str, findings_of(totals, self.reward.signature)))


def write_report(
    sources: Sequence[str],
    output: str,
    recipe: RecipeSource | None = None,
    title: str | None = None,
    columns: str | None = None,
) -> ReportSummary:
    """Read files of scored rows and write the page, which compares further files with the first.

    With a recipe, the rows are scored first. Raises UsageError when the rows of a file have no
    rewards and no recipe is given.
    """
    if sources.count("-") > 1:
        raise UsageError("standard input (-) is given twice, and it can be read only once")
    scorer = None if recipe is None else Scorer.load(recipe)
    files = [read_scored(source, scorer, columns) for source in sources]
    runs = runs_of(files, file_names(sources), scorer)
    names = [run.name for run in runs]
    title = title or " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    data, packed = contents(runs, title)
    html = html_page(f"{title} – rag-rewards", ("report.js",), data, packed)
    write_page(output, html)
    faults = [
        RowFault(f"{_prefix(runs, run)}{fault.row}", fault.message)
        for run in runs
        for fault in run.file.faults
    ]
    rows = sum(len(run.rows) for run in runs)
    return ReportSummary(rows, len(html.encode()), data["notes"], faults)


def file_names(sources: Sequence[str]) -> list[str]:
    """Return the shortest ends of the paths that differ.

    >>> file_names(["runs/a/scored.jsonl", "runs/b/scored.jsonl"])
    ['a/scored.jsonl', 'b/scored.jsonl']
    """
    paths = [
        PurePath("standard input" if each == "-" else os.path.normpath(each)) for each in sources
    ]
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = [str(PurePath(*path.parts[-length:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{i}: {name}" for i, name in enumerate(names, start=1)]


def runs_of(
    files: Sequence[RowFile], names: Sequence[str], scorer: Scorer | None = None
) -> list[Run]:
    """Return the files with the recipe that scored them: that of the scorer, or a recorded one."""
    ids = row_names([file.rows for file in files])
    rewards = [scorer.reward if scorer else _recipe_of(file.rows) for file in files]
    return list(map(Run, names, files, ids, rewards))


def _recipe_of(rows: Sequence[ScoredRow]) -> Recipe | Curriculum | None:
    if not rows:
        return None
    try:
        return load_recipe(recorded_recipe(rows[0]))
    except UsageError:  # no signature, or one of a custom recipe or of a newer version
        return None


def _prefix(runs: Sequence[Run], run: Run) -> str:
    return f"{run.name}: " if len(runs) > 1 else ""


def contents(runs: Sequence[Run], title: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the data of the page, and the compressed data: columns of the rows, and texts."""
    metrics = value_names([run.rows for run in runs])
    measured = [measured_values(run.name, run.rows, metrics, run.ids) for run in runs]
    recipes = recipes_of([run.signatures[0] for run in runs])
    compared = [
        compare_files(
            runs[0].rows,
            runs[k].rows,
            (measured[0], measured[k]),
            metrics,
            correct_first=recipes[0] != recipes[k],
        )
        for k in range(1, len(runs))
    ]
    packed: dict[str, Any] = {}
    texts = [
        _pack(run, k, packed, _first_rows(compared, k), TEXT_BYTES // len(runs))
        for k, run in enumerate(runs)
    ]
    data: dict[str, Any] = {
        "title": title,
        "version": __version__,
        "runs": list(map(_description, runs, recipes, texts)),
        "notes": list(_notes(runs, compared)),
        "settings": differing_settings([run.signatures[0] for run in runs]),
        "values": _values(metrics, measured),
        "comparisons": [
            _comparison(each, recipes[0] == recipes[k]) for k, each in enumerate(compared, 1)
        ],
        "distributions": [
            distribution(short_name(each), *([value_of(r, each) for r in run.rows] for run in runs))
            for each in metrics
        ],
        "spreads": distribution(
            "spread of the reward within groups", *(spreads(run.rows, run.groups) for run in runs)
        ),
        "words": distribution("words", *([float(f.words) for f in run.facts] for run in runs)),
        "searches": distribution(
            "searches per rollout",
            *([float(f.turns.searches) for f in run.facts if f.turns] for run in runs),
        ),
    }
    return data, packed


# --- numbers -------------------------------------------------------------------------------------


def _description(run: Run, recipe: str, texts: int) -> dict[str, Any]:
    faults = run.file.faults
    return {
        "name": run.name,
        "recipe": recipe,
        "signature": run.signatures[0],
        "signatures": len(run.signatures),
        "equation": run.reward.equation if run.reward else "",
        "groups": len(run.groups),
        "failed": len(faults),
        "faults": [[fault.row, shorten(fault.message, 400)] for fault in faults[:5]],
        "texts": texts,
        "showcase": run.showcase,
        "statistics": run.statistics,
    }


def _notes(runs: Sequence[Run], compared: Sequence[FileComparison]) -> Iterator[str]:
    """Yield what is not comparable, which rows are not compared, and the notes of each file."""
    base = runs[0]
    if compared:
        yield from notes_of([run.name for run in runs], [run.signatures[0] for run in runs])
    for run, comparison in zip(runs[1:], compared, strict=True):
        names, rows = f"{run.name} and {base.name}", comparison.result.rows
        if not comparison.unit:
            yield f"{names} have no row and no question in common: their means are not paired"
        elif comparison.unit == "question":
            yield (
                f"{names} have no row with the same id and question: their differences are those "
                "of their common questions"
            )
        elif rows.only_base or rows.only_other or rows.twice:
            yield (
                f"{rows.shared:,} rows are in both {names}; differences do not contain "
                f"{rows.only_base:,} and {rows.only_other:,} rows of only one file, and "
                f"{rows.twice:,} rows with a repeated id"
            )
    for run in runs:
        for note in (*run.statistics.notes, *run.form_notes()):
            yield f"{_prefix(runs, run)}{note}"


def _values(metrics: Sequence[ScoreValue], measured: Sequence[MeasuredRun]) -> list[dict[str, Any]]:
    """Return the mean of each value in each file, with its interval."""
    reports = [summarize(metrics, run.measurements, RESAMPLING) for run in measured]
    return [
        {
            "name": short_name(metric),
            "runs": [
                {"n": by_run[i].units, **msgspec.to_builtins(by_run[i].values[metric.field])}
                for by_run in reports
            ],
        }
        for i, metric in enumerate(metrics)
    ]


def _comparison(compared: FileComparison, same_recipe: bool) -> dict[str, Any]:
    differences = compared.result.differences
    return {
        "unit": compared.unit,
        "same_recipe": same_recipe,
        "differences": {each.name.removeprefix("components."): each for each in differences},
        "outcomes": compared.outcomes,
        "changed": len(compared.changes),
        "changes": compared.changes[:LISTED],
    }


# --- rows ----------------------------------------------------------------------------------------


def _pack(run: Run, k: int, packed: dict[str, Any], first: Iterable[int], limit: int) -> int:
    """Add the columns and the texts of a file, and return the number of rows with a text.

    The rows `first` come first, then those of the showcase, and then groups that are evenly spread
    over the file. The texts end at `limit` compressed bytes.
    """
    no_spread = {
        i: reason
        for members in run.groups
        if (reason := no_spread_of([run.rows[i].components or {} for i in members]))
        for i in members
    }
    shown = (i for _, best, worst in run.showcase for i in (best, worst))
    spread = (number for start in range(16) for number in range(start, len(run.groups), 16))
    order = dict.fromkeys([*first, *shown, *(i for number in spread for i in run.groups[number])])
    block_of: list[int | None] = [None] * len(run.rows)
    size = 0
    for number, members in enumerate(_blocks(order, run.rows)):
        block = _block(run, members, no_spread)
        size += len(zlib.compress(msgspec.json.encode(block), 6))
        if size > limit and number:
            break
        packed[f"block-{k}-{number}"] = block
        for i in members:
            block_of[i] = number
    packed[f"columns-{k}"] = _columns(run) | {"block": block_of}
    return len(block_of) - block_of.count(None)


def _first_rows(compared: Sequence[FileComparison], k: int) -> list[int]:
    """Return the rows of a file that the page lists as changed."""
    if k:
        return [change.other for change in compared[k - 1].changes[:LISTED]]
    return [change.base for each in compared for change in each.changes[:LISTED]]


def _blocks(order: Iterable[int], rows: Sequence[ScoredRow]) -> Iterator[list[int]]:
    members: list[int] = []
    size = 0
    for i in order:
        members.append(i)
        size += min(len(rows[i].parsed.text), MAX_CHARACTERS)
        if len(members) >= BLOCK_ROWS or size >= BLOCK_CHARACTERS:
            yield members
            members, size = [], 0
    if members:
        yield members


def _block(run: Run, members: Sequence[int], no_spread: dict[int, str]) -> dict[str, Any]:
    """Return the explanations of some rows by position. Each distinct document occurs once."""
    texts: dict[str, int] = {}
    explanations: dict[str, Any] = {}
    for i in members:
        explanation = explain_score(
            run.rows[i],
            no_spread=no_spread.get(i, ""),
            advantage=run.advantages[i],
            configuration=run.configurations.of(run.rows[i]),
        )
        explanations[str(i)] = _compact(explanation, texts)
    return {"texts": list(texts), "rows": explanations}


def _compact(explanation: Explanation, texts: dict[str, int]) -> dict[str, Any]:
    """Return an explanation as data, with positions in `texts` in place of document texts."""
    explanation.signature = ""
    if not explanation.has_response:
        explanation.segments = []
    data: dict[str, Any] = msgspec.to_builtins(explanation)
    results = [each for turn in data.get("turns", ()) for each in turn.get("results") or ()]
    for each in (*data.get("passages", ()), *results):
        each["text"] = texts.setdefault(each["text"], len(texts))
    return data


def _columns(run: Run) -> dict[str, Any]:
    """Return the columns of the table of rollouts."""
    rows, facts, groups = run.rows, run.facts, run.groups
    group_of = {i: number for number, group in enumerate(groups) for i in group}
    components = [name for name in run.statistics.names if name not in ("reward", "correct")]
    return {
        "id": [str(row.id) for row in rows],
        "group": [group_of[i] for i in range(len(rows))],
        "question": [shorten(rows[group[0]].question or "", 160) for group in groups],
        "key": [rows[group[0]].key or "" for group in groups],
        "step": [row.step for row in rows],
        "reward": [_round(row.reward) for row in rows],
        "correct": [_round(row.correct) for row in rows],
        "advantage": [_round(each) for each in run.advantages],
        "parts": {
            name: [_round((row.components or {}).get(name)) for row in rows] for name in components
        },
        "words": [each.words for each in facts],
        "cites": [each.cites for each in facts],
        "refused": [int(each.refused or each.abstained) for each in facts],
        "cut": [int(each.cut) for each in facts],
        "searches": [each.turns.searches if each.turns else None for each in facts],
        "repeated": [each.turns.repeated if each.turns else 0 for each in facts],
        "malformed": [each.turns.malformed if each.turns else 0 for each in facts],
        "answer": [_answer(row) for row in rows],
    }


def _answer(row: ScoredRow) -> str:
    """Return the answer that the recipe read, else the response without its thinking."""
    answer = (row.details or {}).get("answer")
    if not isinstance(answer, str) or not answer.strip():
        answer = row.parsed.visible.strip()
    return shorten(answer, 90)


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")

"""The report page: charts, groups and all rollouts of a file of scored rows."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from rag_rewards import __version__
from rag_rewards.errors import UsageError, shorten
from rag_rewards.groups import group_by_key
from rag_rewards.loading import RecipeSource, load_recipe
from rag_rewards.recipe_object import Recipe
from rag_rewards.report.agreement import LabelOptions, agreement_notes, file_agreement
from rag_rewards.report.comparison.values import value_names
from rag_rewards.report.explanation import Explanation, explain
from rag_rewards.report.facts import Facts, facts_of
from rag_rewards.report.page import html_page, write_page
from rag_rewards.report.reasons import no_spread_of
from rag_rewards.report.rows import (
    Configurations,
    RowFault,
    advantages,
    read_scored,
    recorded_recipe,
)
from rag_rewards.report.segments import MAX_CHARACTERS
from rag_rewards.report.statistics import Statistics, statistics
from rag_rewards.rows import ScoredRow, Totals
from rag_rewards.rows.encoding import lacks_mark
from rag_rewards.scorer import Scorer
from rag_rewards.training.curriculum import Curriculum

TEXT_BYTES = 3_500_000
"""Compressed bytes of responses and documents in a page. Further rollouts have only numbers."""
BLOCK_ROWS = 128
BLOCK_CHARACTERS = 400_000
SHOWCASE = 6
"""Groups of which the page shows the best and the worst rollout."""


@dataclass(frozen=True)
class ReportSummary:
    """A report that was written. `size` is in bytes."""

    rows: int
    size: int
    notes: list[str]
    faults: list[RowFault]


def write_report(
    source: str,
    output: str,
    recipe: RecipeSource | None = None,
    title: str | None = None,
    columns: str | None = None,
    label: LabelOptions | None = None,
) -> ReportSummary:
    """Read scored rows and write the page. With a recipe, the rows are scored first.

    With a column of labels, the page contains the agreement with them. Raises UsageError when the
    rows have no rewards and no recipe is given.
    """
    scorer = None if recipe is None else Scorer.load(recipe)
    file = read_scored(source, scorer, columns, label.label if label else None)
    rows, faults = file.rows, file.faults
    reward = scorer.reward if scorer else recipe_of(rows)
    equation = reward.equation if reward else ""
    title = title or os.path.basename(source)
    data, packed = contents(rows, faults, title, equation)
    notes = data["statistics"].notes
    if reward is not None:
        notes += form_notes(reward, rows)
    if label is not None:
        agreement = file_agreement(file, label, value_names([rows]))
        data["agreement"] = [agreement.values]
        notes += agreement_notes(source, agreement.errors)
    html = html_page(f"{title} – rag-rewards", ("charts.js", "report.js"), data, packed)
    write_page(output, html)
    return ReportSummary(len(rows), len(html.encode()), notes, faults)


def recipe_of(rows: Sequence[ScoredRow]) -> Recipe | Curriculum | None:
    """Return the recipe that scored the rows; None if the signature is unknown."""
    if not rows:
        return None
    try:
        return load_recipe(recorded_recipe(rows[0]))
    except UsageError:  # no signature, or one of a custom recipe or of a newer version
        return None


def form_notes(reward: object, rows: Sequence[ScoredRow]) -> list[str]:
    """Return a note if most responses lack the part of the answer that the recipe reads."""
    if not isinstance(reward, Recipe):
        return []
    form = reward.output_form
    count = sum(lacks_mark(row, form.answer_mark) for row in rows)
    return Totals(rows=len(rows), without_form={form.answer_part(reward.name): count}).warnings()


def contents(
    rows: Sequence[ScoredRow], faults: Sequence[RowFault], title: str, equation: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the data of the page, and the compressed data: columns of the table, and texts."""
    groups = group_by_key(rows)
    configurations = Configurations()
    facts = [facts_of(row, configurations.of(row)) for row in rows]
    row_advantages = advantages(rows, groups)
    numbers = statistics(rows, facts, groups)
    blocks, block_of = _explanation_blocks(rows, groups, row_advantages)
    columns = _columns(rows, facts, groups, row_advantages, numbers, block_of)
    packed: dict[str, Any] = {"columns": columns}
    packed |= {f"block-{i}": block for i, block in enumerate(blocks)}
    data = {
        "title": title,
        "version": __version__,
        "equation": equation,
        "signature": rows[0].signature if rows else "",
        "faults": [[fault.row, fault.message] for fault in faults[:20]],
        "failed": len(faults),
        "texts": sum(block is not None for block in block_of),
        "groups": len(groups),
        "showcase": _showcase(rows, groups),
        "statistics": numbers,
    }
    return data, packed


def _columns(
    rows: Sequence[ScoredRow],
    facts: Sequence[Facts],
    groups: Sequence[Sequence[int]],
    row_advantages: Sequence[float | None],
    numbers: Statistics,
    block_of: Sequence[int | None],
) -> dict[str, Any]:
    """Return the columns of the table of rollouts."""
    group_of = {i: number for number, group in enumerate(groups) for i in group}
    components = [name for name in numbers.names if name not in ("reward", "correct")]
    return {
        "id": [str(row.id) for row in rows],
        "group": [group_of[i] for i in range(len(rows))],
        "question": [shorten(rows[group[0]].question or "", 160) for group in groups],
        "key": [rows[group[0]].key or "" for group in groups],
        "step": [row.step for row in rows],
        "split": [row.split for row in rows],
        "reward": [_round(row.reward) for row in rows],
        "correct": [_round(row.correct) for row in rows],
        "advantage": [_round(each) for each in row_advantages],
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
        "block": list(block_of),
    }


def _answer(row: ScoredRow) -> str:
    """Return the answer that the recipe read, else the response without its thinking."""
    answer = (row.details or {}).get("answer")
    if not isinstance(answer, str) or not answer.strip():
        answer = row.parsed.visible.strip()
    return shorten(answer, 90)


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _showcase(rows: Sequence[ScoredRow], groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return group, best and worst rollout of the groups with the largest range of rewards."""
    ranges = []
    for number, group in enumerate(groups):
        members = [(value, i) for i in group if (value := rows[i].reward) is not None]
        if len(members) > 1 and max(members)[0] > min(members)[0]:
            best, worst = max(members), min(members)
            ranges.append((best[0] - worst[0], number, best[1], worst[1]))
    ranges.sort(key=lambda each: (-each[0], each[1]))
    return [list(each[1:]) for each in ranges[:SHOWCASE]]


def _explanation_blocks(
    rows: Sequence[ScoredRow],
    groups: Sequence[Sequence[int]],
    row_advantages: Sequence[float | None],
) -> tuple[list[dict[str, Any]], list[int | None]]:
    """Return explanations in blocks of whole groups, and the block of each row.

    The blocks end at TEXT_BYTES. The groups of the showcase come first, then groups that are
    evenly spread over the file. A block contains each distinct document once.
    """
    block_of: list[int | None] = [None] * len(rows)
    blocks: list[dict[str, Any]] = []
    configurations = Configurations()
    no_spread = _no_spread(rows, groups)
    size = 0
    first = {each[0] for each in _showcase(rows, groups)}
    order = [*sorted(first), *(number for number in _spread(len(groups)) if number not in first)]
    for members in _block_members(order, groups, rows):
        block = explanation_block(rows, members, row_advantages, configurations, no_spread)
        size += len(zlib.compress(msgspec.json.encode(block), 6))
        if size > TEXT_BYTES and blocks:
            break
        for i in members:
            block_of[i] = len(blocks)
        blocks.append(block)
    return blocks, block_of


def _no_spread(rows: Sequence[ScoredRow], groups: Sequence[Sequence[int]]) -> dict[int, str]:
    """Return the reason for rewards of 0 of each row whose group has no spread."""
    reasons: dict[int, str] = {}
    for members in groups:
        if each := no_spread_of([rows[i].components or {} for i in members]):
            reasons |= dict.fromkeys(members, each)
    return reasons


def _spread(n: int) -> Iterator[int]:
    """Yield the numbers 0 to n − 1: every 16th from 0, then every 16th from 1, and so on."""
    for first in range(16):
        yield from range(first, n, 16)


def _block_members(
    order: Sequence[int], groups: Sequence[Sequence[int]], rows: Sequence[ScoredRow]
) -> Iterator[list[int]]:
    """Yield the rows of one block after the other. A block consists of whole groups."""
    members: list[int] = []
    size = 0
    for number in order:
        members.extend(groups[number])
        size += sum(min(len(rows[i].parsed.text), MAX_CHARACTERS) for i in groups[number])
        if len(members) >= BLOCK_ROWS or size >= BLOCK_CHARACTERS:
            yield members
            members, size = [], 0
    if members:
        yield members


def explanation_block(
    rows: Sequence[ScoredRow],
    members: Sequence[int],
    row_advantages: Sequence[float | None],
    configurations: Configurations,
    no_spread: Mapping[int, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the explanations of some rows by position. Each distinct document occurs once.

    `no_spread` contains the reasons for rewards of 0 in the groups of the rows, by position.
    """
    texts: dict[str, int] = {}
    explanations: dict[str, Any] = {}
    for i in members:
        configuration = configurations.of(rows[i])
        explanation = explain(
            rows[i],
            no_spread=no_spread.get(i, ""),
            advantage=row_advantages[i],
            configuration=configuration,
        )
        explanations[str(i)] = _compact(explanation, texts)
    return {"texts": list(texts), "rows": explanations}


def _compact(explanation: Explanation, texts: dict[str, int]) -> dict[str, Any]:
    """Return an explanation as data, with positions in `texts` in place of document texts."""
    passages = explanation.passages
    explanation.passages, explanation.signature = [], ""
    if not explanation.has_response:
        explanation.segments = []
    data: dict[str, Any] = msgspec.to_builtins(explanation)
    for turn in data.get("turns", ()):
        for result in turn.get("results") or ():
            result["text"] = texts.setdefault(result["text"], len(texts))
    data["passages"] = [
        msgspec.to_builtins(each) | {"text": texts.setdefault(each.text, len(texts))}
        for each in passages
    ]
    return data

"""Which rows of two files are compared with each other: rows with the same id and question.

A row without an id is identified by its line. Rows with the same id and different questions are
different rows. Where no row is in both files, the means of their common questions are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rag_rewards.metrics.comparison import overlap
from rag_rewards.rows import ScoredRow
from rag_rewards.text.normalize import squad

Unit = Literal["row", "question", ""]
"""What two files have in common: rows, only questions, or nothing."""
SEPARATOR = "\0"


def row_names(files: Sequence[Sequence[ScoredRow]]) -> list[list[str]]:
    """Return what identifies each row of each file.

    These are the id and the question, and also the training step if the rows of a file have several
    steps. The question is ignored if a row has none.
    """
    rows = [row for file in files for row in file]
    questions = all(row.question for row in rows)
    steps = any(len({row.step for row in file}) > 1 for file in files)
    return [[_name(row, questions, steps) for row in file] for file in files]


def _name(row: ScoredRow, question: bool, step: bool) -> str:
    parts = [str(row.id)]
    parts += [squad(row.question or "")] if question else []
    parts += [str(row.step)] if step else []
    return SEPARATOR.join(parts)


def question_names(rows: Sequence[ScoredRow]) -> list[str]:
    """Return the question of each row: its text, else the group, else the row itself."""
    return [
        squad(row.question) if row.question else str(row.key or f"{SEPARATOR}{row.id}")
        for row in rows
    ]


def common_unit(
    base: Sequence[str],
    other: Sequence[str],
    base_questions: Sequence[str],
    other_questions: Sequence[str],
) -> Unit:
    """Return what two files have in common, from the names of their rows and questions."""
    if overlap(base, other).shared:
        return "row"
    return "question" if set(base_questions) & set(other_questions) else ""


def joined(base: Sequence[str], other: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of the rows that are in both files. Repeated names are left out.

    >>> joined(["a", "b", "b"], ["b", "a"])
    [(0, 1)]
    """
    counts: dict[str, list[int]] = {}
    for names in (base, other):
        for i, name in enumerate(names):
            counts.setdefault(name, []).append(i)
    single = set(base) & set(other)
    return [
        (positions[0], positions[1])
        for name, positions in counts.items()
        if name in single and len(positions) == 2
    ]

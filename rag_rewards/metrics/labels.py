"""Human labels: yes, no or missing, from the values of a column."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rag_rewards.errors import RowError, shorten
from rag_rewards.metrics.measured_run import ErrorCounter

YES = frozenset(("yes", "y", "true", "1", "correct"))
NO = frozenset(("no", "n", "false", "0", "incorrect"))


def label_of(value: Any, threshold: float | None, column: str) -> bool | None:
    """Return the label yes or no of a value, or None if the label is missing.

    A label is a boolean, 0 or 1, or a text such as "yes", "no", "true", "false", "correct" or
    "incorrect". A missing value, null and an empty text are a missing label. With a threshold, a
    number is the label yes if it is at least the threshold. Raises RowError for any other value.

    >>> label_of("Yes", None, "human"), label_of(3, 3.5, "human"), label_of("", None, "human")
    (True, False, None)
    """
    text = value.strip().casefold() if isinstance(value, str) else None
    if value is None or text == "":
        return None
    if isinstance(value, bool):
        return value
    number = _number(value)
    if threshold is not None and number is not None:
        return number >= threshold
    if number in (0, 1):
        return number == 1
    if text is not None and text in YES | NO:
        return text in YES
    wanted = "true, false, 0, 1, yes, no, correct, incorrect"
    wanted += " or a number" if threshold is not None else ""
    fix = "; use --label-threshold for graded labels" if number is not None else ""
    raise RowError(f"expected a label ({wanted}), found {shorten(repr(value), 60)}{fix}", column)


def labels_of(
    values: Iterable[Any], rows: Iterable[str], threshold: float | None, column: str
) -> tuple[list[bool | None], ErrorCounter]:
    """Return the label of each row of a column, and the errors of values that are no label.

    `rows` are the names of the rows. The label of a row in error is None.
    """
    labels: list[bool | None] = []
    errors = ErrorCounter()
    for value, row in zip(values, rows, strict=True):
        try:
            labels.append(label_of(value, threshold, column))
        except RowError as error:
            errors.add(error, f"row {shorten(row, 60)}")
            labels.append(None)
    return labels, errors


def _number(value: Any) -> float | None:
    """Return a number, or a text that is one. None for everything else, such as NaN."""
    if isinstance(value, (int, float, str)):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        return number if math.isfinite(number) else None
    return None

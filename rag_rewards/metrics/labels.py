"""Human labels: yes, no or missing, from the values of a column."""

from __future__ import annotations

import math
from typing import Any

from rag_rewards.errors import RowError
from rag_rewards.shorten import shorten

YES = frozenset(("yes", "y", "true", "1"))
NO = frozenset(("no", "n", "false", "0"))


def label_of(value: Any, threshold: float | None, column: str) -> bool | None:
    """Return the label yes or no of a value, or None if the label is missing.

    A label is a boolean, 0 or 1, or a text such as "yes", "no", "true" or "false". A missing value,
    null and an empty text are a missing label. With a threshold, a number is the label yes if it is
    at least the threshold. Raises RowError for any other value.

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
    wanted = "true, false, 0, 1, yes, no" + (" or a number" if threshold is not None else "")
    fix = "; use --label-threshold for graded labels" if number is not None else ""
    raise RowError(f"expected a label ({wanted}), found {shorten(repr(value), 60)}{fix}", column)


def _number(value: Any) -> float | None:
    """Return a number, or a text that is one. None for everything else, such as NaN."""
    if isinstance(value, (int, float, str)):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        return number if math.isfinite(number) else None
    return None

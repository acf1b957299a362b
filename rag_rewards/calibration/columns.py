"""Columns of a row, and the scores in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rag_rewards.errors import RowError, shorten

Row = Mapping[str, Any]


def score_of(value: Any, column: str) -> float | None:
    """Return a value as a finite score, or None if it is missing. A boolean is 1 or 0.

    Raises RowError for a value that is not a finite number.
    """
    if value is None:
        return None
    if isinstance(value, (bool, int, float)):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise RowError(
        f"expected a finite number as the score, found {shorten(repr(value), 60)}", column
    )

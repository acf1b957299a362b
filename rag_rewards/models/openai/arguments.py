"""The arguments of a judge that every request contains, and their checks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.models.openai.chat import check

_RESERVED_FIELDS = frozenset({"model", "messages", "temperature", "max_tokens", "stream", "n"})


def temperatures_of(
    temperature: float | Sequence[float] | None, votes: int
) -> tuple[float | None, ...]:
    """Return one temperature per vote. Two votes at temperature 0 would be the same vote."""
    if temperature is None or isinstance(temperature, (int, float)):
        each: tuple[float | None, ...] = (temperature,) * votes
    else:
        each = tuple(temperature)
    check(
        len(each) == votes,
        f"temperature must have one value per vote ({votes}), found {len(each)}",
    )
    check(
        all(t is None or (t >= 0 and math.isfinite(t)) for t in each),
        f"temperature must be a number of at least 0, found {temperature}",
    )
    check(
        each.count(0) <= 1,
        f"{votes} votes at temperature 0 are the same vote: increase the temperature",
    )
    return each


def constant_fields(
    model: str, max_tokens: int | None, extra: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the fields that all requests have in common."""
    extra = dict(extra or {})
    reserved = sorted(_RESERVED_FIELDS & extra.keys())
    check(not reserved, f"extra must not contain {', '.join(reserved)}")
    try:
        canonical(extra)
    except (TypeError, ValueError) as error:
        raise UsageError(f"judge: extra cannot be encoded as JSON: {error}") from error
    limit = {} if max_tokens is None else {"max_tokens": max_tokens}
    return {**extra, **limit, "model": model}


def canonical(value: Any) -> str:
    """Return a value as JSON with sorted keys. Raises TypeError or ValueError if there is none."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)

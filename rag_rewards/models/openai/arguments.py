"""The arguments of a judge: their checks, and the parts of its requests that follow from them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from rag_rewards.errors import UsageError

_RESERVED_FIELDS = frozenset({"model", "messages", "temperature", "max_tokens", "stream", "n"})


def check(is_valid: bool, message: str) -> None:
    """Raise UsageError with this message unless an argument of the judge is valid."""
    if not is_valid:
        raise UsageError(f"judge: {message}")


def headers(api_key: str | None, *, is_secure: bool) -> dict[str, str]:
    """Return the header with the key. The one for OpenAI is not sent over open connections."""
    key = os.environ.get("RAG_REWARDS_JUDGE_KEY", "") if api_key is None else api_key
    if api_key is None and is_secure and not key.strip():
        key = os.environ.get("OPENAI_API_KEY", "")
    key = key.strip()
    check(
        key.isascii() and key.isprintable(),
        "api_key must contain printable ASCII characters only",
    )
    return {"authorization": f"Bearer {key}"} if key else {}


def temperatures(
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


def constant_fields(model: str, max_tokens: int | None, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that all requests have in common."""
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

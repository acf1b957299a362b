"""Lists of several required answers: "Rome and Paris", "Rome; Paris", one item per line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from rag_rewards.text.normalize import Normalizer, squad

_BULLET = re.compile(r"(?m)^[ \t]{0,8}(?:[-*•·–]|\(?\d{1,3}[.)])[ \t]{1,8}")
_JOINTS = re.compile(
    r"[,;，；、\n]|\s(?:and|as well as|und|et|[&+])\s|^\s{0,8}both\s", re.IGNORECASE
)
"""What separates the items of a list. A gold answer with such a word has several items."""


def list_match(
    text: str,
    required: Sequence[Sequence[str]],
    normalize: Normalizer = squad,
    *,
    extra: Literal["allow", "reject"] = "allow",
) -> float:
    """Return 1 if a list contains every required answer, else 0.

    Commas, semicolons, line breaks, bullets and "and" separate the items. An alias that contains
    them can match several adjacent items. `extra="reject"` gives 0 to a list with an item that is
    not a required answer.

    >>> list_match("Rome and Washington, D.C.", [["Washington, D.C."], ["Rome"]])
    1.0
    """
    items = _items(text)
    windows: dict[int, dict[str, list[int]]] = {}
    matched: set[int] = set()
    for aliases in required:
        is_listed = False
        for alias in aliases:
            parts = _items(alias) or [alias]
            width = len(parts)
            if width not in windows:
                windows[width] = _windows(items, width, normalize)
            starts = windows[width].get(_form(parts, normalize), [])
            matched.update(at for start in starts for at in range(start, start + width))
            is_listed = is_listed or bool(starts)
        if not is_listed:
            return 0.0
    return 1.0 if extra == "allow" or len(matched) == len(items) else 0.0


def _items(text: str) -> list[str]:
    """Return the items of a list."""
    if "\n" in text or text[:1] in "-*•·–(1":
        text = _BULLET.sub("", text)
    return [item for item in _JOINTS.split(text) if item.strip()]


def _windows(items: Sequence[str], width: int, normalize: Normalizer) -> dict[str, list[int]]:
    """Return the positions of each normalized run of `width` adjacent items."""
    starts: dict[str, list[int]] = {}
    for start in range(len(items) - width + 1):
        form = _form(items[start : start + width], normalize)
        starts.setdefault(form, []).append(start)
    return starts


def _form(items: Sequence[str], normalize: Normalizer) -> str:
    """Return the normalized form of a text, or the text without case if that form is empty."""
    text = ",".join(item.strip() for item in items)
    return normalize(text) or "\0" + text.strip().casefold()

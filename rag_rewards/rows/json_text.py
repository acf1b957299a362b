"""Checks of the text of a JSON row: invalid UTF-8, and values that JSON does not allow."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple

MAX_LEVELS = 500
"""Levels of arrays and objects in a row. The recursion limits of decoders are higher, but they
depend on the version of Python and on the calling function."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{\]}]', re.DOTALL)


class Fault(NamedTuple):
    """A value that JSON does not allow, and the path of its field."""

    path: str
    message: str
    is_number: bool = False


def check_utf8(line: bytes) -> None:
    """Raise UnicodeDecodeError when a byte of a row is not UTF-8.

    The decoders of rows skip unused fields without a check of their bytes.
    """
    if not line.isascii():
        line.decode()


_FEW_BRACKETS = 16


def is_nested_too_deeply(line: bytes | str) -> bool:
    """Return whether a row has more than `MAX_LEVELS` levels of arrays and objects."""
    data = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
    if _opening_brackets(data) <= MAX_LEVELS:
        return False
    level = 0
    for token in _STRING_OR_BRACKET.finditer(data):
        if token[0] in (b"[", b"{"):
            level += 1
            if level > MAX_LEVELS:
                return True
        elif token[0] in (b"]", b"}"):
            level -= 1
    return False


def _opening_brackets(data: bytes) -> int:
    """Return the number of opening brackets. If there are few, `find` is faster than `count`."""
    brackets = 0
    for bracket in (b"[", b"{"):
        at = data.find(bracket)
        while at >= 0:
            brackets += 1
            if brackets > _FEW_BRACKETS:
                return data.count(b"[") + data.count(b"{")
            at = data.find(bracket, at + 1)
    return brackets


def find_fault(row: bytes | str) -> Fault | None:
    """Return the first value of a row that Python's `json` reads although JSON does not allow it.

    These values are NaN, Infinity, bytes that are not UTF-8, and halves of surrogate pairs. The
    result is None if the row is not JSON for another reason, or is nested too deeply.
    """
    text, bad_text = _text_of(row)
    try:
        # Pairs instead of a dict, because the first of two fields with one name can be at fault.
        return _fault(json.loads(text, object_pairs_hook=_Fields), "", bad_text)
    except (ValueError, RecursionError):
        return None


def describe_text(error: UnicodeError) -> str:
    """Return what is wrong with a row whose text cannot be decoded or encoded, and the fix."""
    if isinstance(error, UnicodeDecodeError):
        return (
            f"byte 0x{error.object[error.start]:02x} at position {error.start + 1:,} of the row is "
            "not UTF-8: convert the file to UTF-8"
        )
    return HALF_PAIR


HALF_PAIR = "half of a surrogate pair: write both halves, or remove it"


class _Fields(list[tuple[str, Any]]):
    """The fields of an object, including fields with the same name."""


def _text_of(row: bytes | str) -> tuple[str, str]:
    """Return the text of a row with a surrogate for each invalid byte, and its error message."""
    if isinstance(row, str):
        return row, HALF_PAIR
    try:
        return row.decode(), HALF_PAIR
    except UnicodeDecodeError as error:
        return row.decode("utf-8", "surrogateescape"), describe_text(error)


def _fault(value: Any, path: str, bad_text: str) -> Fault | None:
    if isinstance(value, str) and _SURROGATE.search(value):
        return Fault(path, bad_text)
    if isinstance(value, float) and not math.isfinite(value):
        return Fault(path, f"not a finite number: {value}", is_number=True)
    inner: list[tuple[str, Any]] = []
    if isinstance(value, _Fields):
        if any(_SURROGATE.search(name) for name, _ in value):
            return Fault(path, f"in a field name, {bad_text}")
        inner = [(f"{path}.{name}" if path else name, item) for name, item in value]
    elif isinstance(value, list):
        inner = [(f"{path}[{i}]", item) for i, item in enumerate(value)]
    for place, item in inner:
        if fault := _fault(item, place, bad_text):
            return fault
    return None

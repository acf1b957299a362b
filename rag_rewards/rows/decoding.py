"""Decoding of JSON rows to rollouts, with the reason for each row that cannot be decoded."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from rag_rewards.errors import EvidenceError, RolloutError, RowError
from rag_rewards.rollout import EVIDENCE_FIELDS, Rollout
from rag_rewards.rows.json_text import (
    MAX_LEVELS,
    check_utf8,
    describe_text,
    find_fault,
    is_nested_too_deeply,
)

R = TypeVar("R", bound=Rollout)

Line = tuple[int, bytes]
"""The number of a line in its file, counted from 1, and its bytes."""

NOT_JSON = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""The exceptions of decoding bytes that are not the expected JSON."""

_ROLLOUT = msgspec.json.Decoder(Rollout)
_FAULT = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected (?P<want>.*), got (?P<got>.*)", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_NO_CHOICE = re.compile(r"Invalid enum value (?P<got>.*)", re.DOTALL)
_CUT = "Input data was truncated"
"""The message of msgspec for JSON without its end."""
_TOO_DEEP = f"not JSON: nested too deeply (at most {MAX_LEVELS} levels)"
_LISTS_AS_TEXT = {("str", "documents"), ("str", "supporting")}
_TEXT_OF_LIST = "; parse lists that are texts first, for example with json.loads"
_CHOICES = {"answer_kind": "short, list, claims or null", "verdicts[]": "0, 1 or null"}


def decode_row(row: bytes | str | Mapping[str, Any]) -> Rollout:
    """Decode a row, as JSON or as a mapping.

    Raises RowError with the path of the invalid field, and EvidenceError for NaN and Infinity in
    evidence.

    >>> decode_row({"response": "Paris", "documents": [{"text": 7}]})
    Traceback (most recent call last):
    ...
    rag_rewards.errors.RowError: documents[0].text: expected str, found int
    """
    if isinstance(row, (bytes, str)):
        rollout = decode_line(row, _ROLLOUT)
        if isinstance(rollout, RolloutError):
            raise rollout
        return rollout
    try:
        rollout = msgspec.convert(row, Rollout)
        _check_evidence(rollout)
        return rollout
    except msgspec.ValidationError as error:
        raise row_error(error) from None
    except (UnicodeError, RecursionError) as error:
        raise _not_json(error) from None


def _check_evidence(rollout: Rollout) -> None:
    """Raise EvidenceError for NaN and Infinity in evidence, which JSON cannot contain."""
    for field in EVIDENCE_FIELDS:
        if (fault := _infinite(getattr(rollout, field))) is not None:
            path, value = fault
            raise EvidenceError(f"not a finite number: {value}", f"{field}{path}")


def _infinite(value: Any) -> tuple[str, float] | None:
    """Return the path and the value of the first number that is not finite, else None."""
    if isinstance(value, float):
        return None if math.isfinite(value) else ("", value)
    if isinstance(value, (tuple, list)):
        items: Iterable[tuple[str, Any]] = ((f"[{i}]", each) for i, each in enumerate(value))
    elif isinstance(value, Mapping):
        items = ((f".{name}", each) for name, each in value.items())
    elif isinstance(value, msgspec.Struct):
        items = ((f".{name}", getattr(value, name)) for name in value.__struct_fields__)
    else:
        return None
    for step, each in items:
        if (fault := _infinite(each)) is not None:
            return step + fault[0], fault[1]
    return None


def decode_line(line: bytes | str, decoder: msgspec.json.Decoder[R]) -> R | RolloutError:
    """Decode a line with a decoder of rows, or return the reason why it cannot be decoded."""
    try:
        if isinstance(line, bytes):
            check_utf8(line)
        if is_nested_too_deeply(line):
            return RowError(_TOO_DEEP)
        return decoder.decode(line)
    except RolloutError as error:  # a rollout checks its turns
        return error.with_traceback(None)
    except msgspec.ValidationError as error:
        return row_error(error)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return _field_fault(line) or _not_json(error)


def decode_or_error(row: bytes | str | Mapping[str, Any] | Rollout) -> Rollout | RolloutError:
    """Return a row as a rollout, or the reason why it cannot be decoded."""
    if isinstance(row, Rollout):
        return row
    try:
        return decode_row(row)
    except RolloutError as error:
        return error.with_traceback(None)


def row_error(error: msgspec.ValidationError) -> RowError:
    """Return the error of a row with the path of the invalid field."""
    match = _FAULT.fullmatch(str(error))
    what, path = (match["what"], match["path"] or "") if match else (str(error), "")
    path = path.replace("[...]", "[]")
    if missing := _MISSING.fullmatch(what):
        return RowError("missing", f"{path}.{missing[1]}" if path else missing[1])
    if expected := _EXPECTED.fullmatch(what):
        want, got = (text.replace("`", "") for text in expected.groups())
        hint = _TEXT_OF_LIST if (got, path) in _LISTS_AS_TEXT else ""
        return RowError(f"expected {want}, found {got}{hint}", path)
    if (chosen := _NO_CHOICE.fullmatch(what)) and path in _CHOICES:
        return RowError(f"expected {_CHOICES[path]}, found {chosen['got']}", path)
    return RowError(what.replace("`", "").replace("Expected", "expected", 1), path)


def _field_fault(line: bytes | str) -> RolloutError | None:
    """Return the error of a line with a value that JSON does not allow, else None."""
    fault = find_fault(line)
    if fault is None:
        return None
    field = re.split(r"[.[]", fault.path)[0]
    kind = EvidenceError if fault.is_number and field in EVIDENCE_FIELDS else RowError
    return kind(fault.message, fault.path)


def _not_json(error: Exception) -> RowError:
    if isinstance(error, UnicodeError):
        return RowError(f"not JSON: {describe_text(error)}")
    if isinstance(error, RecursionError):
        return RowError(_TOO_DEEP)
    if str(error) == _CUT:
        return RowError("not JSON: the line ends in the middle of the row")
    return RowError(f"not JSON: {error}")


# --- the group of a line -----------------------------------------------------------------------


class _Key(msgspec.Struct):
    group: str | int | None = None
    question: str | None = None


_KEY = msgspec.json.Decoder(_Key)
_TORN_KEY = re.compile(rb'"(group|question)"\s{0,8}:\s{0,8}("(?:[^"\\]|\\.){0,4096}"|\d{1,18})')


def line_key(line: bytes) -> str | None:
    """Return the key of a line's group, or None if it is unknown.

    If a line cannot be decoded, its bytes are searched for the key.
    """
    try:
        key = _KEY.decode(line)
        return str(key.group) if key.group is not None else key.question
    except NOT_JSON:
        pass
    fields: dict[bytes, bytes] = {}
    for match in _TORN_KEY.finditer(line):
        fields.setdefault(match[1], match[2])
    text = fields.get(b"group", fields.get(b"question"))
    try:
        return str(msgspec.json.decode(text)) if text else None
    except NOT_JSON:
        return None


def is_object(line: bytes) -> bool:
    """Return whether a line is a JSON object."""
    try:
        msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except NOT_JSON:
        return False
    return True


def is_cut(line: bytes) -> bool:
    """Return whether a line is the beginning of a row, without its end."""
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except NOT_JSON as error:
        return str(error) == _CUT
    return False


# --- the id of a line --------------------------------------------------------------------------


class _Id(msgspec.Struct):
    id: str | int | None = None


_ID = msgspec.json.Decoder(_Id)


def line_id(line: bytes) -> str | None:
    """Return the id of a line, even if other fields are invalid, or None if it is unknown."""
    value: Any
    try:
        value = _ID.decode(line).id
    except NOT_JSON:
        value = _id_by_python(line)
    return None if value is None else str(value)


def _id_by_python(line: bytes) -> str | int | None:
    """Return the id of a row that contains NaN or Infinity, which only Python reads as JSON."""
    try:
        value = json.loads(line)["id"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return value if isinstance(value, (str, int)) else None

"""Decoding of JSON rows to rollouts, with the reason for each row that cannot be decoded."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from rag_rewards.errors import EvidenceError, RolloutError, RowError
from rag_rewards.rollout import EVIDENCE_FIELDS, Rollout

R = TypeVar("R", bound=Rollout)

Line = tuple[int, bytes]
"""The number of a line in its file, counted from 1, and its bytes."""

NOT_JSON = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""The exceptions of decoding bytes that are not the expected JSON."""

MAX_LEVELS = 500
"""Levels of arrays and objects in a row. The recursion limits of decoders are higher, but they
depend on the version of Python and on the calling function."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{\]}]', re.DOTALL)
_ROLLOUT = msgspec.json.Decoder(Rollout)
_FAULT = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected (?P<want>.*), got (?P<got>.*)", re.DOTALL)
_INDEX = re.compile(r"\[\d+\]")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_NO_CHOICE = re.compile(r"Invalid enum value (?P<got>.*)", re.DOTALL)
_CUT = "Input data was truncated"
"""The message of msgspec for JSON without its end."""
_TOO_DEEP = f"not JSON: nested too deeply (at most {MAX_LEVELS} levels)"
_LISTS_AS_TEXT = {("str", "documents"), ("str", "supporting")}
_TEXT_OF_LIST = "; parse lists that are texts first, for example with json.loads"
_CHOICES = {
    "answer_kind": "short, list, claims or null",
    "verdicts[]": "a number from 0 to 1, an object of grades, or null",
    "verdicts[][]": "a number from 0 to 1, a list of such numbers, or a digest",
    "verdicts[][][]": "a number from 0 to 1",
}
"""What a field can contain, by its path without numbers, in place of the words of msgspec."""


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
        evidence = getattr(rollout, field)
        if evidence is not None and (fault := _infinite(evidence)) is not None:
            path, value = fault
            raise EvidenceError(f"not a finite number: {value}", f"{field}{path}")


def _infinite(value: Any) -> tuple[str, float] | None:
    """Return the path and the value of the first number that is not finite, else None."""
    if isinstance(value, float):
        return None if math.isfinite(value) else ("", value)
    items: Iterable[tuple[Any, Any]]
    if isinstance(value, (tuple, list)):
        form, items = "[{}]", enumerate(value)
    elif isinstance(value, msgspec.Struct):
        form, items = ".{}", ((name, getattr(value, name)) for name in value.__struct_fields__)
    elif isinstance(value, Mapping):
        form, items = ".{}", value.items()
    else:
        return None
    for key, each in items:
        if each is None or (type(each) is float and math.isfinite(each)):
            continue  # nearly all values, without a call
        if (fault := _infinite(each)) is not None:
            return form.format(key) + fault[0], fault[1]
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
        want = _CHOICES.get(_INDEX.sub("[]", path), want)
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


# --- the text of a row ---------------------------------------------------------------------------


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

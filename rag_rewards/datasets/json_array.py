"""The elements of a JSON array or object in a file, one by one, in bounded memory.

ijson (yajl, in C) parses the file in chunks. It refuses NaN, Infinity and integers of more than 64
bits, and it changes halves of surrogate pairs without an error. Python's `json` reads all of these,
so that a file that contains one of them is loaded whole.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from itertools import islice
from typing import IO, Any

from ijson import JSONError, ObjectBuilder
from ijson.backends import yajl2_c

from rag_rewards.datasets.gold import Problem
from rag_rewards.errors import UsageError
from rag_rewards.files.compression import peek

CHUNK = 1 << 16
LARGEST_ELEMENT = 1 << 28
"""Bytes of an element. A longer one is a fault of the file: a quotation mark that never closes."""
MAX_DEPTH = 1_000
"""Lists and objects within each other."""
LARGEST_WHOLE = 1 << 30
"""Bytes of a file that is loaded whole."""
_START = re.compile(r'\s*(?:\{\s*"([Dd]ata)"\s*:\s*)?\[')
_KEYED = re.compile(r'\s*\{\s*"[0-9]+"\s*:\s*\{')
"""The start of an object of rows whose names are their numeric ids."""
_SURROGATES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F])"
)
"""The escapes for a surrogate pair, or, as group 1, the start of an escape for half of one."""
_ESCAPE, _PAIR = 6, 12
"""Number of bytes of an escape, and of the escapes for a surrogate pair."""


class CutOffError(Exception):
    """The file ends inside the array, after `count` complete elements."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


def starts_array(head: str) -> bool:
    """Return whether a file with this start contains rows in an array or in an object.

    The array can be the first field of an object. In an object of rows, the names are numeric ids.

    >>> starts_array('{"Data": ['), starts_array('{"21645374": {'), starts_array('{"id": {')
    (True, True, False)
    """
    return _START.match(head) is not None or _KEYED.match(head) is not None


def read_array(content: Callable[[], IO[bytes]], name: str, head: str) -> Iterator[Any]:
    """Yield the elements of the array in a file, or the Problem of an element.

    An element of an object of rows gets its name as `id`.

    content  a function that opens the file at its start
    name     the file's name in messages
    head     the start of its text

    Raises CutOffError for a file that is cut off, UnicodeDecodeError for one that is not UTF-8, and
    UsageError for one that is not JSON or has an element without an end.
    """
    start = _START.match(head)
    for key, element in _entries(content, name, start[1] if start else None):
        yield {"id": key, **element} if start is None and isinstance(element, dict) else element


def read_entries(content: Callable[[], IO[bytes]], name: str) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the object in a file. Raises the errors of `read_array`."""
    return _entries(content, name, None)


def _entries(
    content: Callable[[], IO[bytes]], name: str, key: str | None
) -> Iterator[tuple[str, Any]]:
    """Yield the elements of the array or object in a file with their names ("" in an array).

    `key` is the field that contains the array.
    """
    source = _Source(content(), name)
    # Not ijson.items: the path that it keeps takes time quadratic in the length of names.
    events = yajl2_c.basic_parse(source, use_float=True, buf_size=CHUNK)
    try:
        for entry in _elements(islice(events, 3 if key else 1, None), source):
            source.elements += 1
            source.bytes_since = 0
            yield entry
        for _ in events:  # up to the end of the file, which may be cut off after the array
            pass
    except (JSONError, UnicodeDecodeError):
        if source.ended:
            raise CutOffError(source.elements) from None
    except _HalfPair:
        pass
    else:
        return
    for entry_name, element in _load(content(), name, key, source.elements)[source.elements :]:
        yield entry_name, text_or_problem(element)


def _elements(events: Iterator[tuple[str, Any]], source: _Source) -> Iterator[tuple[str, Any]]:
    """Yield the elements of an array or object from the events after its start, up to its end."""
    name, depth, builder = "", 0, ObjectBuilder()
    for event, value in events:
        if event == "map_key" and depth == 0:
            name = value
            continue
        if event == "end_map" or event == "end_array":
            depth -= 1
            if depth < 0:
                return
        elif event == "start_map" or event == "start_array":
            depth += 1
            if depth > MAX_DEPTH:
                raise UsageError(
                    f"{source.name}: row {source.elements + 1:,} is nested more than {MAX_DEPTH:,} "
                    "levels deep: remove it"
                )
        builder.event(event, value)
        if depth == 0:
            yield name, builder.value
            builder = ObjectBuilder()


class _HalfPair(Exception):
    """The file has an escape for half of a surrogate pair."""


class _Source:
    """A file for ijson. It finds what ijson changes, and stops at an element without an end."""

    def __init__(self, handle: IO[bytes], name: str) -> None:
        self.name = name
        self.elements = 0
        self.bytes_since = 0
        """Bytes since the last element."""
        self.ended = False
        self._handle = handle
        self._text = b" " * (_ESCAPE + _PAIR)
        """The last bytes that were passed on, and bytes that may begin a surrogate pair."""
        if peek(handle).startswith(BOM_UTF8):
            handle.read(len(BOM_UTF8))

    def read(self, size: int) -> bytes:
        ready = b""
        while size and not ready:
            chunk = self._handle.read(size)
            self.ended = not chunk and self._text[_ESCAPE:].isspace()
            if self.ended:
                break
            self._count(len(chunk))
            text = self._text + (chunk or b" " * _PAIR)
            if b"\\ud" in text or b"\\uD" in text:
                _refuse_halves(text)
            ready, self._text = text[_ESCAPE:-_PAIR], text[-_PAIR - _ESCAPE :]
        return ready

    def _count(self, size: int) -> None:
        self.bytes_since += size
        if self.bytes_since > LARGEST_ELEMENT:
            raise UsageError(
                f"{self.name}: row {self.elements + 1:,} has no end within {self.bytes_since:,} "
                "bytes: look for a quotation mark that is never closed"
            )


def _refuse_halves(text: bytes) -> None:
    """Raise _HalfPair for half of a surrogate pair with enough text before and behind it."""
    for match in _SURROGATES.finditer(text):
        if match[1] and _ESCAPE <= match.start() <= len(text) - _PAIR:
            raise _HalfPair


def _load(handle: IO[bytes], name: str, key: str | None, count: int) -> list[tuple[str, Any]]:
    """The whole array or object, as Python's `json` reads it. ijson read `count` elements of it."""
    data = handle.read(LARGEST_WHOLE + 1)
    if len(data) > LARGEST_WHOLE:
        raise UsageError(
            f"{name}: row {count + 1:,} or a row near it is not standard JSON, and the file is too "
            f"large to load whole ({LARGEST_WHOLE >> 30} GiB): convert it to JSON lines"
        )
    text = data.decode("utf-8-sig")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        if not text.rstrip().endswith(("]", "}")):
            raise CutOffError(count) from None
        raise UsageError(f"{name}: row {count + 1:,} is not JSON: {error}") from None
    elements = whole[key] if key else whole
    return list(elements.items()) if isinstance(elements, dict) else [("", e) for e in elements]


def text_or_problem(value: Any) -> Any:
    """Return a decoded record, or its Problem: half of a surrogate pair is not text."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Problem("not JSON", "half of a surrogate pair")
    return value

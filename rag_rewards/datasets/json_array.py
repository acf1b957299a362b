"""The elements of a JSON array or object in a file.

The file is mapped to memory, and msgspec divides it into its elements, each of which is decoded
when it is used. Python's `json` loads a file whole that msgspec refuses: one with NaN, Infinity or
halves of surrogate pairs.
"""

from __future__ import annotations

import json
import mmap
import re
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterable
from shutil import copyfileobj
from typing import IO, Any

import msgspec

from rag_rewards.datasets.gold import Problem
from rag_rewards.errors import UsageError
from rag_rewards.files.compression import compression_in, content_of

LARGEST_WHOLE = 1 << 30
"""Bytes of a file that is loaded whole."""
_END = 1 << 10
"""Bytes at the end of a file that contain the end of its array or object."""
_START = re.compile(r'\s*(?:\{\s*"([Dd]ata)"\s*:\s*)?\[')
_KEYED = re.compile(r'\s*\{\s*"[0-9]+"\s*:\s*\{')
"""The start of an object of rows whose names are their numeric ids."""


class CutOffError(Exception):
    """The file ends inside its array or object."""


def starts_array(head: str) -> bool:
    """Return whether a file with this start contains rows in an array or in an object.

    The array can be the first field of an object. In an object of rows, the names are numeric ids.

    >>> starts_array('{"Data": ['), starts_array('{"21645374": {'), starts_array('{"id": {')
    (True, True, False)
    """
    return _START.match(head) is not None or _KEYED.match(head) is not None


def read_array(file: IO[bytes], name: str, head: str) -> Iterable[tuple[str, Any]]:
    """Return the names and elements of the array or object in a file; the names are "" in an array.

    An element is decoded by `decoded`. `name` is the file's name in messages, and `head` the start
    of its text.

    Raises CutOffError for a file that is cut off, UnicodeDecodeError for one that is not UTF-8, and
    UsageError for one that is not JSON.
    """
    start = _START.match(head)
    if start is None:
        return read_entries(file, name).items()
    if start[1]:
        elements = read_entries(file, name)[start[1]]
        if isinstance(elements, msgspec.Raw):
            elements = _divided(memoryview(elements), name, list[msgspec.Raw])
    else:
        elements = _divided(_text(file), name, list[msgspec.Raw])
    return (("", element) for element in elements)


def read_entries(file: IO[bytes], name: str) -> dict[str, Any]:
    """Return the undecoded values of the object in a file by their names, see `read_array`."""
    entries: dict[str, Any] = _divided(_text(file), name, dict[str, msgspec.Raw])
    return entries


def decoded(element: Any) -> Any:
    """Return a decoded element or line, or its Problem: half of a surrogate pair is not text.

    Python's `json` reads NaN, which msgspec refuses. Raises ValueError and RecursionError.
    """
    if not isinstance(element, (bytes, msgspec.Raw)):  # of a file that was loaded whole
        return text_or_problem(element)
    try:
        return msgspec.json.decode(element)
    except (msgspec.MsgspecError, UnicodeError):
        return text_or_problem(json.loads(bytes(element)))


def text_or_problem(value: Any) -> Any:
    """Return a value, or a Problem if it contains half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Problem("not JSON", "half of a surrogate pair")
    return value


def _text(file: IO[bytes]) -> memoryview:
    """Return the decompressed content of an open file without a mark of the byte order."""
    file.seek(0)
    if compression_in(file) is None:
        return _mapped(file)
    with tempfile.TemporaryFile() as plain:
        copyfileobj(content_of(file), plain)
        plain.flush()
        return _mapped(plain)


def _mapped(file: IO[bytes]) -> memoryview:
    text = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return text[len(BOM_UTF8) :] if bytes(text[: len(BOM_UTF8)]) == BOM_UTF8 else text


def _divided(text: Any, name: str, kind: Any) -> Any:
    """Return the elements of an array or object, as msgspec or `json` reads it."""
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise UsageError(f"{name}: a row is nested too deeply: remove it") from None
    except msgspec.MsgspecError as error:
        if not bytes(text[-_END:]).rstrip().endswith((b"]", b"}")):
            raise CutOffError from None
        reason = str(error)
    if len(text) > LARGEST_WHOLE:
        raise UsageError(
            f"{name} is not standard JSON ({reason}), and the file is too large to load whole "
            f"({LARGEST_WHOLE >> 30} GiB): convert it to JSON lines"
        )
    try:
        return json.loads(bytes(text).decode())
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}") from None

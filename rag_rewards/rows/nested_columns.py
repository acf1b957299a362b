"""Columns of a row by name, also of nested fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rag_rewards.errors import RolloutError
from rag_rewards.rows.decoding import decode_line

_OBJECT: msgspec.json.Decoder[Any] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def read_columns(line: bytes, names: Sequence[str]) -> dict[str, Any]:
    """Return the values of columns of a row. A missing column is None.

    A name can be a path of nested fields: `scores.judge` is the field `judge` of the field
    `scores`, unless the row has a field `scores.judge`.

    Raises RowError for a line that is not a JSON object.

    >>> read_columns(b'{"label": 1, "scores": {"v2.1": 0.5}}', ["label", "scores.v2.1", "x"])
    {'label': 1, 'scores.v2.1': 0.5, 'x': None}
    """
    row = decode_line(line, _OBJECT)
    if isinstance(row, RolloutError):
        raise row
    return {name: _find(row, name) for name in names}


def _find(row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return _decoded(row[name])
    at = name.find(".")
    while at >= 0:
        inner = _decoded(row.get(name[:at]))
        if isinstance(inner, dict):
            return _find(inner, name[at + 1 :])
        at = name.find(".", at + 1)
    return None


def _decoded(value: Any) -> Any:
    if not isinstance(value, msgspec.Raw):
        return value
    decoded = decode_line(bytes(value), _ANY)
    if isinstance(decoded, RolloutError):
        raise decoded
    return decoded

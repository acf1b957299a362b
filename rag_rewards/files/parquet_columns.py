"""Rows as Parquet columns, and the values that no column can contain."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from rag_rewards.errors import RowError
from rag_rewards.rollout import gold_text
from rag_rewards.rows.decoding import find_fault

INT64 = range(-(1 << 63), 1 << 63)
MAX_DEPTH = 48
"""Maximum nesting. Readers of Parquet accept 100 levels in a schema, and a list has two."""

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_INSTEAD = "does not fit a Parquet column: change the value, or write JSON lines (-o NAME.jsonl)"


def scored_columns(row: dict[str, Any], nested: bool) -> dict[str, Any]:
    """Return a scored row as values of Parquet columns: details and error become JSON.

    With `nested`, all answers become lists of lists.
    """
    columns = own_columns(row, nested)
    for name in ("details", "error"):
        value = row.get(name)
        columns[name] = None if value is None else msgspec.json.encode(value).decode()
    columns["components"] = {
        name: None if value is None else float(value) for name, value in row["components"].items()
    }
    return columns


def own_columns(row: dict[str, Any], nested: bool = False) -> dict[str, Any]:
    """Return the row's own fields as values of Parquet columns: ids and answers become text."""
    columns = dict(row)
    for name in ("id", "group"):
        columns[name] = None if row.get(name) is None else str(row[name])
    if row.get("documents") is not None:
        columns["documents"] = [_document(document) for document in row["documents"]]
    if row.get("supporting") is not None:
        columns["supporting"] = [str(reference) for reference in row["supporting"]]
    if row.get("answers") is not None:
        columns["answers"] = _answers(row["answers"], nested)
    return columns


def _document(document: str | dict[str, Any]) -> dict[str, Any]:
    """Return a document with a text as id. A text becomes a mapping, as all values of a column."""
    if isinstance(document, str):
        return {"text": document}
    return document if document.get("id") is None else document | {"id": str(document["id"])}


def _answers(answers: Any, nested: bool) -> list[Any]:
    if not isinstance(answers, list):
        answers = [answers]
    if any(isinstance(each, list) for each in answers):
        return [list(map(gold_text, each)) for each in answers]
    flat = list(map(gold_text, answers))
    return [flat] if nested and flat else flat


def column_fault(line: bytes, replaced: Collection[str]) -> RowError | None:
    """Return why Parquet columns cannot contain a row, or None.

    `line` must decode as a row. The fields in `replaced` are ignored, because its score replaces
    them.
    """
    fields: dict[str, Any] = {}
    for name, raw in _FIELDS.decode(line).items():
        if name in replaced:
            continue
        try:
            fields[name] = msgspec.json.decode(raw)
        except msgspec.ValidationError:
            fault = find_fault(b"{%b:%b}" % (msgspec.json.encode(name), bytes(raw)))
            path = fault.path if fault else name
            return RowError(f"a number beyond the range of 64 bits {_INSTEAD}", path)
    return _fault(own_columns(fields), "", 0)


def _fault(value: Any, path: str, depth: int) -> RowError | None:
    if isinstance(value, int):
        if value in INT64:
            return None
        return RowError(f"an integer beyond the range of 64 bits {_INSTEAD}", path)
    if depth > MAX_DEPTH:
        return RowError(f"nesting of more than {MAX_DEPTH} levels {_INSTEAD}", path)
    named = isinstance(value, dict)
    for key, item in value.items() if named else enumerate(value):
        if isinstance(item, (int, list, dict)):
            place = f"[{key}]" if not named else f".{key}" if path else str(key)
            if fault := _fault(item, path + place, depth + 1):
                return fault
    return None

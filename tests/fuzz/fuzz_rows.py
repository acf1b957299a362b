"""Hostile rows: valid rows of the examples with a few changes, and arbitrary JSON."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz_texts import aliases, any_texts, texts
from hypothesis import strategies as st

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_NOT_ROLLOUTS = ("broken", "calibration", "claims")


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


ROWS_OF_RECIPES = {
    path.stem: rows_of(path)
    for path in sorted(EXAMPLES.glob("*.jsonl"))
    if path.stem not in _NOT_ROLLOUTS and path.stem != "tiny-world"
}
"""The example rows of each recipe, with all evidence that it needs."""
ROWS = [
    row
    for path in sorted([*EXAMPLES.glob("*.jsonl"), *EXAMPLES.glob("search-agents/*.jsonl")])
    if path.stem not in _NOT_ROLLOUTS
    for row in rows_of(path)
]

_NUMBERS = st.one_of(
    st.integers(-3, 12),
    st.sampled_from([2**31, 2**63, 2**64, -(2**63) - 1, 10**400]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1.0, 1e-320, 1e308, -1e308, 0.1]),
)
_SCALARS = st.one_of(st.none(), st.booleans(), _NUMBERS, texts)
values = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
"""Values of JSON."""

_PYTHON_SCALARS = st.one_of(
    _SCALARS,
    any_texts,
    st.sampled_from([float("nan"), float("inf"), b"\xff", (1, 2), frozenset((1,)), 1j, object]),
)
python_values = st.recursive(
    _PYTHON_SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.dictionaries(st.one_of(any_texts, st.integers(), st.none()), inner, max_size=3),
    ),
    max_leaves=6,
)
"""Values that a trainer can pass in Python, also those that JSON does not have."""

FIELDS = (
    "response turns id group question query_time documents response_prefix finish_reason prompt "
    "prompt_token_ids response_token_ids step split weight_version supporting answers answer_kind "
    "answerable out_of_knowledge rubrics search_keys gold_documents logprobs masked_answers "
    "generated_answers masked_logprobs turn_logprobs verdicts nli similarity entities"
).split()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values inside a value of JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inner:
        yield (*path, key)
        if isinstance(item, (dict, list)):
            yield from places(item, (*path, key))


def _at(row: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        row = row[key]
    return row


@st.composite
def changed(
    draw: st.DrawFn,
    row: dict[str, Any],
    new: st.SearchStrategy[Any] = values,
    response: st.SearchStrategy[str] = texts,
) -> dict[str, Any]:
    """Draw a row with up to four changes: other values, missing fields, repeated and new ones."""
    row = copy.deepcopy(row)
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.integers(0, 6))
        if kind == 0:
            row["response"] = draw(response)
        elif kind == 1:
            row[draw(st.sampled_from(FIELDS))] = draw(new)
        elif kind == 2:
            row["answers"] = draw(
                st.one_of(aliases, st.lists(st.one_of(aliases, st.lists(aliases)), max_size=4))
            )
        elif row:
            path = draw(st.sampled_from(list(places(row))))
            place, key = _at(row, path[:-1]), path[-1]
            if kind == 3:
                del place[key]
            elif kind == 4 and isinstance(place, list):
                place.append(copy.deepcopy(place[key]))
            elif kind == 5 and isinstance(place[key], str):
                place[key] = draw(response)
            else:
                place[key] = draw(new)
    return row


@st.composite
def mutated(draw: st.DrawFn, value: Any, new: st.SearchStrategy[Any] = values) -> Any:
    """Draw a value of JSON with up to three changes."""
    value = {"": copy.deepcopy(value)}
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(list(places(value)) or [("",)]))
        place, key = _at(value, path[:-1]), path[-1]
        if len(path) == 1 or draw(st.booleans()):
            place[key] = draw(new)
        elif isinstance(place, list) and draw(st.booleans()):
            place.append(copy.deepcopy(place[key]))
        else:
            del place[key]
    return value[""]


rows = st.sampled_from(ROWS).flatmap(changed)
"""Rows of any recipe with a few changes."""


def encoded(row: Any) -> bytes:
    """Return a row as JSON, as Python writes it."""
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass")


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """Draw a line of a file: JSON of a row with a few changed bytes, or arbitrary bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.one_of(st.binary(max_size=64), texts.map(str.encode)))
    line = bytearray(encoded(draw(st.one_of(rows, values))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(line)))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            del line[at : at + draw(st.integers(1, 8))]
        elif kind == 1:
            del line[at:]
        else:
            line[at:at] = draw(
                st.one_of(
                    st.binary(min_size=1, max_size=3),
                    st.sampled_from(
                        [b"NaN", b"-Infinity", b"1e999", b'"', b"\\ud800", b"\xff", b"[" * 2000]
                    ),
                )
            )
    return bytes(line).replace(b"\n", b" ")

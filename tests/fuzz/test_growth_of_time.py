"""The processor time of every reader of texts grows linearly with the size of hostile texts."""

from __future__ import annotations

import json

import growth
import pytest
from entry_points import ENTRY_POINTS, RECIPES
from fuzz_checks import outcome
from growth import assert_exponent, exponent
from hostile_texts import FAMILIES

from rag_rewards.cli.recipe_options import parse_settings
from rag_rewards.datasets.web_pages import page_text
from rag_rewards.matching.decide import decide
from rag_rewards.rollout import Rollout
from rag_rewards.rows import decode_or_error
from rag_rewards.rows.columns import label_fields, rollout_from_columns, to_builtins

MOST_RULES = ("decision, letters", "sections and thinking", "search agents", "rows")
"""The entry points that the fast tests use."""
LARGE, SMALL = 1 << 15, 1 << 12


def superlinear(function, families, largest):
    """Return the families of texts for which the time of a function grows too fast."""
    function("A first call. É up [1].")
    faults = {}
    for name, family in families.items():
        try:
            assert_exponent(lambda size, family=family: function(family(size)), largest)
        except AssertionError as error:
            faults[name] = str(error)
    return faults


@pytest.mark.parametrize("name", MOST_RULES)
def test_time_grows_linearly(name):
    assert superlinear(ENTRY_POINTS[name], FAMILIES, SMALL) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ENTRY_POINTS, *RECIPES])
def test_time_of_all_entry_points_grows_linearly(name):
    function = {**ENTRY_POINTS, **RECIPES}[name]
    assert superlinear(function, FAMILIES, LARGE) == {}


# --- hostile shapes of rows -------------------------------------------------------------------

SHAPES = {
    "answers": lambda n: {"answers": [f"Paris{i}" for i in range(n)]},
    "aliases": lambda n: {"answers": [[f"Paris{i}", f"Rome {i}"] for i in range(n)]},
    "documents": lambda n: {"documents": [{"id": i, "text": f"Paris{i}"} for i in range(n)]},
    "equal ids": lambda n: {"documents": [{"id": 1, "text": "a"}] * n},
    "supporting": lambda n: {"documents": ["a"] * n, "supporting": list(range(1, n + 1))},
    "turns": lambda n: {"turns": [{"text": "<search>a</search>", "results": []}] * n},
    "messages": lambda n: {
        "response": [{"role": "assistant", "content": "a"}, {"role": "tool", "content": "b"}] * n
    },
    "calls": lambda n: {
        "response": [
            {"role": "assistant", "tool_calls": [{"id": str(i)} for i in range(n)]},
            *({"role": "tool", "tool_call_id": str(i), "content": "b"} for i in range(n)),
        ]
    },
    "fields": lambda n: {f"field{i}": i for i in range(n)},
    "verdicts": lambda n: {"verdicts": {f"v{i}": 1 for i in range(n)}},
    "depth": lambda n: {"x": nested(n)},
}


def nested(depth):
    value = []
    for _ in range(min(depth, 500)):
        value = [value]
    return value


def read_row(row):
    """Decode a row in each way, and compute what is derived from it."""
    row = {"response": "<answer>Paris1</answer>", **row}
    decode_or_error(json.dumps(row).encode())
    outcome(lambda: label_fields(json.dumps(row)))
    outcome(lambda: to_builtins(row))
    rollout = rollout_from_columns({**row, "answers": row.get("answers", "a")}, response="Paris")
    if isinstance(rollout, Rollout):
        for name in ("gold", "labels", "supporting_labels", "retrieved", "parsed"):
            outcome(lambda name=name: getattr(rollout, name))


@pytest.mark.parametrize("shape", SHAPES)
def test_time_grows_linearly_with_the_parts_of_a_row(shape):
    assert_exponent(lambda n: read_row(SHAPES[shape](n)), 4096)


def test_time_grows_linearly_with_the_gold_answers():
    """The text and the number of answers grow together."""

    def find(n):
        gold = [[f"Paris {i}", f"Rome{i}?"] for i in range(n)]
        decide("It is Oslo1 and Rome9. " * n, gold)

    assert_exponent(find, 512)


@pytest.mark.parametrize(
    "piece", ["<div>", "<table><tr><td>", "<!--", "<p>a", "&amp;", "<script>", "<a href='", "<td>a"]
)
def test_time_grows_linearly_with_a_web_page(piece):
    assert_exponent(lambda size: page_text(piece * (size // len(piece))), 1 << 16)


@pytest.mark.parametrize("piece", ["a, ", "{a: ", "- a\n", "a: b\n", "&x a ", "'", "? "])
def test_time_grows_linearly_with_a_setting(piece):
    """PyYAML looks ahead 1,024 characters for the end of a key."""
    assert_exponent(lambda n: parse_settings(["a=[" + piece * (n // len(piece))]), 1 << 15)


def test_a_quadratic_time_is_recognized(monkeypatch):
    def quadratic(size):
        return sum(sum(range(size)) for _ in range(size))

    # Other processes can disturb a measurement.
    assert any(1.7 < exponent(quadratic, [1 << 9, 1 << 10, 1 << 11]) < 2.3 for _ in range(20))
    monkeypatch.setattr(growth, "seconds", lambda run, size: 1e-9 * run(size))
    assert_exponent(lambda size: size**1.4, 1 << 11)
    with pytest.raises(AssertionError, match=r"grows with the exponent 2\.00, above 1\.5"):
        assert_exponent(lambda size: size**2, 1 << 11)

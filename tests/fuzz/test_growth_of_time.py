"""The processor time of every reader of texts grows linearly with the size of hostile texts."""

from __future__ import annotations

import json
import tracemalloc

import growth
import pytest
from entry_points import ENTRY_POINTS, RECIPES
from fuzz_checks import outcome
from growth import assert_linear
from hostile_texts import FAMILIES

from rag_rewards.cli.recipe_options import parse_settings
from rag_rewards.datasets.crag import page_text
from rag_rewards.matching.decide import decide
from rag_rewards.rollout import Rollout
from rag_rewards.rows import decode_or_error
from rag_rewards.rows.columns import label_fields, rollout_from_columns, to_builtins

READERS = {**ENTRY_POINTS, **RECIPES}
MOST_RULES = (
    *("decision, letters", "sections and thinking", "search agents", "rows"),
    *("arena, hardened", "ground-grpo, hardened", "ctrl-rag, hardened"),
)
"""The readers that meet all texts in the fast tests."""
LARGE, SMALL = 1 << 15, 1 << 13
MEGABYTE = 1 << 20
WORST = {
    "sections and thinking": ("answers", "thought pairs"),
    "boxes and LaTeX": ("nested braces", "braces"),
    "citations": ("citations",),
    "statements": ("citations", "chinese", "mixed quotes", "newlines"),
    "normalized": ("ligatures", "spelled numbers", "initials", "mark pairs"),
    "refusals": ("refusals", "chinese", "newlines"),
    "lenient": ("words", "spelled numbers", "chinese"),
    "decision, a city": ("end of sequence", "chinese", "far mentions", "slashes", "mentions"),
}
"""The slowest families of texts, by reader."""


def superlinear(name, families, largest):
    """Return the families of texts for which the time of a reader grows too fast."""
    function = READERS[name]
    function("A first call. É up [1].")
    faults = {}
    for family in families:
        try:
            assert_linear(lambda size, make=FAMILIES[family]: function(make(size)), largest)
        except AssertionError as error:
            faults[family] = str(error)
    return faults


@pytest.mark.parametrize("name", dict.fromkeys([*MOST_RULES, *RECIPES]))
def test_time_grows_linearly(name):
    """Each other recipe meets a quarter of the texts."""
    families = list(FAMILIES)
    if name not in MOST_RULES:
        families = families[list(RECIPES).index(name) % 4 :: 4]
    assert superlinear(name, families, SMALL) == {}


@pytest.mark.slow
@pytest.mark.parametrize("largest", [SMALL, LARGE])
@pytest.mark.parametrize("name", READERS)
def test_time_of_all_entry_points_grows_linearly(name, largest):
    """A decision reads at most 10,000 characters, so that a large text is not enough."""
    assert superlinear(name, FAMILIES, largest) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORST)
def test_a_megabyte_takes_linear_time(name):
    assert superlinear(name, WORST[name], MEGABYTE) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORST)
def test_memory_is_bounded(name):
    size = MEGABYTE // 16
    for family in WORST[name]:
        text = FAMILIES[family](size)
        tracemalloc.start()
        try:
            READERS[name](text)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 200 * size + MEGABYTE, family


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
    assert_linear(lambda n: read_row(SHAPES[shape](n)), 8192)


def test_time_grows_linearly_with_the_gold_answers():
    """The text and the number of answers grow together."""

    def find(n):
        gold = [[f"Paris {i}", f"Rome{i}?"] for i in range(n)]
        decide("It is Oslo1 and Rome9. " * n, gold)

    assert_linear(find, 1024)


@pytest.mark.parametrize(
    "piece", ["<div>", "<table><tr><td>", "<!--", "<p>a", "&amp;", "<script>", "<a href='", "<td>a"]
)
def test_time_grows_linearly_with_a_web_page(piece):
    assert_linear(lambda size: page_text(piece * (size // len(piece))), 1 << 16)


@pytest.mark.parametrize("piece", ["a, ", "{a: ", "- a\n", "a: b\n", "&x a ", "'", "? "])
def test_time_grows_linearly_with_a_setting(piece):
    """PyYAML looks ahead 1,024 characters for the end of a key."""
    assert_linear(lambda n: parse_settings(["a=[" + piece * (n // len(piece))]), 1 << 15)


def test_a_quadratic_time_is_recognized(monkeypatch):
    monkeypatch.setattr(growth, "seconds", lambda run, size: 1e-6 * run(size))
    assert_linear(lambda size: size**1.4, 1 << 14)
    with pytest.raises(AssertionError, match="more than 24 times the time of an eighth"):
        assert_linear(lambda size: size**2, 1 << 14)

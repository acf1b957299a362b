"""One scoring pass for several components, and values of groups without a difference."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rag_rewards_adapters.component_rewards import (
    SharedPass,
    check_components,
    exactly_equal,
    share_without_signal,
)
from rag_rewards_adapters.reading import dialect_at

from rag_rewards import recipe
from rag_rewards.errors import UsageError
from rag_rewards.training.curriculum import Curriculum, Stage


def test_all_components_of_a_batch_share_one_pass() -> None:
    passes = []

    def score() -> dict[str, list[float | None]]:
        passes.append(1)
        return {"a": [float(len(passes))], "b": [None]}

    shared, batch = SharedPass(), ["text"]
    assert shared.take("a", batch, score) == [1.0]
    assert shared.take("b", batch, score) == [None]
    assert len(passes) == 1
    assert shared.take("a", batch, score) == [2.0]  # the same list again is a new batch
    assert shared.take("a", ["text"], score) == [3.0]  # "b" of the last batch was not taken
    assert shared.take("a", ["text"], score) == [4.0]


def test_components_are_checked() -> None:
    assert check_components(["b", "a"], ["a", "b"]) == ("b", "a")
    for names, why in (([], "name some of a, b"), (["c"], "no component 'c'"), (["a"] * 2, "once")):
        with pytest.raises(UsageError, match=why):
            check_components(names, ["a", "b"])
    with pytest.raises(UsageError, match="std_floor and components would normalize twice"):
        check_components(["a"], ["a", "b"], 0.1)


@given(st.floats(-1e6, 1e6, width=32), st.integers(1, 256))
def test_the_mean_of_rounded_values_has_no_rounding_error(value: float, size: int) -> None:
    values = exactly_equal([value] * size, [range(size)])
    assert len(set(values)) == 1
    flat = values[0] or 0.0
    assert flat == pytest.approx(value, abs=2**-17, rel=2**-16)
    total = 0.0
    for _ in values:
        total = struct.unpack("f", struct.pack("f", total + flat))[0]  # a sum in float32
    assert total == size * flat


def test_other_groups_and_missing_values_do_not_change() -> None:
    assert exactly_equal([0.1, 0.3, None, 0.1], [[0, 1], [2, 3]])[:3] == [0.1, 0.3, None]
    assert exactly_equal([None, None], [[0, 1]]) == [None, None]
    assert exactly_equal([0.1, 0.1], []) == [0.1, 0.1]


def test_the_share_of_flat_groups() -> None:
    columns = {"a": [1.0, 1.0, 1.0, 1.0, None, None], "b": [0.0, 1.0, 0.0, 0.0, 2.0, None]}
    assert share_without_signal(columns, [[0, 1], [2, 3], [4, 5]]) == pytest.approx(2 / 3)
    assert share_without_signal(columns, []) == 0.0


def test_the_dialect_is_that_of_the_stage() -> None:
    first, second = (recipe("search-r1", {"dialect": name}) for name in ("research", "tools"))
    plan = Curriculum((Stage(first, 10), Stage(second)))
    assert [dialect_at(plan, step) for step in (None, 9, 10)] == ["research", "research", "tools"]
    assert dialect_at(second, 3) == "tools"
    assert dialect_at(recipe("arena"), None) == "auto"

"""The examples of a property are the same in every run, except with `make fuzz`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import USUAL, budget

pytestmark = pytest.mark.skipif(not settings().derandomize, reason="a profile that draws at random")


def examples_of_a_property() -> list[object]:
    seen: list[object] = []

    @given(st.tuples(st.text(), st.integers(), st.floats(allow_nan=False)))
    @budget(200)
    def a_property(values: object) -> None:
        seen.append(values)

    a_property()
    return seen


def test_examples_are_reproducible() -> None:
    assert examples_of_a_property() == examples_of_a_property()


def test_examples_do_not_depend_on_imported_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = examples_of_a_property()
    constants = [f"a{n} = 'constant {n}'; b{n} = {n + 1000}" for n in range(100)]
    (tmp_path / "module_with_constants.py").write_text("\n".join(constants))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("module_with_constants")
    assert examples_of_a_property() == before
    monkeypatch.delitem(sys.modules, module.__name__)


def test_a_budget_is_in_proportion_to_the_profile() -> None:
    assert budget(30).max_examples == 30
    assert settings.get_profile("fuzz").max_examples > 10 * USUAL

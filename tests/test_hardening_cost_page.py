"""The page about the cost of the hardened profile agrees with the recipes and the probes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_the_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("build_cost", DOCS / "build_hardening_cost.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    written = (DOCS / "hardening-cost.md").read_text("utf-8")
    assert written == module.page(), "run: python docs/build_hardening_cost.py"

"""Pages that are written from the code agree with it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
sys.path.insert(0, str(DOCS))
BUILDERS = ("hardened", "hardening_cost", "languages", "marked_blocks", "papers", "runs")


@pytest.mark.parametrize("name", BUILDERS)
def test_the_page_is_up_to_date(name: str) -> None:
    build = importlib.import_module(f"build_{name}")
    assert build.PAGE.read_text("utf-8") == build.page(), f"run: python docs/build_{name}.py"


def test_all_builders_are_tested() -> None:
    """Other files test those that write several pages or folders."""
    others = {"environments", "inserts", "recipes", "matrix"}
    names = {path.stem.removeprefix("build_") for path in DOCS.glob("build_*.py")}
    assert names == {*BUILDERS, *others}

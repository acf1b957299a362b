"""The page about languages agrees with the tables, and its examples with the rules."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from rag_rewards.text.normalize import squad
from rag_rewards.text.strict import strict_contains

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_languages", DOCS / "build_languages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(build: ModuleType) -> None:
    written = (DOCS / "languages.md").read_text("utf-8")
    assert written == build.page(), "run: python docs/build_languages.py"


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("Paris erroné", "Paris", True),
        ("パリジェンヌ", "パリ", False),
        ("巴黎大学", "巴黎", False),
        ("他在巴黎大学", "巴黎", True),
        ("罗马巴黎", "巴黎", True),
        ("罗马巴黎", "罗马", False),
        ("法国巴黎", "巴黎", True),
        ("Это была Александра.", "Александр", True),
    ],
)
def test_limitations(text: str, answer: str, expected: bool) -> None:
    assert strict_contains(text, [answer], squad) is expected

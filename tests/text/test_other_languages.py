"""Assertions in languages other than English."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rag_rewards.text.languages import FOREIGN
from rag_rewards.text.normalize import Unicode, squad
from rag_rewards.text.strict import strict_contains

ROWS: dict[str, Any] = json.loads(Path(__file__).with_name("language_rows.json").read_text("utf-8"))
CASES = [
    pytest.param(text, rows["answer"], role == "asserted", id=f"{code}-{text}")
    for code, rows in ROWS.items()
    for role in ("asserted", "not_asserted")
    for text in rows[role]
]


def test_every_language_has_rows_of_both_kinds() -> None:
    assert sorted(ROWS) == sorted(FOREIGN)
    assert all(
        min(len(rows["asserted"]), len(rows["not_asserted"])) >= 15 for rows in ROWS.values()
    )


@pytest.mark.parametrize("normalize", [squad, Unicode()], ids=["squad", "unicode"])
@pytest.mark.parametrize(("text", "answer", "expected"), CASES)
def test_assertions(text: str, answer: str, expected: bool, normalize: Any) -> None:
    assert strict_contains(text, [answer], normalize) is expected

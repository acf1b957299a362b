"""Assertions in languages other than English."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from growth import assert_linear
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.text.languages import FOREIGN, foreign
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


def entries_of(code: str) -> list[str]:
    table = foreign(code)
    tables = (table.words, table.before, table.after, table.joins)
    words = [entry for glosses in tables for entries in glosses.values() for entry in entries]
    return [*words, *table.clause_markers, *table.endings, *(f"{c}'" for c in table.clitics)]


@pytest.mark.slow
@pytest.mark.parametrize("code", FOREIGN)
@given(st.data())
@budget(15)
def test_no_entry_of_a_table_makes_the_time_super_linear(code: str, data: st.DataObject) -> None:
    answer = ROWS[code]["answer"]
    pieces = st.lists(
        st.sampled_from([*entries_of(code), answer, " ", ", "]), min_size=1, max_size=4
    )
    text = "".join(data.draw(pieces))
    aliases = [answer, *(f"{answer}{chr(0x4E00 + i)}" for i in range(59))]

    def read(size: int) -> bool:
        return strict_contains(text * (size // len(text.encode()) + 1), aliases, squad)

    assert_linear(read, 80_000)


@given(st.sampled_from(FOREIGN), st.data())
@budget(100)
def test_any_mixture_of_entries_has_a_result(code: str, data: st.DataObject) -> None:
    answer = ROWS[code]["answer"]
    pieces = st.lists(
        st.sampled_from([*entries_of(code), answer, " ", ", ", "。", "'"]), max_size=12
    )
    text = "".join(data.draw(pieces))
    assert strict_contains(text, [answer], squad) in (True, False)
    if answer not in text:
        assert not strict_contains(text, [answer], squad) or code in ("de", "ru")

"""The data file of the attack cases: its texts, its checks, and recipes without a case."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from rag_rewards.audit import audit, runner
from rag_rewards.audit.cases import CASES, FILE, TEMPLATES, Text, cases_of, expand, read_lines
from rag_rewards.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Paris", "Paris"),
        ({"repeat": ("ha ", 3)}, "ha ha ha "),
        ({"growing": (".", 3)}, ". .. ..."),
        ({"numbered": ("w", 3)}, "w0 w1 w2"),
        (["<", {"repeat": ("a", 2)}, ">"], "<aa>"),
    ],
)
def test_generated_texts(text: Text, expected: str) -> None:
    assert expand(text) == expected


def write_cases(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "cases.jsonl"
    file.write_text("\n".join(lines), "utf-8")
    return file


LINE = '{"attack": 1, "name": "a", "recipes": {"lear": {}, "ctrl-rag": {}}, %s}'
SIDES = '"attacked": {"answer": "Paris", "after": "!"}, "honest": {"response": "Rome"}'


def test_a_line_is_one_case_per_recipe(tmp_path: Path) -> None:
    (line,) = read_lines(write_cases(tmp_path, LINE % (SIDES + ', "row": {"answers": ["Paris"]}')))
    first, second = cases_of([line])
    assert (first.id, second.id) == ("lear-1-a", "ctrl-rag-1-a")
    assert second.attacked == {
        "response": "<think>Some thinking.</think><answer>Paris</answer>!",
        "answers": ["Paris"],
    }
    assert second.honest == {"response": "Rome", "answers": ["Paris"]}


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (
            '"attacked": {}, "honest": {"answer": "x"}',
            "one of response, answer, every_section and",
        ),
        (
            '"attacked": {"answer": "x", "response": "x"}, "honest": {"answer": "x"}',
            "one of response, answer, every_section and",
        ),
        (SIDES + ', "rows": {}', "unknown field `rows`"),
        (
            '"attacked": {"answer": {"eval": ["x", 2]}}, "honest": {"answer": "x"}',
            "Invalid enum value 'eval'",
        ),
    ],
)
def test_an_invalid_line_is_named(tmp_path: Path, rest: str, message: str) -> None:
    with pytest.raises(UsageError, match=rf"cases\.jsonl line 2: .*{message}"):
        read_lines(write_cases(tmp_path, LINE % SIDES, LINE % rest))


def test_invisible_characters_are_escaped_in_the_file() -> None:
    text = FILE.read_text("utf-8")
    hidden = {each for each in text if unicodedata.category(each) in ("Cf", "Cc", "Mn")}
    assert hidden == {"\n"}


def test_templates_name_the_gold_answer_of_the_built_in_row() -> None:
    assert len(TEMPLATES) > 80
    assert all("paris" in template.text.casefold() for template in TEMPLATES)


def test_a_recipe_without_a_case_is_attacked_on_questions_about_capitals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert {each.row for each in audit("arena").findings} == {"built-in"}
    monkeypatch.setattr(runner, "CASES", [each for each in CASES if each.recipe != "arena"])
    monkeypatch.setattr(runner, "POLICIES", ())
    result = audit("arena", hardened=True)
    assert result.ok, str(result)
    assert {"capital-1", "4 rows"} <= {each.row for each in result.findings}

"""The turns of a search agent in explanations: terminal, SVG, HTML data, and variants."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from rag_rewards.audit.row_attacks import with_last_turn
from rag_rewards.cli import main
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.report.explain_data import explain_row
from rag_rewards.report.explain_score import explain_score
from rag_rewards.report.explanation import Explanation
from rag_rewards.report.turns import MAX_RESULTS, MAX_TURNS
from rag_rewards.rows import ScoredRow, decode_row
from rag_rewards.turns.turn import MEANINGS, NAMES

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SEARCH = "<think>I look.</think><search>{}</search>"
ROW: dict[str, Any] = {
    "id": "1",
    "question": "Which river runs through Paris?",
    "answers": ["Seine"],
    "turns": [
        {"text": SEARCH.format("Paris"), "results": [{"id": "a", "text": "Paris is a city."}]},
        {"text": "<think>Again.</think>"},
        {"text": SEARCH.format("river"), "results": [{"id": "b", "title": "Seine", "text": "It."}]},
        {"text": SEARCH.format("sea"), "results": []},
        {"text": "<think>So.</think><answer>Seine</answer>"},
    ],
    "supporting": ["b"],
}


def row(**fields: Any) -> ScoredRow:
    return msgspec.json.decode(msgspec.json.encode(ROW | fields), type=ScoredRow)


def printed(explanation: Explanation, width: int = 110) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(explanation, crop=False)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def of_example(row_id: str, **settings: Any) -> Explanation:
    spec = {"recipe": "search-r1", "settings": settings}
    return explain_row(str(EXAMPLES / "search-r1.jsonl"), row_id, spec, ModelOptions())


def test_each_turn_has_its_query_results_faults_and_reward() -> None:
    details = {"turns": [{"queries": ["Paris"], "results": 1, "malformed": [], "gain": 0.25}]}
    explanation = explain_score(row(turn_rewards=[0.25, None, 0.0, None, 1.0], details=details))
    turns = explanation.turns
    assert [turn.number for turn in turns] == [1, 2, 3, 4, 5]
    assert [turn.queries for turn in turns] == [["Paris"], [], ["river"], ["sea"], []]
    assert [turn.count for turn in turns] == [1, 0, 1, 0, 0]
    assert [turn.results is None for turn in turns] == [False, True, False, False, True]
    assert [turn.reward for turn in turns] == [0.25, None, 0.0, None, 1.0]
    assert turns[0].components == {"gain": 0.25}
    assert turns[1].malformed == [f"no_action: {MEANINGS['no_action']}"]
    assert (explanation.dialect, explanation.searches) == ("search-r1", 3)


def test_results_are_marked_as_supporting_and_with_the_gold_answer() -> None:
    first, _, third, *_ = explain_score(row()).turns
    assert first.results is not None
    assert third.results is not None
    assert (first.results[0].label, first.results[0].marks) == ("1", [])
    assert third.results[0].label == "2"
    assert third.results[0].marks == ["supporting", "contains the gold answer"]


def test_documents_that_turns_found_are_not_repeated() -> None:
    assert explain_score(row()).passages == []
    documents = [{"id": "b", "title": "Seine", "text": "It."}, {"id": "z", "text": "Another."}]
    assert [each.text for each in explain_score(row(documents=documents)).passages] == ["Another."]


def test_the_terminal_shows_every_turn() -> None:
    turns = [*ROW["turns"], {"text": SEARCH.format("Paris!"), "results": [{"text": "A page."}]}]
    explanation = explain_score(row(turns=turns, turn_rewards=[0.25, None, 0.0, None, 1.0]))
    assert [turn.repeated for turn in explanation.turns] == [[], [], [], [], [], [True]]
    text = printed(explanation)
    for expected in (
        "dialect search-r1, 4 searches",
        "turn 1  reward +0.25",
        "query  Paris",
        "result  [1] Paris is a city.",
        "malformed  no_action",
        "result  [2] (supporting, contains the gold answer) Seine: It.",
        "no document found",
        "turn 5  reward +1",
        "query  Paris!  (repeats an earlier query)",
    ):
        assert expected in text
    assert "\nresponse\n" not in text


def test_a_response_without_a_query_is_shown_as_before() -> None:
    explanation = explain_score(
        row(turns=None, supporting=None, response="It is the <b>Seine</b>.")
    )
    assert explanation.turns == []
    assert "turn 1" not in printed(explanation)
    assert "It is the" in printed(explanation)


def test_long_rollouts_are_cut_and_say_so() -> None:
    results = [{"text": f"page {i}"} for i in range(MAX_RESULTS + 5)]
    turns = [{"text": SEARCH.format(i), "results": results} for i in range(10_000)]
    explanation = explain_score(row(turns=turns, supporting=None))
    assert len(explanation.turns) == MAX_TURNS
    assert explanation.turns[-1].number == 10_000
    text = printed(explanation)
    assert f"{MAX_TURNS} of 10,000 turns are shown" in text
    assert "9,960 turns" in text
    assert "5 more documents" in text


def test_control_characters_and_markup_are_text() -> None:
    hostile = "\x1b[31m[bold]<search>\x07q</search></script>"
    text = printed(explain_score(row(turns=[{"text": hostile, "results": [{"text": hostile}]}])))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]" in text


def test_the_turns_are_read_as_the_recipe_read_them() -> None:
    signature = 'rag-rewards 0.7.0 search-r1 query_fields=["ask"]'
    call = {"function": {"name": "search", "arguments": '{"ask": "Paris"}'}}
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "Paris lies on the Seine."},
        {"role": "assistant", "content": "Seine"},
    ]
    fields = {"turns": None, "supporting": None, "response": messages}
    assert explain_score(row(**fields)).turns[0].queries == []
    assert explain_score(row(**fields, signature=signature)).turns[0].queries == ["Paris"]


def test_a_transcript_is_shown_with_a_note() -> None:
    text = "<search>a</search><information>Doc 1(Title: A) b</information><answer>Seine</answer>"
    explanation = explain_score(row(turns=None, supporting=None, response=text))
    assert [turn.queries for turn in explanation.turns] == [["a"], []]
    assert any("transcript" in note for note in explanation.notes)


def test_variants_change_the_last_turn_only() -> None:
    variants = of_example("wrong-after-retrieval", scheme="format").variants
    assert {each.name: each.reward for each in variants}["with the answer “Seine”"] == 1.0


def test_variants_keep_the_likelihoods_before_the_last_turn() -> None:
    file = str(EXAMPLES / "igpo.jsonl")
    variants = explain_row(file, "two-searches", {"recipe": "igpo"}, ModelOptions()).variants
    rewards = {each.name: each.reward for each in variants}
    assert rewards["with “I don't know”"] == pytest.approx(0.9418 - 0.2231, abs=1e-4)


SEARCHING, FINAL = SEARCH.format("Paris"), "<answer>Rhine</answer>"


@pytest.mark.parametrize(
    "fields",
    [
        {"turns": [{"text": SEARCHING, "results": []}, {"text": FINAL}]},
        {
            "response": [
                {"role": "assistant", "content": SEARCHING},
                {"role": "user", "content": "nothing"},
                {"role": "assistant", "content": FINAL},
            ]
        },
        {"response": FINAL},
        {"response_prefix": "<think>", "turns": [{"text": "a</think>"}, {"text": FINAL}]},
    ],
)
def test_the_last_turn_is_replaced_in_every_form(fields: dict[str, Any]) -> None:
    rollout = decode_row(fields)
    changed = with_last_turn(rollout, "<answer>Seine</answer>")
    assert changed.parsed.text == "<answer>Seine</answer>"
    steps = changed.steps()
    assert steps[-1].answer == "Seine"
    assert steps[:-1] == rollout.steps()[:-1]


def test_the_prefix_of_a_single_turn_is_not_repeated() -> None:
    single = {"response_prefix": "<think>", "turns": [{"text": "a</think>b"}]}
    assert with_last_turn(decode_row(single), "<think>c").parsed.text == "<think>c"


def test_every_name_of_a_malformed_turn_has_a_meaning() -> None:
    assert set(NAMES) == set(MEANINGS)
    assert all(MEANINGS.values())


@pytest.mark.parametrize(
    ("row_id", "words"),
    [
        ("two-searches", ["“Seine” is right; 2 searches", "the results contain the gold answer"]),
        ("without-search", ["0 searches", "there is no search"]),
        ("text-after-the-answer", ["malformed: text_after_answer", "turn 3: text_after_answer"]),
    ],
)
def test_components_have_reasons(row_id: str, words: list[str]) -> None:
    text = printed(of_example(row_id, scheme="format"), 200)
    assert all(word in text for word in words), text
    assert "abstain" not in text


@pytest.mark.parametrize(
    ("row_id", "hardened", "form", "citation", "missing"),
    [
        (
            "complete",
            False,
            "an answer and a citation and a query",
            "recalls of the claims: 1.5 of 2; the answer cites m2",
            "",
        ),
        (
            "without-citations",
            True,
            "an answer and a query, and lacks a citation",
            "claims: 0 of 1",
            "a citation",
        ),
        ("unknown-citation", False, "an answer and a citation and a query", "claims: 1 of 2", ""),
        (
            "unknown-citation",
            True,
            "an answer and a query, and lacks a citation",
            "claims: 1 of 2",
            "a citation",
        ),
        (
            "no-answer",
            False,
            "a query, and lacks an answer and a citation",
            "no claim",
            "an answer and a citation",
        ),
    ],
)
def test_the_components_of_dr_tulu(
    row_id: str, hardened: bool, form: str, citation: str, missing: str
) -> None:
    spec = {"recipe": "dr-tulu", "hardened": hardened}
    explained = explain_row(str(EXAMPLES / "dr-tulu.jsonl"), row_id, spec, ModelOptions())
    text = printed(explained, 220)
    assert f"the report has {form}" in text
    assert citation in text
    assert f"write {missing}" in text if missing else "write" not in text


def test_an_audit_attacks_rows_with_turns(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["audit", str(EXAMPLES / "search-r1.jsonl"), "-r", "search-r1"])
    assert ended.value.code in (0, 1)
    assert "attacks tried" in capsys.readouterr().out

"""Decisions on answers in explanations and in the statistics of a report."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import rag_rewards as rr
from rag_rewards.report.facts import facts_of
from rag_rewards.report.reasons import reason
from rag_rewards.report.report_page import write_report
from rag_rewards.report.statistics import statistics
from rag_rewards.rows import ScoredRow
from rag_rewards.rows.decisions import decisions_of

QUESTION = "When was it?"
MARKUP = "<img src=x onerror=alert(1)>"


def scored(answer: str, name: str = "naive-grpo", **options: object) -> tuple[rr.Rollout, rr.Score]:
    form = rr.recipe(name).output_form
    rollout = rr.Rollout(response=form.write(answer), question=QUESTION, answers="1998", **options)
    settings = {"verifier": "exact"} if name == "truthrl" else {}
    return rollout, rr.recipe(name, settings, hardened=True)([rollout])[0]


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("1998", "“1998” is right: equals a gold answer"),
        ("In 1998.", "“In 1998.” is right: every word is explained"),
        ("1999", "“1999” is wrong: another value"),
        ("1998 or 1999", "“1998 or 1999” is undecided: nothing explains “or, 1999”"),
        ("Perhaps", "“Perhaps” is undecided: nothing in common with a gold answer"),
        ("1\u03369\u033698", "“1998” is undecided: it contains text that a reader does not see"),
    ],
)
def test_the_reason_for_a_decision_in_plain_words(answer: str, line: str) -> None:
    assert reason(*scored(answer)).replace("\u0336", "").startswith(line)


def test_the_reason_of_a_box() -> None:
    line = "incorrect: box “1999 or 1998”; undecided: nothing explains “1999, or”"
    assert reason(*scored("1999 or 1998", "truthrl")).startswith(line)


def test_the_judge_decides() -> None:
    rollout = rr.Rollout(
        response="<think>It is so.</think><answer>1998 or 1999</answer>",
        question=QUESTION,
        answers="1998",
        verdicts={"accuracy": 1},
    )
    judged = rr.recipe("naive-grpo", {"accuracy.undecided": "judge"}, hardened=True)
    line = "is right; decided by the judge (rules: undecided: nothing explains “or, 1999”)"
    assert line in reason(rollout, judged([rollout])[0])


def line_of(answer: str, number: int) -> bytes:
    rollout, score = scored(answer)
    return msgspec.json.encode(
        {
            "id": number,
            "question": rollout.question,
            "answers": rollout.answers,
            "response": rollout.response,
            "reward": score.value,
            "components": score.components,
            "details": score.details,
        }
    )


def test_a_report_has_the_share_and_the_reasons(tmp_path: Path) -> None:
    answers = ["1998", "1998 or 1999", "1998 or 1999", f"1998 {MARKUP}", "Perhaps"]
    lines = [line_of(answer, number) for number, answer in enumerate(answers)]
    rows = [msgspec.json.decode(line, type=ScoredRow) for line in lines]
    groups = [[number] for number in range(len(rows))]
    numbers = statistics(rows, [facts_of(each) for each in rows], groups)
    assert numbers.rates["undecided answers"] == 3 / 5
    assert "3 of 5 answers (60%) are neither right nor wrong by rules" in "\n".join(numbers.notes)
    [reasons] = [note for note in numbers.notes if note.startswith("undecided answers, by")]
    assert "“or, 1999” (2)" in reasons

    source, page = tmp_path / "rows.jsonl", tmp_path / "page.html"
    source.write_bytes(b"\n".join(lines))
    write_report([str(source)], str(page))
    html = page.read_text("utf-8")
    assert "undecided answers" in html
    assert MARKUP not in html


def test_a_report_without_decisions_has_no_note() -> None:
    line = b'{"id": 1, "response": "x", "reward": 1.0, "details": {}}'
    plain = msgspec.json.decode(line, type=ScoredRow)
    numbers = statistics([plain], [facts_of(plain)], [[0]])
    assert numbers.rates["undecided answers"] is None
    assert not any("undecided" in note for note in numbers.notes)


@pytest.mark.parametrize("decision", ["accepted", ["right"], 1, None])
def test_a_detail_of_another_reward_is_no_decision(decision: object) -> None:
    score = rr.Score(1.0, details={"decision": decision})
    assert not decisions_of([score])


@pytest.mark.parametrize(
    "details",
    [{"decision": "accepted"}, {"decision": "right"}, {"decision": "right", "decision_reason": 1}],
)
def test_a_detail_of_another_reward_is_no_reason(details: dict[str, object]) -> None:
    score = rr.Score(1.0, correct=1.0, details={"answer": "Paris", **details})
    assert reason(rr.Rollout(response="Paris"), score) == "“Paris” is right"

"""The HTML of scores, groups and explanations in notebooks."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import rag_rewards as rr

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EVIL = "</b><script>alert(1)</script><img src=x onerror=alert(1)>\"'\u202e\x1b[31m&amp;"
ALLOWED = {"div", "table", "thead", "tbody", "tr", "th", "td", "b", "i", "span", "code"}
ALLOWED |= {"details", "summary"}


class Elements(HTMLParser):
    """The elements, attributes and texts of HTML, in which every element is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in ALLOWED
        self.open.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def _html(value: Any) -> Elements:
    return Elements(value._repr_html_())


def _rows(name: str) -> list[dict[str, Any]]:
    lines = (EXAMPLES / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_a_score() -> None:
    text = _html(rr.Score(0.5, {"format": 1.0, "accuracy": None}, correct=0.0)).text
    assert text == "rewardformataccuracycorrect0.51–0"


def test_scores_of_rollouts() -> None:
    rollouts = [rr.Rollout(response="<answer>a</answer>", answers=a) for a in ("a", None)]
    scores = rr.score(rollouts, "naive-grpo")
    head, rows = "rewardformataccuracycorrecterror", "01011" + "1––––answers: missing"
    assert _html(scores).text == head + rows


def test_many_scores_are_cut() -> None:
    rollouts = [rr.Rollout(response="<answer>a</answer>", answers="a")] * 1000
    html = rr.score(rollouts, "naive-grpo")._repr_html_()
    assert "950 more" in html
    assert len(html) < 60_000


def test_the_score_of_turns() -> None:
    assert "rewards of the turns: –, 1" in _html(rr.Score(1.0, turns=(None, 1.0))).text


@pytest.mark.parametrize("name", ["arena", "ctrl-rag", "ground-grpo", "search-r1", "lear"])
def test_examples(name: str) -> None:
    rows = _rows(name)
    group = rr.explain_group(rows, name)
    row = rr.explain(rows, name)
    assert group.rollouts[0].reward == row.reward == rr.score(rows, name)[0]["reward"]
    for each in (group, row):
        elements = _html(each)
        assert elements.attributes <= {"style", "scope"}
        assert str(rows[0]["question"]) in elements.text


def test_texts_are_escaped() -> None:
    row = {
        "id": EVIL,
        "question": EVIL,
        "response": f"{EVIL}<answer>{EVIL}</answer>",
        "answers": [EVIL],
        "documents": [{"title": EVIL, "text": EVIL}],
    }
    for each in (rr.explain_group([row], "naive-grpo"), rr.explain([row], "naive-grpo")):
        elements = _html(each)
        assert "<script>alert(1)</script>" in elements.text
        assert "\u202e" not in elements.text
        assert "\x1b" not in elements.text


def test_texts_of_turns_are_escaped() -> None:
    call = f"<think>{EVIL}</think><search>{EVIL}</search>"
    turns = [
        {"text": call, "results": [{"title": EVIL, "text": EVIL}]},
        {"text": call, "observation": EVIL},
        {"text": f"<answer>{EVIL}</answer>"},
    ]
    explanation = rr.explain([{"turns": turns, "answers": [EVIL]}], "search-r1")
    assert "<script>alert(1)</script>" in _html(explanation).text


def test_a_group_with_errors() -> None:
    rows: list[dict[str, Any]] = [
        {"question": "q", "response": "<answer>a</answer>", "answers": "a"},
        {"question": "q", "response": "<answer>a</answer>", "answers": "a"},
        {"question": "q", "response": "<answer>a</answer>", "answers": None},
    ]
    group = rr.explain_group(rows, "naive-grpo")
    text = _html(group).text
    assert [each.id for each in group.rollouts] == ["row 0", "row 1"]
    assert "row 2 is unscored: answers: missing" in text
    assert "All rewards are equal" in text
    assert repr(group) == "<GroupExplanation of 2 rollouts: rewards 1.0, 1.0>"
    with pytest.raises(rr.UsageError, match="row 2 cannot be scored: answers: missing"):
        rr.explain(rows, "naive-grpo", row=-1)
    with pytest.raises(rr.UsageError, match="no row 3"):
        rr.explain(rows, "naive-grpo", row=3)
    with pytest.raises(rr.UsageError, match="can be scored: answers: missing"):
        rr.explain_group(rows[2:], "naive-grpo")


def test_equal_ids_are_replaced_by_positions() -> None:
    rows = [{"id": 1, "question": "q", "response": text, "answers": "a"} for text in "ab"]
    assert rr.explain(rows, "naive-grpo", row=1).id == "row 1"


def test_groups_of_adjacent_rows() -> None:
    rows = [{"response": f"<answer>{text}</answer>", "answers": "a"} for text in "abab"]
    group = rr.explain_group(rows, "naive-grpo", row=3, group_size=2)
    assert [each.id for each in group.rollouts] == ["row 2", "row 3"]

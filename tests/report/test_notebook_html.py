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
ALLOWED = {"div", "pre", "span", "details", "summary"}


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


def _words(value: Any) -> list[str]:
    return [word for word in _html(value).text.split() if set(word) != {"─"}]


def test_scores() -> None:
    score = rr.Score(0.5, {"format": 1.0, "[bold]": None}, correct=0.0, turns=(None, 1.0))
    head = ["reward", "format", "[bold]", "correct"]
    turns = "rewards of the turns: –, 1".split()
    assert _words(score) == [*head, "0.5", "1", "–", "0", *turns]
    rollouts = [rr.Rollout(response="<answer>a</answer>", answers=a) for a in ("a", None)]
    head = ["reward", "format", "accuracy", "correct", "error"]
    rows = ["0", "1", "0", "1", "1", "1", "–", "–", "–", "–", "answers:", "missing"]
    assert _words(rr.score(rollouts, "naive-grpo")) == head + rows


def test_many_scores_are_cut() -> None:
    rollouts = [rr.Rollout(response="<answer>a</answer>", answers="a")] * 1000
    html = rr.score(rollouts, "naive-grpo")._repr_html_()
    assert "950 more" in html
    assert len(html) < 60_000


@pytest.mark.parametrize("name", ["arena", "ctrl-rag", "ground-grpo", "search-r1", "lear"])
def test_examples(name: str) -> None:
    rows = _rows(name)
    group = rr.explain_group(rows, name)
    row = rr.explain(rows, name)
    assert group.rollouts[0].reward == row.reward == rr.score(rows, name)[0]["reward"]
    for each in (group, row):
        elements = _html(each)
        assert elements.attributes <= {"style"}
        assert str(rows[0]["question"]) in elements.text


def test_texts_are_escaped() -> None:
    texts = {"id": EVIL, "question": EVIL, "answers": [EVIL]}
    row = texts | {
        "response": f"{EVIL}<answer>{EVIL}</answer>",
        "documents": [{"title": EVIL, "text": EVIL}],
    }
    call = f"<think>{EVIL}</think><search>{EVIL}</search>"
    turns = [
        {"text": call, "results": [{"title": EVIL, "text": EVIL}]},
        {"text": call, "observation": EVIL},
        {"text": f"<answer>{EVIL}</answer>"},
    ]
    for value in (
        rr.explain_group([row], "naive-grpo"),
        rr.explain([row], "naive-grpo"),
        rr.explain([texts | {"turns": turns}], "search-r1"),
    ):
        elements = _html(value)
        assert "<script>alert(1)</script>" in elements.text
        assert "\u202e" not in elements.text
        assert "\x1b" not in elements.text


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


def test_groups_and_ids_of_rows() -> None:
    rows = [{"id": 1, "question": "q", "response": text, "answers": "a"} for text in "ab"]
    assert rr.explain(rows, "naive-grpo", row=1).id == "row 1"  # because two rows have the id 1
    rows = [{"response": f"<answer>{text}</answer>", "answers": "a"} for text in "abab"]
    group = rr.explain_group(rows, "naive-grpo", row=3, group_size=2)
    assert [each.id for each in group.rollouts] == ["row 2", "row 3"]

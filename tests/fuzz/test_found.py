"""Inputs of `found/` that were faults once, each with its reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rag_rewards_adapters.callables import batch
from rag_rewards_adapters.trl import RagReward
from rag_rewards_adapters.trl.batch import gold_column
from rag_rewards_adapters.verl.rows import rollout_from_row

from rag_rewards.errors import RolloutError
from rag_rewards.text.normalize import tokens

FOUND = Path(__file__).parent / "found"
ROWS = json.loads((FOUND / "rows_in_python.json").read_text("utf-8"))
TEXT = "- a\n" * (1 << 15)
GOOD = {"response": "<answer>Paris</answer>", "answers": ["Paris"]}


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def check_trl(case):
    """Check that the first completion is unscored and that the second one has a reward."""
    reward = RagReward("search-r1")
    call = {
        "prompts": ["Q?"] * 2,
        "completions": [GOOD["response"]] * 2,
        "completion_ids": [[1]] * 2,
        "answers": [["Paris"]] * 2,
    }
    reward(**call)  # an error in the first batch is raised
    columns = case.get("columns") or {"response_mask": nested(case["depth"])}
    broken, valid = reward(**call, **{name: [value, None] for name, value in columns.items()})
    assert broken is None
    assert valid is not None


@pytest.mark.parametrize("case", ROWS, ids=[case["error"] for case in ROWS])
def test_a_broken_row_of_a_trainer(case, caplog):
    if case["reader"] == "verl":
        error = rollout_from_row({"global_steps": nested(case["depth"])}, response="a")
        assert isinstance(error, RolloutError)
        assert case["error"] in str(error)
        return
    if case["reader"] == "batch":
        broken, valid = batch("naive-grpo")([{**GOOD, "x": nested(case["depth"])}, GOOD])
        assert broken is None
        assert valid is not None
    else:
        check_trl(case)
    assert case["error"] in caplog.text


def test_gold_fields_that_are_no_json():
    """The logs of TRL contain the gold fields of each completion. A broken one ended the call."""
    answers = [["Paris"], "\ud800", nested(5000), 1j]
    assert gold_column({"answers": answers}) == ['{"answers":["Paris"]}', *["null"] * 3]


def test_tokens_of_chinese_text():
    """A substitution for each character took most of the time of a long Chinese text."""
    assert tokens("a巴黎 b\u3000c。\x1cd") == ["a", "巴", "黎", "b", "c。", "d"]
    assert tokens("。、") == ["。、"]

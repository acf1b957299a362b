"""Reasons for the values of components under the settings of a row."""

from __future__ import annotations

import msgspec
import pytest

from rag_rewards.report.reasons import component_reason
from rag_rewards.report.rows import Configuration
from rag_rewards.rows import ScoredRow

ROW = msgspec.json.decode(b'{"response": "x", "details": {"tokens": 4}}', type=ScoredRow)
DIVIDED = "evidential contribution divided by the square root of 4 tokens"
BELOW = {
    "contribution": "the evidential contribution is not above the threshold of 2.5 nats",
    "reward": "the likelihood reward is below the threshold of 2.5",
}


@pytest.mark.parametrize("threshold_on", BELOW)
@pytest.mark.parametrize(("threshold", "value"), [(2.5, 0.0), (2.5, 3.0), (None, 0.0)])
def test_clr(threshold, value, threshold_on):
    settings = {"threshold": threshold, "threshold_on": threshold_on}
    reason, _ = component_reason(ROW, "clr", value, Configuration("ctrl-rag-clr", settings))
    assert reason == (BELOW[threshold_on] if threshold and not value else DIVIDED)


def test_reasoning():
    reason, increase = component_reason(ROW, "reasoning", 0.0, Configuration("truthrl"))
    assert reason == "the judge does not accept the reasoning"
    assert increase
    assert component_reason(ROW, "reasoning", 1.0, Configuration()) == (
        "the judge accepts the reasoning",
        "",
    )

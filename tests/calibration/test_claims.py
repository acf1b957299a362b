"""Rows with a premise and a claim."""

from __future__ import annotations

import json

import pytest

from rag_rewards.calibration.claims import claim_statements, read_claim
from rag_rewards.errors import RolloutError


@pytest.mark.parametrize(
    "row",
    [
        {"premise": "A. B.", "claim": "C."},
        {"source": "A. B.", "summary": "C."},
        {"premise": ["A.", "B."], "claim": "C.", "label": 1},
    ],
)
def test_names_of_premise_and_claim(row):
    premise, claim = read_claim(json.dumps(row).encode())
    assert premise.split() == ["A.", "B."]
    assert claim == "C."


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"claim": "C."}, "premise: missing or empty"),
        ({"premise": [], "claim": "C."}, "premise: missing or empty"),
        ({"premise": "A."}, "claim: missing or empty"),
        ({"premise": "A.", "claim": " "}, "claim: missing or empty"),
        ({"premise": 3, "claim": "C."}, "premise: expected"),
    ],
)
def test_invalid_claims(row, message):
    with pytest.raises(RolloutError, match=message):
        read_claim(json.dumps(row).encode())


def test_statements_of_a_claim():
    assert claim_statements("A won. B lost.\n- C came\n- …") == ["A won.", "B lost.", "- C came"]
    assert claim_statements("…") == ["…"]

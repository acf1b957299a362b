"""Rows with a premise and a claim, and the format of FaithBench."""

from __future__ import annotations

import json

import pytest

from rag_rewards.calibration.claims import (
    claim_lines,
    claim_statements,
    faithbench_rows,
    read_claim,
)
from rag_rewards.errors import RolloutError, UsageError


def sample(number, *labels, **metadata):
    """Return a sample as in `data_for_release/batch_N.json`."""
    return {
        "sample_id": number,
        "source": f"Source {number}.",
        "summary": f"Summary {number}.",
        "annotations": [
            {"annot_id": at, "label": list(label), "summary_span": "x", "note": ""}
            for at, label in enumerate(labels)
        ],
        "metadata": {"summarizer": "a", "raw_sample_id": 7, **metadata},
    }


@pytest.fixture
def batch(tmp_path):
    def make(*samples):
        path = tmp_path / "batch_3.json"
        path.write_text(json.dumps({"samples": samples}))
        return path

    return make


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


def test_samples_of_faithbench(batch):
    path = batch(
        sample(0, hhem=0.9, gpt=1),
        sample(1, ["Benign"], hhem=0.5, gpt=None),
        sample(2, ["Benign"], ["Questionable"]),
        sample(3, ["Unwanted", "Unwanted.Intrinsic"], ["Benign"]),
        sample(4, ["Unwanted.Instrinsic"]),
    )
    rows = list(faithbench_rows(path))
    assert [(row["grade"], row["consistent"]) for row in rows] == [
        (3, True),
        (2, True),
        (1, False),
        (0, False),
        (0, False),
    ]
    assert rows[0] == {
        "id": "batch_3/0",
        "premise": "Source 0.",
        "claim": "Summary 0.",
        "consistent": True,
        "grade": 3,
        "summarizer": "a",
        "scores": {"hhem": 0.9, "gpt": 1},
    }
    assert rows[1]["scores"] == {"hhem": 0.5}
    assert [number for number, _ in claim_lines(str(path))] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a FaithBench file: expected object, found array"),
        ('{"samples": [{"source": "A."}]}', r"samples\[0\]\.summary: missing"),
        ('{"a": 1}\n{"a": 2}', "a name that ends in .jsonl"),
        (json.dumps({"samples": [sample(0, ["Fine"])]}), "unknown label 'fine'"),
    ],
)
def test_other_files(content, message, tmp_path):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        list(faithbench_rows(path))
    with pytest.raises(UsageError, match="cannot read"):
        list(faithbench_rows(tmp_path / "absent.json"))

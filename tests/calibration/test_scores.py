"""Scores of an entailment model."""

from __future__ import annotations

import json

import pytest

from rag_rewards.calibration.samples import RowBatch
from rag_rewards.calibration.scores import EntailmentScores
from rag_rewards.errors import BackendError
from rag_rewards.rows import Chunk

PAIRS = [("A storm.", "It rained. It was cold."), ("A storm.", "It snowed. It was warm.")]


class Entailment:
    """Return these outputs, one for each pair."""

    fingerprint = "outputs"

    def __init__(self, *outputs):
        self.outputs = outputs

    async def entail(self, pairs):
        return list(self.outputs[: len(pairs)])

    async def close(self):
        pass


def scores(*outputs):
    lines = [json.dumps({"premise": p, "claim": c}).encode() for p, c in PAIRS]
    batch = RowBatch(Chunk(lines=lines, numbers=[1, 2]), [{}, {}], [])
    return EntailmentScores(Entailment(*outputs), by_statement=True).scores(batch)


def test_a_claim_has_the_lowest_probability_of_its_statements():
    assert scores(0.9, 0.4, 1, 1) == [0.4, 1.0]


@pytest.mark.parametrize("output", [float("nan"), 1.5, -0.1])
def test_an_output_that_is_no_probability_is_an_error_of_its_row(output):
    error, score = scores(0.2, output, 0.3, 0.7)
    assert score == 0.3
    assert isinstance(error, BackendError)
    assert "not from 0 to 1" in str(error)

"""Likelihoods of answers after turns, from the model of a server: rewards of igpo over HTTP."""

from __future__ import annotations

import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from running_server import connect

sys.path.append(str(Path(__file__).resolve().parents[1] / "models"))
import tiny_models
import turn_rollouts

from rag_rewards import decode_row
from rag_rewards.evidence.protocols import Models, ScoreRequest
from rag_rewards.loading import RecipeSpec
from rag_rewards.models.transformers import TransformersPolicy


def gains_of(model: Any, row: Any, encode: Any) -> list[float]:
    """Return the rises of the likelihood of the first alias, with one pass per context."""

    def naive(context: tuple[int, ...], answer: tuple[int, ...]) -> list[float]:
        values: list[float] = tiny_models.naive(model, ScoreRequest((context,), (answer,)))[0, 0]
        return values

    per_context = turn_rollouts.naive_turn_logprobs(row, encode, naive)
    p = [math.exp(math.fsum(first) / len(first)) for first, _ in per_context]
    return [after - before for before, after in pairwise(p)]


async def test_the_gains_of_naive_scoring() -> None:
    model, tokenizer = tiny_models.make_model("qwen2"), tiny_models.make_tokenizer()
    rows = turn_rollouts.rows_of_group(tiny_models.VOCABULARY)
    models = Models(policy=TransformersPolicy(model, tokenizer))

    async with connect(RecipeSpec(recipe="igpo"), models) as (client, _):
        answer = (await client.post("/score", json={"rollouts": rows})).json()
    for row, score in zip(rows, answer["scores"], strict=True):
        *gains, _ = score["turn_rewards"]
        expected = gains_of(model, decode_row(row), tokenizer.encode)
        assert gains == pytest.approx(expected, abs=1e-6)
        assert len(gains) == len(row["turns"]) - 1

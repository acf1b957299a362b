"""The plain function, in verl's own reward managers."""

from __future__ import annotations

import inspect
import json
import pickle
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import rag_rewards_adapters.verl
from rag_rewards_adapters.verl import compute_score, reward_function
from reward_batches import (
    DOCUMENTS,
    GOLD,
    KWARGS,
    QUESTION,
    JudgeServer,
    Reply,
    ResponseRow,
    batch_of,
    compose_config,
    score_batch,
)

import rag_rewards as rr

RIGHT = "<relevance>[1]</relevance><analysis>Document 1.</analysis><answer>Seine</answer>"
TEXTS = (RIGHT, "<answer>Seine</answer>", "x")
FILE = str(Path(rag_rewards_adapters.verl.__file__))


def function(folder: Path, path: str, *flags: str, manager: str = "naive") -> Any:
    return compose_config(
        folder,
        f"reward.reward_manager.name={manager}",
        f"reward.custom_reward_function.path={path}",
        *flags,
    )


@pytest.mark.parametrize("path", ["pkg://rag_rewards_adapters.verl", f"file://{FILE}", FILE])
def test_verls_naive_manager_loads_the_function(folder: Path, tokenizer: Any, path: str) -> None:
    flags = (f"{KWARGS}.recipe=arena", f"{KWARGS}.settings.accuracy.metric=f1")
    for _ in range(2):  # verl executes a file again at each load
        rows = [ResponseRow(text) for text in TEXTS]
        results = score_batch(function(folder, path, *flags), batch_of(tokenizer, rows))
        fields = {"question": QUESTION, "documents": DOCUMENTS, **GOLD}
        expected = rr.recipe("arena", {"accuracy.metric": "f1"})(
            [rr.decode_row({**fields, "response": text}) for text in TEXTS]
        )
        assert [r["reward_score"] for r in results] == [s.value for s in expected]
        assert [r["reward_extra_info"] for r in results] == [
            {"score": s.value, **s.components, "acc": s.correct} for s in expected
        ]


def test_a_recipe_with_models_is_refused() -> None:
    """The function does not know whether verl trains on the rest of the group of a failure."""
    models = {"judge": "http://localhost:1", "judge_model": "tiny"}
    with pytest.raises(rr.UsageError, match=r"truthrl calls models.*manager\.name=rag_rewards"):
        compute_score("qa", "\\boxed{a}", "a", recipe="truthrl", **models)


def test_the_coroutine_sends_concurrent_judge_requests(
    folder: Path, tokenizer: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(reward_function, "version", lambda _: "0.8.0")

    def judge(request: Any) -> Reply:
        verdict = int("Garonne" in request.material)
        text = json.dumps({"explanation": "", "score": verdict})
        return Reply(text, condition=lambda: server.most_at_once > 1)

    with JudgeServer(judge) as server:
        flags = ("recipe=truthrl", f"judge={server.url}", "judge_model=tiny")
        config = function(
            folder,
            "pkg://rag_rewards_adapters.verl",
            "reward.custom_reward_function.name=compute_score_async",
            *(f"{KWARGS}.{flag}" for flag in flags),
        )
        rows = [ResponseRow(f"\\boxed{{{word}}}") for word in ("Garonne", "Loire", "Rhine", "Po")]
        results = score_batch(config, batch_of(tokenizer, rows))
        assert [r["reward_score"] for r in results] == [1.0, -1.0, -1.0, -1.0]
        assert server.most_at_once > 1


def test_the_function_can_be_pickled() -> None:
    assert not inspect.iscoroutinefunction(compute_score)
    assert pickle.loads(pickle.dumps(compute_score)) is compute_score  # noqa: S301
    function = partial(compute_score, recipe="naive-grpo")
    with ProcessPoolExecutor(1) as pool:  # as in verl's prime manager
        result = pool.submit(function, "qa", RIGHT, "Seine", {"index": 1}).result(60)
    assert result["acc"] == 1.0


def test_router_arguments_of_verl_are_ignored() -> None:
    router = {"reward_router_address": "localhost:1", "reward_model_tokenizer": object()}
    assert compute_score("qa", RIGHT, "Seine", None, recipe="naive-grpo", **router)["acc"] == 1.0

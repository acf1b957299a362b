"""Scoring for trainers: which recipes an adapter accepts, credit, and errors of batches."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from rag_rewards_adapters.callables import each
from rag_rewards_adapters.nemo_gym import Verifier
from rag_rewards_adapters.openrlhf import reward_function
from rag_rewards_adapters.openrlhf.agent import executor
from rag_rewards_adapters.scoring import (
    SingleRecipe,
    UnscoredHandler,
    token_values,
    turn_anchors,
    turn_spans,
)
from rag_rewards_adapters.skyrl import SkyRLRecipe
from rag_rewards_adapters.slime import SlimeRecipe
from rag_rewards_adapters.tinker import GroupRewards
from rag_rewards_adapters.verifiers import EpisodeReward, reward

from rag_rewards import custom, decode_row
from rag_rewards.errors import BackendError, DataError, GroupError, UsageError
from rag_rewards.rollout import Rollout, Score
from rag_rewards.scorer import Scorer
from rag_rewards.training.credit import Credit

GOOD, BAD = Score(1.0), BackendError("down")
INVALID = DataError("missing", "answers")
STAGES = [{"recipe": "naive-grpo", "until_step": 5}, {"recipe": "arena"}]


def nemo_gym(recipe: str | None = None, **options: Any) -> Verifier:
    return Verifier({"recipe": recipe, **options} if recipe else options)


# --- recipes that need what the trainer does not pass --------------------------------------------


@pytest.mark.parametrize(
    ("construct", "way"),
    [
        (each, r"use batch\(\)"),
        (reward, "use EpisodeReward"),
        (reward_function, "use the agent executor"),
        (nemo_gym, "set group_size"),
    ],
)
def test_a_recipe_that_compares_rollouts_needs_groups(construct: Any, way: str) -> None:
    with pytest.raises(UsageError, match=rf"ctrl-rag compares the rollouts of a group.* {way}"):
        construct("ctrl-rag", model="http://127.0.0.1:9", backend="vllm")


@pytest.mark.parametrize(
    "construct",
    [SlimeRecipe, GroupRewards, EpisodeReward, reward, reward_function, nemo_gym, executor],
)
def test_a_curriculum_needs_the_training_step(construct: Any) -> None:
    with pytest.raises(UsageError, match=r"does not pass the training step.*each stage"):
        construct(stages=STAGES)


# --- credit --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SlimeRecipe, SkyRLRecipe, EpisodeReward])
def test_the_credit_of_the_arguments_and_of_the_recipe(kind: Any) -> None:
    changed = kind("igpo", credit_options={"norm": "separate"}).credit
    assert changed == Credit("igpo", {"norm": "separate", "gamma": 1.0, "std_floor": 0.0})
    named = kind("search-r1", credit="igpo", credit_options={"gamma": 0.5}).credit
    assert named == Credit("igpo", {"gamma": 0.5})
    assert kind("igpo", credit="group").credit is None
    for message, options in (
        ("pass credit=", {"credit_options": {"norm": "separate"}}),
        ("remove them", {"credit": Credit("igpo"), "credit_options": {"norm": "separate"}}),
        ("remove one of them", {"credit": "return", "std_floor": 0.1}),
    ):
        with pytest.raises(UsageError, match=message):
            kind("search-r1", **options)


def test_rules_do_not_block_the_event_loop() -> None:
    def in_thread(_: Any) -> float:
        return float(threading.current_thread() is not threading.main_thread())

    single = SingleRecipe(Scorer(custom("own", in_thread)), "verl", for_groups="")
    assert asyncio.run(single.score(Rollout(response=""))).value == 1.0


@pytest.mark.parametrize("options", [{"credit": "return"}, {"credit_options": {"gamma": 0.5}}])
def test_tinker_has_no_turn_credit(options: Any) -> None:
    with pytest.raises(UsageError, match=f"remove {next(iter(options))}"):
        GroupRewards("search-r1", **options)


def test_the_tokens_of_turns() -> None:
    spans, mask = [(0, 1), (2, 4)], [1, 0, 1, 1]
    turns = [{"text": "a", "token_span": (0, 1)}, {"text": "b", "token_span": (2, 3)}]
    rollout = decode_row({"turns": turns, "response_token_ids": [1, 2, 3, 4]})
    assert turn_spans(Score(1.0, turns=(0.0, 1.0)), rollout, mask) == [(0, 1), (2, 3)]
    assert turn_spans(Score(1.0), rollout, mask) == [(0, 1), (2, 3)]
    assert turn_spans(Score(1.0, turns=(1.0,)), rollout, mask) == spans
    assert turn_spans(None, INVALID, mask) == spans
    assert turn_anchors(Score(1.0), rollout) == [""]
    assert turn_anchors(Score(1.0, turns=(0.0, 1.0)), rollout) == ["", ""]
    assert turn_anchors(None, INVALID) is None
    assert token_values([0.5, -1.0], spans, 4) == [0.5, 0.0, -1.0, -1.0]
    with pytest.raises(DataError, match="the score has 3 turns, but the mask"):
        token_values([0.0] * 3, spans, 4)


# --- errors of batches ---------------------------------------------------------------------------


def handler_after(*batches: list[Any], patience: int = 2) -> UnscoredHandler:
    handler = UnscoredHandler(patience)
    for batch in ([GOOD], *batches):
        expected = [each if isinstance(each, Score) and each.value else None for each in batch]
        assert handler.handle(batch) == expected
    return handler


@pytest.mark.parametrize(
    ("result", "message"), [(BAD, "down"), (Score(None), "row 7 .*gives this rollout no reward")]
)
def test_an_error_of_the_first_batch_is_raised(result: Any, message: str) -> None:
    with pytest.raises((BackendError, DataError), match=message):
        UnscoredHandler().handle([GOOD, result], positions=[5, 7])


def test_an_error_of_a_later_batch_is_counted() -> None:
    assert handler_after([GOOD, BAD]).count == 1
    assert handler_after([GOOD, Score(None)], [Score(None)]).count == 2


GROUP = [BAD, *[GroupError("of the group")] * 7]
"""A judge that fails once in a while ends no training; a tenth of a batch is an outage."""


@pytest.mark.parametrize(
    ("batches", "last", "message"),
    [
        (
            [[GOOD, BAD], [GOOD], [BAD]],
            [GOOD, GroupError("of the group"), BAD],
            r"down \(a model failed in 2 consecutive batches: ",
        ),
        (
            [[GOOD] * 73 + GROUP] * 4 + [[GOOD] * 72 + GROUP],
            [GOOD] * 72 + GROUP,
            "a model failed in 2 consecutive batches",
        ),
        (
            [[INVALID], [GOOD, INVALID], [INVALID]],
            [INVALID],
            r"answers: missing \(no rollout is scored in 2 ",
        ),
        ([[GOOD, Score(None)], [Score(None)]], [Score(None)], "no reward"),
    ],
)
def test_consecutive_batches_with_failures_raise(batches: Any, last: Any, message: str) -> None:
    with pytest.raises((BackendError, DataError), match=message):
        handler_after(*batches).handle(last)


def test_a_row_is_named_by_its_id_or_its_position_and_question() -> None:
    rollouts = [Rollout(response="", question=f"Which river runs through {i}?") for i in range(64)]
    missing = DataError("missing", "answers")
    results = [missing if i == 41 else GOOD for i in range(64)]
    where = r"row 41 of the batch \(question 'Which river runs through 41\?'\): answers: missing"
    with pytest.raises(DataError, match=where):
        UnscoredHandler().handle(results, rollouts)
    error = BackendError("down")
    error.row = "r1"
    with pytest.raises(BackendError, match="row r1: down"):
        UnscoredHandler().handle([error], positions=[0])

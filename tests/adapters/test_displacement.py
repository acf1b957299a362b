"""The monitor of likelihood displacement, with a policy of known log-probabilities."""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import dataclass, field
from typing import Any

import pytest
from rag_rewards_adapters.displacement import (
    LIMIT,
    DisplacementMonitor,
    RightResponse,
    right_positions,
)

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.evidence.protocols import ScoreAnswer
from rag_rewards.rollout import Score


@dataclass
class Policy:
    """Gives the token t the log-probability −t · scale."""

    scale: float = 1.0
    failing: frozenset[int] = frozenset()
    is_dead: bool = False
    is_broken: bool = False
    checks: int = 0
    scored: list[int] = field(default_factory=list)

    async def selfcheck(self) -> None:
        self.checks += 1
        await asyncio.sleep(0)
        if self.is_broken:
            raise BackendError("the values are shifted by one")

    async def score(self, requests: Any) -> list[Any]:
        await asyncio.sleep(0)
        if self.is_dead:
            raise BackendError("the server is dead")
        self.scored.append(len(requests))
        return [
            BackendError("too long")
            if each.contexts[0][0] in self.failing
            else ScoreAnswer({(0, 0): array("f", [-t * self.scale for t in each.responses[0]])}, "")
            for each in requests
        ]


def response(prompt: int, *tokens: int, mask: tuple[int, ...] = ()) -> RightResponse:
    return RightResponse((prompt,), tokens, mask or (1,) * len(tokens))


def test_the_numbers_are_means_over_tokens_and_responses() -> None:
    policy, monitor = Policy(), DisplacementMonitor(3)

    async def run() -> list[Any]:
        first = [response(1, 1, 2, 9, mask=(1, 1, 0)), response(2, 4), response(1, 7)]
        kept = await monitor.step(policy, 0, first)
        policy.scale = 1.5
        early = await monitor.step(policy, 2, [response(3, 5), response(4, 5, mask=(0,))])
        policy.scale = 2.0
        return [kept, early, await monitor.step(policy, 4, []), await monitor.step(policy, 5, [])]

    kept, early, measured, again = asyncio.run(run())
    assert kept == early == again == []
    assert policy.scored == [
        2,
        1,
        3,
    ]  # responses of a kept prompt or without tokens of the policy are not scored
    assert [(each.logprob, each.change) for each in measured] == [
        (-3.0, -1.5),  # (1 + 2)/2 · 2, before (1 + 2)/2
        (-8.0, -4.0),
        (-10.0, -2.5),  # kept when the scale was 1.5
    ]
    metrics = monitor.metrics(measured)
    assert metrics == {"right_logprob": -7.0, "right_logprob_change": pytest.approx(-8 / 3)}


def test_failures_are_logged_and_left_out(caplog: Any) -> None:
    policy, monitor = Policy(failing=frozenset({2})), DisplacementMonitor(1)

    async def run() -> list[Any]:
        await monitor.step(policy, 0, [response(1, 1), response(2, 1)])
        policy.scale, policy.is_dead = 2.0, True
        dead = await monitor.step(policy, 1, [])
        policy.is_dead = False
        return [dead, await monitor.step(policy, 2, [])]

    dead, measured = asyncio.run(run())
    assert dead == []
    assert monitor.metrics(dead) == {}
    assert [each.change for each in measured] == [-1.0]
    assert [record.getMessage() for record in caplog.records] == [
        "1 of 2 right responses have no likelihood: too long",
        "1 of 1 right responses have no likelihood: the server is dead",
    ]


def test_a_failure_of_the_policy_does_not_use_up_the_prompts() -> None:
    policy, monitor = Policy(is_dead=True), DisplacementMonitor(1)

    async def run() -> list[Any]:
        responses = [response(i, 1) for i in range(LIMIT)]
        await monitor.step(policy, 0, responses)
        policy.is_dead = False
        await monitor.step(policy, 1, responses)
        return await monitor.step(policy, 2, [])

    assert len(asyncio.run(run())) == LIMIT


def test_a_policy_that_fails_its_check_is_an_error_in_each_task_and_step() -> None:
    policy, monitor = Policy(is_broken=True), DisplacementMonitor(5)

    async def run() -> list[Any]:
        steps = [monitor.step(policy, 0, [response(i, 1)]) for i in range(2)]
        together = await asyncio.gather(*steps, return_exceptions=True)
        return [
            *together,
            *await asyncio.gather(monitor.step(policy, 1, []), return_exceptions=True),
        ]

    errors = asyncio.run(run())
    assert [type(error) for error in errors] == [UsageError] * 3
    assert "shifted by one" in str(errors[0])
    assert (policy.checks, policy.scored) == (1, [])


def test_tasks_at_the_same_time_keep_no_more_than_the_limit() -> None:
    policy, monitor = Policy(), DisplacementMonitor(1)

    async def run() -> list[Any]:
        await asyncio.gather(
            *(monitor.step(policy, 0, [response(i, 1), response(i, 2)]) for i in range(2 * LIMIT))
        )
        return await asyncio.gather(*(monitor.step(policy, 1, []) for _ in range(3)))

    measured = asyncio.run(run())
    assert sorted(map(len, measured)) == [0, 0, LIMIT]
    assert policy.scored == [1] * LIMIT + [LIMIT]


def test_a_response_is_right_by_its_answer_or_else_by_its_reward() -> None:
    assert right_positions([Score(9.0, correct=0.5), None, Score(0.0, correct=1.0)]) == [2]
    assert right_positions([Score(1.0), None, Score(0.0)]) == [0]
    assert right_positions([Score(1.0), Score(1.0)]) == right_positions([None]) == []

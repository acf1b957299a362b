"""Groups of sessions, started as verl's workers start them: as tasks of one loop."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref

import pytest
from rag_rewards_adapters.session_groups import SessionGroup, SessionGroups
from virtual_time import run_in_virtual_time

from rag_rewards.errors import BackendError, GroupError


class Prompt:
    """A prompt and its sessions. `scored` records the outputs of each scored group."""

    def __init__(self, groups, key="a", sizes=(), score=None):
        self.groups, self.key, self.sizes = groups, key, sizes
        self.scored = []
        self.score = score or self.double

    async def double(self, outputs):
        self.scored.append(list(outputs))
        await asyncio.sleep(0)
        return [2 * value for value in outputs]

    async def session(self, session, work):
        return await self.groups.run(
            self.key, session, work, lambda: SessionGroup(self.score, self.sizes)
        )

    def start(self, works, ids=None):
        ids = range(len(works)) if ids is None else ids
        return [
            asyncio.create_task(self.session(session, work))
            for session, work in zip(ids, works, strict=True)
        ]


def after(seconds, value):
    async def work():
        await asyncio.sleep(seconds)
        if isinstance(value, BaseException):
            raise value
        return value

    return work


def at_once(value):
    async def work():
        if isinstance(value, BaseException):
            raise value
        return value

    return work


def run_scenario(scenario):
    """Run a scenario in its own event loop, and check that no group stays active."""

    async def run():
        groups = SessionGroups()
        result = await asyncio.wait_for(scenario(groups), 10)
        for _ in range(3):
            await asyncio.sleep(0)
        assert groups.active == {}
        return result

    return run_in_virtual_time(run())


def outcomes(tasks):
    return asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("waits", [True, False])
def test_sessions_are_scored_once_and_together(n, waits):
    async def scenario(groups):
        prompt = Prompt(groups)
        pauses = random.Random(n).sample(range(n), n)
        works = [after(p / 500, i) if waits else at_once(i) for i, p in enumerate(pauses)]
        return prompt.scored, await outcomes(prompt.start(works))

    assert run_scenario(scenario) == ([list(range(n))], [2 * i for i in range(n)])


def test_prompts_can_have_different_numbers_of_sessions():
    async def scenario(groups):
        prompts = [Prompt(groups, key) for key in "abc"]
        tasks = [
            task
            for size, prompt in enumerate(prompts, start=1)
            for task in prompt.start([after(0.002 * size, size)] * size)
        ]
        await outcomes(tasks)
        return [prompt.scored for prompt in prompts]

    assert run_scenario(scenario) == [[[1]], [[2, 2]], [[3, 3, 3]]]


@pytest.mark.parametrize("failing", [at_once, lambda error: after(0.003, error)])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_failing_session_fails_its_group(failing, place):
    async def scenario(groups):
        prompt = Prompt(groups)
        works = [after(0.001, i) for i in range(3)]
        works[place] = failing(ValueError("no tokens"))
        return prompt.scored, await outcomes(prompt.start(works))

    scored, results = run_scenario(scenario)
    assert scored == []
    assert isinstance(results.pop(place), ValueError)
    for error in results:
        assert isinstance(error, GroupError)
        assert "another session of the prompt failed: ValueError: no tokens" in str(error)


def test_all_sessions_can_fail():
    async def scenario(groups):
        return await outcomes(Prompt(groups).start([at_once(ValueError(i)) for i in range(3)]))

    assert [error.args for error in run_scenario(scenario)] == [(0,), (1,), (2,)]


@pytest.mark.parametrize("moment", ["at work", "waiting", "scoring"])
def test_a_cancelled_session_fails_its_group(moment):
    async def scenario(groups):
        begun = asyncio.Event()

        async def score(outputs):
            begun.set()
            await asyncio.sleep(60)
            return outputs

        prompt = Prompt(groups, score=score)
        long = 60 if moment == "at work" else 0.001
        other = 60 if moment == "waiting" else 0.001
        tasks = prompt.start([after(long, 0), after(other, 1)])
        await asyncio.sleep(0.01)
        assert begun.is_set() == (moment == "scoring")
        tasks[0].cancel()
        if moment == "waiting":
            await asyncio.sleep(0)
            tasks[1].cancel()
        return await outcomes(tasks)

    cancelled, sibling = run_scenario(scenario)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert isinstance(sibling, asyncio.CancelledError if moment == "waiting" else GroupError)


@pytest.mark.parametrize(
    ("result", "messages"),
    [
        (BackendError("no answer"), ["no answer"] * 2),
        (asyncio.CancelledError(), ["scoring ended with CancelledError"] * 2),
        ([], ["scoring returned 0 results for 2 sessions"] * 2),
        ([1, 2, 3], ["scoring returned 3 results for 2 sessions"] * 2),
        ([BackendError("no answer"), GroupError("beside it")], ["no answer", "beside it"]),
    ],
)
def test_an_error_in_scoring_reaches_all_sessions(result, messages):
    async def scenario(groups):
        async def score(outputs):
            return await at_once(result)()

        return await outcomes(Prompt(groups, score=score).start([after(0.001, 1)] * 2))

    assert list(map(str, run_scenario(scenario))) == messages


@pytest.mark.parametrize("ids", [[0, 2], [1], [0, 0], [1, 2], [0, None]])
def test_an_incomplete_group_is_refused(ids):
    async def scenario(groups):
        prompt = Prompt(groups)
        return prompt.scored, await outcomes(prompt.start([after(0.001, 1)] * len(ids), ids))

    scored, results = run_scenario(scenario)
    assert scored == []
    assert all("the group is incomplete" in str(error) for error in results)


def test_a_late_session_fails_the_group():
    async def scenario(groups):
        prompt = Prompt(groups)
        early = prompt.start([after(0.01, 1)] * 2)
        await asyncio.sleep(0.002)
        late = prompt.start([after(0.001, 1)], ids=[2])
        return prompt.scored, await outcomes(early + late)

    scored, results = run_scenario(scenario)
    assert scored == []
    assert all("started after the others" in str(error) for error in results)


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_only_sessions_without_ids_are_counted(count, has_ids):
    """verl's `__rollout_n__`: the configured numbers do not limit sessions with ids."""

    async def scenario(groups):
        prompt = Prompt(groups, sizes=(4, 1))
        ids = range(count) if has_ids else [None] * count
        return await outcomes(prompt.start([after(0.001, 1)] * count, ids))

    results = run_scenario(scenario)
    if has_ids or count in (4, 1):
        assert results == [2] * count
    else:
        sizes = "rollout.n and rollout.val_kwargs.n are 4 and 1"
        expected = f"the prompt has {count} sessions, but {sizes}"
        assert all(expected in str(error) for error in results)


def test_a_prompt_can_run_again():
    async def scenario(groups):
        prompt = Prompt(groups)
        for _ in range(2):
            await outcomes(prompt.start([after(0.001, 1)] * 2))
        return prompt.scored

    assert run_scenario(scenario) == [[1, 1], [1, 1]]


def test_finished_groups_are_freed():
    alive = []

    async def scenario(groups):
        def new_group():
            group = SessionGroup(Prompt(groups).double, ())
            alive.append(weakref.ref(group))
            return group

        tasks = [
            asyncio.create_task(groups.run("a", i, after(0.001, i), new_group)) for i in range(3)
        ]
        tasks += [
            asyncio.create_task(groups.run("b", i, at_once(ValueError(i)), new_group))
            for i in range(3)
        ]
        await outcomes(tasks)

    run_scenario(scenario)
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


# --- groups with a deadline ----------------------------------------------------------------------


class Arrivals:
    """Sessions of requests that arrive at any time, in groups of `size` within 2 seconds."""

    def __init__(self, groups, size=3, scoring=0):
        self.scored, self.size, self.groups, self.alive = [], size, groups, []
        self.scoring = scoring

    def new_group(self):
        group = SessionGroup(self.double, (self.size,), 2.0)
        self.alive.append(weakref.ref(group))
        return group

    async def double(self, outputs):
        self.scored.append(list(outputs))
        await asyncio.sleep(self.scoring)
        return [2 * value for value in outputs]

    def start(self, *arrivals):
        """Start tasks for (prompt, id, seconds, value)."""
        return [asyncio.create_task(self._run(*arrival)) for arrival in arrivals]

    async def _run(self, prompt, session, seconds, value):
        await asyncio.sleep(seconds)
        return await self.groups.run(prompt, session, at_once(value), self.new_group)


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_requests_of_many_prompts_are_grouped_in_any_order(has_ids, seed):
    async def scenario(groups):
        arrivals = Arrivals(groups)
        draw = random.Random(seed)
        plan = [
            (f"p{p}", i if has_ids else None, draw.uniform(0, 1.9), 3 * p + i)
            for p in range(20)
            for i in range(3)
        ]
        results = await outcomes(arrivals.start(*plan))
        assert results == [2 * value for *_, value in plan]
        assert groups.waiting == 0
        gc.collect()
        assert not any(reference() for reference in arrivals.alive)
        return sorted(sorted(scored) for scored in arrivals.scored)

    assert run_scenario(scenario) == [[3 * p, 3 * p + 1, 3 * p + 2] for p in range(20)]


def test_a_partial_group_and_a_late_arrival_fail_at_their_deadlines():
    async def scenario(groups):
        arrivals = Arrivals(groups)
        loop, ends = asyncio.get_running_loop(), []
        tasks = arrivals.start(("p", 0, 0, 1), ("p", 1, 1, 1), ("p", 2, 3, 1))
        for task in tasks:
            task.add_done_callback(lambda _: ends.append(loop.time()))
        results = await outcomes(tasks)
        assert arrivals.scored == []
        assert ends == pytest.approx([2, 2, 5])
        return list(map(str, results))

    early, second, late = run_scenario(scenario)
    assert early == second
    assert "2 of 3 rollouts of the prompt arrived within 2 seconds: generate 3" in early
    assert "1 of 3 rollouts" in late


def test_equal_ids_and_further_sessions_open_another_group():
    """A trainer can have the same prompt twice, also while the first group is scored."""

    async def scenario(groups):
        arrivals = Arrivals(groups)
        twice = [("p", i, second + i / 10, 10 * second + i) for second in (0, 0.05) for i in (0, 1)]
        tasks = arrivals.start(*twice, ("p", 2, 0.5, 2), ("p", 2, 1, 3))
        await outcomes(tasks)
        return arrivals.scored

    assert run_scenario(scenario) == [[0, 1, 2], [0.5, 1.5, 3]]


def test_the_number_of_waiting_sessions_is_bounded():
    async def scenario(_):
        groups = SessionGroups(limit=4)
        arrivals = Arrivals(groups)
        plan = [(f"p{p}", i, p / 10, 1) for p in range(3) for i in (0, 1)]
        last = [("p1", 2, 1, 1), ("p2", 2, 1, 1)]
        results = await outcomes(arrivals.start(*plan, *last))
        assert (groups.active, groups.waiting) == ({}, 0)
        return results

    oldest, other, *further = run_scenario(scenario)
    assert oldest is other
    assert "more than 4 rollouts wait for the others" in str(oldest)
    assert further == [2] * 6


def test_sessions_of_groups_that_are_scored_do_not_wait():
    async def scenario(_):
        arrivals = Arrivals(SessionGroups(limit=4), size=4, scoring=5)
        return await outcomes(
            arrivals.start(*((f"p{p}", i, p, 1) for p in range(3) for i in range(4)))
        )

    assert run_scenario(scenario) == [2] * 12

"""Sessions of a prompt that meet, as verl's workers start them: tasks of one for-loop."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref

import pytest
from rag_rewards_adapters import verl_group
from rag_rewards_adapters.meeting import Group, Groups
from rag_rewards_adapters.verl_group import _turns
from virtual_time import run_in_virtual_time

from rag_rewards.errors import BackendError, GroupError


class Prompt:
    """A prompt and its sessions: what each does, and what was settled."""

    def __init__(self, groups, key="a", sizes=(), settle=None):
        self.groups, self.key, self.sizes = groups, key, sizes
        self.settled = []
        self.settle = settle or self.doubled

    async def doubled(self, brought):
        self.settled.append(list(brought))
        await asyncio.sleep(0)
        return [2 * value for value in brought]

    async def session(self, session, work):
        return await self.groups.meet(
            self.key, session, work, lambda: Group(self.settle, self.sizes)
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


def meeting(scenario):
    """Run a scenario on a loop of its own; nothing may be left at work behind it."""

    async def run():
        groups = Groups()
        result = await asyncio.wait_for(scenario(groups), 10)
        for _ in range(3):
            await asyncio.sleep(0)
        assert groups.at_work == {}
        return result

    return run_in_virtual_time(run())


def outcomes(tasks):
    return asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_siblings_are_settled_once_and_together(n):
    async def scenario(groups):
        prompt = Prompt(groups)
        pauses = random.Random(n).sample(range(n), n)
        results = await outcomes(prompt.start([after(p / 500, i) for i, p in enumerate(pauses)]))
        return prompt.settled, results

    assert meeting(scenario) == ([list(range(n))], [2 * i for i in range(n)])


def test_siblings_that_need_no_time_are_settled_together():
    async def scenario(groups):
        prompt = Prompt(groups)
        return prompt.settled, await outcomes(prompt.start([at_once(i) for i in range(3)]))

    assert meeting(scenario) == ([[0, 1, 2]], [0, 2, 4])


def test_every_prompt_has_its_own_number_of_sessions():
    async def scenario(groups):
        prompts = [Prompt(groups, key) for key in "abc"]
        tasks = [
            task
            for size, prompt in enumerate(prompts, start=1)
            for task in prompt.start([after(0.002 * size, size)] * size)
        ]
        await outcomes(tasks)
        return [prompt.settled for prompt in prompts]

    assert meeting(scenario) == [[[1]], [[2, 2]], [[3, 3, 3]]]


def test_prompts_are_told_apart_by_name_alone():
    async def scenario(groups):
        same, again = Prompt(groups, "uid-1"), Prompt(groups, "uid-2")
        tasks = same.start([after(0.002, 7)] * 2) + again.start([after(0.001, 7)] * 2)
        await outcomes(tasks)
        return same.settled, again.settled

    assert meeting(scenario) == ([[7, 7]], [[7, 7]])


@pytest.mark.parametrize("failing", [at_once, lambda error: after(0.003, error)])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_session_that_fails_takes_its_siblings_with_it(failing, place):
    async def scenario(groups):
        prompt = Prompt(groups)
        works = [after(0.001, i) for i in range(3)]
        works[place] = failing(ValueError("no tokens"))
        return prompt.settled, await outcomes(prompt.start(works))

    settled, results = meeting(scenario)
    assert settled == []
    assert isinstance(results.pop(place), ValueError)
    for error in results:
        assert isinstance(error, GroupError)
        assert "another session of its prompt failed: ValueError: no tokens" in str(error)


def test_all_sessions_may_fail():
    async def scenario(groups):
        return await outcomes(Prompt(groups).start([at_once(ValueError(i)) for i in range(3)]))

    assert [error.args for error in meeting(scenario)] == [(0,), (1,), (2,)]


@pytest.mark.parametrize("moment", ["at work", "waiting", "settling"])
def test_a_cancelled_session_fails_its_group(moment):
    async def scenario(groups):
        begun = asyncio.Event()

        async def settle(brought):
            begun.set()
            await asyncio.sleep(60)
            return brought

        prompt = Prompt(groups, settle=settle)
        long = 60 if moment == "at work" else 0.001
        other = 60 if moment == "waiting" else 0.001
        tasks = prompt.start([after(long, 0), after(other, 1)])
        await asyncio.sleep(0.01)
        assert begun.is_set() == (moment == "settling")
        tasks[0].cancel()
        if moment == "waiting":
            await asyncio.sleep(0)
            tasks[1].cancel()
        return await outcomes(tasks)

    cancelled, sibling = meeting(scenario)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert isinstance(sibling, asyncio.CancelledError if moment == "waiting" else GroupError)


def test_settling_that_fails_fails_all():
    async def scenario(groups):
        async def settle(brought):
            raise BackendError("no answer")

        return await outcomes(Prompt(groups, settle=settle).start([after(0.001, 1)] * 2))

    for error in meeting(scenario):
        assert isinstance(error, BackendError)
        assert str(error) == "no answer"


def test_settling_that_is_cancelled_leaves_nobody_waiting():
    async def scenario(groups):
        async def settle(brought):
            raise asyncio.CancelledError

        return await outcomes(Prompt(groups, settle=settle).start([after(0.001, 1)] * 2))

    for error in meeting(scenario):
        assert isinstance(error, GroupError)
        assert str(error) == "settling ended by CancelledError"


@pytest.mark.parametrize("results", [[], [1], [1, 2, 3]])
def test_settling_gives_every_session_a_result(results):
    async def scenario(groups):
        async def settle(brought):
            return results

        return await outcomes(Prompt(groups, settle=settle).start([after(0.001, 1)] * 2))

    for error in meeting(scenario):
        assert isinstance(error, GroupError)
        assert str(error) == f"settling gave {len(results)} results for 2 sessions"


def test_each_session_gets_its_own_error():
    async def scenario(groups):
        async def settle(brought):
            return [BackendError("no answer"), GroupError("beside it")]

        return await outcomes(Prompt(groups, settle=settle).start([after(0.001, 1)] * 2))

    assert list(map(str, meeting(scenario))) == ["no answer", "beside it"]


@pytest.mark.parametrize("ids", [[0, 2], [1], [0, 0], [1, 2], [0, None]])
def test_sessions_that_are_not_a_whole_group_are_refused(ids):
    async def scenario(groups):
        prompt = Prompt(groups)
        return prompt.settled, await outcomes(prompt.start([after(0.001, 1)] * len(ids), ids))

    settled, results = meeting(scenario)
    assert settled == []
    assert all("it is torn" in str(error) for error in results)


def test_a_session_that_comes_late_fails_the_group():
    async def scenario(groups):
        prompt = Prompt(groups)
        early = prompt.start([after(0.01, 1)] * 2)
        await asyncio.sleep(0.002)
        late = prompt.start([after(0.001, 1)], ids=[2])
        return prompt.settled, await outcomes(early + late)

    settled, results = meeting(scenario)
    assert settled == []
    assert all("came after its group was closed" in str(error) for error in results)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_sessions_without_ids_are_counted(count):
    async def scenario(groups):
        prompt = Prompt(groups, sizes=(4, 1))
        return await outcomes(prompt.start([after(0.001, 1)] * count, [None] * count))

    results = meeting(scenario)
    if count in (4, 1):
        assert results == [2] * count
    else:
        expected = f"{count} sessions of a prompt came together, not rollout.n"
        assert all(str(error).startswith(expected) for error in results)
        assert "(4 or 1)" in str(results[0])


@pytest.mark.parametrize("count", [2, 4, 6])
def test_a_prompt_may_have_a_number_of_its_own(count):
    """verl's `__rollout_n__`: with ids, the configured numbers do not bind."""

    async def scenario(groups):
        prompt = Prompt(groups, sizes=(4, 1))
        return await outcomes(prompt.start([after(0.001, 1)] * count))

    assert meeting(scenario) == [2] * count


def test_a_prompt_may_come_again():
    async def scenario(groups):
        prompt = Prompt(groups)
        for _ in range(2):
            await outcomes(prompt.start([after(0.001, 1)] * 2))
        return prompt.settled

    assert meeting(scenario) == [[1, 1], [1, 1]]


def test_groups_leave_nothing_in_memory():
    alive = []

    async def scenario(groups):
        def make():
            group = Group(Prompt(groups).doubled, ())
            alive.append(weakref.ref(group))
            return group

        tasks = [asyncio.create_task(groups.meet("a", i, after(0.001, i), make)) for i in range(3)]
        tasks += [
            asyncio.create_task(groups.meet("b", i, at_once(ValueError(i)), make)) for i in range(3)
        ]
        await outcomes(tasks)

    meeting(scenario)
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


def test_what_sessions_share_ends_with_their_loop():
    async def share():
        verl_group._SHARED.setdefault(asyncio.get_running_loop(), verl_group._Shared())

    asyncio.run(share())
    gc.collect()
    assert len(verl_group._SHARED) == 0


def test_turns_follow_the_mask():
    assert list(_turns([], [])) == []
    assert list(_turns([1, 2, 3, 4, 5], [0, 1, 1, 0, 1])) == [
        (False, [1]),
        (True, [2, 3]),
        (False, [4]),
        (True, [5]),
    ]

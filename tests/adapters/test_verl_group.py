"""The agent loop `rag_group` without verl."""

from __future__ import annotations

import asyncio
import gc

from rag_rewards_adapters.verl import group
from rag_rewards_adapters.verl.rows import _turns


def test_the_state_of_a_worker_ends_with_its_event_loop():
    async def use_state():
        group._STATES.setdefault(asyncio.get_running_loop(), group._WorkerState())

    asyncio.run(use_state())
    gc.collect()
    assert len(group._STATES) == 0


def test_turns_follow_the_mask():
    assert list(_turns([], [])) == []
    assert list(_turns([1, 2, 3, 4, 5], [0, 1, 1, 0, 1])) == [
        (False, [1]),
        (True, [2, 3]),
        (False, [4]),
        (True, [5]),
    ]

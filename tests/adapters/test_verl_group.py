"""The agent loop `rag_group` without verl."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace

from rag_rewards_adapters.verl import group
from rag_rewards_adapters.verl.rows import RolloutReader, _turns

from rag_rewards import recipe


def test_the_state_of_a_worker_ends_with_its_event_loop():
    async def use_state():
        group._STATES.setdefault(asyncio.get_running_loop(), group._WorkerState())

    asyncio.run(use_state())
    gc.collect()
    assert len(group._STATES) == 0


def test_a_row_without_its_prompt_is_an_error():
    output = SimpleNamespace(prompt_ids=[1], response_ids=[2], response_mask=[1], extra_fields={})
    columns = {"uid": "a", "extra_info": {"index": 3}}
    reader = RolloutReader(tokenizer=None, config=None)
    result = asyncio.run(reader.of_output(output, columns, recipe("naive-grpo"), "single_turn"))
    assert str(result) == "row 3: raw_prompt: missing"


def test_turns_follow_the_mask():
    assert list(_turns([], [])) == []
    assert list(_turns([1, 2, 3, 4, 5], [0, 1, 1, 0, 1])) == [
        (False, [1]),
        (True, [2, 3]),
        (False, [4]),
        (True, [5]),
    ]

"""Groups of real traces: the golden rewards, the advantages of prime-rl, and those of turns.

`assign_advantages` of prime-rl@559b447 (src/prime_rl/orchestrator/algo/routing.py) writes
`MessageNode.advantages`, one value per sampled token; `Trace.advantages` reads them.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from rag_rewards_adapters import verifiers as adapter
from rag_rewards_adapters.callables import each
from rag_rewards_adapters.verifiers import GroupCredit, reward
from rag_rewards_adapters.verifiers_taskset import RagData
from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage, ToolCall, ToolMessage, UserMessage

from rag_rewards import Rollout, Score, custom
from rag_rewards.errors import RolloutError, UsageError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from golden import GROUPS, MODELS, EvidenceGatherer, Group, advantages, centred
from turn_groups import GROUPS as TURN_GROUPS
from turn_groups import SEARCHES, TurnGroup

NOT_HERE = {"prefilled opening"}  # the null harness has no opening in its prompt
WHOLE = [group for group in GROUPS if group.case not in NOT_HERE]
ALL = pytest.mark.parametrize("group", WHOLE, ids=lambda group: group.id)


def node(message: Any, tokens: int = 0, parent: int | None = None) -> MessageNode:
    """Return a node; that of a reply has two tokens of the template before its sampled tokens."""
    template = 2 if tokens else 3
    return MessageNode(
        parent=parent,
        message=message,
        sampled=tokens > 0,
        token_ids=list(range(template + tokens)),
        mask=[False] * template + [True] * tokens,
    )


def trace_of(row: dict[str, Any], tokens: int = 2) -> Any:
    """Return a trace with the messages of a row."""
    response = row["response"]
    messages = response if isinstance(response, list) else [{"content": response}]
    nodes = [node(UserMessage(content=row["question"]))]
    for message in messages:
        text = message["content"]
        if message.get("role") == "tool":
            nodes.append(node(ToolMessage(tool_call_id="1", content=text), 0, len(nodes) - 1))
        else:
            nodes.append(node(AssistantMessage(content=text), tokens, len(nodes) - 1))
    gold = {name: value for name, value in row.items() if name not in ("response", "id")}
    data = RagData(id=row.get("id"), prompt=row["question"], **gold)
    return vf.Trace[RagData, vf.State, Any].model_construct(
        task=vf.TraceTask[RagData].model_construct(data=data),
        nodes=nodes,
        calls=[],
        rewards={},
        metrics={},
        root_reply=None,
        stop_condition=None,
    )


def credit_of(recipe: Any, group: Group | None = None, **options: Any) -> GroupCredit:
    credit = GroupCredit(recipe, **options)
    if group is not None:
        credit.scorer.gatherer, credit.scorer.models = EvidenceGatherer(group), MODELS
    return credit


@ALL
def test_rewards_and_advantages_of_a_golden_group(group: Group) -> None:
    traces = [trace_of(row) for row in group.rows]
    credit = credit_of(group.recipe, group, settings=group.settings)
    if not group.whole:
        with pytest.raises(RolloutError):  # in the first batch
            asyncio.run(credit(traces))
        return
    assert asyncio.run(credit(traces)) == pytest.approx(list(group.rewards))
    assert [trace.reward for trace in traces] == pytest.approx(list(group.rewards))
    for trace, expected in zip(traces, centred(group), strict=True):
        assert [n.advantages for n in trace.nodes if n.sampled] == [
            pytest.approx([expected] * 2) for n in trace.nodes if n.sampled
        ]
        assert all(n.advantages is None for n in trace.nodes if not n.sampled)


@ALL
def test_the_advantage_of_lear(group: Group) -> None:
    if not group.whole:
        return
    traces = [trace_of(row) for row in group.rows]
    asyncio.run(credit_of(group.recipe, group, settings=group.settings, std_floor=0.1)(traces))
    expected = advantages(group, std_floor=0.1)
    for trace, value in zip(traces, expected, strict=True):
        assert trace.nodes[-1].advantages == pytest.approx([value] * 2, abs=1e-9)


@ALL
def test_the_reward_of_one_trace_of_a_golden_group(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    if group.scope == "group":
        with pytest.raises(UsageError, match="compares the rollouts of a group"):
            reward(group.recipe, settings=group.settings)
        return
    scorer = each(group.recipe, settings=group.settings).scorer
    scorer.gatherer, scorer.models = EvidenceGatherer(group), MODELS
    monkeypatch.setattr(adapter, "load", lambda *_: scorer)
    score = reward(group.recipe)
    for row, expected in zip(group.rows, group.rewards, strict=True):
        trace = trace_of(row)
        if expected is None:
            with pytest.raises(RolloutError):
                asyncio.run(score(trace.task.data, trace))
        else:
            assert asyncio.run(score(trace.task.data, trace)) == pytest.approx(expected)


def test_a_search_with_tools_has_a_reward_for_each_turn() -> None:
    call = ToolCall(id="1", name="search", arguments='{"query": "river of Paris"}')
    row = {"question": "Which river?", "answers": ["Seine"], "response": "<answer>Seine</answer>"}
    trace = trace_of(row)
    trace.nodes[1:1] = [
        node(AssistantMessage(content="I search.", tool_calls=[call]), 4, 0),
        node(ToolMessage(tool_call_id="1", content="The Seine."), 0, 1),
    ]
    credit = credit_of(SEARCHES, credit="return", credit_options={"scale": "none"})
    other = trace_of(row | {"response": "<answer>Loire</answer>"})
    assert asyncio.run(credit([trace, other])) == [1.5, 0.0]
    searched, answered = (n.advantages for n in trace.nodes if n.sampled)
    assert searched == pytest.approx([0.75] * 4)  # (1.5 − 0)/2
    assert answered == pytest.approx([0.5] * 2)  # 1 against 0 of the trace that has ended
    assert list(trace.metrics.values()) == [1.5]


def test_an_unscored_trace_has_the_advantage_0_and_no_reward() -> None:
    rows = [
        {"question": "?", "answers": ["Seine"], "response": "<answer>Seine</answer>"},
        {"question": "?", "answers": ["Seine"], "response": "<answer>Loire</answer>"},
    ]
    credit = credit_of("naive-grpo")
    asyncio.run(credit([trace_of(row) for row in rows]))  # the first batch has no error
    lost = trace_of({"question": "?", "response": "x"})
    traces = [*map(trace_of, rows), lost]
    asyncio.run(credit(traces))
    assert [trace.nodes[-1].advantages for trace in traces] == [[0.5] * 2, [-0.5] * 2, [0.0] * 2]
    assert not lost.rewards


def _of_texts(rollout: Rollout) -> Score:
    """Reward each turn with the number that is its text."""
    entries = tuple(float(turn.text) for turn in rollout.steps())
    return Score(sum(entries), turns=entries)


@pytest.mark.parametrize("group", TURN_GROUPS, ids=lambda group: group.name)
def test_the_advantages_of_turns(group: TurnGroup) -> None:
    traces = []
    for member in group.rewards:
        messages: list[dict[str, Any]] = []
        for entry in member:
            messages += [{"content": str(entry)}, {"role": "tool", "content": "Doc"}]
        traces.append(trace_of({"question": "?", "response": messages[:-1]}, tokens=3))
    recipe = custom("numbers", _of_texts)
    credit = credit_of(recipe, credit=group.method, credit_options=group.options)
    asyncio.run(credit(traces))
    for trace, expected in zip(traces, group.advantages, strict=True):
        replies = [n for n in trace.nodes if n.sampled]
        for reply, value in zip(replies, expected, strict=True):
            assert reply.advantages == pytest.approx([value] * 3, abs=group.tolerance)

"""Groups of real traces: the golden rewards, and the advantages of prime-rl from what is written.

prime-rl is not run. `grpo` follows src/prime_rl/orchestrator/algo/grpo.py of
PrimeIntellect-ai/prime-rl@559b447, and `turn_credit` the section "Turn-Credit Shaping" of
docs/algorithms.md at 0d60244 (pull request 3282).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import verifiers.v1 as vf
from rag_rewards_adapters import verifiers as adapter
from rag_rewards_adapters.callables import each
from rag_rewards_adapters.verifiers import EpisodeReward, reward
from rag_rewards_adapters.verifiers_taskset import RagData
from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage, ToolCall, ToolMessage, UserMessage

from rag_rewards import Rollout, Score, custom
from rag_rewards.errors import BackendError, RolloutError, UsageError

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
        info={},
        errors=[],
        root_reply=None,
        stop_condition=None,
        ok=True,
    )


def group_of(recipe: Any, group: Group | None = None, **options: Any) -> EpisodeReward:
    score = EpisodeReward(recipe, **options)
    if group is not None:
        score.scorer.gatherer, score.scorer.models = EvidenceGatherer(group), MODELS
    return score


def grpo(traces: Sequence[Any]) -> list[float]:
    """Return the advantage of each trace that has no error."""
    rewards = [trace.reward for trace in traces if not trace.has_error]
    return [value - fmean(rewards) for value in rewards]


def turn_credit(traces: Sequence[Any], gamma: float, beta: float = 1.0) -> list[list[float]]:
    """Return the advantage of each turn of each trace, by the definition."""
    states = [trace.info["turn_rewards"] for trace in traces]
    progress = [[0.0, *(after - before for before, after in pairwise(own))] for own in states]
    returns = [trace.reward + sum(own) for trace, own in zip(traces, progress, strict=True)]
    advantages = []
    for trace, own, value in zip(traces, progress, returns, strict=True):
        share = [
            [gamma ** (t - i) / sum(gamma**k for k in range(t + 1)) for t in range(i, len(own))]
            for i in range(len(own))
        ]
        credit = [
            sum(a * b for a, b in zip(row, own[i:], strict=True)) for i, row in enumerate(share)
        ]
        tokens = [sum(n.mask) for n in trace.nodes if n.sampled]
        mean = sum(c * n for c, n in zip(credit, tokens, strict=True)) / sum(tokens)
        advantages.append([value - fmean(returns) + beta * (c - mean) for c in credit])
    return advantages


@ALL
def test_rewards_and_advantages_of_a_golden_group(group: Group) -> None:
    traces = [trace_of(row) for row in group.rows]
    asyncio.run(group_of(group.recipe, group, settings=group.settings)(traces))
    for trace, expected in zip(traces, group.rewards, strict=True):
        assert trace.has_error == (expected is None)
        if expected is not None:
            assert trace.reward == pytest.approx(expected)
    if group.whole:
        assert grpo(traces) == pytest.approx(centred(group))


@ALL
def test_the_advantage_of_lear(group: Group) -> None:
    if not group.whole:
        return
    traces = [trace_of(row) for row in group.rows]
    asyncio.run(group_of(group.recipe, group, settings=group.settings, std_floor=0.1)(traces))
    assert grpo(traces) == pytest.approx(advantages(group, std_floor=0.1), abs=1e-9)


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


def searches(answer: str) -> Any:
    """Return a trace with a search of 4 tokens and an answer of 2."""
    call = ToolCall(id="1", name="search", arguments='{"query": "river of Paris"}')
    response = f"<answer>{answer}</answer>"
    trace = trace_of({"question": "Which river?", "answers": ["Seine"], "response": response})
    trace.nodes[1:1] = [
        node(AssistantMessage(content="I search.", tool_calls=[call]), 4, 0),
        node(ToolMessage(tool_call_id="1", content="The Seine."), 0, 1),
    ]
    trace.nodes[-1].parent = 2
    return trace


@pytest.mark.parametrize("turn_rewards", [False, True])
def test_states_and_rewards_of_turns(turn_rewards: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The reward of the search is 0.5, and that of the answer is 1 or 0."""
    traces = [searches("Seine"), searches("Loire")]
    score = reward(SEARCHES, turn_rewards=turn_rewards)
    for trace in traces:
        asyncio.run(_scored(score, trace))
    assert bool(caplog.records) != turn_rewards
    if not turn_rewards:
        assert [trace.reward for trace in traces] == [1.5, 0.5]
        assert [trace.info for trace in traces] == [{}, {}]
        return
    assert [trace.info["turn_rewards"] for trace in traces] == [[0.5, 1.5], [0.5, 0.5]]
    assert traces[0].rewards["searches"].value == 1.5
    assert [trace.reward for trace in traces] == [0.5, 0.5]  # and 1 and 0 from the progress
    # A = ±0.5. With gamma = 0, c = (0, 1), and its mean over 4 and 2 tokens is 1/3.
    assert turn_credit(traces, gamma=0.0) == [
        pytest.approx([0.5 - 1 / 3, 0.5 + 2 / 3]),
        pytest.approx([-0.5, -0.5]),
    ]


async def _scored(score: Any, trace: Any) -> None:
    """Score a trace as the reward of a task."""

    class Scored(vf.Task[RagData]):
        @vf.reward
        async def searches(self, trace: vf.Trace) -> float:
            return await score(self.data, trace)

    await Scored(trace.task.data).score(trace)


def test_an_unscored_trace_has_an_error_and_no_part_in_the_group() -> None:
    rows = [
        {"question": "?", "answers": ["Seine"], "response": "<answer>Seine</answer>"},
        {"question": "?", "answers": ["Seine"], "response": "<answer>Loire</answer>"},
        {"question": "?", "response": "x"},
    ]
    traces = [*map(trace_of, rows), trace_of(rows[0])]
    traces[3].ok = False  # the harness failed
    asyncio.run(group_of("naive-grpo")(traces))
    assert grpo(traces) == [0.5, -0.5]
    assert [trace.has_error for trace in traces] == [False, False, True, True]
    assert "answers: missing" in traces[2].errors[0].message
    assert not traces[2].rewards
    assert not traces[3].rewards


def _of_texts(rollout: Rollout) -> Score:
    """Reward each turn with the number that is its text."""
    entries = tuple(float(turn.text) for turn in rollout.steps())
    return Score(sum(entries), turns=entries)


@pytest.mark.parametrize("group", TURN_GROUPS, ids=lambda group: group.name)
@pytest.mark.parametrize("has_tokens", [True, False])
def test_the_advantages_of_turns(
    group: TurnGroup, has_tokens: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """`turn_credit` gets those of the method, minus the mean of the means of the traces."""
    traces = []
    for member in group.rewards:
        messages: list[dict[str, Any]] = []
        for entry in member:
            messages += [{"content": str(entry)}, {"role": "tool", "content": "Doc"}]
        traces.append(trace_of({"question": "?", "response": messages[:-1]}, tokens=3))
    replies = [n for trace in traces for n in trace.nodes if n.sampled]
    for reply in replies:
        reply.mask = reply.mask if has_tokens else []
    score = group_of(
        custom("numbers", _of_texts), credit=group.method, credit_options=group.options
    )
    asyncio.run(score(traces))
    [warning] = [each.getMessage() for each in caplog.records]
    assert f"method {group.method}: use the algorithm turn_credit" in warning
    for reply in replies:
        reply.mask = [True] * 3
    mean = fmean(map(fmean, group.advantages))
    for values, expected in zip(turn_credit(traces, gamma=0.0), group.advantages, strict=True):
        assert values == pytest.approx([value - mean for value in expected], abs=group.tolerance)


def test_a_trace_with_branches_has_no_order_of_turns() -> None:
    trace = searches("Seine")
    trace.nodes[-1].parent = 0
    message = "2 rewards of turns for 2 replies in 2 branches"
    with pytest.raises(RolloutError, match=message):
        asyncio.run(reward(SEARCHES, turn_rewards=True)(trace.task.data, trace))
    empty = searches("Seine")
    del empty.nodes[1:]
    traces = [trace, empty, searches("Seine"), searches("Loire")]
    asyncio.run(group_of(SEARCHES, credit="return")(traces))
    assert [each.has_error for each in traces] == [True, True, False, False]
    assert message in trace.errors[0].message
    assert not trace.rewards


def test_a_dead_model_is_an_error_after_some_episodes(caplog: pytest.LogCaptureFixture) -> None:
    is_dead = True

    def judged(rollout: Rollout) -> float:
        if is_dead:
            raise BackendError("the judge is down")
        return 1.0

    episodes = group_of(custom("judged", judged), patience=2)

    def run(count: int) -> None:
        for _ in range(count):
            asyncio.run(episodes([trace_of({"question": "?", "response": "x"})]))

    run(1)
    is_dead = False
    run(1)
    is_dead = True
    run(1)
    assert "episodes" not in caplog.text
    run(1)
    [error] = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert "judged: no trace of the last 2 episodes" in error
    assert "the judge is down" in error


def test_turn_rewards_without_rewards_of_turns_warn_once(caplog: pytest.LogCaptureFixture) -> None:
    trace = trace_of({"question": "?", "answers": ["Seine"], "response": "<answer>a</answer>"})
    score = reward("naive-grpo", turn_rewards=True)
    for _ in range(2):
        assert isinstance(asyncio.run(score(trace.task.data, trace)), float)
    assert caplog.text.count("naive-grpo has no rewards of turns") == 1


def test_the_removed_class_names_its_successor() -> None:
    with pytest.raises(ImportError, match="EpisodeReward"):
        from rag_rewards_adapters.verifiers import GroupCredit  # noqa: F401

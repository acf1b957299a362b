"""Rewards of turns in verl: from an agent loop to the advantages of the V1 trainer."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import v1_trainer as v1
from tensordict import TensorDict
from test_verl_group_loops import (
    CALL,
    engine_of,
    infos_of,
    rollouts_of,
    run_worker,
    with_tools,
)
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rag_rewards_adapters.verl.credit import TurnCredit
from rag_rewards_adapters.verl.rows import RolloutReader
from rag_rewards_adapters.verl.turn_output import TurnOutput
from turn_groups import GROUPS, GROUPS_BY_NAME, TurnGroup

from rag_rewards.errors import UsageError
from rag_rewards.recipes.search_r1 import SEARCH_R1
from rag_rewards.training.credit import place

OWN, OTHER = 2, 3
"""Own tokens of each turn, and tokens of the environment after it."""
SEARCHES = "turn_groups:SEARCHES"
RETURN = GROUPS_BY_NAME["return"]


def config_of(options: dict[str, Any] | None = None, **algorithm: Any) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.create({"rag_turn": options or {}, **algorithm})


def spans_of(turns: int) -> list[tuple[int, int]]:
    return [(t * (OWN + OTHER), t * (OWN + OTHER) + OWN) for t in range(turns)]


def advantages(estimator: str, rewards: Any, config: Any = None) -> list[list[float]]:
    """Return the advantages of verl for groups of rewards of turns, and of rows of padding."""
    members = [(uid, entries) for uid, group in rewards.items() for entries in group]
    length = max(len(entries) for _, entries in members) * (OWN + OTHER)
    mask = torch.zeros(len(members) + 1, length, dtype=torch.int64)
    levels = torch.zeros(mask.shape)
    for row, (_, entries) in enumerate(members):
        spans = spans_of(len(entries))
        levels[row] = torch.tensor(place(entries, spans, length))
        for start, end in spans:
            mask[row, start:end] = 1
    uids = [*(uid for uid, _ in members), "padding"]
    data = DataProto(
        batch=TensorDict({"token_level_rewards": levels, "response_mask": mask}, [len(uids)]),
        non_tensor_batch={"uid": np.array(uids, dtype=object)},
    )
    keys = [f"{uid}_{row}_0" for row, uid in enumerate(uids)]
    result = compute_advantage_for_multi_trajectories(data, keys, estimator, config=config)
    rows: list[list[float]] = result.batch["advantages"].tolist()
    assert not any(rows.pop())
    for row, own in zip(rows, mask.tolist(), strict=False):
        assert row == [value * counted for value, counted in zip(row, own, strict=True)]
    return rows


def of_turns(rows: list[list[float]], lengths: list[int]) -> list[list[float]]:
    """Return the advantages of the turns, which all own tokens of a turn share."""
    turns = []
    for row, count in zip(rows, lengths, strict=False):
        for start, end in spans_of(count):
            assert len(set(row[start:end])) == 1
        turns.append([row[start] for start, _ in spans_of(count)])
    return turns


# --- the estimators ------------------------------------------------------------------------------


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_golden_groups_pass_through_the_advantages_of_verl(group: TurnGroup) -> None:
    estimator = f"rag_turn_{group.method}"
    assert estimator in core_algos.ADV_ESTIMATOR_REGISTRY
    others = ((5.0, 7.0), (1.0,))
    rows = advantages(estimator, {"q": group.rewards, "r": others}, config_of(group.options))
    values = of_turns(rows, [len(member) for member in group.rewards])
    for value, golden in zip(values, group.advantages, strict=True):
        assert value == pytest.approx(golden, abs=group.tolerance)


def test_given_advantages_pass_through() -> None:
    rows = advantages("rag_turn_given", {"q": [(0.4, -0.2)]})
    # `place` puts each value at one token; the estimator changes no value
    assert rows[0] == pytest.approx([0, 0.4, 0, 0, 0, 0, -0.2, 0, 0, 0])


def test_a_group_of_one_has_no_advantage() -> None:
    assert not any(advantages("rag_turn_igpo", {"q": [(0.5, 1.0)]})[0])


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(UsageError, match="has no option 'nrom'"):
        advantages("rag_turn_igpo", {"q": RETURN.rewards}, config_of({"nrom": "joint"}))


# --- the output of the agent loop ----------------------------------------------------------------


def test_rewards_of_turns_are_at_their_last_own_tokens() -> None:
    """Spans [0, 3) and [7, 9) of 9 tokens, rewards 0.27 and 1."""
    output = AgentLoopOutput(
        prompt_ids=[1],
        response_ids=list(range(9)),
        response_mask=[1, 1, 1, 0, 0, 0, 0, 1, 1],
        metrics=AgentLoopMetrics(),
        reward_score=1.27,
        num_turns=4,
    )
    output.extra_fields["reward_extra_info"] = {"searches": 1.0}
    values = place((0.27, 1.0), [(0, 3), (7, 9)], 9)
    fields = TurnOutput.of(output, values).as_dict()
    assert fields["rm_scores"].tolist() == pytest.approx([0, 0, 0.27, 0, 0, 0, 0, 0, 1])
    plain = output.as_dict()
    assert fields["rm_scores"].dtype == plain["rm_scores"].dtype
    assert fields.keys() == plain.keys()
    assert fields["extra_fields"] == {"reward_extra_info": {"searches": 1.0}}


def trajectories(queue: Any) -> list[dict[str, Any]]:
    return [queue.fields[key] for key in sorted(queue.fields)]


REPLIES = {
    "Paris": [CALL, CALL, "Rhone"],
    "what the tool says": ["Seine", CALL.replace("river", "sea"), "Seine"],
}


def run_group(monkeypatch, model, tmp_path, recipe, *overrides, validate=False):
    """Run sessions with two, three and one turns."""
    config = with_tools(tmp_path, model, recipe, *overrides)
    engine = engine_of(model, REPLIES)
    row = v1.question("Paris")
    return run_worker(monkeypatch, config, engine, [row], validate=validate)


def runs_of(fields: dict[str, Any]) -> list[list[float]]:
    """Return the values of the own tokens of each turn."""
    values: list[list[float]] = []
    before = 0
    for own, value in zip(
        fields["response_mask"].tolist(), fields["rm_scores"].tolist(), strict=True
    ):
        if own and not before:
            values.append([])
        if own:
            values[-1].append(value)
        else:
            assert value == 0.0
        before = own
    return values


def test_tool_turns_get_their_rewards(monkeypatch, model, tmp_path, registry, caplog):
    queue = run_group(
        monkeypatch, model, tmp_path, SEARCHES, "algorithm.adv_estimator=rag_turn_return"
    )
    assert queue.status("uid-0") == "finished", caplog.text
    turns = [runs_of(fields) for fields in trajectories(queue)]
    for turn in (turn for member in turns for turn in member):
        assert not any(turn[:-1])
    ends = [[turn[-1] for turn in member] for member in turns]
    assert max(map(len, ends)) > 1
    for member in ends:
        assert member[:-1] == [0.5] * (len(member) - 1)
        assert member[-1] in (0.0, 1.0)
    assert "summed" not in caplog.text


def test_queries_and_results_come_from_the_tools(monkeypatch, model, tmp_path, registry):
    seen = []
    read = RolloutReader._turn_fields

    async def spy(*arguments):
        seen.append(await read(*arguments))
        return seen[-1]

    monkeypatch.setattr(RolloutReader, "_turn_fields", spy)
    run_group(monkeypatch, model, tmp_path, SEARCHES)
    conversations = [fields["response"] for fields in seen]
    assert {len(messages) for messages in conversations} <= {1, 3, 5}
    assert max(map(len, conversations)) > 1
    for messages in conversations:
        for message in messages[1::2]:
            assert message["content"] == "<answer>Rhone</answer> is what the tool says."
        first = messages[0]
        if len(messages) > 1:
            assert first["tool_calls"][0]["function"] == {
                "name": "search",
                "arguments": '{"query": "river"}',
            }
            assert first["token_span"][0] == 0


# --- responses that a limit cuts -----------------------------------------------------------------

ANSWERED = {"Paris": [CALL], "what the tool says": ["Seine"]}
"""A search, and then the answer."""
SEARCHED = ("river",)
"""The query of `CALL`."""


@pytest.fixture
def cut(monkeypatch, model, tmp_path, registry):
    """Return a function that runs a group with the replies `ANSWERED` under limits of verl.

    It returns the rewards of the tokens of each turn, and the rollout that the recipe reads.
    """
    rollouts = rollouts_of(monkeypatch)

    def run(**limits):
        config = with_tools(
            tmp_path,
            model,
            SEARCHES,
            "algorithm.adv_estimator=rag_turn_return",
            *(f"actor_rollout_ref.rollout.{name}={value}" for name, value in limits.items()),
        )
        engine = engine_of(model, ANSWERED)
        queue = run_worker(monkeypatch, config, engine, [v1.question("Paris")])
        assert queue.status("uid-0") == "finished"
        return runs_of(trajectories(queue)[0]), rollouts[-1]

    return run


@pytest.fixture
def spans(cut):
    """Return the spans of the two turns of a response that no limit cuts."""
    values, rollout = cut()
    assert [turn[-1] for turn in values] == [0.5, 1.0]
    assert rollout.finish_reason == "stop"
    first, last = (turn.token_span for turn in rollout.steps())
    assert first[0] == 0 < first[1] < last[0] < last[1] == len(rollout.response_token_ids)
    return first, last


@pytest.mark.parametrize(
    ("position", "queries"),
    [(-2, ()), (-1, SEARCHED), (0, SEARCHED), (1, SEARCHED)],
    ids=["in the call", "before its end token", "at its end", "in the result"],
)
def test_a_search_whose_result_a_limit_cuts_off(cut, spans, position, queries):
    """verl leaves out a result that does not fit completely."""
    end = spans[0][1]
    values, rollout = cut(response_length=end + position)
    (turn,) = rollout.steps()
    assert turn.token_span == (0, min(end, end + position))
    assert (turn.queries, turn.results, turn.answer) == (queries, None, None)
    assert (turn.malformed, rollout.finish_reason) == (("truncated",), "length")
    assert values == [[0.0] * turn.token_span[1]]


@pytest.mark.parametrize("position", [-1, 0], ids=["in the result", "at its end"])
def test_a_result_without_room_for_a_further_turn(cut, spans, position):
    (_, end), (start, _) = spans
    values, rollout = cut(response_length=start + position)
    (turn,) = rollout.steps()
    assert turn.token_span == (0, end)
    assert (turn.queries, turn.results) == (SEARCHED, None)
    assert (turn.malformed, rollout.finish_reason) == (("truncated",), "length")
    assert values == [[0.0] * end]


@pytest.mark.parametrize("tokens", ["first", "all but the end token"])
def test_an_answer_that_a_limit_cuts_off(cut, spans, tokens):
    """The first turn is a complete search, and keeps its reward."""
    first, (start, end) = spans
    length = start + 1 if tokens == "first" else end - 1
    values, rollout = cut(response_length=length)
    search, last = rollout.steps()
    assert (search.token_span, last.token_span) == (first, (start, length))
    assert (search.malformed, last.malformed) == ((), ("truncated",))
    assert (rollout.finish_reason, last.answer) == ("length", None)
    assert values == [[*[0.0] * (first[1] - 1), 0.5], [0.0] * (length - start)]


def test_a_response_that_ends_at_the_limit_is_complete(cut, spans):
    values, rollout = cut(response_length=spans[1][1])
    assert (rollout.finish_reason, rollout.steps()[-1].answer) == ("stop", "Seine")
    assert [turn[-1] for turn in values] == [0.5, 1.0]


@pytest.mark.parametrize(
    ("limit", "turns", "reason"),
    [
        ("max_assistant_turns", 1, "max_turns"),
        ("max_assistant_turns", 2, "stop"),
        ("max_user_turns", 1, "stop"),
    ],
)
def test_a_limit_of_turns(cut, limit, turns, reason):
    """A limit has no effect on a rollout whose last allowed turn is an answer."""
    values, rollout = cut(**{f"multi_turn.{limit}": turns})
    assert rollout.finish_reason == reason
    assert (rollout.steps()[-1].malformed == ("truncated",)) is (reason == "max_turns")
    assert [turn[-1] for turn in values] == ([0.0] if reason == "max_turns" else [0.5, 1.0])


def test_a_search_after_the_last_allowed_result(cut, monkeypatch):
    monkeypatch.setitem(ANSWERED, "what the tool says", [CALL])
    values, rollout = cut(**{"multi_turn.max_user_turns": 1})
    assert rollout.finish_reason == "max_turns"
    assert [turn.malformed for turn in rollout.steps()] == [(), ("truncated",)]
    assert [turn[-1] for turn in values] == [0.5, 0.0]


# --- calls that verl does not execute ------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "queries"), [(1, ("river",)), (2, ("river", "sea")), ("null", ("river", "sea"))]
)
def test_calls_beyond_the_limit_ask_nothing(cut, monkeypatch, limit, queries):
    """They count as calls, because a well-formed message has one call."""
    monkeypatch.setitem(ANSWERED, "Paris", [CALL + CALL.replace("river", "sea")])
    _, rollout = cut(**{"multi_turn.max_parallel_calls": limit})
    search, answer = rollout.steps()
    assert (search.queries, search.calls, search.malformed) == (queries, 2, ())
    assert (answer.answer, rollout.finish_reason) == ("Seine", "stop")


BROKEN = CALL.replace('"name": "search"', '"name" "search"')
"""A call whose JSON has no colon."""


@pytest.mark.parametrize(
    "text",
    [
        BROKEN,
        f"{BROKEN} Seine",
        f"<think>Look.</think>{BROKEN}",
        '<tool_call>{"name": "search", "query": "river"}</tool_call>',
    ],
)
def test_a_call_that_verl_cannot_read_is_no_answer(cut, monkeypatch, text):
    """verl ends the rollout at such a call."""
    monkeypatch.setitem(ANSWERED, "what the tool says", [text])
    values, rollout = cut()
    last = rollout.steps()[-1]
    assert (last.text, last.answer, last.malformed) == (text, None, ("bad_call",))
    assert (last.queries, rollout.finish_reason) == ((), "stop")
    assert [turn[-1] for turn in values] == [0.5, 0.0]


@pytest.mark.parametrize(
    ("tool_format", "start", "end"),
    [
        ("minimax", "<minimax:tool_call>", "</minimax:tool_call>"),
        ("kimi", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        ("deepseek_v4", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
    ],
)
def test_a_call_in_other_tags_that_verl_cannot_read(cut, monkeypatch, tool_format, start, end):
    monkeypatch.setitem(ANSWERED, "Paris", [f"{start}Seine{end}"])
    _, rollout = cut(**{"multi_turn.format": tool_format})
    (turn,) = rollout.steps()
    assert (turn.answer, turn.malformed) == (None, ("bad_call",))


@pytest.mark.parametrize("text", [f"<think>{BROKEN}</think>Seine", "Seine"])
def test_an_answer_after_a_call_in_the_thinking(cut, monkeypatch, text):
    monkeypatch.setitem(ANSWERED, "what the tool says", [text])
    values, rollout = cut()
    last = rollout.steps()[-1]
    assert (last.answer, last.malformed) == ("Seine", ())
    assert [turn[-1] for turn in values] == [0.5, 1.0]


def test_the_sum_is_said_once(monkeypatch, model, tmp_path, registry, caplog):
    queue = run_group(monkeypatch, model, tmp_path, SEARCHES, "algorithm.adv_estimator=grpo")
    assert queue.status("uid-0") == "finished"
    assert caplog.text.count("turn rewards are summed") == 1


def test_given_advantages_of_a_group(monkeypatch, model, tmp_path, registry, caplog):
    options = ("algorithm.adv_estimator=rag_turn_given", "+algorithm.rag_turn.method=return")
    options = (*options, "+algorithm.rag_turn.scale=none")
    queue = run_group(monkeypatch, model, tmp_path, SEARCHES, *options)
    assert queue.status("uid-0") == "finished", caplog.text
    turns = [runs_of(fields) for fields in trajectories(queue)]
    assert all(len(set(turn)) == 1 for member in turns for turn in member)
    # at γ = 1, the advantage of the first turn is the reward minus its mean
    values = [info["rag_value"] for info in infos_of(queue)]
    assert len(set(values)) > 1
    mean = sum(values) / len(values)
    assert [member[0][0] for member in turns] == pytest.approx([v - mean for v in values], abs=1e-6)


def test_a_validation_of_one_rollout_gets_its_rewards(monkeypatch, model, tmp_path, registry):
    options = ("algorithm.adv_estimator=rag_turn_given", "+algorithm.rag_turn.method=gigpo")
    queue = run_group(monkeypatch, model, tmp_path, SEARCHES, *options, validate=True)
    (fields,) = trajectories(queue)
    (info,) = infos_of(queue)
    assert float(fields["rm_scores"].sum()) == pytest.approx(info["rag_value"])


def test_turns_without_a_reward_are_refused(monkeypatch, model, tmp_path, registry, caplog):
    estimator = "algorithm.adv_estimator=rag_turn_igpo"
    recipe = "turn_groups:OUTCOME"
    queue = run_group(monkeypatch, model, tmp_path, recipe, estimator)
    assert queue.status("uid-0") == "failure"
    assert "cannot tell from 0" in caplog.text
    none = "+algorithm.rag_turn.none=zero"
    assert run_group(monkeypatch, model, tmp_path, recipe, estimator, none).status("uid-0") == (
        "finished"
    )


# --- the settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "why"),
    [
        ({"use_kl_in_reward": True}, "use_kl_loss=True instead"),
        ({"v1": False}, "trainer.use_v1=True"),
        (
            {
                "adv_estimator": "rag_turn_given",
                "options": {"method": "gigpo"},
                "filter_groups": {"enable": True, "metric": "reward"},
            },
            "filter_groups.metric=rag_signal",
        ),
        ({"adv_estimator": "rag_turn_given"}, r"\+algorithm\.rag_turn\.method"),
        ({"options": {"none": "one"}}, "the only value is zero"),
    ],
)
def test_contradictions_are_refused(algorithm: dict[str, Any], why: str) -> None:
    changes = {"adv_estimator": "rag_turn_igpo"} | algorithm
    use_v1, options = changes.pop("v1", True), changes.pop("options", None)
    config = SimpleNamespace(
        algorithm=config_of(options, **changes), trainer=SimpleNamespace(get={"use_v1": use_v1}.get)
    )
    with pytest.raises(UsageError, match=why):
        TurnCredit.of(config.algorithm).check_config(config)


def test_an_estimator_with_other_options_than_the_recipe_is_refused() -> None:
    settings = SEARCH_R1.defaults() | {"credit.method": "igpo", "credit.norm": "separate"}
    algorithm = config_of(adv_estimator="rag_turn_igpo")
    with pytest.raises(UsageError, match=r"set \+algorithm\.rag_turn\.norm=separate"):
        TurnCredit.of(algorithm, [settings])
    same = config_of({"norm": "separate"}, adv_estimator="rag_turn_igpo")
    assert TurnCredit.of(same, [settings]).method.options == {"norm": "separate"}
    given = config_of(adv_estimator="rag_turn_given")
    assert TurnCredit.of(given, [settings]).method.options["norm"] == "separate"

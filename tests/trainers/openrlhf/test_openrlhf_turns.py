"""Rollouts with several turns in OpenRLHF: its multi-turn executor, and the sum of the rewards."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from rollout_actor import Engine, Trainer, sampling
from test_openrlhf_agent import agent, run, sample_prompt, trainer  # noqa: F401

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import turn_groups
from rag_rewards_adapters.openrlhf_agent import executor
from start_scripts import init

from rag_rewards.errors import UsageError
from rag_rewards.loading import import_object

SEARCH = "<search>river</search>"
ANSWER = "<answer>Seine</answer>"
BLOCK = "<information>Doc 1(Title: Paris) The Seine.</information>"
ENVIRONMENT = f'''
import torch
from openrlhf.utils.agent import AgentInstanceBase


class Search(AgentInstanceBase):
    """Reply to each query, and end at an answer."""

    def __init__(self):
        pass

    async def step(self, states, **_):
        done = "<search>" not in states["action_text"]
        return {{
            "rewards": torch.tensor(7.0),
            "environment_feedback": "" if done else "{BLOCK}",
            "done": done,
        }}


class OneTurn(Search):
    """End after the first turn."""

    async def step(self, states, **_):
        return {{**await super().step(states), "done": True}}


class Comments(Search):
    """Comment on the answer."""

    async def step(self, states, **_):
        reply = await super().step(states)
        return {{**reply, "environment_feedback": reply["environment_feedback"] or "Correct."}}
'''


@pytest.fixture
def search_agent(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "search_environment.py").write_text(ENVIRONMENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "search_environment", raising=False)


@pytest.mark.usefixtures("search_agent")
def test_action_ranges_are_turns(
    trainer: Trainer,  # noqa: F811
    agent: Any,  # noqa: F811
    caplog: Any,
    monkeypatch: Any,
) -> None:
    seen: list[Any] = []
    real = turn_groups._half_per_search
    monkeypatch.setattr(
        turn_groups, "SEARCHES", turn_groups.custom("searches", lambda r: seen.append(r) or real(r))
    )
    engine = Engine([SEARCH, "<answer>Seine</answer>"])
    path = agent('recipe="turn_groups:SEARCHES", agent="search_environment:Search"')
    with caplog.at_level(logging.WARNING, "rag_rewards"):
        outputs = run(sample_prompt(trainer.actor(path, engine), n=1))
        run(sample_prompt(trainer.actor(path, Engine(engine.replies)), n=1))
    (output,) = outputs
    assert output["reward"] == 1.5  # the rewards of the steps, 7, are replaced
    first, last = seen[0].steps()
    assert first.queries == ("river",)
    assert [(r.title, r.text) for r in first.results] == [("Paris", "The Seine.")]
    start = output["action_ranges"][0][0]
    assert [turn.token_span for turn in (first, last)] == [
        (a - start, b - start) for a, b in output["action_ranges"]
    ]
    assert last.answer == "Seine"
    assert seen[0].prompt_token_ids == tuple(output["observation_tokens"][:start])
    assert "turn rewards are summed: this trainer has no turn credit" in caplog.text
    (experience,) = trainer.experiences(outputs)
    assert int(experience.action_mask.sum()) == sum(b - a for a, b in output["action_ranges"])


# --- limits --------------------------------------------------------------------------------------


@pytest.fixture
def sampled(
    trainer: Trainer,  # noqa: F811
    agent: Any,  # noqa: F811
    search_agent: None,
    monkeypatch: Any,
) -> Any:
    """Return a function that samples replies under limits.

    It returns the output of OpenRLHF and the rollout that the recipe reads.
    """
    rollouts: list[Any] = []
    real = turn_groups._half_per_search
    recipe = turn_groups.custom("searches", lambda r: rollouts.append(r) or real(r))
    monkeypatch.setattr(turn_groups, "SEARCHES", recipe)

    def sample(*replies: str, environment: str = "Search", max_length: int = 1400) -> Any:
        path = agent(f'recipe="turn_groups:SEARCHES", agent="search_environment:{environment}"')
        actor = trainer.actor(path, Engine(replies))
        work = sample_prompt(actor, n=1, max_length=max_length, sampling_params=sampling(1))
        (output,) = run(work)
        return output, rollouts[-1]

    return sample


@pytest.fixture
def ranges(sampled: Any) -> list[tuple[int, int]]:
    """Return the tokens of a search and of an answer that no limit cuts."""
    output, rollout = sampled(SEARCH, ANSWER)
    assert (rollout.finish_reason, rollout.steps()[-1].answer) == ("stop", "Seine")
    assert output["reward"] == 1.5
    action_ranges: list[tuple[int, int]] = output["action_ranges"]
    assert len(action_ranges) == 2
    return action_ranges


@pytest.mark.parametrize("position", [-1, 0], ids=["in the result", "at its end"])
def test_a_result_without_room_for_a_further_turn(
    sampled: Any, ranges: list[tuple[int, int]], position: int
) -> None:
    first, (start, _) = ranges
    output, rollout = sampled(SEARCH, ANSWER, max_length=start + position)
    assert (output["action_ranges"], output["truncated"]) == ([first], False)
    (turn,) = rollout.steps()
    assert (turn.queries, turn.malformed) == (("river",), ("truncated",))
    assert (rollout.finish_reason, output["reward"]) == ("length", 0.0)


def test_a_rejected_action_without_room_for_a_further_turn(
    sampled: Any, ranges: list[tuple[int, int]]
) -> None:
    """The environment replies to a query that is not closed."""
    broken = "<search>river"
    output, _ = sampled(broken, ANSWER)
    (_, end), (start, _) = output["action_ranges"]
    assert end < start
    output, rollout = sampled(broken, ANSWER, max_length=start)
    assert (len(output["action_ranges"]), output["truncated"]) == (1, False)
    assert rollout.steps()[0].malformed == ("unclosed_query", "truncated")
    assert rollout.finish_reason == "length"


def test_an_answer_that_the_limit_cuts_off(sampled: Any, ranges: list[tuple[int, int]]) -> None:
    output, rollout = sampled(SEARCH, ANSWER, max_length=ranges[1][0] + 1)
    assert output["truncated"] is True
    assert [turn.malformed for turn in rollout.steps()] == [(), ("truncated",)]
    assert (rollout.finish_reason, output["reward"]) == ("length", 0.5)


@pytest.mark.parametrize("environment", ["Search", "Comments"])
def test_an_answer_that_ends_at_the_limit_is_complete(
    sampled: Any, ranges: list[tuple[int, int]], environment: str
) -> None:
    """The comment on the answer exceeds the limit."""
    output, rollout = sampled(SEARCH, ANSWER, environment=environment, max_length=ranges[1][1])
    assert (rollout.finish_reason, output["reward"]) == ("stop", 1.5)
    assert rollout.steps()[-1].malformed == ()


def test_a_text_that_ends_at_the_limit_is_complete(sampled: Any) -> None:
    """A judge compares the text of the last turn also if it is not in an answer section."""
    output, _ = sampled(SEARCH, "The Seine.")
    end = output["action_ranges"][1][1]
    output, rollout = sampled(SEARCH, "The Seine.", max_length=end)
    assert len(output["observation_tokens"]) == end
    assert (rollout.finish_reason, output["truncated"]) == ("stop", False)
    assert rollout.steps()[-1].malformed == ()


@pytest.mark.parametrize(("reply", "reason"), [(SEARCH, "max_turns"), (ANSWER, "stop")])
def test_the_last_turn_of_the_environment(sampled: Any, reply: str, reason: str) -> None:
    output, rollout = sampled(reply, environment="OneTurn")
    assert (len(output["action_ranges"]), output["truncated"]) == (1, False)
    (turn,) = rollout.steps()
    assert turn.malformed == (("truncated",) if reason == "max_turns" else ())
    assert rollout.finish_reason == reason


# --- other tests ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [dict, "json:loads"])
def test_another_class_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="AgentInstanceBase"):
        executor(recipe="search-r1", agent=value)()


CORPUS = [
    {"id": "a", "title": "Paris", "text": "Paris lies on the Seine."},
    {"id": "b", "title": "Lyon", "text": "Lyon lies on the Rhône."},
]


def search(query: str) -> list[dict[str, str]]:
    return [document for document in CORPUS if document["title"] in query]


def test_the_agent_of_init_requires_a_search_engine(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert init("openrlhf", "search-r1", folder).returncode == 0
    with pytest.raises(UsageError, match=f"edit {folder / 'search.py'}"):
        import_object(f"{folder / 'agent.py'}:AgentExecutor")
    (folder / "search.py").write_text("def search(query):\n    return []\n")
    assert import_object(f"{folder / 'agent.py'}:AgentExecutor")().inner is not None


@pytest.mark.parametrize(("max_turns", "turns"), [(4, 3), (2, 2)])
def test_the_environment_answers_queries_in_the_dialect(max_turns: int, turns: int) -> None:
    created = executor(recipe="search-r1", search=search, max_turns=max_turns)()
    environment = created.inner.agent_instance_cls
    assert environment.stop == ["</search>", "</answer>"]
    texts = ["<search>river of Lyon</search>", "<search>Oslo</search>", ANSWER]

    async def play() -> list[dict[str, Any]]:
        instance, replies = environment(), []
        for text in texts:
            replies.append(await instance.step({"action_text": text}))
            if replies[-1]["done"]:
                return replies
        raise AssertionError("the environment does not end")

    replies = asyncio.run(play())
    assert len(replies) == turns
    block = "\n\n<information>Doc 1(Title: Lyon) Lyon lies on the Rhône.</information>\n\n"
    assert replies[0]["environment_feedback"] == block
    assert replies[-1]["environment_feedback"] == ""


def test_a_sample_stops_at_the_tags_of_the_dialect(
    trainer: Trainer,  # noqa: F811
    agent: Any,  # noqa: F811
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(turn_groups, "search", search, raising=False)
    path = agent('recipe="search-r1", search="turn_groups:search"')
    parameters = sampling(1)
    actor = trainer.actor(path, Engine([ANSWER]))
    run(sample_prompt(actor, n=1, max_length=1400, sampling_params=parameters))
    assert parameters.stop == ["</search>", "</answer>"]
    assert parameters.include_stop_str_in_output is True


def test_search_and_agent_are_alternatives() -> None:
    with pytest.raises(UsageError, match="set one of them"):
        executor(recipe="search-r1", search=search, agent=dict)
    with pytest.raises(UsageError, match="choose search-r1"):
        executor(recipe="search-r1", search=search, settings={"dialect": "tools"})

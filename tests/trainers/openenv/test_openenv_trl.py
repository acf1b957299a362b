"""The tools of the ready environment in TRL's GRPOTrainer, with and without its own reward."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from datasets import Dataset
from rag_rewards_adapters.openenv import ScoredSearchTools, SearchTools, environments
from rag_rewards_adapters.trl import RagReward
from trl_runs import advantages, qwen3_tokenizer, reply, trainer

from rag_rewards import custom
from rag_rewards.errors import BackendError, UsageError
from rag_rewards.training.advantages import group_advantages

DATA = Path(__file__).resolve().parents[3] / "examples/environments/openenv/train.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
SMALL = {
    "max_completion_length": 1500,
    "max_steps": 1,
    "scale_rewards": "none",
    "remove_unused_columns": False,
}
TOOLS = {"dialect": "tools"}


def call(name: str, **arguments: Any) -> str:
    content = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{content}\n</tool_call>"


def rows(*columns: str) -> Dataset:
    """Return the row about the river, with these columns and its index."""
    return Dataset.from_list([{name: ROWS[2][name] for name in columns} | {"index": 2}])


def tools_at(url: str, base: type = ScoredSearchTools) -> Any:
    return type("Search", (base,), {"url": url})


def run_of(folder: Path, rewards: Any, environment: Any, data: Dataset, **changes: Any) -> Any:
    return trainer(
        folder,
        rewards,
        args=SMALL | changes,
        train_dataset=data,
        tokenizer=qwen3_tokenizer(),
        environment_factory=environment,
    )


@pytest.mark.optimizer_step
def test_a_step_with_the_reward_of_the_environment(ready: str, tmp_path: Path) -> None:
    """Only an answer by a call counts: the last policy writes the right one as text."""
    run = run_of(tmp_path, None, tools_at(ready), rows("prompt"))
    assert [tool.__name__ for tool in run.tools] == ["answer", "search"]
    river = call("search", query="capital of France")
    turns = [
        [river, call("answer", answer="Seine"), call("answer", answer="Rhône"), "Seine"],
        [call("answer", answer="the Seine"), "done", "done"],
        ["done"],
    ]
    reply(run, turns)
    run.train()
    assert list(run._logs["rewards"]["Search"]) == [1.0, 1.0, 0.0, 0.0]
    assert advantages(run) == [0.5, 0.5, -0.5, -0.5]
    [logged] = [entry for entry in run.state.log_history if "rewards/Search/mean" in entry]
    assert logged["rewards/Search/mean"] == 0.5
    prompt, results = run._logs["prompt"][0], run._logs["completion"][0][1]
    assert prompt[-1]["content"].endswith("by a call of the tool `answer`.")
    assert json.loads(results["content"])[0]["title"] == "France"


def test_a_data_set_without_prompts_gets_those_of_the_environment(
    ready: str, tmp_path: Path
) -> None:
    run = run_of(tmp_path, None, tools_at(ready), rows())
    reply(run, [[call("answer", answer="Seine"), "a", "b", "c"], ["done"]])
    run.train()
    assert ROWS[2]["question"] in run._logs["prompt"][0][-1]["content"]
    assert list(run._logs["rewards"]["Search"]) == [1.0, 0.0, 0.0, 0.0]


# --- failures ------------------------------------------------------------------------------------


def broken_search(query: str) -> Any:
    return [{"id": "p", "text": "On the Seine."}] if query == "Paris" else 1 / 0


@pytest.fixture
def broken(serve: Callable[[Any], str], tmp_path: Path) -> str:
    """The address of an environment whose search engine and whose reward can fail."""

    def score(row: Any) -> float:
        if row.response == "Rhône":
            raise BackendError("the judge is down")
        return float(row.response == "Seine")

    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"question": "Which river?", "answers": ["Seine"]}))
    return serve(environments(path, custom("mixed", score), search=broken_search))


def test_unscored_rollouts_are_left_out_and_never_zero(broken: str, tmp_path: Path) -> None:
    """The search engine fails for one rollout and a model for another. The mean is of the rest."""
    data = Dataset.from_list([{"index": 0}])
    run = run_of(tmp_path, None, tools_at(broken), data)
    answers = [call("answer", answer=river) for river in ("Seine", "Rhône", "Tagus")]
    reply(run, [[*answers, call("search", query="boom")], ["done"] * 3 + ["Seine"]])
    run.train()
    rewards = run._logs["rewards"]["Search"]
    assert [rewards[0], rewards[2]] == [1.0, 0.0]
    assert rewards[1] != rewards[1]  # not a number
    assert rewards[3] != rewards[3]
    assert advantages(run) == [0.5, 0.0, -0.5, 0.0]


class Client:
    """A client whose episodes end with these rewards."""

    rewards: ClassVar[list[float | None]] = []

    def reset(self, index: int) -> Any:
        return SimpleNamespace(done=False, observation=SimpleNamespace(prompt="Which river?"))

    def step(self, action: Any) -> Any:
        metadata = {"unscored": "the judge is down"}
        observation = SimpleNamespace(error=None)
        reward = self.rewards.pop(0)
        return SimpleNamespace(done=True, reward=reward, metadata=metadata, observation=observation)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([None], []),
        ([1.0, None, None, None], [1.0, None, None]),
        ([1.0, None, None, 0.0, None, None, None], [1.0, None, None, 0.0, None, None]),
    ],
)
def test_rollouts_without_a_reward_end_the_training(
    rewards: list[float | None], expected: list[float | None], monkeypatch: Any
) -> None:
    """The first one does, and so do three in a row."""
    kind = type("Search", (ScoredSearchTools,), {"patience": 3})
    monkeypatch.setattr(Client, "rewards", list(rewards))
    monkeypatch.setattr(kind, "__init__", lambda self: setattr(self, "_client", Client()))
    received: list[float | None] = []

    def receive() -> None:
        for _ in rewards:
            tools = kind()
            tools.reset(index=0)
            received.append(tools.get_reward())

    with pytest.raises(BackendError, match="scores no rollout: the judge is down"):
        receive()
    assert received == expected


def test_a_policy_cannot_make_its_rollout_unscored(ready: str) -> None:
    """Arguments of a wrong type, calls after the end and lone surrogates are its own errors."""
    tools = tools_at(ready)()
    tools.reset(index=2)
    for query in (5, None):
        with pytest.raises(ValueError, match="it must be text"):
            tools.search(query)
    tools.search("\ud800")
    assert tools.get_reward() == 0.0
    tools.reset(index=2)
    tools.answer("Seine")
    with pytest.raises(ValueError, match="the episode has ended"):
        tools.answer("Rhône")
    assert (tools.get_reward(), tools.environment_error) == (1.0, None)


def test_a_data_set_without_an_index_is_an_error(ready: str) -> None:
    """The rollouts of a group would have different questions."""
    with pytest.raises(UsageError, match="no column index"):
        tools_at(ready)().reset(prompt=[])


# --- a reward function beside the environment ----------------------------------------------------


@pytest.mark.optimizer_step
def test_the_advantage_of_lear_beside_the_environment(ready: str, tmp_path: Path) -> None:
    """The reward function gets the messages and the whole group."""
    reward = RagReward("search-r1", settings=TOOLS, std_floor=0.1)
    run = run_of(tmp_path, reward, tools_at(ready, SearchTools), rows("prompt", "answers"))
    reward.bind(run)
    reply(run, [[call("search", query="capital of France"), "Rhône", "Tagus", "Seine"], ["Seine"]])
    run.train()
    assert [tool.__name__ for tool in run.tools] == ["search"]
    expected = group_advantages([1.0, 0.0, 0.0, 1.0], std_floor=0.1)
    assert advantages(run) == pytest.approx(expected, abs=1e-6)
    first = reward.last_rollouts[0].steps()[0]
    assert (first.queries, first.results[0].id) == (("capital of France",), "france")


def test_a_failed_search_leaves_the_group_of_the_reward_function_unscored(
    broken: str, tmp_path: Path
) -> None:
    """The first batch has no failure: in the first one, it would end the training."""
    reward = RagReward("search-r1", settings=TOOLS)
    data = Dataset.from_list([{"answers": ["Seine"], "question": "Which river?", "index": 0}] * 2)
    run = run_of(tmp_path, reward, tools_at(broken, SearchTools), data, max_steps=2)
    paris, boom = call("search", query="Paris"), call("search", query="boom")
    first = [[paris, "a", "Seine", "Rhône"], ["Seine"]]
    reply(run, [*first, [paris, boom, "Seine", "Rhône"], ["Seine", "Seine"]])
    run.train()
    assert reward.last_scores == [None] * 4
    assert advantages(run)[-4:] == [0.0] * 4

"""Rollouts with several turns in OpenRLHF: its multi-turn executor, and the sum of the rewards."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from rollout_actor import Engine, Trainer
from test_openrlhf_agent import agent, run, sample_prompt, trainer  # noqa: F401
from test_openrlhf_conformance import TOLERANCE, maker, of_rollouts  # noqa: F401
from test_openrlhf_conformance import run as advantages_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import turn_groups
from rag_rewards_adapters.openrlhf_agent import executor
from start_scripts import init
from turn_groups import GROUPS, SUMS, TurnGroup

from rag_rewards.errors import UsageError
from rag_rewards.loading import import_object

SEARCH = "<search>river</search>"
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


@pytest.mark.parametrize(
    ("group", "sums"), zip(GROUPS, SUMS, strict=True), ids=lambda x: str(x)[:30]
)
def test_golden_groups_give_one_advantage_per_response(
    maker: Any,  # noqa: F811
    group: TurnGroup,
    sums: tuple[float, float],
) -> None:
    a, b = sums
    values = of_rollouts(advantages_of(maker, [a, b], 2, "dr_grpo"))
    assert values == pytest.approx([(a - b) / 2, (b - a) / 2], **TOLERANCE)


@pytest.mark.parametrize("value", [dict, "json:loads"])
def test_another_class_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="AgentInstanceBase"):
        executor(recipe="search-r1", agent=value)()


def test_the_agent_of_init_has_the_environment_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert init("openrlhf", "search-r1", folder).returncode == 0
    (folder / "environment.py").write_text(ENVIRONMENT)
    created = import_object(f"{folder / 'agent.py'}:AgentExecutor")()
    assert created.inner.agent_instance_cls.__name__ == "Search"

"""The trainer accepts the flags of docs/openrlhf.md and loads its files."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from rollout_actor import Trainer

PAGE = Path(__file__).resolve().parents[3] / "docs" / "openrlhf.md"
TEXT = PAGE.read_text("utf-8")
SINCE_RENAMED = {"remote_rm_url"}
ENVIRONMENT = """
from openrlhf.utils.agent import AgentInstanceBase


class Search(AgentInstanceBase):
    pass
"""
SEARCH = """
def search(queries):
    return [[{"id": "1", "text": "Paris is the capital of France."}] for _ in queries]
"""
OURS = {"recipe", "trainer", "host", "token-file", "on-error", "error-value", "model", "backend"}
OF_PIP = {"no-build-isolation"}


def test_the_trainer_accepts_every_flag() -> None:
    package = importlib.util.find_spec("openrlhf")
    path = Path(package.submodule_search_locations[0]) / "cli" / "train_ppo_ray.py"
    flags = set(re.findall(r'"--([a-z_.]+)"', path.read_text("utf-8")))
    named = set(re.findall(r"--([a-z][a-z_.-]*[a-z])", TEXT))
    assert {"train.agent_func_path", "data.label_key", "algo.advantage.estimator"} <= named
    assert named - SINCE_RENAMED - OURS - OF_PIP <= flags


AGENTS = re.findall(r"^```python openrlhf\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("code", AGENTS)
def test_the_trainer_loads_every_agent(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_environment.py").write_text(ENVIRONMENT, "utf-8")
    (tmp_path / "search.py").write_text(SEARCH, "utf-8")
    monkeypatch.delitem(sys.modules, "search", raising=False)
    if "import" not in code:
        code = f"from rag_rewards_adapters.openrlhf_agent import executor\n{code}"
    path = tmp_path / "agent.py"
    path.write_text(code, "utf-8")
    loaded = Trainer().engine._load_agent_executor(str(path))
    assert type(loaded).__name__ == "AgentExecutor"

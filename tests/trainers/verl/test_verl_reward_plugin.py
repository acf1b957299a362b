"""The plugin in verl's processes: its registrations, its import time, and its state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from processes import WAIT_SECONDS

STATE = """
import json, sys
import verl
{then}
from rag_rewards_adapters.verl_plugin import loaded
ours = sorted(m for m in sys.modules if m.startswith(("rag_rewards", "verl.exp", "verl.trainer")))
print(json.dumps([loaded(), ours]))
"""


def state(then: str = "", **environment: str) -> Any:
    """Return `loaded()` in a new process after `import verl`, and the imported modules."""
    process = subprocess.run(
        [sys.executable, "-c", STATE.format(then=then)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    return json.loads(process.stdout.splitlines()[-1])


def test_importing_verl_imports_only_the_plugin() -> None:
    states, modules = state()
    assert set(states.values()) == {"not imported yet"}
    assert modules == ["rag_rewards_adapters", "rag_rewards_adapters.verl_plugin"]


REGISTRIES = """
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
assert get_adv_estimator_fn("rag_grpo_clip_std").__module__ == "rag_rewards_adapters.verl_plugin"
assert get_reward_manager_cls("rag_rewards").__module__ == "rag_rewards_adapters.verl.manager"
"""
AGENTS = """
from verl.experimental.agent_loop import agent_loop
from rag_rewards_adapters.verl_group import RagGroupAgentLoop
target = agent_loop._agent_loop_registry["rag_group"]["_target_"]
assert target == f"{RagGroupAgentLoop.__module__}.RagGroupAgentLoop"
"""


def test_verl_registers_all_three_through_the_entry_point() -> None:
    pytest.importorskip("cachetools", reason="verl's agent loop needs it and does not ask for it")
    states, _ = state(REGISTRIES + AGENTS, VERL_USE_EXTERNAL_PLUGINS="rag_rewards")
    assert set(states.values()) == {"registered"}


def test_verl_registers_them_through_the_environment_variable() -> None:
    module = "rag_rewards_adapters.verl_plugin"
    off = {"VERL_USE_EXTERNAL_PLUGINS": "none", "VERL_USE_EXTERNAL_MODULES": module}
    states, _ = state(REGISTRIES, **off)
    assert states["rag_rewards"] == states["rag_grpo_clip_std"] == "registered"


def test_modules_imported_before_the_plugin_are_registered() -> None:
    off = {"VERL_USE_EXTERNAL_PLUGINS": "none"}
    late = (
        "import verl.trainer.ppo.core_algos\n"
        "import verl.experimental.reward_loop.reward_manager\n"
        "import rag_rewards_adapters.verl_plugin\n" + REGISTRIES
    )
    states, _ = state(late, **off)
    assert states["rag_rewards"] == states["rag_grpo_clip_std"] == "registered"


def test_a_failed_registration_is_reported() -> None:
    broken = (
        "import rag_rewards_adapters\n"
        "sys.modules['rag_rewards_adapters.verl.manager'] = None\n"
        "from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls\n"
        "assert get_reward_manager_cls('naive')\n"
    )
    states, _ = state(broken)
    assert "ModuleNotFoundError" in states["rag_rewards"]

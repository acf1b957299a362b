"""`rag-rewards doctor` beside the real verl, which says nothing of plugins that fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def examined(**environment: str) -> dict[str, Any]:
    """The finding about the plugin."""
    ran = subprocess.run(
        [sys.executable, "-m", "rag_rewards", "doctor", "--json"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=os.environ | environment,
    )
    found = {finding["name"]: finding for finding in json.loads(ran.stdout)}
    assert found["verl"]["state"] == "ok"
    return dict(found["verl plugin"], code=ran.returncode)


def test_the_plugin_is_registered_by_verl_itself() -> None:
    found = examined()
    assert (found["state"], found["code"]) == ("ok", 0)
    assert found["found"] == "registered: rag_group, rag_grpo_clip_std, rag_rewards"


def test_a_plugin_that_verl_was_told_not_to_load_is_a_problem_with_its_way_out() -> None:
    found = examined(VERL_USE_EXTERNAL_PLUGINS="none")
    assert (found["state"], found["code"]) == ("problem", 1)
    assert "VERL_USE_EXTERNAL_PLUGINS" in found["todo"]

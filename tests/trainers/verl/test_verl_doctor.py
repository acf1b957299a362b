"""`rag-rewards doctor` in the environment of verl, which does not report failed plugins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from processes import WAIT_SECONDS

from rag_rewards.cli import doctor
from rag_rewards.scripts import packages
from rag_rewards.scripts.packages import run_isolated
from rag_rewards.trainers import TRAINERS


def plugin_finding(**environment: str) -> dict[str, Any]:
    """Return the finding about the plugin."""
    ran = subprocess.run(
        [sys.executable, "-m", "rag_rewards", "doctor", "--json"],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
        env=os.environ | environment,
    )
    finding_by_name = {finding["name"]: finding for finding in json.loads(ran.stdout)}
    assert finding_by_name["verl"]["state"] == "ok"
    return dict(finding_by_name["verl plugin"], code=ran.returncode)


def test_the_plugin_is_registered_by_verl_itself() -> None:
    finding = plugin_finding()
    assert (finding["state"], finding["code"]) == ("ok", 0)
    assert finding["found"] == (
        "registered: rag_gdpo, rag_group, rag_grpo_clip_std, rag_rewards, rag_turn_given, "
        "rag_turn_igpo, rag_turn_mt_grpo, rag_turn_return"
    )


@pytest.mark.parametrize("module", ["cachetools", "fastapi", "transfer_queue", "uvicorn"])
def test_a_training_imports_packages_of_the_extras(module: str) -> None:
    """The packages that `doctor` requires beside those of verl's metadata."""
    code = f"import sys; sys.modules[{module!r}] = None\n{doctor._VERL}"
    found, reason = run_isolated(code)
    assert found is None
    assert module in reason


def test_the_packages_of_the_extras_are_named_if_they_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The packages of `pip install torch verl`, with the metadata of verl itself."""
    real = packages.installed_version
    absent = TRAINERS["verl"].imports
    assert packages.missing(TRAINERS["verl"]) == []
    monkeypatch.setattr(packages, "installed_version", lambda n: None if n in absent else real(n))
    [result] = [each for each in doctor._packages() if each.name == "verl packages"]
    assert result.state == "problem"
    assert result.fix == 'pip install "TransferQueue>=0.1.10" cachetools fastapi uvicorn'


def test_a_disabled_plugin_is_a_problem_with_a_solution() -> None:
    finding = plugin_finding(VERL_USE_EXTERNAL_PLUGINS="none")
    assert (finding["state"], finding["code"]) == ("problem", 1)
    assert "VERL_USE_EXTERNAL_PLUGINS" in finding["todo"]

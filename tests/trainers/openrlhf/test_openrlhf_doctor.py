"""`rag-rewards doctor` in the environment of OpenRLHF, which has only its client and its agent."""

from __future__ import annotations

from importlib import metadata

from packaging.requirements import Requirement

from rag_rewards.cli import doctor
from rag_rewards.scripts.packages import installed_version


def test_every_missing_requirement_is_named() -> None:
    lines = map(Requirement, metadata.requires("openrlhf") or ())
    required = [line.name for line in lines if line.marker is None]
    absent = [name for name in required if installed_version(name) is None]
    assert {"deepspeed", "flash-attn", "ray"} <= {*absent}
    [result] = [each for each in doctor._packages() if each.name == "OpenRLHF packages"]
    assert result.state == "absent", "the tests do not need them"
    message = f"{len(absent)} of its packages are not installed: {', '.join(absent)}"
    assert message in result.message
    assert '"deepspeed==' in result.fix
    assert 'pip install "flash-attn==2.8.3" --no-build-isolation' in result.fix

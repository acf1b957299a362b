"""`rag-rewards doctor`: what is here of trainers, plugins and backends, and what to do about gaps.

Versions are read from installed packages' metadata, without importing them; what only shows when a
package runs (whether verl loaded the plugin, whether torch sees a GPU) is tried in a process of
its own, where it can neither slow nor break this one.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

from rag_rewards.version import __version__

if TYPE_CHECKING:
    from rich.console import Console

State = Literal["ok", "absent", "problem"]
Version = tuple[int, ...]

PROBE_SECONDS = 180
PLUGINS = "verl.plugins"
NOT_FOR_USERS = ("dev", "docs")

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*([^;]*)(?:;\s*(.*))?")
_CLAUSE = re.compile(r"(~=|>=|<=|==|!=|<|>)\s*([0-9][0-9.]*)")
_VERL = """
import json, sys, verl
import verl.experimental.agent_loop.agent_loop, verl.trainer.ppo.core_algos
import verl.experimental.reward_loop.reward_manager.registry
ours = sys.modules.get("rag_rewards_adapters.verl_plugin")
print("\\n" + json.dumps(ours.loaded() if ours else {"the plugin": "not loaded by verl"}))
"""
_TORCH = """
import json, torch
cuda = torch.cuda.is_available()
named = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else []
print("\\n" + json.dumps({"gpus": named}))
"""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `todo` is the way out where the state is not ok."""

    area: str
    name: str
    state: State
    found: str
    todo: str = ""


@dataclass(frozen=True)
class Trainer:
    """A trainer: from which version on it is supported, and against which one tests run."""

    name: str
    package: str
    since: Version
    tested: str
    older: str
    install: str


TRAINERS = (
    Trainer("TRL", "trl", (1, 15), "1.16.0", "upgrade it", "pip install trl"),
    Trainer(
        "verl",
        "verl",
        (0, 9),
        "0.9.1",
        "before 0.9 compute_score alone works: reward.custom_reward_function.path="
        "pkg://rag_rewards_adapters.verl",
        "pip install verl",
    ),
    Trainer("ms-swift", "ms-swift", (4, 0), "4.6.0", "upgrade ms-swift", "pip install ms-swift"),
    Trainer("OpenRLHF", "openrlhf", (0, 9, 1), "0.11.2", "upgrade openrlhf", "see its own guide"),
    Trainer(
        "verifiers", "verifiers", (0, 4), "0.4.0", "upgrade verifiers", "pip install verifiers"
    ),
)


def examine() -> list[Finding]:
    """Everything there is to say, in the order it is printed."""
    return [*_ourselves(), *_trainers(), *_plugin(), *_extras(), *_gpu()]


def _ourselves() -> Iterator[Finding]:
    python = platform.python_version()
    yield Finding("this package", "rag-rewards", "ok", f"{__version__} on Python {python}")


def _trainers() -> Iterator[Finding]:
    for trainer in TRAINERS:
        version = installed(trainer.package)
        if version is None:
            yield Finding("trainers", trainer.name, "absent", "not installed", trainer.install)
        elif parse(version) < trainer.since:
            known = ".".join(map(str, trainer.since))
            yield Finding(
                "trainers", trainer.name, "problem", f"{version}, before {known}", trainer.older
            )
        else:
            told = "" if version == trainer.tested else f", tests run against {trainer.tested}"
            yield Finding("trainers", trainer.name, "ok", version + told)


def _plugin() -> Iterator[Finding]:
    """verl says of a plugin that fails nothing above DEBUG."""
    version = installed("verl")
    if version is None or parse(version) < (0, 9):
        return
    name = "verl plugin"
    if not any(point.name == "rag_rewards" for point in metadata.entry_points(group=PLUGINS)):
        todo = "install this package again: pip install --force-reinstall --no-deps rag-rewards"
        yield Finding("plugins", name, "problem", f"no entry point in {PLUGINS}", todo)
        return
    told, why = run_apart(_VERL)
    if told is None:
        yield Finding("plugins", name, "problem", f"verl does not load it: {why}", "see the error")
        return
    missing = [f"{what}: {how}" for what, how in told.items() if how != "registered"]
    if missing:
        todo = "unset VERL_USE_EXTERNAL_PLUGINS, or set it to auto or rag_rewards"
        yield Finding("plugins", name, "problem", "; ".join(missing), todo)
    else:
        yield Finding("plugins", name, "ok", f"registered: {', '.join(sorted(told))}")


def _extras() -> Iterator[Finding]:
    """Each extra of this package: what of it is missing or too old."""
    for extra in extras():
        needed = list(requirements(extra))
        lacking = [gap for name, wanted in needed if (gap := shortfall(name, wanted))]
        if lacking:
            todo = f'pip install "rag-rewards[{extra}]"'
            yield Finding("extras", extra, "absent", "; ".join(lacking), todo)
        else:
            has = ", ".join(f"{name} {installed(name)}" for name, _ in needed)
            yield Finding("extras", extra, "ok", has)


def _gpu() -> Iterator[Finding]:
    if installed("torch") is None:
        return
    told, why = run_apart(_TORCH)
    if told is None:
        yield Finding("hardware", "GPU", "problem", f"torch does not run: {why}", "reinstall torch")
    elif told["gpus"]:
        yield Finding("hardware", "GPU", "ok", ", ".join(told["gpus"]))
    else:
        todo = "models run on the CPU; for a GPU install the torch build of its driver"
        yield Finding("hardware", "GPU", "absent", "torch sees none", todo)


# --- packages ----------------------------------------------------------------------------------


def installed(package: str) -> str | None:
    """The version of a package, None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def parse(version: str) -> Version:
    """The leading numbers of a version.

    >>> parse("2.13.0+cpu"), parse("0.11.2.post1")
    ((2, 13, 0), (0, 11, 2))
    """
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers[0].split("."))) if numbers else ()


def extras() -> list[str]:
    """The extras of this package that are for users."""
    try:
        said = metadata.metadata("rag-rewards").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        said = []
    return [extra for extra in said if extra not in NOT_FOR_USERS]


def requirements(extra: str) -> Iterator[tuple[str, str]]:
    """(package, wanted versions) of one extra, as this package's metadata lists them."""
    try:
        lines = metadata.requires("rag-rewards") or []
    except metadata.PackageNotFoundError:
        lines = []
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match and re.search(rf"""extra == ['"]{extra}['"]""", match[3] or ""):
            yield match[1], match[2].strip()


def shortfall(package: str, wanted: str) -> str:
    """What is wrong with an installed package for these versions; "" where nothing is."""
    version = installed(package)
    if version is None:
        return f"{package} is not installed"
    if not satisfies(parse(version), wanted):
        return f"{package} {version}, wanted {wanted}"
    return ""


def satisfies(version: Version, wanted: str) -> bool:
    """Whether a version meets clauses like ">=2.5,<3" or "~=2.5.1" (2.5.1 or later, but 2.5).

    >>> satisfies((2, 13, 0), ">=2.5,<3"), satisfies((2, 4), ">=2.5"), satisfies((3, 0), "~=2.5")
    (True, False, False)
    """
    tests = {
        "~=": lambda a, b: a >= b,
        ">=": lambda a, b: a >= b,
        "<=": lambda a, b: a <= b,
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        ">": lambda a, b: a > b,
    }
    for sign, text in _CLAUSE.findall(wanted):
        limit = parse(text)
        width = max(len(version), len(limit))
        padded = [tuple(v + (0,) * (width - len(v))) for v in (version, limit)]
        if not tests[sign](*padded):
            return False
        if sign == "~=" and padded[0][: len(limit) - 1] != limit[:-1]:
            return False
    return True


def run_apart(code: str) -> tuple[dict[str, Any] | None, str]:
    """The JSON object that a piece of our own code prints last, or None and why."""
    try:
        ran = subprocess.run(  # noqa: S603 (this interpreter, our own text)
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer in {PROBE_SECONDS} seconds"
    if ran.returncode:
        lines = ran.stderr.strip().splitlines()
        return None, lines[-1] if lines else f"exit code {ran.returncode}"
    told = _last_object(ran.stdout)
    return told, "" if told is not None else "it ran, and told nothing"


def _last_object(output: str) -> dict[str, Any] | None:
    """The last line that is a JSON object: libraries print too, also when a process ends."""
    for line in reversed(output.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return None


# --- telling -----------------------------------------------------------------------------------

_MARK = {"ok": ("✓", "green"), "absent": ("–", "dim"), "problem": ("✗", "red")}


def print_findings(console: Console, findings: list[Finding]) -> None:
    """A table by area; a gap stands with its way out."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for name in ("", "what", "found", "what to do"):
        table.add_column(name, overflow="fold")
    area = ""
    for finding in findings:
        if area and finding.area != area:
            table.add_section()
        area = finding.area
        sign, style = _MARK[finding.state]
        table.add_row(
            Text(sign, style), Text(finding.name), Text(finding.found), Text(finding.todo)
        )
    console.print(table)

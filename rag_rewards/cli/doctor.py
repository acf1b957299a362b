"""`rag-rewards doctor`: check the installed trainers, plugins, extras and the GPU.

Versions come from package metadata, so no package is imported. Two questions need a running
package: whether verl loads the plugin, and whether torch finds a GPU. Each runs in a separate
process.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata
from itertools import product
from typing import Literal

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from rich.console import Console
from rich.text import Text

from rag_rewards import __version__
from rag_rewards.cli.output import console, print_json
from rag_rewards.report.terminal import titled_table
from rag_rewards.scripts.packages import (
    DEPENDENTS,
    ENGINE,
    conflicts,
    dependent_of,
    install_command,
    installed_version,
    is_tested,
    missing,
    requirement_of,
    run_isolated,
)
from rag_rewards.trainers import TRAINERS, Trainer
from rag_rewards.training.turn_sums import SUMMED

State = Literal["ok", "absent", "problem"]

PLUGINS = "verl.plugins"
INTERNAL_EXTRAS = ("dev", "docs")

_VERL = """
import json, sys, verl
import verl.experimental.agent_loop.agent_loop, verl.trainer.ppo.core_algos
import verl.experimental.reward_loop.reward_manager.registry
import verl.trainer.ppo.v1.trainer_sync
ours = sys.modules.get("rag_rewards_adapters.verl_plugin")
print("\\n" + json.dumps(ours.loaded() if ours else {"the plugin": "not loaded by verl"}))
"""
_TORCH = """
import json, torch
cuda = torch.cuda.is_available()
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else []
print("\\n" + json.dumps({"gpus": names}))
"""


class CheckResult(msgspec.Struct, frozen=True, rename={"message": "found", "fix": "todo"}):
    """The result of one check. `fix` describes the fix when the state is not `ok`."""

    area: str
    name: str
    state: State
    message: str
    fix: str = ""


def doctor(*, json: bool = False) -> int:
    """Check the installed trainers, plugins and extras.

    The exit code is 1 if an installed package does not work.

    Parameters
    ----------
    json
        Print JSON.
    """
    results = examine()
    if json:
        print_json(results)
    else:
        print_results(console(120), results)
    return int(any(result.state == "problem" for result in results))


def examine() -> list[CheckResult]:
    """Run all checks, in the order in which they are printed."""
    return [
        *_this_package(),
        *_trainers(),
        *_packages(),
        *_turn_credit(),
        *_plugin(),
        *_extras(),
        *_gpu(),
    ]


def _this_package() -> Iterator[CheckResult]:
    python = platform.python_version()
    yield CheckResult("this package", "rag-rewards", "ok", f"{__version__} on Python {python}")


def _trainers() -> Iterator[CheckResult]:
    place = "in another environment: " if _in_use() else ""
    for trainer in TRAINERS.values():
        title, version = trainer.title, installed_version(trainer.package)
        python = "" if platform.python_version() in SpecifierSet(trainer.python) else trainer.python
        condition = f"with Python {python}: " if python else ""
        if version is None:
            fix = f"{place}{condition}{trainer.installation}"
            yield CheckResult("trainers", title, "absent", "not installed", fix)
        elif (dependent := dependent_of(trainer.package)) is not None:
            yield CheckResult("trainers", title, "ok", f"{version}, a requirement of {dependent}")
        elif Version(version) < Version(trainer.since):
            upgrade = trainer.installation.replace("pip install ", "pip install --upgrade ")
            fix = "; ".join(filter(None, (condition + upgrade, trainer.before)))
            state = f"{version} is older than {trainer.since}"
            yield CheckResult("trainers", title, "problem", state, fix)
        else:
            tests = f"tests use {trainer.tested}"
            if not trainer.environment:
                tests = "the tests do not install it"
            elif f"{version}.".startswith(f"{trainer.tested}."):
                tests = ""
            yield CheckResult("trainers", title, "ok", version + (tests and f" ({tests})"))


def _in_use() -> list[Trainer]:
    """Return the installed trainers that are not only a dependency of another one."""
    return [
        trainer
        for trainer in TRAINERS.values()
        if installed_version(trainer.package) is not None and not dependent_of(trainer.package)
    ]


def _packages() -> Iterator[CheckResult]:
    """Compare the installed packages with those that each installed trainer requires.

    A package that the tests do not need either is no problem in the environment of the tests.
    """
    for trainer in _in_use():
        wanted, absent = conflicts(trainer.package), missing(trainer)
        messages = list(wanted)
        state: State = "problem" if wanted or (absent and not is_tested(trainer)) else "ok"
        if absent:
            state = "absent" if state == "ok" else state
            names = ", ".join(line.name for line in absent)
            messages.append(f"{len(absent)} of its packages are not installed: {names}")
        message = "; ".join(messages) or (
            "the packages that it requires are installed, in versions that it accepts"
        )
        fix = install_command(dict.fromkeys((*wanted.values(), *absent)))
        yield CheckResult("versions", f"{trainer.title} packages", state, message, fix)


def _turn_credit() -> Iterator[CheckResult]:
    """Show how each installed trainer uses the rewards of turns."""
    *others, last = (trainer.title for trainer in TRAINERS.values() if trainer.turn_credit)
    fix = f"train with {', '.join(others)} or {last}"
    for trainer in _in_use():
        name = f"{trainer.title} turns"
        if trainer.turn_credit:
            yield CheckResult("turn credit", name, "ok", trainer.turn_credit)
        else:
            yield CheckResult("turn credit", name, "absent", SUMMED, fix)


def _plugin() -> Iterator[CheckResult]:
    """Check the verl plugin. verl logs a plugin that fails at the level DEBUG only."""
    version = installed_version("verl")
    if version is None or Version(version) < Version("0.9"):
        return
    name = "verl plugin"
    if not any(point.name == "rag_rewards" for point in metadata.entry_points(group=PLUGINS)):
        fix = "reinstall this package: pip install --force-reinstall --no-deps rag-rewards"
        yield CheckResult("plugins", name, "problem", f"no entry point in {PLUGINS}", fix)
        return
    parts, reason = run_isolated(_VERL)
    if parts is None:
        yield CheckResult(
            "plugins", name, "problem", f"verl does not load it: {reason}", "see error"
        )
        return
    missing = [f"{part}: {state}" for part, state in parts.items() if state != "registered"]
    if missing:
        fix = "unset VERL_USE_EXTERNAL_PLUGINS, or set it to auto or rag_rewards"
        yield CheckResult("plugins", name, "problem", "; ".join(missing), fix)
    else:
        yield CheckResult("plugins", name, "ok", f"registered: {', '.join(sorted(parts))}")


def _extras() -> Iterator[CheckResult]:
    """Check each extra of this package for missing and outdated packages."""
    for extra, requirements in _requirements().items():
        gaps = {requirement: gap for requirement in requirements if (gap := _gap(requirement))}
        if gaps:
            fix = _fix_of_extra(extra, list(gaps))
            yield CheckResult("extras", extra, "absent", "; ".join(gaps.values()), fix)
        else:
            versions = ", ".join(f"{r.name} {installed_version(r.name)}" for r in requirements)
            yield CheckResult("extras", extra, "ok", versions)


def _fix_of_extra(extra: str, gaps: list[Requirement]) -> str:
    """Return a command, or another way if a trainer does not work with the packages."""
    for package, wanted in product(DEPENDENTS, gaps):
        own = requirement_of(package, wanted.name)
        if own is None or not _excludes(own, wanted):
            continue
        way = "install this extra in another environment"
        if own.name == ENGINE:
            way = (
                "start `vllm serve` in another environment, and use it with --model URL "
                "--backend vllm"
            )
        titles = {trainer.package: trainer.title for trainer in TRAINERS.values()}
        return f"{titles.get(package, package)} requires {own.name}{own.specifier}: {way}"
    return f'pip install "rag-rewards[{extra}]"'


def _excludes(own: Requirement, wanted: Requirement) -> bool:
    """Return whether no version is accepted by both requirements.

    If there is one, there is also one among 0, the versions that they name, and the next ones.
    """
    parts = [part for line in (own, wanted) for part in line.specifier if part.operator != "==="]
    named = [Version(part.version.removesuffix(".*")) for part in parts]
    versions = ["0", *map(str, named), *(f"{version.base_version}.0.0.0.1" for version in named)]
    return not any(
        all(line.specifier.contains(version, prereleases=True) for line in (own, wanted))
        for version in versions
    )


def _requirements() -> dict[str, list[Requirement]]:
    """Return the requirements of each extra that is meant for users."""
    try:
        package = metadata.metadata("rag-rewards")
    except metadata.PackageNotFoundError:
        return {}
    lines = [Requirement(line) for line in package.get_all("Requires-Dist") or ()]
    return {
        extra: [line for line in lines if line.marker and line.marker.evaluate({"extra": extra})]
        for extra in package.get_all("Provides-Extra") or ()
        if extra not in INTERNAL_EXTRAS
    }


def _gap(requirement: Requirement) -> str:
    """Describe why the installed package does not meet a requirement, or return ""."""
    version = installed_version(requirement.name)
    if version is None:
        return f"{requirement.name} is not installed"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} {version}, required {requirement.specifier}"
    return ""


def _gpu() -> Iterator[CheckResult]:
    if installed_version("torch") is None:
        return
    result, reason = run_isolated(_TORCH)
    if result is None:
        message = f"torch does not run: {reason}"
        yield CheckResult("hardware", "GPU", "problem", message, "reinstall torch")
    elif result["gpus"]:
        yield CheckResult("hardware", "GPU", "ok", ", ".join(result["gpus"]))
    else:
        fix = "models run on the CPU; to use a GPU, install the torch build for its driver"
        yield CheckResult("hardware", "GPU", "absent", "torch finds no GPU", fix)


_MARK = {"ok": ("✓", "green"), "absent": ("–", "dim"), "problem": ("✗", "red")}


def print_results(console: Console, results: list[CheckResult]) -> None:
    """Print a table of the results by area."""
    table = titled_table("", ("", "check", "result", "fix"))
    area = ""
    for result in results:
        if area and result.area != area:
            table.add_section()
        area = result.area
        sign, style = _MARK[result.state]
        table.add_row(Text(sign, style), Text(result.name), Text(result.message), Text(result.fix))
    console.print(table)

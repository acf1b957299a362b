"""Packages of the trainers: installed versions, conflicts and missing packages.

Nothing here imports a trainer, except the code that `run_isolated` runs in a separate process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement

from rag_rewards.trainers import TRAINERS, Trainer

PROBE_SECONDS = 180
ENGINE = "vllm"
"""The extra of trainers that fixes the version of the engine for rollouts."""
DEPENDENTS = (*(trainer.package for trainer in TRAINERS.values()), "unsloth")
"""Packages that can require a trainer, and then fix its version."""
_NEEDS_TORCH = frozenset({"flash-attn"})
"""Packages whose build imports torch, so that it has to be installed before."""


def is_tested(trainer: Trainer) -> bool:
    """Return whether all packages of the environment of the tests are installed in its versions."""
    return bool(trainer.combination) and all(
        _accepts(line, installed_version(line.name))
        for line in map(Requirement, trainer.combination)
    )


def _accepts(line: Requirement, version: str | None) -> bool:
    return version is not None and line.specifier.contains(version, prereleases=True)


def conflicts(package: str) -> dict[str, Requirement]:
    """Return what to install in place of each version that an installed trainer does not accept.

    The keys describe what is wrong. The requirements are those of the metadata of the trainer and,
    if vLLM is installed, of its extra for vLLM.
    """
    own, wanted = installed_version(package), {}
    for line, is_engine in _requirements(package) if own else ():
        installed = installed_version(line.name)
        if installed is not None and not _accepts(line, installed):
            message = f"{line.name} {installed}, {package} {own} requires {line.specifier}"
            whole = Requirement(f"{package}[{ENGINE}]=={own}")
            wanted[message] = whole if is_engine else line
    return wanted


def _requirements(package: str) -> Iterator[tuple[Requirement, bool]]:
    """Yield the requirements of a trainer, and whether each belongs to its extra for vLLM."""
    has_engine = installed_version(ENGINE) is not None
    for line in metadata.requires(package) or ():
        requirement = Requirement(line)
        if _is_required(requirement):
            yield requirement, False
        elif has_engine and requirement.marker and requirement.marker.evaluate({"extra": ENGINE}):
            yield requirement, True


def missing(trainer: Trainer) -> list[Requirement]:
    """Return the requirements of an installed trainer that are not installed.

    They are those of its metadata, and the packages that a training imports.
    """
    if installed_version(trainer.package) is None:
        return []
    lines = {line.name: line for line, is_engine in _requirements(trainer.package) if not is_engine}
    others = {
        line.name: line for line in map(Requirement, metadata.requires(trainer.package) or ())
    }
    for name in trainer.imports:
        lines.setdefault(name, others.get(name, Requirement(name)))
    return [line for name, line in lines.items() if installed_version(name) is None]


def install_command(requirements: Iterable[Requirement]) -> str:
    """Return the commands that install requirements.

    >>> install_command([Requirement("flash-attn==2.8.3"), Requirement("ray[default]>=2.41")])
    'pip install "ray[default]>=2.41" && pip install "flash-attn==2.8.3" --no-build-isolation'
    """
    plain: list[str] = []
    late: list[str] = []
    for line in requirements:
        extras = f"[{','.join(sorted(line.extras))}]" if line.extras else ""
        text = f"{line.name}{extras}{line.specifier}"
        words = late if line.name in _NEEDS_TORCH else plain
        words.append(text if text == line.name else f'"{text}"')
    commands = [f"pip install {' '.join(plain)}"] if plain else []
    commands += [f"pip install {' '.join(late)} --no-build-isolation"] if late else []
    return " && ".join(commands)


def dependent_of(package: str) -> str | None:
    """Return an installed package that requires a trainer, and then fixes its version."""
    others = (other for other in DEPENDENTS if other != package)
    return next((other for other in others if requirement_of(other, package) is not None), None)


def requirement_of(package: str, name: str) -> Requirement | None:
    """Return the versions of a package that an installed trainer accepts, None for any version.

    The versions of vLLM are those of an extra of the trainer.
    """
    if installed_version(package) is None:
        return None
    lines = map(Requirement, metadata.requires(package) or ())
    own = (line for line in lines if line.name == name)
    return next((line for line in own if name == ENGINE or _is_required(line)), None)


def _is_required(line: Requirement) -> bool:
    return line.marker is None or line.marker.evaluate({"extra": ""})


def installed_version(package: str) -> str | None:
    """Return the version of a package from its metadata, or None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def run_isolated(code: str) -> tuple[dict[str, Any] | None, str]:
    """Run Python code in a new process and return the last JSON object that it prints.

    The code cannot affect this process. Returns (object, ""), or (None, reason) if the process
    fails, prints no object, or runs longer than `PROBE_SECONDS`.
    """
    try:
        process = subprocess.run(  # noqa: S603 (this interpreter, code of this package)
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer in {PROBE_SECONDS} seconds"
    if process.returncode:
        lines = process.stderr.strip().splitlines()
        return None, lines[-1] if lines else f"exit code {process.returncode}"
    result = _last_object(process.stdout)
    return result, "" if result is not None else "the process printed no result"


def _last_object(output: str) -> dict[str, Any] | None:
    """Return the last line that is a JSON object, because libraries also print lines."""
    for line in reversed(output.splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None

"""--recipe, --set, --config and --hardened, to a plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.recipes import dotted
from rag_rewards.scoring import Plan


def make_plan(
    recipe: str | None,
    changes: Iterable[str] = (),
    config: Path | None = None,
    *,
    hardened: bool = False,
    keep_evidence: bool = False,
    collect: bool = False,
) -> Plan:
    """The plan that these options ask for; --set goes over --config. SettingError, UsageError."""
    read = read_config(config) if config else {}
    stages = read.pop("stages", [])
    named = read.pop("recipe", None)
    profile = read.pop("hardened", False)
    name = recipe or named or ""
    if not isinstance(name, str):
        raise UsageError(f"{config}: recipe is a name, found {name!r}")
    if not isinstance(profile, bool):
        raise UsageError(f"{config}: hardened is true or false, found {profile!r}")
    if not isinstance(stages, list) or not all(isinstance(stage, dict) for stage in stages):
        raise UsageError(f"{config}: stages is a list of mappings with recipe and until_step")
    if not name and not stages:
        raise UsageError("which recipe? give --recipe NAME; `rag-rewards recipes` lists them")
    if name and stages:
        raise UsageError(f"{config} has stages, which name their recipes: leave recipe out")
    try:
        settings = dotted(read)
    except RecursionError:
        raise UsageError(f"{config}: a mapping that holds itself") from None
    plan = Plan(
        recipe=name,
        settings=settings | parse_changes(changes),
        hardened=hardened or profile,
        stages=stages,
        keep_evidence=keep_evidence,
        collect=collect,
    )
    plan.build()  # says what is wrong before a row is read
    return plan


def plan_if_asked(
    recipe: str | None, changes: Sequence[str], config: Path | None, *, hardened: bool
) -> Plan | None:
    """The plan that these options ask for, where rows may do without one; None without options."""
    if recipe or changes or config or hardened:
        return make_plan(recipe, changes, config, hardened=hardened)
    return None


def parse_changes(changes: Iterable[str]) -> dict[str, Any]:
    """`key=value` pairs; a value is read as YAML: 0.5, true, null, [r, e], text.

    >>> parse_changes(["threshold=null", "answers=[r, e]", "accuracy.metric=f1"])
    {'threshold': None, 'answers': ['r', 'e'], 'accuracy.metric': 'f1'}
    """
    import yaml

    settings: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set takes key=value, found {change!r}")
        try:
            settings[key.strip()] = _load_yaml(text)
        except yaml.YAMLError:
            settings[key.strip()] = text
    return settings


def read_config(path: Path) -> dict[str, Any]:
    """A YAML file with the keys of --set, and optionally recipe, hardened, stages."""
    import yaml

    try:
        read = _load_yaml(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if read is None:
        return {}
    if not isinstance(read, Mapping):
        raise UsageError(f"{path}: a mapping of settings expected, found {type(read).__name__}")
    return {str(key): value for key, value in read.items()}


def _load_yaml(text: str) -> Any:
    """YAML 1.1 as PyYAML reads it, but 1e-3 is a number, as in YAML 1.2 and everywhere else."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    number = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    return yaml.load(text, Loader)  # noqa: S506 (a SafeLoader)

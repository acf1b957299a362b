"""--recipe, --set, --config and --hardened, to a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    name = recipe or read.pop("recipe", "")
    read.pop("recipe", None)
    hardened = hardened or bool(read.pop("hardened", False))
    if not isinstance(stages, list) or not all(isinstance(stage, dict) for stage in stages):
        raise UsageError(f"{config}: stages is a list of mappings with recipe and until_step")
    if not name and not stages:
        raise UsageError("which recipe? give --recipe NAME; `rag-rewards recipes` lists them")
    plan = Plan(
        recipe=name,
        settings=dotted(read) | parse_changes(changes),
        hardened=hardened,
        stages=stages,
        keep_evidence=keep_evidence,
        collect=collect,
    )
    plan.build()  # says what is wrong before a row is read
    return plan


def parse_changes(changes: Iterable[str]) -> dict[str, Any]:
    """`key=value` pairs; a value is read as YAML: 0.5, true, null, [r, e], text.

    >>> parse_changes(["threshold=null", "answers=[r, e]", "accuracy.metric=f1"])
    {'threshold': None, 'answers': ['r', 'e'], 'accuracy.metric': 'f1'}
    """
    import yaml

    settings = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set takes key=value, found {change!r}")
        try:
            settings[key.strip()] = yaml.safe_load(text)
        except yaml.YAMLError:
            settings[key.strip()] = text
    return settings


def read_config(path: Path) -> dict[str, Any]:
    """A YAML file with the keys of --set, and optionally recipe, hardened, stages."""
    import yaml

    try:
        read = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if read is None:
        return {}
    if not isinstance(read, Mapping):
        raise UsageError(f"{path}: a mapping of settings expected, found {type(read).__name__}")
    return {str(key): value for key, value in read.items()}

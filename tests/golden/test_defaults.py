"""The defaults and hardened settings of every version, as files in `defaults/`.

A signature leaves out settings that have the default of its version. Therefore, a default may
change only together with the version, and the recipe's definition must know the old default.
`python tests/golden/test_defaults.py` writes the file of the current version.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rag_rewards import RECIPES, __version__
from rag_rewards.definition import ChangedDefault, HardenedSetting, RecipeDefinition
from rag_rewards.signature import release

FOLDER = Path(__file__).parent / "defaults"
RECORDS: dict[str, Any] = {
    path.stem: json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.json")
}
EACH = [(version, name) for version, recipes in RECORDS.items() for name in recipes]
HOW = """
A default or hardened setting changed. Either take the change back, or
1. raise the version in rag_rewards/version.py, unless it is already above the last release;
2. add ChangedDefault(VERSION, KEY, default=OLD, hardened=OLD) to `changed_defaults` of the recipe's
   definition, with the new version and the old values, so that older signatures are read right;
3. write the file of the new version: python tests/golden/test_defaults.py
Never edit the file of a released version."""


def record(definition: RecipeDefinition) -> dict[str, Any]:
    """The settings of the current version, as its file holds them."""
    defaults = definition.defaults()
    hardened = definition.defaults(hardened=True)
    changed = {key: value for key, value in hardened.items() if value != defaults[key]}
    return {"defaults": defaults, "hardened": changed}


def faults(definition: RecipeDefinition, version: str, recorded: dict[str, Any]) -> list[str]:
    """What the definition says of a version, where that differs from the version's file."""
    found = []
    for profile in ("defaults", "hardened"):
        old = recorded["defaults"] | (recorded["hardened"] if profile == "hardened" else {})
        now = definition.defaults(hardened=profile == "hardened", version=version)
        found += [
            f"{definition.name} {key}: {version} has {value!r} in {profile}, not {now.get(key)!r}"
            for key, value in old.items()
            if now.get(key) != value or key not in now
        ]
    told = {c.key for c in definition.changed_defaults if release(c.version) > release(version)}
    return found + [
        f"{definition.name} {key}: {version} does not have it, and no ChangedDefault says which "
        "value reproduces that version"
        for key in definition.defaults()
        if key not in recorded["defaults"] and key not in told
    ]


def test_the_current_version_has_a_file() -> None:
    assert __version__ in RECORDS, HOW
    assert set(RECORDS[__version__]) == set(RECIPES), HOW


@pytest.mark.parametrize(("version", "name"), EACH)
def test_defaults_change_with_the_version_alone(version: str, name: str) -> None:
    found = faults(RECIPES[name], version, RECORDS[version][name])
    assert not found, "\n".join([*found, HOW])


def test_files_are_of_this_version_and_older_ones() -> None:
    assert max(RECORDS, key=release) == __version__


def test_changed_defaults_name_settings_and_versions() -> None:
    for definition in RECIPES.values():
        for change in definition.changed_defaults:
            assert change.key in definition.defaults()
            assert release(change.version) <= release(__version__)


def test_a_change_is_noticed() -> None:
    arena, recorded = RECIPES["arena"], RECORDS[__version__]["arena"]
    assert faults(arena, __version__, recorded) == []
    hardened = arena.hardened | {"bonus.value": HardenedSetting(3.0, (), "")}
    changed = replace(arena, hardened=hardened)
    assert faults(changed, __version__, recorded) == [
        f"arena bonus.value: {__version__} has 10.0 in hardened, not 3.0"
    ]
    table = (ChangedDefault("9.0.0", "bonus.value", default=10.0, hardened=10.0),)
    assert faults(replace(changed, changed_defaults=table), __version__, recorded) == []


def test_a_new_setting_is_noticed() -> None:
    arena = RECIPES["arena"]
    recorded = {**record(arena)}
    recorded["defaults"] = {k: v for k, v in recorded["defaults"].items() if k != "bonus.value"}
    [found] = faults(arena, __version__, recorded)
    assert found.startswith(f"arena bonus.value: {__version__} does not have it")
    table = (ChangedDefault("9.0.0", "bonus.value", default=0.0, hardened=0.0),)
    assert faults(replace(arena, changed_defaults=table), __version__, recorded) == []


def write() -> None:
    """Write the file of the current version."""
    every = {name: record(definition) for name, definition in RECIPES.items()}
    text = json.dumps(every, indent=1, ensure_ascii=False) + "\n"
    (FOLDER / f"{__version__}.json").write_text(text, "utf-8")


if __name__ == "__main__":
    write()

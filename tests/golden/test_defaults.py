"""Compare the defaults and hardened settings with the files of all versions in `defaults/`.

A signature omits settings that have the default of its version. Therefore, a default may change
only together with the version, and the definition of the recipe must contain the old default.
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
from rag_rewards.settings import REPLACED
from rag_rewards.signature import release

FOLDER = Path(__file__).parent / "defaults"
RECORDS: dict[str, Any] = {
    path.stem: json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.json")
}
CASES = [(version, name) for version, recipes in RECORDS.items() for name in recipes]
INSTRUCTIONS = """
A default or hardened setting changed. Either undo the change, or
1. raise the version in rag_rewards/version.py, unless it is already above the last release;
2. add ChangedDefault(VERSION, KEY, default=OLD, hardened=OLD) to `changed_defaults` of the recipe's
   definition, with the new version and the old values, so that older signatures are read correctly;
3. write the file of the new version: python tests/golden/test_defaults.py
Never edit the file of a released version."""


def record(definition: RecipeDefinition) -> dict[str, Any]:
    """Return the settings of the current version in the format of the files."""
    defaults = definition.defaults()
    hardened = definition.defaults(hardened=True)
    changed = {key: value for key, value in hardened.items() if value != defaults[key]}
    return {"defaults": defaults, "hardened": changed}


def differences(definition: RecipeDefinition, version: str, recorded: dict[str, Any]) -> list[str]:
    """Return the differences between a definition and the file of a version."""
    messages = []
    for profile in ("defaults", "hardened"):
        old = recorded["defaults"] | (recorded["hardened"] if profile == "hardened" else {})
        new = definition.defaults(hardened=profile == "hardened", version=version)
        messages += [
            f"{definition.name} {key}: {version} has {value!r} in {profile}, not {new.get(key)!r}"
            for key, value in old.items()
            if (new.get(key) != value or key not in new) and key not in REPLACED
        ]
    listed = {c.key for c in definition.changed_defaults if release(c.version) > release(version)}
    return messages + [
        f"{definition.name} {key}: the setting is not in {version}, and no ChangedDefault contains "
        "the value that reproduces this version"
        for key in definition.defaults()
        if key not in recorded["defaults"] and key not in listed
    ]


def test_the_current_version_has_a_file() -> None:
    assert __version__ in RECORDS, INSTRUCTIONS
    assert set(RECORDS[__version__]) == set(RECIPES), INSTRUCTIONS


@pytest.mark.parametrize(("version", "name"), CASES)
def test_defaults_change_only_with_the_version(version: str, name: str) -> None:
    messages = differences(RECIPES[name], version, RECORDS[version][name])
    assert not messages, "\n".join([*messages, INSTRUCTIONS])


def test_no_file_has_a_newer_version() -> None:
    assert max(RECORDS, key=release) == __version__


def test_changed_defaults_contain_valid_settings_and_versions() -> None:
    for definition in RECIPES.values():
        for change in definition.changed_defaults:
            assert change.key in definition.defaults()
            assert release(change.version) <= release(__version__)


def test_a_changed_default_is_reported() -> None:
    arena, recorded = RECIPES["arena"], RECORDS[__version__]["arena"]
    assert differences(arena, __version__, recorded) == []
    hardened = arena.hardened | {"bonus.value": HardenedSetting(3.0, (), "")}
    changed = replace(arena, hardened=hardened)
    assert differences(changed, __version__, recorded) == [
        f"arena bonus.value: {__version__} has 10.0 in hardened, not 3.0"
    ]
    table = (ChangedDefault("9.0.0", "bonus.value", default=10.0, hardened=10.0),)
    assert differences(replace(changed, changed_defaults=table), __version__, recorded) == []


def test_a_new_setting_is_reported() -> None:
    arena = RECIPES["arena"]
    recorded = {**record(arena)}
    recorded["defaults"] = {k: v for k, v in recorded["defaults"].items() if k != "bonus.value"}
    [message] = differences(arena, __version__, recorded)
    assert message.startswith(f"arena bonus.value: the setting is not in {__version__}")
    table = (ChangedDefault("9.0.0", "bonus.value", default=0.0, hardened=0.0),)
    assert differences(replace(arena, changed_defaults=table), __version__, recorded) == []


def write() -> None:
    """Write the file of the current version."""
    records = {name: record(definition) for name, definition in RECIPES.items()}
    text = json.dumps(records, indent=1, ensure_ascii=False) + "\n"
    (FOLDER / f"{__version__}.json").write_text(text, "utf-8")


if __name__ == "__main__":
    write()

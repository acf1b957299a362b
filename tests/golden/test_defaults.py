"""Compare the defaults and hardened settings with the file of the version in `defaults/`.

A signature omits settings that have the default of its version. Therefore, a default may change
only together with the version. `python tests/golden/test_defaults.py` writes the file of the
current version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rag_rewards import RECIPES, __version__
from rag_rewards.definition import RecipeDefinition

FILE = Path(__file__).parent / "defaults" / f"{__version__}.json"
RECORDS: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
INSTRUCTIONS = """
A default or hardened setting changed. Undo the change; or, if `__version__` is above the last
release, write the file of the version: python tests/golden/test_defaults.py"""


def record(definition: RecipeDefinition) -> dict[str, Any]:
    """Return the settings of the current version in the format of the files."""
    defaults = definition.defaults()
    hardened = definition.defaults(hardened=True)
    changed = {key: value for key, value in hardened.items() if value != defaults[key]}
    return {"defaults": defaults, "hardened": changed}


@pytest.mark.parametrize("name", RECIPES)
def test_defaults_change_only_with_the_version(name: str) -> None:
    assert record(RECIPES[name]) == RECORDS[name], INSTRUCTIONS


def test_every_setting_has_a_source() -> None:
    for name, definition in RECIPES.items():
        for setting in definition.settings.descriptions:
            assert setting.source not in ("", "not stated"), (name, setting.key)
            assert setting.doc, (name, setting.key)


def write() -> None:
    """Write the file of the current version."""
    records = {name: record(definition) for name, definition in RECIPES.items()}
    text = json.dumps(records, indent=1, ensure_ascii=False) + "\n"
    FILE.write_text(text, "utf-8")


if __name__ == "__main__":
    write()

"""The page about the hardened profile agrees with the definitions of the recipes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from rag_rewards.audit import ATTACKS
from rag_rewards.recipes import RECIPES

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_the_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("build_hardened", DOCS / "build_hardened.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (DOCS / "hardened.md").read_text("utf-8")
    assert written == module.page(), "run: python docs/build_hardened.py"


@pytest.mark.parametrize("name", RECIPES)
def test_hardened_settings_and_loopholes_refer_to_existing_settings_and_attacks(name: str) -> None:
    definition = RECIPES[name]
    infos = definition.defaults()
    for key, change in definition.hardened.items():
        assert key in infos
        assert change.value != infos[key]
        assert set(change.closes) <= set(ATTACKS)
    for loophole in definition.loopholes:
        assert set(loophole.attacks) <= set(ATTACKS)


CLOSED_OTHERWISE = {"stepsearch": {16, 24}, "igpo": {41}}
"""Attacks that two settings close together, or the refusal of a value."""


@pytest.mark.parametrize("name", RECIPES)
def test_a_hardened_setting_closes_each_closed_loophole(name: str) -> None:
    definition = RECIPES[name]
    closed = {attack for each in definition.loopholes if each.is_closed for attack in each.attacks}
    stopped = {attack for change in definition.hardened.values() for attack in change.closes}
    assert closed - stopped == CLOSED_OTHERWISE.get(name, set())

"""What differs between the configurations that scored several files."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rag_rewards.errors import UsageError, shorten
from rag_rewards.signature import Signature

MAX_CHARACTERS = 300
"""Characters of a setting that are shown."""


class Setting(msgspec.Struct, frozen=True):
    """A setting that differs between files; None for a file that has its default."""

    name: str
    values: list[str | None]


def recipes_of(signatures: Sequence[str]) -> list[str]:
    """Return the recipe of each signature; "" if it is unknown."""
    recipes = []
    for text in signatures:
        try:
            recipes.append(Signature.parse(text).recipe)
        except UsageError:
            recipes.append("")
    return recipes


def differing_settings(signatures: Sequence[str]) -> list[Setting]:
    """Return what differs between signatures: version, recipe, settings and models.

    >>> changed = 'rag-rewards 0.8.0 arena {"settings":{"bonus.value":5}}'
    >>> differing_settings(["rag-rewards 0.8.0 arena", changed])
    [Setting(name='bonus.value', values=[None, '5'])]
    """
    columns = [_settings_of(text) for text in signatures]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [Setting(name, [column.get(name) for column in columns]) for name in names]
    return [row for row in rows if len(set(row.values)) > 1]


def _settings_of(text: str) -> dict[str, str]:
    try:
        signature = Signature.parse(text)
    except UsageError:
        return {"signature": shorten(text, MAX_CHARACTERS) or "none"}
    settings = {"version": signature.version, "recipe": signature.recipe}
    if signature.hardened:
        settings["hardened"] = "yes"
    settings |= {name: _text(value) for name, value in signature.settings.items()}
    if signature.stages:
        settings["stages"] = _text(signature.stages)
    return settings | {f"model: {name}": _text(value) for name, value in signature.models.items()}


def _text(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return shorten(text, MAX_CHARACTERS)


def notes_of(names: Sequence[str], signatures: Sequence[str]) -> list[str]:
    """Explain which values cannot be compared, because the files were scored differently."""
    recipes = recipes_of(signatures)
    known = [recipe for recipe in recipes if recipe]
    unknown = [name for name, recipe in zip(names, recipes, strict=True) if not recipe]
    notes = []
    if len(set(known)) > 1:
        pairs = ", ".join(f"{name}: {recipe}" for name, recipe in zip(names, recipes, strict=True))
        notes.append(
            f"the recipes differ ({pairs}): do not compare rewards and components, which have "
            "different definitions; to compare them, score all files with one --recipe"
        )
    elif len(set(signatures)) > 1 and known:
        changed = ", ".join(shorten(each.name, 60) for each in differing_settings(signatures)[:6])
        notes.append(
            f"the signatures differ ({changed}): equal responses can have different rewards; to "
            "compare rewards, score all files with one --recipe"
        )
    if unknown:
        notes.append(
            f"without a signature, it is unknown how these files were scored: {', '.join(unknown)}"
        )
    return notes

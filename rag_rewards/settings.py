"""Settings of recipes: typed values with a description and a source of each default.

The settings of a recipe are a frozen struct with nested structs for its components. `build` creates
them from `--set accuracy.metric=f1`, from a YAML file or from a mapping in Python.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from rag_rewards.errors import SettingError


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the settings of recipes."""


S = TypeVar("S", bound=Settings)
C = TypeVar("C")


def about(doc: str, source: str = "not stated", **limits: Any) -> msgspec.Meta:
    """Return the annotation of a setting: description, source of the default, and limits."""
    return msgspec.Meta(description=doc, extra={"source": source}, **limits)


class Setting(msgspec.Struct, frozen=True):
    """The description of a setting.

    key      dotted key
    type     type as text
    default  default value
    doc      meaning
    source   source of the default
    """

    key: str
    type: str
    default: Any
    doc: str
    source: str


def describe(cls: type[Settings]) -> list[Setting]:
    """Return the descriptions of all settings, in order."""
    return list(_describe(cls, cls(), ""))


def _describe(cls: type[Settings], defaults: Settings, prefix: str) -> Iterator[Setting]:
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in msgspec.structs.fields(cls):
        key, default = prefix + field.name, getattr(defaults, field.name)
        if isinstance(default, Settings):
            yield from _describe(type(default), default, f"{key}.")
            continue
        hint = hints[field.name]
        base, *metas = typing.get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
        meta = next((m for m in metas if isinstance(m, msgspec.Meta)), msgspec.Meta())
        source = (meta.extra or {}).get("source", "not stated")
        yield Setting(key, _type_name(base), default, meta.description or "", source)


def _type_name(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return " | ".join(str(value) for value in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return "list of " + _type_name(typing.get_args(hint)[0])
    if args := [a for a in typing.get_args(hint) if a is not type(None)]:
        names = [_type_name(arg) for arg in args]
        return " | ".join(names + ["null"] * (type(None) in typing.get_args(hint)))
    return {"str": "text", "float": "number", "int": "whole number", "bool": "true | false"}.get(
        getattr(hint, "__name__", str(hint)), str(hint)
    )


def flatten(settings: Settings, prefix: str = "") -> dict[str, Any]:
    """Return the values of all settings by dotted key."""
    flat: dict[str, Any] = {}
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = list(value) if isinstance(value, tuple) else value
    return flat


def build(cls: type[S], changes: Mapping[str, Any], recipe: str) -> S:
    """Return the default settings with changes.

    Keys are dotted or nested. Values have the type of the setting, or are its text. Raises
    SettingError for an unknown key or an invalid value.
    """
    values = flatten(cls()) | full_keys(cls, changes, recipe)
    for key, value in values.items():
        if problem := _problem_of(key, value):
            raise SettingError(f"recipe {recipe}: setting {key}: {problem}")
    try:
        return msgspec.convert(_nested(values), cls)
    except msgspec.ValidationError as error:
        what, _, path = str(error).replace("`", "").partition(" - at $.")
        raise SettingError(
            f"recipe {recipe}: setting {path}: {what}{_choices(cls, path)}"
        ) from None


def _choices(cls: type[Settings], path: str) -> str:
    """Return the values of a setting with a list of them, for a message; "" for other settings."""
    hint: Any = cls
    for name in path.split("."):
        hint = get_type_hints(hint).get(name) if isinstance(hint, type) else None
    hints = (hint, *get_args(hint))
    values = [value for each in hints if get_origin(each) is Literal for value in get_args(each)]
    return f"; choose {', '.join(map(str, values))}" if values else ""


def full_keys(cls: type[Settings], changes: Mapping[str, Any], recipe: str) -> dict[str, Any]:
    """Return the changes by full dotted key. Raises SettingError for a key that does not exist.

    A key may be shortened to its last part if that is unambiguous: `tau` is `length.tau`.
    """
    flat = flatten(cls())
    sections = {key.rsplit(".", 1)[0] for key in flat if "." in key}
    values: dict[str, Any] = {}
    for key, value in _dotted(changes, sections):
        if key in sections and isinstance(value, bool) and f"{key}.enabled" in flat:
            key = f"{key}.enabled"  # `reasoning: true` enables the section
        key = _whole_key(key, flat)
        if key not in flat:
            raise SettingError(_unknown(key, list(flat), recipe))
        if isinstance(flat[key], list) and isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        values[key] = value
    return values


LARGEST = 1e100
"""Largest number in a setting. Sums and products of such rewards are still finite."""


def _problem_of(key: str, value: Any) -> str:
    """Return why a value of the right type cannot be used, or ""."""
    if isinstance(value, (int, float)) and not abs(value) <= LARGEST:
        number = value if isinstance(value, float) else "a larger one"
        return f"a number up to {LARGEST:g} expected, found {number}"
    if key.rpartition(".")[2] == "pattern" and isinstance(value, str):
        try:
            if not re.compile(value).groups:
                return f"{value!r} has no group: put the part with the numbers in parentheses"
        except (re.error, OverflowError, RecursionError) as error:
            return f"{value[:100]!r} is not a regular expression: {error}"
    return ""


def _whole_key(key: str, candidates: Mapping[str, Any]) -> str:
    """Return the full key of a last part that is unambiguous: `tau` becomes `length.tau`."""
    whole = [k for k in candidates if k.endswith(f".{key}")]
    return whole[0] if key not in candidates and len(whole) == 1 else key


def _dotted(
    changes: Mapping[str, Any], sections: set[str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for name, value in changes.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _dotted(value, sections, f"{key}.")
        else:
            yield key, value


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *path, name = key.split(".")
        at = nested
        for part in path:
            at = at.setdefault(part, {})
        at[name] = value
    return nested


REPLACED = {
    "accuracy.strict": "accuracy.undecided",
    "accuracy.certainty": "accuracy.ask",
    "strict": "undecided",
    "certainty": "ask",
    "exact_match.strict": "exact_match.counts",
}
"""Settings of versions before 0.8.0, and the settings in their place."""
_STRICT = {"undecided": "wrong", "counts": "supported"}
"""Values in the place of `strict=true`, by the name of the setting."""


def current_settings(recorded: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """Return recorded settings with those that replace settings of older versions.

    keys  the settings of the recipe

    >>> current_settings({"strict": True, "certainty": 0.9, "scheme": "binary"}, ["scheme"])
    {'undecided': 'wrong', 'scheme': 'binary'}
    """
    current: dict[str, Any] = {}
    for key, value in recorded.items():
        name = None if key in keys else REPLACED.get(key)
        if name is None:
            current[key] = value
        elif value is True:
            current[name] = _STRICT[name.rpartition(".")[2]]
    return current


def _unknown(key: str, candidates: list[str], recipe: str) -> str:
    replacement = REPLACED.get(key)
    if replacement in candidates:
        return f"recipe {recipe} has no setting {key!r} since version 0.8.0; use {replacement!r}"
    return f"recipe {recipe} has no setting {key!r}{did_you_mean(key, candidates)}"


def check_choices(kind: type[C]) -> type[C]:
    """Let a dataclass raise SettingError for a value that is not among the choices of its field.

    The choices are those of a `Literal`, also beside other types. Decorate the class before
    `dataclass` does.
    """
    check_further = getattr(kind, "__post_init__", None)

    def check(self: Any) -> None:
        own: Any = type(self)
        for name, choices, others in closed_sets(own):
            value = getattr(self, name)
            if value not in choices and not isinstance(value, others):
                raise SettingError(
                    f"{own.__name__}: {name}: expected one of "
                    f"{', '.join(map(str, choices))}, found {value!r}"
                )
        if check_further is not None:
            check_further(self)

    kind.__post_init__ = check  # type: ignore[attr-defined]
    return kind


@cache
def closed_sets(kind: Any) -> list[tuple[str, tuple[Any, ...], tuple[type, ...]]]:
    """Return the fields with a closed set of values: name, choices, and other types."""
    hints = get_type_hints(kind)
    fields = []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        parts = (hint,) if get_origin(hint) is Literal else get_args(hint)
        literals = (part for part in parts if get_origin(part) is Literal)
        choices = tuple(choice for literal in literals for choice in get_args(literal))
        others = tuple(part for part in parts if isinstance(part, type))
        if choices:
            fields.append((field.name, choices, others))
    return fields


def did_you_mean(name: str, candidates: typing.Iterable[str]) -> str:
    """Return "; did you mean …?" with the most similar name, or the list of all names."""
    import difflib

    near = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(candidates)}"

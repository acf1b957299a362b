"""Settings of recipes: annotated fields of the objects that a recipe is built from.

    @dataclass(frozen=True)
    class Relevance:
        min_precision: Annotated[float, about("minimum precision", "ours: off", ge=0, le=1)] = 0.0

The annotation of a field is the only declaration of a setting: its meaning, the source of its
default, and its limits. A recipe names its objects, the parts, and `SettingTable` reads and changes
their settings by dotted key, from `--set relevance.min_precision=0.5`, YAML or a mapping in Python.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from rag_rewards.errors import SettingError

C = TypeVar("C")
_LIMITS = ("gt", "ge", "lt", "le", "min_length", "max_length")
"""The names of the limits that settings have."""


def about(doc: str, source: str, *, key: str = "", **limits: Any) -> msgspec.Meta:
    """Return the annotation of a field that makes it a setting.

    doc     meaning
    source  where the default comes from, or the reason for it
    key     key of the setting within its part; default: the name of the field
    limits  limits of `msgspec.Meta`, such as `ge=0`
    """
    return msgspec.Meta(description=doc, extra={"source": source, "key": key}, **limits)


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


@dataclasses.dataclass(frozen=True)
class Part:
    """An object of a recipe with options of its settings.

    of      a frozen dataclass or struct; its values are the defaults of the recipe
    prefix  what its keys begin with; None: the name of the part
    fixed   fields that are no settings of this recipe
    values  the values that a setting can have, where they are fewer than those of the field
    """

    of: Any
    prefix: str | None = None
    fixed: tuple[str, ...] = ()
    values: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)


class _Field(NamedTuple):
    """A setting of a class: field, key within its part, type, and annotation."""

    name: str
    key: str
    hint: Any
    meta: msgspec.Meta


class _Place(NamedTuple):
    """Where a setting is: name of the part, field, and type of its values in this recipe."""

    part: str
    field: _Field
    hint: Any


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


@cache
def _fields(kind: Any) -> tuple[_Field, ...]:
    """Return the fields of a dataclass or a struct that are settings."""
    fields = []
    is_struct = issubclass(kind, msgspec.Struct)
    names = kind.__struct_fields__ if is_struct else [f.name for f in dataclasses.fields(kind)]
    for name in names:
        hint = _hints(kind)[name]
        for meta in getattr(hint, "__metadata__", ()):
            if isinstance(meta, msgspec.Meta) and "key" in (meta.extra or {}):
                fields.append(_Field(name, (meta.extra or {})["key"] or name, hint, meta))
    return tuple(fields)


class SettingTable:
    """The settings of a recipe.

    recipe   name of the recipe, for messages
    parts    objects with annotated fields, or `Part`, by name
    sources  sources of defaults in which the recipe differs from its parts, by key
    """

    def __init__(
        self, recipe: str, parts: Mapping[str, Any], sources: Mapping[str, str] | None = None
    ) -> None:
        self._recipe = recipe
        self._sources = sources or {}
        self._parts = {
            name: part if isinstance(part, Part) else Part(part) for name, part in parts.items()
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return SettingTable, (self._recipe, self._parts, self._sources)

    @cached_property
    def _places(self) -> dict[str, _Place]:
        places = {}
        for name, part in self._parts.items():
            prefix = name if part.prefix is None else part.prefix
            kind: Any = type(part.of)
            for field in _fields(kind):
                if field.name in part.fixed:
                    continue
                key = f"{prefix}.{field.key}" if prefix else field.key
                values = part.values.get(field.name)
                places[key] = _Place(name, field, Literal[values] if values else field.hint)
        return places

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The defaults by dotted key."""
        return self.values_of({name: part.of for name, part in self._parts.items()})

    def values_of(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all settings by dotted key in these objects by name."""
        values = {
            key: getattr(parts[place.part], place.field.name) for key, place in self._places.items()
        }
        return {k: list(each) if isinstance(each, tuple) else each for k, each in values.items()}

    @property
    def descriptions(self) -> list[Setting]:
        """The descriptions of all settings, in order."""
        return [
            Setting(
                key,
                _type_name(place.hint),
                getattr(self._parts[place.part].of, place.field.name),
                place.field.meta.description or "",
                self._sources.get(key) or (place.field.meta.extra or {})["source"],
            )
            for key, place in self._places.items()
        ]

    def values(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all settings by dotted key: the defaults with changes.

        Keys are dotted or nested. Values have the type of the setting, or are its text. Raises
        SettingError for an unknown key or an invalid value.
        """
        changed = self.full_keys(changes)
        values = {key: self._value(key, value) for key, value in changed.items()}
        return self.defaults | values

    def build(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parts by name, with values by full key.

        Raises SettingError for values that a part refuses together.
        """
        changes: dict[str, dict[str, Any]] = {name: {} for name in self._parts}
        for key, value in values.items():
            place = self._places[key]
            if value != self.defaults[key]:
                value = tuple(value) if isinstance(value, list) else value
                changes[place.part][place.field.name] = value
        try:
            return {
                name: _replace(part.of, changes[name]) if changes[name] else part.of
                for name, part in self._parts.items()
            }
        except SettingError as error:
            raise SettingError(f"recipe {self._recipe}: {error}") from None

    def full_keys(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the changes by full dotted key. Raises SettingError for an unknown key.

        A key may be shortened to its last part if that is unambiguous: `tau` is `length.tau`.
        """
        defaults = self.defaults
        values: dict[str, Any] = {}
        for key, value in dotted(changes).items():
            key = _whole_key(key, defaults)
            if key not in defaults:
                raise SettingError(_unknown(key, list(defaults), self._recipe))
            if isinstance(defaults[key], list) and isinstance(value, str):
                value = [part.strip() for part in value.split(",") if part.strip()]
            values[key] = value
        return values

    def _value(self, key: str, value: Any) -> Any:
        """Return a value in the type of its setting. Raises SettingError if it is invalid."""
        hint, value = self._places[key].hint, _plain(value)
        problem, place = _problem_of(key, value), key
        if not problem:
            try:
                valid = msgspec.convert(value, hint)
                return list(valid) if isinstance(valid, tuple) else valid
            except msgspec.ValidationError as error:
                problem, _, path = str(error).replace("`", "").partition(" - at $")
                problem, place = problem + _choices(hint), key + path
        raise SettingError(f"recipe {self._recipe}: setting {place}: {problem}")


def _plain(value: Any) -> Any:
    """Return a number of NumPy or PyTorch as a number of Python, and other values unchanged."""
    return value.item() if hasattr(value, "item") else value


def _replace(part: Any, changes: dict[str, Any]) -> Any:
    if isinstance(part, msgspec.Struct):
        return msgspec.structs.replace(part, **changes)
    return dataclasses.replace(part, **changes)


def _type_name(hint: Any) -> str:
    if hasattr(hint, "__metadata__"):
        return _type_name(hint.__origin__)
    if get_origin(hint) is Literal:
        return " | ".join(str(value) for value in get_args(hint))
    if get_origin(hint) is tuple:
        return "list of " + _type_name(get_args(hint)[0])
    if args := [a for a in get_args(hint) if a is not type(None)]:
        names = [_type_name(arg) for arg in args]
        return " | ".join(names + ["null"] * (type(None) in get_args(hint)))
    return {"str": "text", "float": "number", "int": "whole number", "bool": "true | false"}.get(
        getattr(hint, "__name__", str(hint)), str(hint)
    )


def _choices(hint: Any) -> str:
    """Return the values of a setting with a list of them, for a message; "" for other settings."""
    values = [value for each in _parts_of(hint) for value in _literal(each)]
    return f"; choose {', '.join(map(str, values))}" if values else ""


def _parts_of(hint: Any) -> tuple[Any, ...]:
    """Return a type without its annotation, and the types that it consists of."""
    bare = hint.__origin__ if hasattr(hint, "__metadata__") else hint
    return (bare,) if get_origin(bare) is Literal else (bare, *get_args(bare))


def _literal(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()


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


def _whole_key(key: str, candidates: Collection[str]) -> str:
    """Return the full key of a last part that is unambiguous: `tau` becomes `length.tau`."""
    whole = [k for k in candidates if k.endswith(f".{key}")]
    return whole[0] if key not in candidates and len(whole) == 1 else key


def dotted(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted key. Raises SettingError for an object of another type.

    >>> dotted({"bonus": {"value": 5}})
    {'bonus.value': 5}
    """
    if not isinstance(settings, Mapping):
        raise SettingError(f"settings must be a mapping, found {settings!r}")
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= dotted(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


class Replacement(NamedTuple):
    """What is in the place of a setting of an older version.

    key     the setting, "" if the value is now a constant
    values  the values in the place of those of the old setting; None if they are the same. Other
            values have no replacement
    note    what to do, for a constant
    """

    key: str = ""
    values: Mapping[Any, Any] | None = None
    note: str = ""


_SPELLING = Replacement("accuracy.normalizer", {True: "spelling"})
_FIXED = "it is always {}: for another value, build the reward in Python"
REPLACED = {
    "certainty": Replacement("accuracy.undecided", {}),
    "ask": Replacement("accuracy.undecided", {}),
    "strict": Replacement("accuracy.undecided", {True: "wrong", False: "match"}),
    "fold_accents": _SPELLING,
    "numbers": _SPELLING,
    "dates": _SPELLING,
    "equivalences": Replacement("accuracy.normalizer", {}),
    "exact_match.strict": Replacement(
        "exact_match.counts", {True: "supported", False: "mentioned"}
    ),
    "exact_match.normalizer": Replacement("accuracy.normalizer"),
    "exact_match.precise": Replacement("aggregate", {}),
    "citation.together": Replacement("aggregate", {}),
    "citation.every": Replacement("aggregate", {}),
    "outcome.metric": Replacement("accuracy.metric"),
    "sections.unclosed": Replacement("sections.tags", {"to_end": "unclosed"}),
    "sections.ignore_case": Replacement("sections.tags", {}),
    "process.enabled": Replacement("process.weight", {True: 1.0}),
    "process": Replacement("process.weight", {}),
    "reasoning.enabled": Replacement("reasoning.combine", {True: "multiplicative"}),
    "reasoning": Replacement("reasoning.combine", {}),
    "length.distinct": Replacement("length.strict", {}),
    "length.separated": Replacement("length.strict", {}),
    "length.visible": Replacement("length.strict", {}),
    "over": Replacement("normalize", {"right": "right_max", "all": "group_max"}),
    "bad_format": Replacement("bad_end"),
    "tools.names": Replacement("query_fields", {}),
    "extra": Replacement(note=_FIXED.format("allow")),
    "max_cited": Replacement(note=_FIXED.format(20)),
    "chunk_words": Replacement(note=_FIXED.format(512)),
    "tokens": Replacement(
        values={}, note="`rag-rewards explain` shows the contribution of each token"
    ),
    "refusal.answered": Replacement(note="it had no effect in this recipe: remove it"),
    "refusal.earned_by": Replacement(note="it had no effect in this recipe: remove it"),
}
"""Settings of older versions, and what is in their place. Those without a section are in any."""
_LEFT_OUT = ("certainty", "tokens")
"""Those that are left out: the rules give no certainty, and tokens were details."""
SWITCHES = {"process.weight": "process.enabled", "reasoning.combine": "reasoning.enabled"}
"""Settings of 0.7.0 that had an effect only with another one."""


def replacement_of(key: str) -> Replacement | None:
    """Return what is in the place of a setting of an older version, or None.

    >>> replacement_of("outcome.metric").key, replacement_of("bonus.value")
    ('accuracy.metric', None)
    """
    return REPLACED.get(_whole_key(key, REPLACED)) or REPLACED.get(key.rpartition(".")[2])


def current_settings(recorded: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return recorded settings with those that replace settings of older versions.

    values  the settings of the recipe, from which the recorded ones differ

    A setting without a replacement stays, so that it is refused.

    >>> current_settings({"strict": True, "certainty": 0.9, "scheme": "binary"}, {"scheme": ""})
    {'scheme': 'binary', 'accuracy.undecided': 'wrong'}
    """
    current: dict[str, Any] = {}
    changed: list[tuple[str, Any, Replacement]] = []
    for key, value in recorded.items():
        whole = _whole_key(key, values)
        replacement = None if whole in values else replacement_of(key)
        if replacement is not None and replacement.values is not None:
            changed.append((key, value, replacement))
        else:
            current[replacement.key or key if replacement else whole] = value
    for key, value, (place, others, _) in changed:
        if others == _SPELLING.values:  # it had an effect with `unicode` only
            if current.get(place, values.get(place)) == "unicode":
                current[place] = "spelling"
        elif others and value in others:
            current.setdefault(place, others[value])
        elif key.rpartition(".")[2] not in _LEFT_OUT:
            current[key] = value
    return current


def _unknown(key: str, candidates: list[str], recipe: str) -> str:
    what = f"recipe {recipe} has no setting {key!r}"
    replacement = replacement_of(key)
    if replacement and replacement.key in candidates:
        return f"{what} since version 0.8.0; use {replacement.key!r}"
    if replacement and replacement.note:
        return f"{what} since version 0.8.0; {replacement.note}"
    return what + did_you_mean(key, candidates)


def check_choices(kind: type[C]) -> type[C]:
    """Let a dataclass raise SettingError for a value that its field does not allow.

    These are values outside of the choices of a `Literal`, also beside other types, and outside of
    the limits of a setting. Decorate the class before `dataclass` does.
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
        for field in _limited(own):
            try:
                msgspec.convert(_plain(getattr(self, field.name)), field.hint)
            except msgspec.ValidationError as error:
                problem = str(error).replace("`", "")
                raise SettingError(f"{own.__name__}: {field.name}: {problem}") from None

    kind.__post_init__ = check  # type: ignore[attr-defined]
    return kind


@cache
def _limited(kind: Any) -> tuple[_Field, ...]:
    """Return the settings of a class that have limits."""
    return tuple(
        field
        for field in _fields(kind)
        if any(getattr(field.meta, name) is not None for name in _LIMITS)
    )


@cache
def closed_sets(kind: Any) -> list[tuple[str, tuple[Any, ...], tuple[type, ...]]]:
    """Return the fields with a closed set of values: name, choices, and other types."""
    fields = []
    for field in dataclasses.fields(kind):
        parts = _parts_of(_hints(kind)[field.name])
        choices = tuple(choice for part in parts for choice in _literal(part))
        others = tuple(part for part in parts if isinstance(part, type))
        if choices:
            fields.append((field.name, choices, others))
    return fields


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return "; did you mean …?" with the most similar name, or the list of all names."""
    import difflib

    near = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(candidates)}"

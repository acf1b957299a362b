"""Signatures: one line that identifies everything that affects a score.

    rag-rewards VERSION RECIPE [key=JSON …] [hardened] [stages=JSON] [models=JSON]

Only settings that differ from the defaults of that version are written, sorted by key. With
`hardened`, they are the differences from its hardened profile. A curriculum lists its recipes in
`stages`; `models` holds the fingerprints of the models that provided evidence. A recipe name or a
key that is not a plain word is written as a JSON string. Version 0.1.0 wrote another format,
which can still be read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

import msgspec

from rag_rewards.errors import SettingError, SignatureError, shorten
from rag_rewards.version import __version__

CODE_KEY = "code_digest"
"""The key of the digest of the code of a recipe that is not built in."""


class StageSignature(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The part of a signature that identifies one recipe.

    `until_step` is the first training step after the stage; None means that it has no end.
    """

    recipe: str
    until_step: int | None = None
    settings: dict[str, Any] = {}
    hardened: bool = False

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "settings", _canonical(self.settings))

    @property
    def is_custom(self) -> bool:
        """Whether the recipe is a composition in Python, which the signature only describes."""
        return "formula" in self.settings


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A signature as a value: `str(signature)` writes its line, `Signature.parse` reads it.

    `settings` holds the differences from the defaults of `version`, or from its hardened profile
    when `hardened` is true. Equal values are written as equal lines.

    >>> signature = Signature.parse("rag-rewards 0.2.0 arena bonus.value=5 hardened")
    >>> signature.recipe, signature.settings, signature.hardened
    ('arena', {'bonus.value': 5}, True)
    >>> str(signature)
    'rag-rewards 0.2.0 arena bonus.value=5 hardened'
    """

    version: str = __version__
    recipe: str
    settings: dict[str, Any] = {}
    hardened: bool = False
    stages: tuple[StageSignature, ...] = ()
    models: dict[str, str] = {}

    def __post_init__(self) -> None:
        release(self.version)
        if self.stages and (self.settings or self.hardened):
            raise SignatureError("signature: the settings of a curriculum belong to its stages")
        msgspec.structs.force_setattr(self, "settings", _canonical(self.settings))
        msgspec.structs.force_setattr(self, "models", _canonical(self.models))

    def __str__(self) -> str:
        words = ["rag-rewards", self.version, _word(self.recipe, _NAME)]
        words += [f"{_word(key, _KEY)}={_json(value)}" for key, value in self.settings.items()]
        if self.hardened:
            words.append("hardened")
        if self.stages:
            words.append(f"stages={_json(msgspec.to_builtins(self.stages))}")
        if self.models:
            words.append(f"models={_json(self.models)}")
        return " ".join(words)

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Read a signature of this version or of another one.

        Raises SignatureError, which names the position, for text that is not a signature.
        """
        return _Parser(text).signature()

    @property
    def parts(self) -> tuple[StageSignature, ...]:
        """The stages of a curriculum, or the recipe as the only stage."""
        return self.stages or (StageSignature(self.recipe, None, self.settings, self.hardened),)

    def at(self, step: int | None) -> StageSignature | None:
        """Return the recipe at a training step; None if it depends on an unknown step."""
        parts = self.parts
        if len(parts) == 1:
            return parts[0]
        if step is None:
            return None
        return next((p for p in parts if p.until_step is None or step < p.until_step), None)


class Signed(Protocol):
    """A recipe or a curriculum: it has a signature without models."""

    @property
    def identity(self) -> Signature: ...


def signature_of(reward: Signed, models: Mapping[str, str] | None = None) -> str:
    """Return the signature of a reward and of the models that provide its evidence."""
    return str(msgspec.structs.replace(reward.identity, models=dict(models or {})))


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparisons.

    >>> release("0.10.0") > release("0.2.0")
    True
    """
    if not _VERSION.fullmatch(version):
        raise SignatureError(
            f"signature: version {version!r} does not consist of three numbers, such as 0.2.0"
        )
    return tuple(map(int, version.split(".")))


# --- writing -------------------------------------------------------------------------------------

_VERSION = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/+-]*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_FIXED_WORDS = ("hardened", "stages", "models")
"""The words with a fixed position after the settings, in order. As a key they need quotes."""


def _canonical(value: Any) -> Any:
    """Return a JSON value that is the same for equal values: 5.0 is 5, keys are sorted."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SettingError(f"{value} is not a finite number: a signature cannot record it")
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {str(key): _canonical(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return list(map(_canonical, value))
    return _canonical(msgspec.to_builtins(value, order="sorted"))


def _word(text: str, plain: re.Pattern[str]) -> str:
    reserved = plain is _KEY and text in _FIXED_WORDS
    return text if plain.fullmatch(text) and not reserved else _json(text)


def _json(value: Any) -> str:
    """Return compact JSON on one line. Characters that cannot be printed are escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


# --- reading -------------------------------------------------------------------------------------

EXAMPLE = "rag-rewards 0.2.0 arena bonus.value=5 hardened"
MAX_DEPTH = 8
"""Levels of lists and mappings in one value. This package writes at most five."""
MAX_DIGITS = 400
"""Digits of a number. The largest setting has 101."""
MAX_MESSAGE = 200
"""Characters of an error message that come from the text."""

_OLD_NAME = re.compile(r'([^="{]*) (?=\{)')
_OLD_UNTIL = re.compile(r" until (-?[0-9]{1,18}) then rag-rewards ")


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key occurs twice in a JSON object")
    return mapping


def _number(text: str) -> int | float:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has {len(text)} characters")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value if set(text) & set(".eE") else int(text)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_mapping, parse_int=_number, parse_float=_number, parse_constant=_number
)


def _deeper_than(levels: int, value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return levels == 0 or any(_deeper_than(levels - 1, each) for each in value)


class _Parser:
    """Reads a signature from left to right, in linear time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def signature(self) -> Signature:
        self._expect("rag-rewards ")
        version = self._match(_VERSION, "a version, such as 0.2.0")[0]
        self._expect(" ")
        if release(version) < (0, 2, 0) and _OLD_NAME.match(self.text, self.position):
            return self._old(version)
        recipe = self._word(_NAME, "the name of a recipe")
        settings: dict[str, Any] = {}
        words: dict[str, Any] = {}
        while self.position < len(self.text):
            self._expect(" ")
            start = self.position
            key = self._word(_KEY, "a setting")
            if key not in _FIXED_WORDS or self.text[start] == '"':
                if key in settings:
                    self._fail(f"setting {key!r} occurs twice", start)
                if words:
                    self._fail(f"setting {key!r} follows {next(iter(words))!r}", start)
                settings[key] = self._value(Any)
                continue
            if any(_FIXED_WORDS.index(word) >= _FIXED_WORDS.index(key) for word in words):
                self._fail(f"{key!r} occurs twice or after {list(words)[-1]!r}", start)
            words[key] = True if key == "hardened" else self._fixed_value(key)
        if "stages" in words and (settings or "hardened" in words):
            self._fail("the settings of a curriculum belong to its stages", self.position)
        return Signature(version=version, recipe=recipe, settings=settings, **words)

    def _fixed_value(self, key: str) -> Any:
        start = self.position
        value = self._value(dict[str, str] if key == "models" else tuple[StageSignature, ...])
        if not value:
            self._fail(f"{key!r} is empty", start)
        return value

    def _old(self, version: str) -> Signature:
        """Read the format of 0.1.0: `NAME {all settings}[ until N then …][ models {…}]`."""
        stages: list[StageSignature] = []
        while True:
            name = self._match(_OLD_NAME, "a recipe and its settings")[1]
            settings = self._json(dict[str, Any])
            until = _OLD_UNTIL.match(self.text, self.position)
            stages.append(StageSignature(name, int(until[1]) if until else None, settings))
            if until is None:
                break
            self.position = until.end()
            self._expect(f"{version} ")
        models = {}
        if self.text.startswith(" models ", self.position):
            self.position += len(" models ")
            models = self._json(dict[str, str])
        if self.position < len(self.text):
            self._fail("unexpected text after the settings", self.position)
        if len(stages) > 1:
            return Signature(
                version=version, recipe="curriculum", stages=tuple(stages), models=models
            )
        [only] = stages
        return Signature(version=version, recipe=only.recipe, settings=only.settings, models=models)

    def _expect(self, literal: str) -> None:
        if not self.text.startswith(literal, self.position):
            self._fail(f"expected {literal!r}", self.position)
        self.position += len(literal)

    def _match(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = pattern.match(self.text, self.position)
        if match is None:
            self._fail(f"expected {what}", self.position)
        self.position = match.end()
        return match

    def _word(self, pattern: re.Pattern[str], what: str) -> str:
        if self.text.startswith('"', self.position):
            quoted: str = self._json(str)
            return quoted
        return self._match(pattern, what)[0]

    def _value(self, kind: Any) -> Any:
        self._expect("=")
        return self._json(kind)

    def _json(self, kind: Any) -> Any:
        start = self.position
        try:
            value, self.position = _DECODER.raw_decode(self.text, start)
        except json.JSONDecodeError as error:
            self._fail(f"expected a JSON value ({error.msg})", error.pos)
        except RecursionError:
            self._fail("a JSON value is nested too deeply", start)
        except ValueError as error:
            self._fail(str(error), start)
        if _deeper_than(MAX_DEPTH, value):
            self._fail("a JSON value is nested too deeply", start)
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            self._fail(f"unexpected value ({error})", start)

    def _fail(self, what: str, position: int) -> NoReturn:
        raise SignatureError(
            f"not a signature: {shorten(what, MAX_MESSAGE)} at character {position + 1}; a "
            f"signature reads, for example, `{EXAMPLE}`"
        ) from None

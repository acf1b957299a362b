"""Signatures: one line that identifies everything that affects a score.

    rag-rewards VERSION RECIPE [hardened] [{"settings": …, "stages": …, "models": …}]

`settings` holds the settings that differ from the defaults or, with `hardened`, from the hardened
profile. A curriculum lists its recipes in `stages`; `models` holds the fingerprints of the models
that provided evidence. A recipe name that is not a plain word is written as a JSON string. Version
0.7.0 wrote `key=JSON` for each setting, which is read too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from rag_rewards import __version__
from rag_rewards.errors import SettingError, SignatureError, shorten

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

    >>> signature = Signature(version="0.8.0", recipe="arena", settings={"bonus.value": 5.0})
    >>> str(signature)
    'rag-rewards 0.8.0 arena {"settings":{"bonus.value":5}}'
    >>> Signature.parse(str(signature)) == signature
    True
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
        name = self.recipe if _NAME.fullmatch(self.recipe) else _json(self.recipe)
        words = ["rag-rewards", self.version, name, *["hardened"] * self.hardened]
        rest = _Rest(self.settings, self.stages, self.models)
        if rest != _Rest():
            words.append(_json(msgspec.to_builtins(rest)))
        return " ".join(words)

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Read a signature of 0.7.0 or later. Raises SignatureError for any other text."""
        head = _HEAD.match(text)
        if head is None:
            raise _not_a_signature("it has not the form rag-rewards VERSION RECIPE")
        try:
            name = head["name"]
            recipe = msgspec.json.decode(name, type=str) if name.startswith('"') else name
            hardened, rest = _read(text[head.end() :])
            return cls(
                version=head["version"],
                recipe=recipe,
                settings=rest.settings,
                hardened=hardened,
                stages=rest.stages,
                models=rest.models,
            )
        except RecursionError:
            raise _not_a_signature("a value is nested too deeply") from None
        except (ValueError, msgspec.MsgspecError) as error:
            raise _not_a_signature(str(error)) from None

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


_VERSION = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/+-]*")
_STRING = r'"(?:[^"\\]|\\.)*"'
_HEAD = re.compile(
    rf"rag-rewards (?P<version>{_VERSION.pattern}) (?P<name>{_NAME.pattern}|{_STRING})(?= |\Z)"
)


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


def _json(value: Any) -> str:
    """Return compact JSON on one line. Characters that cannot be printed are escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


# --- reading -------------------------------------------------------------------------------------

EXAMPLE = 'rag-rewards 0.8.0 arena hardened {"settings":{"bonus.value":5}}'
MAX_DEPTH = 12
"""Levels of lists and mappings in a signature. This package writes at most eight."""
MAX_MESSAGE = 200
"""Characters of an error message that come from the text."""

_OLD_ITEM = re.compile(r" (?:(hardened)(?= |\Z)|([A-Za-z_][A-Za-z0-9_.]*)=)")
_OLD_JSON = json.JSONDecoder(parse_int=lambda text: int(text) if len(text) < 20 else float(text))


class _Rest(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """The JSON object at the end of a signature."""

    settings: dict[str, Any] = {}
    stages: tuple[StageSignature, ...] = ()
    models: dict[str, str] = {}


_REST = msgspec.json.Decoder(_Rest)


def _read(text: str) -> tuple[bool, _Rest]:
    """Return whether the profile is hardened, and the JSON object after the name of the recipe."""
    tail = text.removeprefix(" hardened")
    if not tail:
        return bool(text), _Rest()
    is_old = not tail.startswith(" {")
    hardened, rest = _read_old(text) if is_old else (len(tail) < len(text), _REST.decode(tail))
    if _is_deep(msgspec.to_builtins(rest)):
        raise RecursionError
    return hardened, rest


def _read_old(text: str) -> tuple[bool, _Rest]:
    """Read the form of 0.7.0: `[key=JSON …] [hardened] [stages=JSON] [models=JSON]`."""
    values: dict[str, Any] = {}
    at = 0
    while at < len(text):
        item = _OLD_ITEM.match(text, at)
        if item is None:
            raise ValueError(f"expected a setting, found {text[at : at + 20]!r}")
        key, at = item[1] or item[2], item.end()
        if key in values:
            raise ValueError(f"{key!r} occurs twice")
        if item[1]:
            values[key] = True
        else:
            values[key], at = _OLD_JSON.raw_decode(text, at)
    words: dict[str, Any] = {k: values.pop(k) for k in ("stages", "models") if k in values}
    hardened = values.pop("hardened", False) is True
    return hardened, msgspec.convert(words | {"settings": values}, _Rest)


def _is_deep(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Return whether lists and mappings are nested in more levels."""
    if not isinstance(value, (dict, list, tuple)):
        return False
    members: Iterable[Any] = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deep(each, levels - 1) for each in members)


def _not_a_signature(what: str) -> SignatureError:
    return SignatureError(
        f"not a signature: {shorten(what, MAX_MESSAGE)}; a signature reads, for example, "
        f"`{EXAMPLE}`"
    )

"""The options that choose a recipe: --recipe, --set, --config and --hardened."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.loading import RecipeSpec
from rag_rewards.models.model_options import read_options

MODELS = "models"
"""The field of a --config file with the settings of models, and their first key in --set."""
MODEL_PREFIX = f"{MODELS}."


@dataclass(frozen=True)
class RecipeOptions:
    """Which recipe to use, and its settings."""

    recipe: Annotated[str | None, Parameter(alias="-r")] = None
    """Use this recipe: a name, or your own recipe as `module:name` or `path/file.py:name`."""
    set: Sequence[str] = ()
    """Change a setting, as KEY=VALUE with a dotted key: `accuracy.metric=f1`. In commands with
    models, their settings begin with `models`: `models.dtype=float32` (docs/models.md lists them).
    Repeatable."""
    config: Path | None = None
    """Read settings from this YAML file. It can also contain `recipe`, `hardened`, `stages` and
    `models`."""
    hardened: bool = False
    """Use the hardened profile: settings under which fewer attacks increase the reward."""

    @cached_property
    def _content(self) -> tuple[RecipeSpec, dict[str, Any]]:
        """The content of the file, which may be a pipe, so that it is read once."""
        return read_config(self.config) if self.config else (RecipeSpec(), {})

    @property
    def models(self) -> dict[str, Any]:
        """The settings of models; --set takes precedence over --config."""
        changes = {
            key.removeprefix(MODEL_PREFIX): None if text.strip() == "null" else text
            for key, text in map(_key_and_text, self._model_pairs)
        }
        given = dict.fromkeys(changes) | read_options(changes, MODEL_PREFIX)
        return with_line_breaks(self._content[1] | given)

    @property
    def _model_pairs(self) -> list[str]:
        return [pair for pair in self.set if pair.startswith(MODEL_PREFIX)]

    def refuse_models(self, command: str) -> None:
        """Raise OptionError if --set has a setting of models, which this command does not use."""
        for pair in self._model_pairs:
            key, _ = _key_and_text(pair)
            raise OptionError(
                "{set} {key}: {command} uses no models; leave it out", key=key, command=command
            )

    def spec(self, *, required: bool = True) -> RecipeSpec:
        """Return the recipe as plain data; --set takes precedence over --config.

        Raises UsageError when no recipe is given, unless it is not `required`.
        """
        file, _ = self._content
        source = msgspec.structs.replace(file, recipe=self.recipe or file.recipe)
        changes = parse_settings(pair for pair in self.set if not pair.startswith(MODEL_PREFIX))
        return RecipeSpec.of(source, changes, hardened=self.hardened, required=required)

    def optional_spec(self) -> RecipeSpec | None:
        """Return the recipe as plain data, or None if no option of a recipe is set."""
        return None if self.spec(required=False) == RecipeSpec() else self.spec()


def with_line_breaks(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in which the form of documents and the separator have line breaks.

    A shell passes a line break as the two characters `\\n`.
    """
    forms = ("document_form", "document_separator")
    return {
        name: value.replace("\\n", "\n") if name in forms and isinstance(value, str) else value
        for name, value in options.items()
    }


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Parse `key=value` pairs. A value is read as YAML: 0.5, true, null, [r, e], text.

    >>> parse_settings(["threshold=null", "answers=[r, e]", "accuracy.metric=f1"])
    {'threshold': None, 'answers': ['r', 'e'], 'accuracy.metric': 'f1'}
    """
    return {key: _parse_value(text) for key, text in map(_key_and_text, pairs)}


def _key_and_text(pair: str) -> tuple[str, str]:
    key, equals, text = pair.partition("=")
    if not equals or not key.strip():
        raise OptionError("{set} expects KEY=VALUE, found {pair!r}", pair=pair)
    return key.strip(), text


def read_config(path: Path) -> tuple[RecipeSpec, dict[str, Any]]:
    """Read a YAML file: a recipe with its settings, and the settings of models. UsageError."""
    import yaml

    try:
        content = _load_yaml(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return RecipeSpec(), {}
    if not isinstance(content, Mapping):
        kind = type(content).__name__
        raise UsageError(f"{path}: expected a mapping of settings, found {kind}")
    models = content.get(MODELS) or {}
    if not isinstance(models, Mapping):
        raise UsageError(f"{path}: models must be a mapping of settings, found {models!r}")
    own = {key: content[key] for key in ("recipe", "hardened", "stages") if key in content}
    settings = {key: value for key, value in content.items() if key not in (*own, MODELS)}
    try:
        spec = RecipeSpec.of(own | {"settings": settings}, required=False)
        for recipe in spec.recipes:
            if not isinstance(recipe, (str, Mapping, type(None))):
                raise UsageError(f"recipe must be a name or module:name, found {recipe!r}")
        return spec, read_options(models, MODEL_PREFIX)
    except OptionError as error:
        raise OptionError(f"{{path}}: {error.template}", path=path, **error.values) from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except RecursionError:
        raise UsageError(f"{path}: a mapping contains itself") from None


def _parse_value(text: str) -> Any:
    """Read a value as YAML, or as plain text where it is not YAML."""
    import yaml

    try:
        return _load_yaml(text)
    except yaml.YAMLError:
        return text


def _load_yaml(text: str) -> Any:
    """Read YAML 1.1 as PyYAML does, except that 1e-3 is a number, as it is in YAML 1.2.

    Raises yaml.YAMLError, also where PyYAML raises other exceptions.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    number = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    try:
        return yaml.load(text, Loader)  # noqa: S506 (a SafeLoader)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    except (ValueError, OverflowError) as error:  # such as the date 2024-99-99
        raise yaml.YAMLError(str(error)) from None

"""Loading of recipes from every form that a user can give.

    load_recipe("arena", {"bonus.value": 5}, hardened=True)     # a name
    load_recipe("my_rewards:reward")                            # an object of a module
    load_recipe("rewards/mine.py:reward")                       # an object of a file
    load_recipe(my_reward)                # a recipe, curriculum, definition, reward or function
    load_recipe({"stages": [{"recipe": "arena", "until_step": 100}, {"recipe": "lear"}]})

Every form is first read into a `RecipeSpec`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from rag_rewards import __version__
from rag_rewards.definition import RecipeDefinition
from rag_rewards.errors import OptionError, SettingError, SignatureError, UsageError, shorten
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import build_recipe, definition_of, recipe
from rag_rewards.reward import Reward, as_reward, is_reward
from rag_rewards.rewards.decision_threshold import split_decision
from rag_rewards.settings import SWITCHES, current_settings, did_you_mean, dotted
from rag_rewards.signature import CODE_KEY, Signature, StageSignature, release

if TYPE_CHECKING:
    from rag_rewards.training.curriculum import Curriculum, Stage

RECIPE_KEYS = ("recipe", "settings", "hardened", "stages")
STAGE_KEYS = ("recipe", "settings", "until_step")
NO_RECIPE = "no recipe is given: set {recipe}; `rag-rewards recipes` lists them"


class RecipeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe with its settings, in the one form that all others are read into.

    recipe    a name, `module:name` or `path/to/file.py:name`; or an object
    settings  values by dotted key, in place of the defaults
    hardened  whether to use the hardened profile, under which fewer attacks increase the reward
    stages    a curriculum in place of `recipe`: mappings with `recipe`, `settings` and `until_step`

    Without an object, it is plain data, which can travel to another process.
    """

    recipe: Any = ""
    settings: dict[str, Any] = {}
    hardened: bool = False
    stages: list[dict[str, Any]] = []

    @classmethod
    def of(
        cls,
        source: RecipeSource,
        settings: Mapping[str, Any] | None = None,
        *,
        hardened: bool = False,
        required: bool = True,
    ) -> RecipeSpec:
        """Read any form of a recipe. The parameters are those of `load_recipe`.

        If it is not `required`, a mapping may contain only settings.

        >>> RecipeSpec.of({"recipe": {"recipe": "arena"}}, {"bonus": {"value": 5}}).settings
        {'bonus.value': 5}
        """
        if isinstance(source, RecipeSpec):
            source = msgspec.structs.asdict(source)
        if not isinstance(source, Mapping):
            return cls(recipe=source, settings=dotted(settings or {}), hardened=hardened)
        for key in source:
            if key not in RECIPE_KEYS:
                raise UsageError(f"unknown option {key!r}{did_you_mean(str(key), RECIPE_KEYS)}")
        options = {key: value for key, value in source.items() if value}
        own, profile = options.get("settings", {}), options.get("hardened", False)
        recipe, stages = options.get("recipe", ""), options.get("stages", [])
        if not isinstance(profile, bool):
            raise SettingError(f"hardened must be true or false, found {profile!r}")
        if required or recipe or stages:
            _check_stages(recipe, stages)
        settings = dotted(own) | dotted(settings or {})
        if isinstance(recipe, (Mapping, RecipeSpec)):
            return cls.of(recipe, settings, hardened=hardened or profile)
        return cls(
            recipe=recipe,
            settings=settings,
            hardened=hardened or profile,
            stages=[dict(stage) for stage in stages],
        )

    @property
    def recipes(self) -> list[Any]:
        """The recipe, or those of all stages."""
        return [stage.get("recipe") for stage in self.stages] or [self.recipe]

    @property
    def is_data(self) -> bool:
        """Whether it is plain data, without an object of this process."""
        return all(isinstance(each, str) for each in self.recipes)


RecipeSource = (
    str | Recipe | RecipeDefinition | Reward | Callable[..., Any] | Mapping[str, Any] | RecipeSpec
)
"""The forms in which a recipe can be given. A Curriculum is a Reward."""


def load_recipe(
    source: RecipeSource, settings: Mapping[str, Any] | None = None, *, hardened: bool = False
) -> Recipe | Curriculum:
    """Return a recipe or a curriculum from any form.

    source    a recipe name, `module:name` or `path/to/file.py:name`, a Recipe, a Curriculum, a
              RecipeDefinition, a reward, a function of a rollout, or a mapping with the keys
              `recipe`, `settings`, `hardened` and `stages`
    settings  changed settings by dotted key; they take precedence over those of a mapping
    hardened  whether to use the hardened profile

    Raises UsageError if there is no such recipe, and SettingError for an unknown or invalid
    setting.

    >>> load_recipe({"recipe": "arena", "settings": {"bonus": {"value": 5}}}).name
    'arena'
    """
    spec = RecipeSpec.of(source, settings, hardened=hardened)
    if spec.stages:
        from rag_rewards.training.curriculum import Curriculum

        return Curriculum(tuple(_stage(stage, spec) for stage in spec.stages))
    value, reference = spec.recipe, ""
    if isinstance(value, str):
        if ":" not in value:
            return recipe(value, spec.settings, hardened=spec.hardened)
        value, reference = import_object(value), value
    if isinstance(value, RecipeDefinition):
        return build_recipe(value, spec.settings, hardened=spec.hardened)
    if isinstance(value, (Mapping, RecipeSpec)):
        return load_recipe(value, spec.settings, hardened=spec.hardened)
    built = _recipe_of(value, reference)
    settings, decision = split_decision(spec.settings)
    if settings or spec.hardened:
        raise SettingError(
            f"{built.name} is an object without settings and without a hardened profile: give a "
            "recipe by name, or a RecipeDefinition"
        )
    return built.decided_by(decision)


def _recipe_of(value: Any, reference: str) -> Recipe | Curriculum:
    """Return an object as a recipe. `reference` names the object if it was imported."""
    from rag_rewards.recipe_object import custom
    from rag_rewards.training.curriculum import Curriculum

    if isinstance(value, (Recipe, Curriculum)):
        return value
    is_other = isinstance(value, (type, ModuleType, str)) or not callable(value)
    if is_other and not is_reward(value):
        raise UsageError(
            f"{reference or shorten(repr(value), 60)} is not a recipe: expected a Recipe, a "
            "Curriculum, a RecipeDefinition, a reward or a function of a rollout, found an "
            f"object of the type {type(value).__name__}"
        )
    own = getattr(value, "__name__", None) or reference.rpartition(":")[2]
    return custom(str(own) if own else as_reward(value).name, value)


def _check_stages(recipe: Any, stages: Any) -> None:
    """Raise UsageError unless there is either a recipe or a list of stages."""
    if not isinstance(stages, Sequence) or not all(isinstance(each, Mapping) for each in stages):
        raise SettingError("stages must be a list of mappings with recipe and until_step")
    if not recipe and not stages:
        raise OptionError(NO_RECIPE)
    if recipe and stages:
        raise OptionError(
            "{recipe} and stages are both set: remove {recipe}, as each stage has one"
        )


def _stage(stage: Mapping[str, Any], spec: RecipeSpec) -> Stage:
    """Return one stage of a curriculum. The settings of the stage take precedence."""
    from rag_rewards.training.curriculum import Curriculum, Stage

    for key in stage:
        if key not in STAGE_KEYS:
            raise SettingError(f"stages: unknown key {key!r}{did_you_mean(str(key), STAGE_KEYS)}")
    until = stage.get("until_step")
    if not stage.get("recipe"):
        raise SettingError("stages: a stage has no recipe: set the key recipe of every stage")
    if until is not None and (not isinstance(until, int) or isinstance(until, bool)):
        raise SettingError(f"stages: until_step must be a whole number, found {until!r}")
    settings = stage.get("settings") or {}
    if not isinstance(settings, Mapping):
        raise SettingError(f"stages: settings must be a mapping, found {settings!r}")
    own = RecipeSpec.of(stage["recipe"], settings)
    own = msgspec.structs.replace(own, settings=spec.settings | own.settings)
    loaded = load_recipe(own, hardened=spec.hardened)
    if isinstance(loaded, Curriculum):
        raise SettingError(f"stages: {loaded.name} is a curriculum: use one recipe in a stage")
    return Stage(loaded, until)


# --- Python objects by reference ------------------------------------------------------------------


def import_object(reference: str) -> Any:
    """Import the object that `module:name` or `path/to/file.py:name` refers to.

    As with `python -m`, the current folder is searched first. Raises UsageError if the module or
    the name does not exist.
    """
    module = import_module_of(reference)
    place, _, name = reference.rpartition(":")
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            names = [each for each in vars(module) if not each.startswith("_")]
            raise UsageError(f"{place} has no object {name!r}{did_you_mean(name, names)}")
        value = getattr(value, part)
    return value


def import_module_of(reference: str) -> ModuleType:
    """Import the module that `module:name` or `path/to/file.py:name` refers to."""
    place, _, name = reference.rpartition(":")
    if not place or not name:
        raise UsageError(f"{reference!r} is not of the form module:name or path/to/file.py:name")
    return _file_module(Path(place)) if place.endswith(".py") else _module(place)


def _module(name: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(name)
    except Exception as error:  # a module of the user can raise anything
        raise UsageError(
            f"cannot import {name}: {type(error).__name__}: {error}; put the module in {folder}, "
            "or install it"
        ) from error


def _file_module(path: Path) -> ModuleType:
    """Import a file as a module whose name is its path, so that it replaces no other module.

    Its folder becomes the last one of `sys.path`, so that it can import the files beside it.
    """
    name = str(path.resolve())
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, name)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"cannot import {path}: there is no such file")
    module = sys.modules[name] = module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a file of the user can raise anything
        del sys.modules[name]
        raise UsageError(f"cannot import {path}: {type(error).__name__}: {error}") from error
    return module


# --- recipes of signatures ------------------------------------------------------------------------

FIRST_VERSION = (0, 7, 0)
"""The first version whose signatures can be used."""


def recorded_spec(signature: Signature) -> RecipeSpec:
    """Return the recipe of a signature with all settings, without its models.

    Raises SignatureError for a signature of a newer version or of a custom recipe,
    UnknownRecipeError for an unknown name, and SettingError for an invalid setting.

    >>> recorded_spec(Signature.parse("rag-rewards 0.8.0 arena")).settings["bonus.value"]
    10.0
    """
    settings = [recorded_settings(signature, stage) for stage in signature.parts]
    if not signature.stages:
        return RecipeSpec(recipe=signature.recipe, settings=settings[0])
    return RecipeSpec(
        stages=[
            {"recipe": stage.recipe, "settings": values, "until_step": stage.until_step}
            for stage, values in zip(signature.stages, settings, strict=True)
        ]
    )


def recorded_settings(
    signature: Signature, stage: StageSignature, definition: RecipeDefinition | None = None
) -> dict[str, Any]:
    """Return every setting of a stage of a signature by dotted key, validated.

    A setting of 0.7.0 becomes the one in its place. `definition` is required for a recipe that is
    not built in. Raises SignatureError for a version before 0.7.0 or a newer one and for a custom
    recipe, UnknownRecipeError, and SettingError.
    """
    if release(signature.version) < FIRST_VERSION:
        raise SignatureError(
            f"the signature is of rag-rewards {signature.version}, and this version reads 0.7.0 "
            "and later: score the rows again, or install the version that scored them"
        )
    if release(signature.version) > release(__version__):
        raise SignatureError(
            f"the signature is of rag-rewards {signature.version}, but this is {__version__}: "
            f"install rag-rewards {signature.version} or later"
        )
    if stage.is_custom:
        raise SignatureError(
            f"the signature names the custom recipe {stage.recipe!r}, whose code it does not "
            "contain: score with a built-in recipe"
        )
    definition = definition or definition_of(stage.recipe)
    values = definition.defaults(hardened=stage.hardened)
    own = {key: value for key, value in stage.settings.items() if key != CODE_KEY}
    if release(signature.version) < (0, 8, 0):
        own = {k: v for k, v in own.items() if k not in SWITCHES or own.get(SWITCHES[k])}
    changes, decision = split_decision(current_settings(own, values))
    recorded = definition.settings.values(values | changes)
    return recorded | (decision.settings if decision else {})

"""Loading of recipes from every form that a user can give.

    load_recipe("arena", {"bonus.value": 5}, hardened=True)     # a name
    load_recipe("my_rewards:reward")                            # an object of a module
    load_recipe("rewards/mine.py:reward")                       # an object of a file
    load_recipe(my_reward)                # a recipe, curriculum, definition, reward or function
    load_recipe({"stages": [{"recipe": "arena", "until_step": 100}, {"recipe": "lear"}]})

Only this module imports an object by its reference.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from rag_rewards.decision import split_decision
from rag_rewards.definition import ComponentInfo, Recipe, RecipeDefinition
from rag_rewards.errors import OptionError, SettingError, UsageError, shorten
from rag_rewards.own_recipe import custom
from rag_rewards.recipes import build_recipe, definition_of, dotted, recipe, recorded_settings
from rag_rewards.reward import Reward, as_reward
from rag_rewards.settings import Settings, did_you_mean
from rag_rewards.signature import Signature
from rag_rewards.training.curriculum import Curriculum, Stage

RECIPE_KEYS = ("recipe", "settings", "hardened", "stages")
STAGE_KEYS = ("recipe", "settings", "until_step")


class RecipeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe as plain data, which can travel to another process.

    recipe    a name, `module:name` or `path/to/file.py:name`
    settings  values by dotted key, in place of the defaults
    hardened  whether to use the hardened profile, under which fewer attacks increase the reward
    stages    a curriculum in place of `recipe`: mappings with `recipe`, `settings` and `until_step`
    """

    recipe: str = ""
    settings: dict[str, Any] = {}
    hardened: bool = False
    stages: list[dict[str, Any]] = []


RecipeSource = (
    str
    | Recipe
    | Curriculum
    | RecipeDefinition
    | Reward
    | Callable[..., Any]
    | Mapping[str, Any]
    | RecipeSpec
)
"""The forms in which a recipe can be given."""


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
    if isinstance(source, RecipeSpec):
        source = msgspec.structs.asdict(source)
    if isinstance(source, Mapping):
        return _from_mapping(source, settings or {}, hardened)
    if isinstance(source, str):
        if ":" not in source:
            return recipe(source, settings, hardened=hardened)
        return _from_object(import_object(source), settings, hardened, source)
    return _from_object(source, settings, hardened)


def recipes_of(reward: Recipe | Curriculum) -> list[Recipe]:
    """Return the recipes of all stages of a curriculum, or the recipe itself."""
    return [s.recipe for s in reward.stages] if isinstance(reward, Curriculum) else [reward]


def spec_of(
    source: RecipeSource, settings: Mapping[str, Any] | None = None, *, hardened: bool = False
) -> RecipeSpec | None:
    """Return a recipe as plain data, or None if it is given as an object.

    >>> spec_of("arena", {"bonus": {"value": 5}}).settings
    {'bonus.value': 5}
    """
    if isinstance(source, str):
        return RecipeSpec(recipe=source, settings=dotted(settings or {}), hardened=hardened)
    if isinstance(source, RecipeSpec):
        source = msgspec.structs.asdict(source)
    if not isinstance(source, Mapping):
        return None
    merged = _merged(source, settings or {}, hardened)
    stages_are_data = all(isinstance(stage.get("recipe"), str) for stage in merged["stages"])
    if not isinstance(merged["recipe"], str) or not stages_are_data:
        return None
    return RecipeSpec(**merged)


def is_hardened(source: Any, *, hardened: bool = False) -> bool:
    """Return whether a recipe, given in any form, has the hardened profile.

    >>> is_hardened({"recipe": {"recipe": "arena", "hardened": True}})
    True
    """
    if isinstance(source, RecipeSpec):
        return hardened or source.hardened
    if isinstance(source, Mapping):
        return hardened or source.get("hardened") is True or is_hardened(source.get("recipe"))
    return hardened


def recorded_spec(signature: Signature) -> RecipeSpec:
    """Return the recipe of a signature with all settings, without its models.

    Raises SignatureError for a signature of a newer version or of a custom recipe,
    UnknownRecipeError for an unknown name, and SettingError for an invalid setting.

    >>> recorded_spec(Signature.parse("rag-rewards 0.2.0 arena")).settings["bonus.value"]
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


def find_definition(reference: str) -> RecipeDefinition | None:
    """Return the definition of a recipe by name or by `module:name`.

    The result is None for another object, such as a reward, which has no settings. Raises
    UsageError if the object does not exist.
    """
    if ":" not in reference:
        return definition_of(reference)
    value = import_object(reference)
    return value if isinstance(value, RecipeDefinition) else None


def load_definition(reference: str) -> RecipeDefinition:
    """Return the definition of a recipe by name or by `module:name`, of a curriculum its last one.

    Raises UsageError if the object does not exist or is no recipe, and for a curriculum whose
    stages have different prompts.
    """
    definitions = load_definitions(reference)
    if any(each.prompt.identity != definitions[0].prompt.identity for each in definitions):
        raise UsageError(
            f"{reference} is a curriculum whose stages have different prompts: name the recipe of "
            "one stage"
        )
    return definitions[-1]


def load_definitions(reference: str) -> list[RecipeDefinition]:
    """Return the definition of a recipe, or those of the stages of a curriculum.

    For another object than a definition, such as a Recipe, a reward or a function, the definition
    contains what is known of the object. Raises UsageError if it does not exist or is no recipe.
    """
    definition = find_definition(reference)
    if definition is not None:
        return [definition]
    return [_definition_for(recipe) for recipe in recipes_of(load_recipe(reference))]


OWN_SOURCE = "your own recipe"
"""The source of a definition that was derived from a recipe of a user."""


def _definition_for(recipe: Recipe) -> RecipeDefinition:
    """Return what is known of a recipe as a definition that builds this recipe."""
    if recipe.definition is not None:
        return replace(recipe.definition, build=lambda _: recipe)
    definitions = [each.definition for each in recipe.inner_recipes if each.definition is not None]
    fields = dict.fromkeys(name for each in definitions for name in each.fields)
    infos = {
        f"{each.name}/{info.name}": replace(info, name=f"{each.name}/{info.name}")
        for each in definitions
        for info in each.components
    }
    return RecipeDefinition(
        name=recipe.name,
        summary="A combination of rewards.",
        source=OWN_SOURCE,
        output=recipe.output_form,
        settings=Settings,
        build=lambda _: recipe,
        fields=tuple(fields),
        components=tuple(
            infos.get(name, ComponentInfo(name, "", None, None)) for name in recipe.component_names
        ),
        prompt=recipe.prompt,
    )


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


def _from_object(
    value: Any, settings: Mapping[str, Any] | None, hardened: bool, reference: str = ""
) -> Recipe | Curriculum:
    """Return an object as a recipe. `reference` names the object if it was imported."""
    if isinstance(value, RecipeDefinition):
        return build_recipe(value, settings, hardened=hardened)
    if isinstance(value, Mapping):
        return _from_mapping(value, settings or {}, hardened)
    _check_reward(value, reference)
    name = _name_of(value, reference)
    settings, decision = split_decision(dotted(settings or {}))
    if settings or hardened:
        raise SettingError(
            f"{name} is an object without settings and without a hardened profile: give a recipe "
            "by name, or a RecipeDefinition"
        )
    if isinstance(value, Recipe):
        return value.decided_by(decision)
    if isinstance(value, Curriculum):
        stages = [replace(each, recipe=each.recipe.decided_by(decision)) for each in value.stages]
        return replace(value, stages=tuple(stages))
    return custom(name, value).decided_by(decision)


def _check_reward(value: Any, reference: str) -> None:
    """Raise UsageError for an object that cannot be a reward."""
    if isinstance(value, (Recipe, Curriculum, Reward)):
        return
    if isinstance(value, (type, ModuleType, str)) or not callable(value):
        raise UsageError(
            f"{reference or shorten(repr(value), 60)} is not a recipe: expected a Recipe, a "
            "Curriculum, a RecipeDefinition, a reward or a function of a rollout, found an "
            f"object of the type {type(value).__name__}"
        )


def _name_of(value: Any, reference: str) -> str:
    """Return the name of a reward: its own, or the name that it was imported by."""
    if isinstance(value, (Recipe, Curriculum)):
        return value.name
    own = getattr(value, "__name__", None) or reference.rpartition(":")[2]
    return str(own) if own else as_reward(value).name


# --- mappings ----------------------------------------------------------------------------------


def _from_mapping(
    options: Mapping[str, Any], settings: Mapping[str, Any], hardened: bool
) -> Recipe | Curriculum:
    options = _merged(options, settings, hardened)
    source, settings, hardened = options["recipe"], options["settings"], options["hardened"]
    if not options["stages"]:
        return load_recipe(source, settings, hardened=hardened)
    stages = options["stages"]
    return Curriculum(tuple(_stage(stage, settings, hardened) for stage in stages))


def _merged(
    options: Mapping[str, Any], settings: Mapping[str, Any], hardened: bool
) -> dict[str, Any]:
    """Return validated options of a recipe, in which `settings` take precedence."""
    for key in options:
        if key not in RECIPE_KEYS:
            raise UsageError(f"unknown option {key!r}{did_you_mean(str(key), RECIPE_KEYS)}")
    source, stages = options.get("recipe") or "", options.get("stages") or []
    own, profile = options.get("settings") or {}, options.get("hardened") or False
    if not isinstance(own, Mapping):
        raise SettingError(f"settings must be a mapping, found {own!r}")
    if not isinstance(profile, bool):
        raise SettingError(f"hardened must be true or false, found {profile!r}")
    if not isinstance(stages, Sequence) or not all(isinstance(each, Mapping) for each in stages):
        raise SettingError("stages must be a list of mappings with recipe and until_step")
    if not source and not stages:
        raise OptionError("no recipe is given: set {recipe}; `rag-rewards recipes` lists them")
    if source and stages:
        raise OptionError(
            "{recipe} and stages are both set: remove {recipe}, as each stage has one"
        )
    return {
        "recipe": source,
        "settings": dotted(own) | dotted(settings),
        "hardened": profile or hardened,
        "stages": [dict(stage) for stage in stages],
    }


def _stage(stage: Mapping[str, Any], settings: Mapping[str, Any], hardened: bool) -> Stage:
    """Return one stage of a curriculum. The settings of the stage take precedence."""
    for key in stage:
        if key not in STAGE_KEYS:
            raise SettingError(f"stages: unknown key {key!r}{did_you_mean(str(key), STAGE_KEYS)}")
    source, until = stage.get("recipe"), stage.get("until_step")
    own = stage.get("settings") or {}
    if not source:
        raise SettingError("stages: a stage has no recipe: set the key recipe of every stage")
    if not isinstance(own, Mapping):
        raise SettingError(f"stages: settings must be a mapping, found {own!r}")
    if until is not None and (not isinstance(until, int) or isinstance(until, bool)):
        raise SettingError(f"stages: until_step must be a whole number, found {until!r}")
    loaded = load_recipe(source, {**settings, **dotted(own)}, hardened=hardened)
    if isinstance(loaded, Curriculum):
        raise SettingError(f"stages: {loaded.name} is a curriculum: use one recipe in a stage")
    return Stage(loaded, until)

"""The contents of a training script: a recipe or curriculum, its models, the policy, the data."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from rag_rewards.errors import UsageError
from rag_rewards.evidence.needs import ModelKind
from rag_rewards.loading import RECIPE_KEYS, RecipeSpec, load_recipe
from rag_rewards.models.addresses import is_url
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import RECIPES
from rag_rewards.recipes.sample import models_needed
from rag_rewards.scoring.rollout_dump import DumpOptions
from rag_rewards.scripts.model_types import has_configuration, model_types
from rag_rewards.settings import did_you_mean
from rag_rewards.trainers import TRAINERS, Trainer
from rag_rewards.training.credit.settings import Credit
from rag_rewards.training.curriculum import Curriculum
from rag_rewards.training.settings import Stated, Training
from rag_rewards.turns.dialects import DIALECTS, SEARCH_R1

NO_DUMP = DumpOptions()
SEARCH_TURNS = 4
"""Greatest number of turns of a search agent in the templates."""
SEARCH_TOKENS = 4096
"""Least number of tokens for all turns of a search agent and their results."""
TAG_DIALECTS = tuple(name for name, dialect in DIALECTS.items() if dialect.block)
"""The dialects of environments that read tags, Search-R1 first."""
_PATHS = (
    *("model", "generator", "adapter", "tokenizer", "nli", "nli_tokenizer", "similarity"),
    "prompt_template",
)
"""The options of models that can be paths."""
_EXTRAS: Mapping[ModelKind, str] = {
    "policy": "http",
    "generator": "http",
    "entailment": "nli",
    "judge": "judge",
    "similarity": "semantic",
}
"""The extra of each kind of model."""


@dataclass(frozen=True)
class Start:
    """The contents of a training script.

    `spec` is the recipe as the script names it, `policy` the model to train, and `data` the file
    that `rag-rewards prepare` wrote. `components` are the weights of the components that the
    trainer normalizes one by one (GDPO); without any, it normalizes the reward. `changes` are
    training settings in place of those of the recipe.
    """

    spec: RecipeSpec
    reward: Recipe | Curriculum
    models: ModelOptions
    policy: str
    data: str
    validation: str | None = None
    dump: DumpOptions = NO_DUMP
    components: Mapping[str, float] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = self.reward.component_names
        for name in self.components:
            if name not in names:
                raise UsageError(f"no component {name!r}{did_you_mean(name, names)}")
        if self.components and self.training.std_floor.value is not None:
            raise UsageError(
                f"{self.name} normalizes its reward itself, so its components cannot be normalized"
            )

    @property
    def has_credentials(self) -> bool:
        """Whether the URL of a model contains a user or a password."""
        values = (getattr(self.models, each.name) for each in fields(ModelOptions))
        return any(isinstance(value, str) and is_url(value) and "@" in value for value in values)

    @property
    def name(self) -> str:
        """The name of the reward."""
        return self.reward.name

    @property
    def training(self) -> Training:
        """The training settings of the recipe, or of the last stage of a curriculum."""
        return replace(self.reward.recipes[-1].training, **self.changes)

    @property
    def scores_groups(self) -> bool:
        """Whether the reward compares the rollouts of a group."""
        return self.reward.scope == "group"

    @property
    def fits_groups(self) -> bool:
        """Whether a group is scored as a whole: it is compared, or one of its models can fail."""
        return self.scores_groups or bool(self.extras) or self.training.std_floor.value is not None

    @property
    def needs_turns(self) -> bool:
        """Whether the reward reads the turns of a rollout."""
        return any(recipe.needs_turns for recipe in self.reward.recipes)

    @property
    def searches(self) -> bool:
        """Whether the policy searches while it generates.

        A reward that reads turns or documents scores responses to rows with documents too.
        """
        return any(
            recipe.needs_turns
            and (recipe.definition is None or "documents" not in recipe.definition.fields)
            for recipe in self.reward.recipes
        )

    @property
    def dialect(self) -> str:
        """The dialect of the recipe, or of the last stage of a curriculum."""
        return str((self.reward.recipes[-1].settings or {}).get("dialect", "auto"))

    def for_trainer(self, trainer: Trainer) -> Start:
        """Return the start for the script of a trainer, in a dialect of its environment.

        Raises UsageError for what the trainer or its script cannot do.
        """
        if self.scores_groups and trainer.one_rollout:
            raise UsageError(
                f"{self.name} compares the rollouts of a group, and {trainer.title} scores one "
                f"rollout at a time: {trainer.one_rollout}"
            )
        if self.searches and trainer.search == "none":
            names = [name for name, each in TRAINERS.items() if each.search != "none"]
            raise UsageError(
                f"{self.name} rewards searches, and the script of {trainer.title} generates one "
                f"response without tools: train with {alternatives(names)}"
            )
        if not trainer.turn_credit:
            self._check_sum(trainer.title)
        if not trainer.has_steps and isinstance(self.reward, Curriculum):
            raise UsageError(
                f"{trainer.title} does not pass the training step to a reward: write a script for "
                "each stage"
            )
        if self.needs_trained_policy and not trainer.passes_model:
            instead = "" if self.needs("policy") else "--set models.generator=PATH or "
            raise UsageError(
                f"{self.name} needs outputs of {'a generator' if instead else 'the policy'}, and "
                f"{trainer.title} passes no model to a reward: use {instead}--model URL --backend "
                "vllm"
            )
        return self._in_dialect(trainer)

    def _check_sum(self, trainer: str) -> None:
        """Raise UsageError if the sum of the turns says nothing about which turn was good.

        This is the sum of information gains over the previous turn: the outcome, plus the last
        likelihood, minus the first one.
        """
        settings = self.reward.recipes[-1].settings or {}
        if self.credit is not None and settings.get("gain.baseline") == "previous":
            titles = [
                each.title
                for each in TRAINERS.values()
                if each.turn_credit and each.search != "none"
            ]
            raise UsageError(
                f"{trainer} has no turn credit, and the sum of the turns is only the outcome and "
                "the difference of the last and the first likelihood: set credit.method=group to "
                "train on this sum, set gain.baseline=empty, or train with "
                f"{alternatives(titles)}"
            )

    def _in_dialect(self, trainer: Trainer) -> Start:
        """Return the start with the first dialect of the trainer in place of the dialect `auto`."""
        dialects = TAG_DIALECTS if trainer.search == "tags" else (trainer.search,)
        if not self.searches or trainer.search == "any" or self.dialect in dialects:
            return self
        if self.dialect != "auto":
            raise UsageError(
                f"the script of {trainer.title} searches in the dialect {' or '.join(dialects)}, "
                f"and {self.name} reads {self.dialect}: set dialect={dialects[0]}"
            )
        if self.spec.recipe not in RECIPES:
            return self  # a curriculum and an own recipe contain their dialects
        changed = {**self.spec.settings, "dialect": dialects[0]}
        spec = msgspec.structs.replace(self.spec, settings=changed)
        return replace(self, spec=spec, reward=load_recipe(spec))

    @property
    def response_tokens(self) -> Stated[int]:
        """The tokens of a response; at least SEARCH_TOKENS for all turns with their results."""
        stated = self.training.response_tokens
        if not self.searches or stated.value >= SEARCH_TOKENS:
            return stated
        source = f"{stated.source}: {stated.value} tokens of a turn; here of all turns and results"
        return Stated(SEARCH_TOKENS, source)

    @property
    def credit(self) -> Credit | None:
        """The credit method of the recipe, or of the last stage of a curriculum.

        It is None with components: then all turns share one advantage.
        """
        if self.components:
            return None
        return Credit.of_settings(self.reward.recipes[-1].settings)

    @property
    def needs_trained_policy(self) -> bool:
        """Whether the reward needs the policy in training, because no other model is set."""
        needs_policy = self.needs("policy") and self.models.model is None
        return needs_policy or self.trains_generator

    @property
    def trains_generator(self) -> bool:
        """Whether the policy in training is also the generator, because none is set."""
        is_set = self.models.model is not None or self.models.generator is not None
        return self.needs("generator") and not is_set

    def needs(self, kind: ModelKind) -> bool:
        """Whether the reward needs a kind of model."""
        return any(kind in models_needed(recipe) for recipe in self.reward.recipes)

    @property
    def options(self) -> dict[str, Any]:
        """The recipe and its models, as keyword arguments of every adapter."""
        options = {name: value for name in RECIPE_KEYS if (value := getattr(self.spec, name))}
        default = ModelOptions()
        for each in fields(ModelOptions):
            value = getattr(self.models, each.name)
            if value != getattr(default, each.name):
                options[each.name] = value
        return options | self._dump_options

    @property
    def _dump_options(self) -> dict[str, Any]:
        """The options of the dump that differ from their defaults."""
        if self.dump.dump is None:
            return {}
        default = DumpOptions()
        return {
            name: value
            for name, value in vars(self.dump).items()
            if value != getattr(default, name)
        }

    @property
    def advantage_options(self) -> dict[str, Any]:
        """The options, with the floor of the standard deviation if the recipe has one."""
        floor = self.training.std_floor.value
        return self.options if floor is None else self.options | {"std_floor": floor}

    # --- values of templates -------------------------------------------------------------------

    @property
    def named_options(self) -> dict[str, Any]:
        """The options, with a name if they contain no recipe with one."""
        options = self.advantage_options
        return options if "recipe" in options else {"name": self.name, **options}

    @property
    def flat_options(self) -> dict[str, Any]:
        """The options, with each setting of the recipe as an option `settings.KEY`."""
        options: dict[str, Any] = {}
        for name, value in self.options.items():
            settings = value if name == "settings" else {}
            options |= {f"settings.{key}": setting for key, setting in settings.items()}
            options |= {} if name == "settings" else {name: value}
        return options

    @property
    def needs_judge(self) -> bool:
        """Whether the reward needs a judge."""
        return self.needs("judge")

    @property
    def component_names(self) -> list[str]:
        """The components that the trainer normalizes one by one."""
        return list(self.components)

    @property
    def component_weights(self) -> list[float]:
        """The weights of `component_names`."""
        return list(self.components.values())

    @property
    def reward_names(self) -> list[str]:
        """The names of the rewards: that of the recipe, or those of its components."""
        return [f"{self.name}/{name}" for name in self.components] or [self.name]

    @property
    def extras(self) -> str:
        """The extras of this package that the models of the reward need, in brackets, or ""."""
        names = [extra for kind, extra in _EXTRAS.items() if self.needs(kind)]
        return f"[{','.join(names)}]" if names else ""

    @property
    def rollouts(self) -> Stated[int]:
        """The rollouts of a step."""
        prompts, group = self.training.prompts, self.training.group
        sources = " and ".join(dict.fromkeys((group.source, prompts.source)))
        return Stated(prompts.value * group.value, sources)

    @property
    def one_turn_tokens(self) -> int:
        """The tokens of a prompt and of one response of the policy."""
        return self.training.prompt_tokens.value + self.training.response_tokens.value

    @property
    def all_turns_tokens(self) -> int:
        """The tokens of a prompt and of all turns with their results."""
        return self.training.prompt_tokens.value + self.response_tokens.value

    @property
    def input_tokens(self) -> int:
        """The tokens of a prompt and of SEARCH_TURNS responses."""
        training = self.training
        return training.prompt_tokens.value + SEARCH_TURNS * training.response_tokens.value

    @property
    def policy_tokens(self) -> int:
        """The tokens that an engine with the policy accepts; a log-probability needs one more."""
        return self.all_turns_tokens + self.needs_trained_policy

    @property
    def tag_dialect(self) -> str:
        """The dialect with tags: that of the recipe, or else that of Search-R1."""
        return self.dialect if self.dialect in TAG_DIALECTS else SEARCH_R1.name

    @property
    def query_end(self) -> str:
        """The tag that ends a query in `tag_dialect`."""
        query = DIALECTS[self.tag_dialect].query
        return query[1] if query else ""

    @property
    def model_types(self) -> dict[str, str]:
        """The flags with which ms-swift reads the folder of the policy, none if it needs none."""
        return model_types(self.policy)

    @property
    def has_unknown_types(self) -> bool:
        """Whether ms-swift may not derive the types of the policy from the name of its folder."""
        return has_configuration(self.policy) and not self.model_types

    @property
    def identifier(self) -> str:
        """The name of the reward as a name in Python."""
        return re.sub(r"\W", "_", self.name)

    @property
    def module(self) -> str:
        """The name of a module with the reward."""
        return f"rag_{self.identifier}".lower()

    @property
    def distribution(self) -> str:
        """The name of a package with the reward."""
        return self.module.replace("_", "-")

    @property
    def class_name(self) -> str:
        """The beginning of the names of classes for the reward."""
        return "".join(word.capitalize() for word in self.identifier.split("_"))


def alternatives(names: Sequence[str]) -> str:
    """Return names as a text.

    >>> alternatives(["TRL", "verl", "SkyRL"])
    'TRL, verl or SkyRL'
    """
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def weights_of(text: str) -> dict[str, float]:
    """Return the weights of components, `NAME=WEIGHT` separated by commas. Raises UsageError.

    >>> weights_of("outcome,format=0.2")
    {'outcome': 1.0, 'format': 0.2}
    """
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (word.strip() for word in part.partition("="))
        try:
            weight = float(number or 1)
        except ValueError:
            weight = math.nan
        if not name or name in weights or not math.isfinite(weight):
            raise UsageError(f"--components {text!r}: write NAME=WEIGHT,NAME=WEIGHT")
        weights[name] = weight
    return weights


def start_of(
    spec: RecipeSpec,
    models: ModelOptions,
    policy: str,
    data: str,
    validation: str | None,
    dump: DumpOptions = NO_DUMP,
    components: Mapping[str, float] | None = None,
    changes: Mapping[str, Stated[Any]] | None = None,
) -> Start:
    """Return the contents of a script. Raises UsageError for an unknown component.

    A script runs in its own folder and its workers run in others, so existing paths and the path of
    the dump are absolute. Raises OptionError for an invalid dump.
    """
    if (opened := dump.open()) is not None:
        dump = replace(dump, dump=str(opened.path))
    spec = msgspec.structs.replace(spec, recipe=_absolute_reference(spec.recipe))
    return Start(
        spec,
        load_recipe(spec),
        replace(models, **_absolute_paths(models)),
        _absolute(policy),
        _absolute(data),
        _absolute(validation) if validation else None,
        dump,
        components or {},
        changes or {},
    )


def _absolute_paths(models: ModelOptions) -> dict[str, Any]:
    values = {name: getattr(models, name) for name in _PATHS}
    return {name: _absolute(value) for name, value in values.items() if value}


def _absolute(path: str) -> str:
    return str(Path(path).resolve()) if Path(path).exists() else path


def _absolute_reference(reference: str) -> str:
    """Return a reference that is valid in other folders.

    `path/to/file.py:name` gets an absolute path. So does a module that is a file in the current
    folder. Another reference is unchanged.
    """
    place, colon, name = reference.rpartition(":")
    file = Path(place if place.endswith(".py") else f"{place}.py")
    if colon and file.exists() and (place.endswith(".py") or "." not in place):
        return f"{file.resolve()}:{name}"
    return reference

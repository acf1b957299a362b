"""`Recipe`, a named and configured composition, and `RecipeDefinition`, the facts of its paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import repeat, starmap
from typing import Any

from rag_rewards.code_digest import code_digest, without_addresses
from rag_rewards.compose import AtLeast
from rag_rewards.decision import Decision
from rag_rewards.errors import (
    RolloutError,
    ScoringError,
    SettingError,
    UsageError,
    scoring_errors,
)
from rag_rewards.evidence.needs import Need
from rag_rewards.groups import (
    Groups,
    Scope,
    first_error,
    groups_of,
    raise_errors,
    rows_of,
    score_whole_groups,
    singletons,
)
from rag_rewards.prompts import ANY_FORM, GROUNDED, GoldRationale, OutputForm, Prompt, prompts_of
from rag_rewards.reward import (
    Batch,
    BatchReward,
    Composite,
    FunctionReward,
    Reward,
    walk,
)
from rag_rewards.rewards.igpo import IgpoReward
from rag_rewards.rollout import Rollout, Score, ScoreOrError, with_row_id
from rag_rewards.settings import SettingTable, did_you_mean
from rag_rewards.signature import CODE_KEY, Signature
from rag_rewards.training.settings import NOT_STATED, Training
from rag_rewards.turns.turn import check_environment


@dataclass(frozen=True)
class Recipe:
    """A named composition that scores batches of rollouts.

    components  rewards that every score contains by name
    total       the reward, a composition of the components
    correct     the reward that decides whether an answer is right
    settings    values of the settings by dotted key; None for a custom composition

    A recipe is a Reward, so that it can be a part of another composition.
    """

    name: str
    components: tuple[Reward, ...]
    total: Reward
    correct: Reward | None = None
    settings: Mapping[str, Any] | None = field(default=None, hash=False)
    definition: RecipeDefinition | None = field(default=None, repr=False, compare=False)
    """The facts that the recipe was built from; None for a custom composition."""
    built_in: bool = field(default=False, repr=False, compare=False)
    """Whether the definition is part of the package, so that a version identifies its defaults."""
    decision: Decision | None = None
    """The threshold from which a response is correct; None for the values of `correct`."""

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """The recipe itself, as a curriculum has the recipes of its stages."""
        return (self,)

    @cached_property
    def facts(self) -> RecipeDefinition:
        """The definition of the recipe; for a custom composition, what is known of it."""
        return self.definition or _facts_of(self)

    @cached_property
    def inner_recipes(self) -> tuple[Recipe, ...]:
        """The recipes that the reward combines, each once; empty for a recipe of a paper."""
        return tuple(leaf for leaf in self._leaves if isinstance(leaf, Recipe))

    @property
    def prompt(self) -> Prompt:
        """The prompt of the policy: that of the definition, or of the first inner recipe."""
        if self.definition:
            return self.definition.prompt
        return self.inner_recipes[0].prompt if self.inner_recipes else GROUNDED

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """The prompt of the policy and those of baselines, by name."""
        if self.definition:
            return self.definition.prompts
        return prompts_of(self.prompt, self.output_form, {})

    @property
    def output_form(self) -> OutputForm:
        """The form of a response: that of the definition, or of the first inner recipe.

        It requires the answer section if the settings read the answer there.

        >>> from rag_rewards.recipes import recipe
        >>> [recipe("ctrl-rag", hardened=each).output_form.marks for each in (False, True)]
        [(), ('<answer>',)]
        """
        if self.definition:
            form = self.definition.output
            reads_section = any(getattr(leaf, "reads", None) == "answer" for leaf in self._leaves)
            return form.requiring_answer() if reads_section else form
        return self.inner_recipes[0].output_form if self.inner_recipes else ANY_FORM

    @property
    def training(self) -> Training:
        """The training settings that the paper states, or the defaults."""
        return self.definition.training if self.definition else Training()

    def decided_by(self, decision: Decision | None) -> Recipe:
        """Return the recipe in which a score and a threshold decide whether a response is correct.

        Raises SettingError if the recipe has no such score.
        """
        if decision is None:
            return self
        scores = {component.name: component for component in self.components}
        scores |= {"reward": self.total} | ({"correct": self.correct} if self.correct else {})
        if decision.score not in scores:
            raise SettingError(
                f"recipe {self.name}: decision.score: there is no score {decision.score!r}"
                f"{did_you_mean(decision.score, scores)}"
            )
        decides = AtLeast(scores[decision.score], decision.threshold)
        return replace(self, correct=decides, decision=decision)

    @property
    def scope(self) -> Scope:
        """`group` if the reward compares the rollouts of a group, else `rollout`."""
        return self.total.scope

    @property
    def equation(self) -> str:
        """The reward as a formula of its components."""
        return repr(self.total) if isinstance(self.total, Composite) else self.total.name

    @property
    def component_names(self) -> tuple[str, ...]:
        """The names of the components, in order."""
        return tuple(component.name for component in self.components)

    @cached_property
    def needs_turns(self) -> bool:
        """Whether the reward reads the turns of a rollout, and not only its last response.

        This is true for a definition with the field `turns`, and for a reward with the field
        `reading`.
        """
        if self.definition is not None and "turns" in self.definition.fields:
            return True
        if any(inner.needs_turns for inner in self.inner_recipes):
            return True
        return any(hasattr(leaf, "reading") for leaf in self._leaves)

    @cached_property
    def decides_answers(self) -> bool:
        """Whether answers are decided as right, wrong or undecided, as `details.decision` states.

        >>> from rag_rewards.recipes import recipe
        >>> recipe("arena").decides_answers, recipe("arena", hardened=True).decides_answers
        (False, True)
        """
        if any(inner.decides_answers for inner in self.inner_recipes):
            return True
        parts = (
            leaf if hasattr(leaf, "is_decided") else getattr(leaf, "answer", None)
            for leaf in self._leaves
        )
        return any(getattr(part, "is_decided", False) for part in parts)

    @property
    def reads_turns(self) -> bool:
        """Whether the reward can read the turns of a rollout, which also a plain function can."""
        if self.needs_turns or any(inner.reads_turns for inner in self.inner_recipes):
            return True
        return any(isinstance(leaf, FunctionReward) for leaf in self._leaves)

    @property
    def reads_turn_likelihoods(self) -> bool:
        """Whether the reward compares likelihoods of the gold answer after different turns."""
        return any(isinstance(leaf, IgpoReward) for leaf in self._leaves)

    @cached_property
    def _leaves(self) -> tuple[Reward, ...]:
        """The parts that read rollouts, each once. Their scores contain the details."""
        leaves: dict[int, Reward] = {}
        for root in (*self.components, self.total, *([self.correct] if self.correct else ())):
            for part in walk(root):
                if not isinstance(part, Composite):
                    leaves[id(part)] = part
        return tuple(leaves.values())

    @cached_property
    def identity(self) -> Signature:
        """The signature as a value: version, recipe and settings, without models.

        Settings of a built-in recipe are written as the shorter list of differences: from the
        defaults or, where it is shorter, from the hardened profile. Other recipes write all
        settings and a digest of their code, because no version identifies them. Raises UsageError
        for a function or an object without a stable identity.
        """
        decides = self.decision.settings if self.decision else {}
        if self.settings is None:
            parts = [without_addresses(_identity(leaf)) for leaf in self._leaves]
            formula = {"formula": without_addresses(self.equation), "parts": parts}
            return Signature(recipe=self.name, settings=formula | self._code | decides)
        values = dict(self.settings)
        if self.definition is None or not self.built_in:
            return Signature(recipe=self.name, settings=values | self._code | decides)
        plain = _differences(values, self.definition.defaults())
        hardened = _differences(values, self.definition.defaults(hardened=True))
        if len(hardened) < len(plain):
            return Signature(recipe=self.name, settings=hardened | decides, hardened=True)
        return Signature(recipe=self.name, settings=plain | decides)

    @property
    def _code(self) -> dict[str, str]:
        correct = None if self.decision else self.correct
        return {CODE_KEY: code_digest((self.total, self.components, correct))}

    @cached_property
    def signature(self) -> str:
        """A string that identifies everything that affects a score, except for the models."""
        return str(self.identity)

    def needs(self, rollout: Rollout) -> list[Need]:
        """Return the evidence that scoring this rollout requires, without duplicates.

        Raises the RolloutError of a rollout whose needs cannot be computed.
        """
        with scoring_errors():
            _check_environment([rollout])
            return list(dict.fromkeys(n for leaf in self._leaves for n in leaf.needs(rollout)))

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        """Return the scores in the order of the rollouts. Raises the first error of a rollout."""
        return raise_errors(self.score_each(rollouts))

    def score_each(
        self, rollouts: Sequence[Rollout | RolloutError], groups: Groups | None = None
    ) -> list[ScoreOrError]:
        """Return a score for each rollout, or the error of a rollout that cannot be scored.

        Errors among the rollouts stay in their places. An error fails its group, see `fail_groups`.
        `groups` contains the positions of the members of each group; by default, rollouts with
        equal keys form a group. An exception of a reward becomes the ScoringError of its rollout.
        A UsageError ends the call, because the recipe is wrong and not the rollout.
        """
        rows = rows_of(rollouts)
        return score_whole_groups(rows, groups_of(rows, groups), self.scope, self._score_rollouts)

    def _score_rollouts(self, rollouts: list[Rollout], groups: Groups) -> Sequence[_Result]:
        """Score a batch at once, or each unit by itself if there is an error in it."""
        compares = self.scope == "group"
        try:
            return self._score(Batch(rollouts, groups if compares else None))
        except RolloutError:
            units = groups if compares else singletons(len(rollouts))
        results: list[_Result] = [None] * len(rollouts)
        for unit in units:
            for i, result in zip(unit, self._score_unit([rollouts[i] for i in unit]), strict=True):
                results[i] = result
        return results

    def _score_unit(self, unit: list[Rollout]) -> Sequence[_Result]:
        """Score a group. If there is an error, return the errors of its members, and else None."""
        try:
            return self._score(Batch(unit, [range(len(unit))]))
        except RolloutError as error:
            if len(unit) == 1:
                return [with_row_id(error, unit[0])]
            fault = error
        alone = [result for rollout in unit for result in self._score_unit([rollout])]
        if first_error(alone) is not None:
            return [each if isinstance(each, RolloutError) else None for each in alone]
        if isinstance(fault, ScoringError):
            return [with_row_id(ScoringError(fault.message), rollout) for rollout in unit]
        raise UsageError(f"recipe {self.name} fails on a group, but on no member of it")

    def _score(self, batch: Batch) -> list[Score]:
        with scoring_errors():
            _check_environment(batch.rollouts)
            return self._computed(batch)

    def _computed(self, batch: Batch) -> list[Score]:
        totals, entries = batch.values(self.total), batch.entries(self.total)
        columns = zip(*[batch.values(component) for component in self.components], strict=True)
        components = map(dict, map(zip, repeat(self.component_names), columns))
        correct = batch.values(self.correct) if self.correct else [None] * len(totals)
        details = [[score.details for score in batch(leaf)] for leaf in self._leaves]
        filled = [column for column in details if any(column)] or details[:1]
        merged = reduce(_merge, filled)
        return list(starmap(Score, zip(totals, components, correct, merged, entries, strict=True)))


OWN_SOURCE = "your own recipe"
"""The source in the facts of a composition of a user."""


def _facts_of(recipe: Recipe) -> RecipeDefinition:
    """Return what is known of a composition, from the recipes that it combines."""
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
        build=lambda **_: recipe,
        fields=tuple(fields),
        components=tuple(
            infos.get(name, ComponentInfo(name, "", None, None)) for name in recipe.component_names
        ),
        prompt=recipe.prompt,
    )


def _identity(leaf: Reward) -> str:
    """Return a text that identifies a part of a composition."""
    is_plain = type(leaf).__repr__ is object.__repr__
    if is_plain or isinstance(leaf, (FunctionReward, BatchReward)):
        return leaf.name
    return leaf.signature if isinstance(leaf, Recipe) else repr(leaf)


def _differences(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    return {k: value for k, value in values.items() if k not in defaults or value != defaults[k]}


def _check_environment(rollouts: Sequence[Rollout]) -> None:
    """Raise BackendError for a rollout in which the environment failed."""
    for rollout in rollouts:
        if rollout.turns is not None:
            check_environment(rollout.turns)


_Result = ScoreOrError | None
_Details = list[Mapping[str, Any]]


def _merge(column: _Details, other: _Details) -> _Details:
    """Return the details of each rollout from two columns."""
    return [{**details, **more} for details, more in zip(column, other, strict=True)]


# --- the facts of a recipe ---------------------------------------------------------------------


@dataclass(frozen=True)
class HardenedSetting:
    """The value of a setting in the hardened profile.

    closes  numbers of the attacks that it stops
    why     what these attacks do
    """

    value: Any
    closes: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class Loophole:
    """A weakness of a reward, and the attacks that use it.

    attacks    numbers of the attacks
    text       what increases the reward
    is_closed  whether the hardened profile prevents these attacks
    variants   names of the variants that also pay under the hardened profile, because the paper
               defines the reward so, by attack
    """

    attacks: tuple[int, ...]
    text: str
    is_closed: bool = False
    variants: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.attacks))
        end = " (closed: hardened)" if self.is_closed else ""
        return (f"{numbers}: " if numbers else "") + self.text + end


@dataclass(frozen=True)
class ComponentInfo:
    """The meaning of a component, and its range under the default settings.

    low, high  bounds of the range, None for no bound
    values     all values, if they are few
    when       the setting that adds the component, empty if it is always present
    """

    name: str
    meaning: str
    low: float | None = 0.0
    high: float | None = 1.0
    values: tuple[float, ...] = ()
    when: str = ""

    @property
    def range(self) -> str:
        """The range as text.

        >>> ComponentInfo("a", "", -1.0, None).range, ComponentInfo("b", "", values=(0, 0.5)).range
        ('≥ −1', '0, 0.5')
        """
        if self.values:
            return ", ".join(map(_number, self.values))
        if self.low is None:
            return "any" if self.high is None else f"≤ {_number(self.high)}"
        if self.high is None:
            return f"≥ {_number(self.low)}"
        return f"{_number(self.low)} to {_number(self.high)}"

    def contains(self, value: float) -> bool:
        """Return whether a value is in the range."""
        if self.values:
            return value in self.values
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


def _number(value: float) -> str:
    return f"{value:g}".replace("-", "−")


@dataclass(frozen=True)
class Preset:
    """The number of rows that a paper sampled from each data set.

    sizes         number of rows by data set
    split         name of the split
    unanswerable  share of unanswerable rows, 0 to 1; None to sample from all usable rows
    """

    sizes: Mapping[str, int]
    split: str
    unanswerable: float | None = None

    def __str__(self) -> str:
        """Return the sizes as text.

        >>> str(Preset({"asqa": 1000, "eli5": 1000}, "train", 0.5))
        'asqa 1,000, eli5 1,000; 50% unanswerable'
        """
        sizes = ", ".join(f"{name} {size:,}" for name, size in self.sizes.items())
        return sizes + (f"; {self.unanswerable:.0%} unanswerable" if self.unanswerable else "")


@dataclass(frozen=True)
class TrainingData:
    """The data that a paper trained on.

    datasets         names of data sets that `rag-rewards prepare` reads
    source           section of the paper
    presets          sample sizes of the paper, by the name of `prepare --preset`
    answerable_only  whether only answerable questions can be scored
    """

    datasets: tuple[str, ...] = ()
    source: str = NOT_STATED
    presets: Mapping[str, Preset] = field(default_factory=dict)
    answerable_only: bool = False

    def summary(self) -> list[str]:
        """Return a line with the data sets and their source, and a line for each preset."""
        lines = [f"data sets: {', '.join(self.datasets)} ({self.source})"] if self.datasets else []
        return lines + [
            f"rows of the preset {name}: {preset}" for name, preset in self.presets.items()
        ]


@dataclass(frozen=True)
class RecipeDefinition:
    """The facts of a paper about its reward, and the function that builds the recipe.

    name        name on the command line
    summary     description in one line
    source      paper and section
    output      form of a response
    parts       rewards and other objects whose annotated fields are the settings, by name
    build       function from the parts, as keyword arguments, to a recipe
    fields      fields of a row that the recipe reads
    components  meanings and ranges, in the order of the recipe
    sources     sources of defaults, by key, in place of those of the parts
    prompt      prompt of the policy
    baselines   prompts of baselines by name; every recipe has `direct` and `closed-book`
    rationale   how a response is assembled from gold data and a rationale, None if it is not
    training    training settings
    data        data that the paper trained on
    model_free  settings under which the recipe needs no model
    hardened    settings of the hardened profile, by key
    rejected    values that the hardened profile rejects, by key, each with the reason
    loopholes   weaknesses of the reward, with the attacks that use them
    deviations  differences from the authors' code
    """

    name: str
    summary: str
    source: str
    output: OutputForm
    build: Callable[..., Recipe]
    fields: tuple[str, ...]
    components: tuple[ComponentInfo, ...]
    parts: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    prompt: Prompt = GROUNDED
    baselines: Mapping[str, Prompt] = field(default_factory=dict)
    rationale: GoldRationale | None = None
    training: Training = Training()
    data: TrainingData = TrainingData()
    model_free: Mapping[str, Any] = field(default_factory=dict)
    hardened: Mapping[str, HardenedSetting] = field(default_factory=dict)
    rejected: Mapping[str, Mapping[Any, str]] = field(default_factory=dict)
    loopholes: tuple[Loophole, ...] = ()
    deviations: tuple[str, ...] = ()

    @cached_property
    def settings(self) -> SettingTable:
        """The settings."""
        return SettingTable(self.name, self.parts, self.sources)

    def configure(self, values: Mapping[str, Any]) -> Recipe:
        """Return the recipe with these values of its settings, by full key."""
        parts = self.settings.build(values)
        own = self.settings.values_of(parts)
        return replace(self.build(**parts), settings=own, definition=self)

    @cached_property
    def prompts(self) -> Mapping[str, Prompt]:
        """The prompt of the policy and those of baselines, by name.

        >>> from rag_rewards.recipes import RECIPES
        >>> list(RECIPES["arena"].prompts)
        ['default', 'direct', 'closed-book', 'gold-rationale']
        """
        return prompts_of(self.prompt, self.output, self.baselines)

    @property
    def hardened_values(self) -> dict[str, Any]:
        """The settings of the hardened profile that differ from the defaults, by dotted key."""
        return {key: setting.value for key, setting in self.hardened.items()}

    def defaults(self, *, hardened: bool = False) -> dict[str, Any]:
        """Return the defaults, or the hardened profile, by dotted key.

        >>> from rag_rewards.recipes import RECIPES
        >>> RECIPES["arena"].defaults(hardened=True)["relevance.min_precision"]
        0.5
        """
        return self.settings.defaults | (self.hardened_values if hardened else {})

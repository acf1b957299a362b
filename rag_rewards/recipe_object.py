"""`Recipe`, a named and configured composition of rewards; `custom` makes one of your rewards.

The module is not called `recipe`, because it would hide the function `rag_rewards.recipe`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import repeat, starmap
from operator import attrgetter
from typing import Any, TypeVar

from rag_rewards.compose import AtLeast, Mean
from rag_rewards.definition import ComponentInfo, RecipeDefinition
from rag_rewards.errors import (
    RolloutError,
    ScoringError,
    SettingError,
    UsageError,
    scoring_errors,
)
from rag_rewards.evidence.judge_needs import distinct_needs
from rag_rewards.evidence.needs import Need
from rag_rewards.groups import (
    Groups,
    Scope,
    check_groups,
    first_error,
    group_by_key,
    raise_errors,
    rows_of,
    score_whole_groups,
    singletons,
)
from rag_rewards.prompts import ANY_FORM, GROUNDED, OutputForm, Prompt
from rag_rewards.reward import (
    Batch,
    BatchReward,
    Component,
    Composite,
    CorrectOf,
    FunctionReward,
    Reward,
    as_reward,
    walk,
)
from rag_rewards.rewards.decision_threshold import DecisionThreshold
from rag_rewards.rollout import Rollout, Score, ScoreOrError, with_row_id
from rag_rewards.settings import did_you_mean
from rag_rewards.signature import CODE_KEY, Signature
from rag_rewards.training.settings import Training
from rag_rewards.turns.turn import check_environment

R = TypeVar("R", bound=Reward)


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
    decision: DecisionThreshold | None = None
    """The threshold from which a response is correct; None for the values of `correct`."""

    def __post_init__(self) -> None:
        counts = Counter(self.component_names)
        if repeated := [name for name, count in counts.items() if count > 1]:
            raise SettingError(
                f"recipe {self.name}: several components are named {repeated[0]!r}: give each its "
                "own name"
            )

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """The recipe itself, as a curriculum has the recipes of its stages."""
        return (self,)

    @property
    def facts(self) -> RecipeDefinition:
        """The definition of the recipe; for a custom composition, one from its parts."""
        return self.definition or _facts_of(self)

    @cached_property
    def inner_recipes(self) -> tuple[Recipe, ...]:
        """The recipes that the reward combines, each once; empty for a recipe of a paper."""
        return tuple(leaf for leaf in self._leaves if isinstance(leaf, Recipe))

    @property
    def prompt(self) -> Prompt:
        """The prompt of the policy: that of the definition, or of the first inner recipe."""
        return self.facts.prompt

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """The prompt of the policy and those of baselines, by name."""
        return self.facts.prompts

    @property
    def output_form(self) -> OutputForm:
        """The form of a response: that of the definition, or of the first inner recipe.

        It requires the answer section if the settings read the answer there.

        >>> from rag_rewards.recipes import recipe
        >>> [recipe("ctrl-rag", hardened=each).output_form.marks for each in (False, True)]
        [(), ('<answer>',)]
        """
        form, leaves = self.facts.output, self._leaves if self.definition else ()
        reads_section = any(getattr(leaf, "reads", None) == "answer" for leaf in leaves)
        return form.requiring_answer() if reads_section else form

    @property
    def training(self) -> Training:
        """The training settings that the paper states, or the defaults."""
        return self.facts.training

    def decided_by(self, decision: DecisionThreshold | None) -> Recipe:
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

    @cached_property
    def _reads_groups(self) -> bool:
        """Whether the reward, or only one of its components, compares the rollouts of a group."""
        parts = (self.total, *self.components, *((self.correct,) if self.correct else ()))
        return any(part.scope == "group" for part in parts)

    @property
    def equation(self) -> str:
        """The reward as a formula of its components."""
        return repr(self.total) if isinstance(self.total, Composite) else self.total.name

    @property
    def component_names(self) -> tuple[str, ...]:
        """The names of the components, in order."""
        return tuple(map(attrgetter("name"), self.components))

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
        return any(getattr(leaf, "reading", None) is not None for leaf in self._leaves)

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
        return any(
            isinstance(leaf, FunctionReward) or getattr(leaf, "reads", None) == "turns"
            for leaf in self._leaves
        )

    @property
    def reads_turn_likelihoods(self) -> bool:
        """Whether the reward compares likelihoods of the gold answer after different turns."""
        return any(getattr(leaf, "reads_turn_likelihoods", False) for leaf in self._leaves)

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
            # Only compositions of a user need digests of code.
            from rag_rewards.recipes.code_digest import without_addresses

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
        from rag_rewards.recipes.code_digest import code_digest  # only for your own recipes

        correct = None if self.decision else self.correct
        return {CODE_KEY: code_digest((self.total, self.components, correct))}

    @cached_property
    def signature(self) -> str:
        """A string that identifies everything that affects a score, except for the models."""
        return str(self.identity)

    def needs(self, rollout: Rollout) -> list[Need]:
        """Return the evidence that scoring this rollout requires, without duplicates.

        Raises the RolloutError of a rollout whose needs cannot be computed, and UsageError for two
        rewards of one name that need grades for different questions.
        """
        with scoring_errors():
            _check_environment([rollout])
            return distinct_needs(need for leaf in self._leaves for need in leaf.needs(rollout))

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
        if groups is not None:
            check_groups(groups, len(rows))
        if not self._reads_groups:
            with suppress(RolloutError):
                return list(self._score(Batch(raise_errors(rows))))  # needs no groups
        groups = group_by_key(rows) if groups is None else groups
        return score_whole_groups(rows, groups, self.scope, self._score_rollouts)

    def _score_rollouts(self, rollouts: list[Rollout], groups: Groups) -> Sequence[_Result]:
        """Score a batch at once, or each unit by itself if there is an error in it."""
        try:
            return self._score(Batch(rollouts, groups if self._reads_groups else None))
        except RolloutError:
            units = groups if self.scope == "group" else singletons(len(rollouts))
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
        columns = zip(*map(batch.values, self.components), strict=True)
        components = map(dict, map(zip, repeat(self.component_names), columns))
        correct = batch.values(self.correct) if self.correct else [None] * len(totals)
        details = [list(map(attrgetter("details"), batch(leaf))) for leaf in self._leaves]
        filled = [column for column in details if any(column)] or details[:1]
        merged = reduce(_merge, filled)
        return list(starmap(Score, zip(totals, components, correct, merged, entries, strict=True)))


OWN_SOURCE = "your own recipe"
"""The source in the facts of a composition of a user."""


def _facts_of(recipe: Recipe) -> RecipeDefinition:
    """Return a definition of a composition, from those of the recipes that it combines."""
    definitions = [each.definition for each in recipe.inner_recipes if each.definition is not None]
    fields = dict.fromkeys(name for each in definitions for name in each.fields)
    first = recipe
    while first.definition is None and first.inner_recipes:
        first = first.inner_recipes[0]
    infos = {
        f"{each.name}/{info.name}": replace(info, name=f"{each.name}/{info.name}")
        for each in definitions
        for info in each.components
    }
    return RecipeDefinition(
        name=recipe.name,
        summary="A combination of rewards.",
        source=OWN_SOURCE,
        output=first.output_form if first.definition else ANY_FORM,
        build=lambda **_: recipe,
        fields=tuple(fields),
        components=tuple(
            infos.get(name, ComponentInfo(name, "", None, None)) for name in recipe.component_names
        ),
        prompt=first.prompt if first.definition else GROUNDED,
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


# --- compositions of your own ------------------------------------------------------------------


def custom(
    name: str, reward: Any, *, components: Sequence[Any] = (), correct: Any = None
) -> Recipe:
    """Return a composition of your own as a recipe.

    `reward`, `components` and `correct` are rewards or functions of a rollout. The default
    components are the parts of the reward, and the components of the recipes among them, as in
    `arena/format`, with their `correct`, as in `arena/correct`. The default of `correct` is that of
    the first of these recipes that has one. Different components of the same name have numbers, as
    in `arena-1` and `arena-2`.

    >>> from rag_rewards import Rollout
    >>> def brief(rollout): return 1.0 if len(rollout.parsed.text) < 40 else 0.0
    >>> custom("brief", brief)([Rollout(response="Paris")])[0].components
    {'brief': 1.0}
    """
    total = as_reward(reward)
    chosen = tuple(map(as_reward, components))
    parts = chosen or getattr(total, "parts", ()) or (total,)
    inner = _distinct(part for part in walk(total) if isinstance(part, Recipe))
    decides: list[Reward] = [CorrectOf(each) for each in inner if each.correct is not None]
    if correct is not None:
        decides.insert(0, as_reward(correct))
    # The recipes come first, so that `arena-2` and `arena-2/format` are of the same recipe.
    names = _names(_distinct((*(() if chosen else inner), *parts)))
    named = [
        part if part.name == names[id(part)] else Mean((part,), label=names[id(part)])
        for part in _distinct(parts)
    ]
    if not chosen:
        named += _inner_components(inner, names)
    return Recipe(
        name=name,
        components=tuple(named),
        total=total,
        correct=decides[0] if decides else None,
    )


def _distinct(rewards: Iterable[R]) -> list[R]:
    """Return the rewards without those that equal an earlier one, and have its values."""
    distinct: list[R] = []
    for reward in rewards:
        if reward not in distinct:
            distinct.append(reward)
    return distinct


def _names(rewards: Sequence[Reward]) -> dict[int, str]:
    """Return a name for each reward by its `id`. Names that several rewards have get numbers."""
    counts = Counter(reward.name for reward in rewards)
    numbers: Counter[str] = Counter()
    names = {}
    for reward in rewards:
        numbers[reward.name] += 1
        number = f"-{numbers[reward.name]}" if counts[reward.name] > 1 else ""
        names[id(reward)] = reward.name + number
    return names


def _inner_components(recipes: Sequence[Recipe], names: Mapping[int, str]) -> Iterator[Reward]:
    """Yield the components and `correct` of recipes, with the name of the recipe before each."""
    for recipe in recipes:
        prefix = f"{names[id(recipe)]}/"
        for name in recipe.component_names:
            yield Component(recipe, name, prefix)
        if recipe.correct is not None:
            yield CorrectOf(recipe, f"{prefix}correct")

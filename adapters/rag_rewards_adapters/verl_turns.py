"""Rewards of turns in verl's V1 trainer: at tokens, and as advantages.

    actor_rollout_ref.rollout.agent.default_agent_loop=rag_group
    algorithm.adv_estimator=rag_turn_return
    +algorithm.rag_turn.gamma=1.0

`rag_group` writes the reward of each turn at its last own token. The estimators `rag_turn_igpo`,
`rag_turn_mt_grpo` and `rag_turn_return` read the turns from the runs of `response_mask`, and the
reward of a turn from the sum in its run. `rag_turn_given` is for other methods: `rag_group`, which
has the whole group, writes advantages, and the estimator passes them through. `rag_gdpo` does the
same with components that are normalized one by one, and normalizes the result over the batch.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rag_rewards.errors import DataError, UsageError
from rag_rewards.groups import positions_by_key
from rag_rewards.recipe_object import Recipe
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows.scored import turn_rewards
from rag_rewards.settings import did_you_mean
from rag_rewards.training.credit import METHODS, Credit, gdpo, place, spread
from rag_rewards.training.credit.entries import Advantages
from rag_rewards.training.credit.gigpo import anchors_of
from rag_rewards.training.curriculum import Curriculum
from rag_rewards_adapters.token_masks import Span, runs
from rag_rewards_adapters.verl_config import plain_value
from rag_rewards_adapters.verl_rows import defines_correct

PREFIX = "rag_turn_"
GIVEN = "rag_turn_given"
GDPO = "rag_gdpo"
TOKEN_ESTIMATORS = ("gae", "reinforce_plus_plus")
"""verl's own estimators that accumulate rewards along the tokens."""
NEEDS_VALUES = ("igpo", "mt_grpo")
"""The methods that normalize over the turns with a reward, so that None differs from 0."""
VALUE = "rag_value"
"""The name of the reward in the extra information, where verl gets advantages in its place."""
SIGNAL = "rag_signal"
"""The name of the number by which `algorithm.filter_groups` drops the groups without a gradient.

All rollouts of a group whose advantages are 0 have 0. In other groups, the first rollout has the
size of the group and the others have 0, so that the mean is the share of groups with a gradient.
"""


@dataclass(frozen=True)
class TurnCredit:
    """How the turns of a training run get their advantages.

    estimator  name of the estimator; one without `rag_turn_` sums the rewards of the turns
    method     the credit method, None for a sum
    options    options of the method
    none       `zero` reads a turn without a reward as 0
    weights    weight of each component that `rag_gdpo` normalizes by itself
    """

    estimator: str
    method: str | None = None
    options: Mapping[str, Any] | None = None
    none: str | None = None
    weights: Mapping[str, float] | None = None

    @classmethod
    def of(cls, algorithm: Any, stages: Sequence[Mapping[str, Any] | None] = ()) -> TurnCredit:
        """Return the credit of `algorithm` in verl's configuration and of a recipe's settings.

        `stages` are the settings of the recipe, or of each stage of a curriculum.
        `+algorithm.rag_turn` contains the options of the method; with `rag_turn_given`, also
        `method`. Options of the recipe apply to its own method. Raises UsageError, also for
        `rag_turn_given` and stages with different credit.
        """
        estimator = str(algorithm.get("adv_estimator") or "")
        if estimator == GDPO:
            given = Credit("gdpo", dict(plain_value(algorithm.get("rag_turn") or {}))).options
            if "weights" in given:
                raise UsageError(f"{GDPO}: use algorithm.gdpo_reward_weights instead of weights")
            return cls(estimator, "gdpo", given, weights=_gdpo_weights(algorithm))
        if not estimator.startswith(PREFIX):
            return cls(estimator)
        given = dict(plain_value(algorithm.get("rag_turn") or {}))
        none = given.pop("none", None)
        of_stages = [Credit.of_settings(settings) for settings in stages]
        method = estimator.removeprefix(PREFIX)
        if estimator == GIVEN:
            method, given = _given(given, of_stages)
        for of_recipe in of_stages:
            if of_recipe is not None and of_recipe.method == method and estimator != GIVEN:
                _check_options(method, given, of_recipe.options)
        credit = Credit(method, given)
        if none not in (None, "zero"):
            raise UsageError(f"algorithm.rag_turn.none={none}: the only value is zero")
        return cls(estimator, credit.method, credit.options, none)

    @property
    def reads_tokens(self) -> bool:
        """Whether the estimator reads where a reward is, and not only the sum of a response."""
        return self.method is not None or self.estimator in TOKEN_ESTIMATORS

    @property
    def gives_advantages(self) -> bool:
        """Whether `rag_group` writes advantages in place of rewards."""
        return self.estimator in (GIVEN, GDPO)

    def credit(self) -> Credit:
        """Return the method with its options."""
        return Credit(str(self.method), self.options or {})

    def advantages(self, scores: Sequence[Score], rollouts: Sequence[Rollout]) -> Advantages:
        """Return the advantages of the turns of a group; one number is that of all turns."""
        if self.weights is not None:
            members = [
                {name: [_component(score, name)] for name in self.weights} for score in scores
            ]
            return gdpo(members, weights=self.weights, **(self.options or {}))
        anchors = [
            anchors_of(rollout.steps()) if score.turns else [""]
            for score, rollout in zip(scores, rollouts, strict=True)
        ]
        return self.credit()(scores, [range(len(scores))], anchors)

    def check_components(self, reward: Recipe | Curriculum) -> None:
        """Raise UsageError if `rag_gdpo` reads a component that the recipe does not have.

        `acc` is a component of the recipes that define a correct answer.
        """
        names = [*reward.component_names, *(["acc"] if defines_correct(reward) else [])]
        for name in self.weights or ():
            if name not in names:
                raise UsageError(
                    f"algorithm.gdpo_reward_keys: no component {name!r}"
                    f"{did_you_mean(name, names)} ({reward.name} has {', '.join(names)})"
                )

    def check_config(self, config: Any) -> None:
        """Raise UsageError for settings of verl that do not fit the credit."""
        self._check_filter(config)
        if self.method is None:
            return
        algorithm = config.algorithm
        if algorithm.get("use_kl_in_reward"):
            raise UsageError(
                f"algorithm.use_kl_in_reward=True and {self.estimator}: the penalty would be part "
                "of the rewards of turns; set actor_rollout_ref.actor.use_kl_loss=True instead"
            )
        if not config.trainer.get("use_v1", False):
            raise UsageError(f"{self.estimator} requires the V1 trainer: set trainer.use_v1=True")

    def _check_filter(self, config: Any) -> None:
        """Raise UsageError if the filter of groups has no effect, or reads advantages."""
        filters = config.algorithm.get("filter_groups") or {}
        if not filters.get("enable"):
            return
        sampler = (config.trainer.get("v1") or {}).get("sampler") or {}
        key, metric = "algorithm.filter_groups.metric", filters.get("metric")
        if "verl_sampler" in str((sampler.get("custom_sampler") or {}).get("path")):
            key = "+trainer.v1.sampler.sampler_kwargs.filter_groups_metric"
            metric = (sampler.get("sampler_kwargs") or {}).get("filter_groups_metric")
            if metric is None:
                name = "reward" if self.method is None else SIGNAL
                raise UsageError(
                    f"verl does not pass algorithm.filter_groups to a custom sampler: set {key}="
                    f"{name}"
                )
        if self.gives_advantages and metric == "reward":
            raise UsageError(
                f"{self.estimator} replaces the rewards that the filter of groups reads: set "
                f"{key}={SIGNAL}"
            )

    def check_scores(self, scores: Sequence[Score]) -> None:
        """Raise UsageError if a turn without a reward would count as 0 in a pool."""
        if self.method not in NEEDS_VALUES or self.gives_advantages or self.none == "zero":
            return
        if any(entry is None for score in scores for entry in score.turns[:-1]):
            raise UsageError(
                f"the recipe gives some turns no reward, which {self.estimator} cannot tell from "
                f"0: set algorithm.adv_estimator={GIVEN} and +algorithm.rag_turn.method="
                f"{self.method}, or +algorithm.rag_turn.none=zero"
            )


def _given(given: dict[str, Any], of_stages: Sequence[Credit | None]) -> tuple[str, dict[str, Any]]:
    """Return the method of `rag_turn_given` and its options, which may be those of the recipe."""
    method = given.pop("method", None)
    of_recipe = of_stages[0] if of_stages else None
    if any(other != of_recipe for other in of_stages):
        if method is None:
            raise UsageError(
                "the stages of the curriculum have different credit: set "
                "+algorithm.rag_turn.method=return"
            )
        return method, given
    if method is None and of_recipe is None:
        raise UsageError(f"{GIVEN} requires a method: set +algorithm.rag_turn.method=gigpo")
    if of_recipe is not None and method in (None, of_recipe.method):
        return of_recipe.method, {**of_recipe.options, **given}
    return str(method), given


def _gdpo_weights(algorithm: Any) -> dict[str, float]:
    """Return the weight of each of `gdpo_reward_keys`. Raises UsageError."""
    names = plain_value(algorithm.get("gdpo_reward_keys") or [])
    if not names or not isinstance(names, list):
        raise UsageError(f"{GDPO} requires components: set +algorithm.gdpo_reward_keys=[NAME,NAME]")
    if len(set(names)) < len(names):
        raise UsageError(f"algorithm.gdpo_reward_keys={names}: name each component once")
    weights = plain_value(algorithm.get("gdpo_reward_weights") or [1.0] * len(names))
    if not isinstance(weights, list) or not all(map(_is_finite, weights)):
        raise UsageError(f"algorithm.gdpo_reward_weights={weights}: give a list of finite numbers")
    if len(weights) != len(names):
        raise UsageError(
            f"algorithm.gdpo_reward_weights has {len(weights)} weights for {len(names)} components "
            "in algorithm.gdpo_reward_keys: give one weight for each"
        )
    return dict(zip(names, map(float, weights), strict=True))


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _component(score: Score, name: str) -> float | None:
    return score.correct if name == "acc" else score.components.get(name)


def _check_options(method: str, given: Mapping[str, Any], of_recipe: Mapping[str, Any]) -> None:
    """Raise UsageError if an estimator, which does not see the recipe, has other options."""
    parameters = inspect.signature(METHODS[method]).parameters
    for name, value in of_recipe.items():
        if given.get(name, parameters[name].default) != value:
            raise UsageError(
                f"the recipe has credit.{name}={value}, which {PREFIX}{method} does not see: set "
                f"+algorithm.rag_turn.{name}={value}"
            )


def signals(advantages: Advantages) -> list[float]:
    """Return the number `rag_signal` of each rollout of a group.

    >>> signals([[0.5, 0.0], [-0.5]]), signals([[0.0], [0.0]])
    ([2.0, 0.0], [0.0, 0.0])
    """
    has_gradient = any(any(turns or ()) for turns in advantages)
    first = float(len(advantages)) if has_gradient else 0.0
    return [first, *[0.0] * (len(advantages) - 1)]


def token_values(
    credit: TurnCredit,
    scores: Sequence[Score],
    advantages: Advantages | None,
    rollouts: Sequence[Rollout],
    masks: Sequence[Any],
) -> list[list[float]]:
    """Return the values of the tokens of each response of a group: rewards, or advantages.

    A group without advantages, such as one of a validation, gets its rewards. Raises DataError if
    the turns of a score are not those of the mask.
    """
    spans = [
        turn_spans(score, rollout, mask)
        for score, rollout, mask in zip(scores, rollouts, masks, strict=True)
    ]
    lengths = [len(mask) for mask in masks]
    if not credit.gives_advantages or advantages is None:
        return [
            place(turn_rewards(score.turns, score.value, len(own)) or (), own, length)
            for score, own, length in zip(scores, spans, lengths, strict=True)
        ]
    values = []
    for turns, own, length in zip(advantages, spans, lengths, strict=True):
        shared = turns or [0.0]
        values.append(spread(shared * len(own) if len(shared) == 1 else shared, own, length))
    return values


def turn_spans(score: Score, rollout: Rollout, mask: Sequence[int]) -> list[Span]:
    """Return the spans of the turns of a rollout: its own, or the runs of the mask."""
    spans: list[Span] = [turn.token_span for turn in rollout.steps() if turn.token_span is not None]
    if score.turns and len(spans) == len(score.turns):
        return spans
    own = runs(mask)
    if score.turns and len(own) != len(score.turns):
        raise DataError(
            f"the score has {len(score.turns)} turns, but the mask has {len(own)} runs", "turns"
        )
    return own


def with_token_values(output: Any, values: Sequence[float]) -> Any:
    """Return an output of an agent loop whose `rm_scores` are these values.

    Raises UsageError for another class than AgentLoopOutput, whose fields would be lost.
    """
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

    from rag_rewards_adapters.verl_output import TurnOutput

    if type(output) is not AgentLoopOutput:
        raise UsageError(
            f"the inner agent loop returns {type(output).__name__}: rewards of turns require "
            "AgentLoopOutput"
        )
    # A default that was changed in place is not in the set of fields, so all fields are copied.
    fields = {name: getattr(output, name) for name in AgentLoopOutput.model_fields}
    return TurnOutput.model_construct(
        _fields_set={*output.model_fields_set, "extra_fields", "rag_token_values"},
        **fields,
        rag_token_values=list(values),
    )


# --- the estimators ------------------------------------------------------------------------------


def turn_advantages(
    estimator: str, token_level_rewards: Any, response_mask: Any, index: Sequence[Any], config: Any
) -> tuple[Any, Any]:
    """Return the advantages of all tokens of a batch, and the same as returns.

    A row without own tokens, which verl adds to fill a batch, has none and counts in no group.
    """
    if estimator in (GIVEN, GDPO):
        values = token_level_rewards * response_mask
        if estimator == GDPO:
            values = _whitened(values, response_mask)
        return values, values
    options = {"adv_estimator": estimator, "rag_turn": (config or {}).get("rag_turn")}
    credit = TurnCredit.of(options).credit()
    spans = [runs(mask) for mask in response_mask.tolist()]
    scores = [
        _score(rewards, own)
        for rewards, own in zip(token_level_rewards.tolist(), spans, strict=True)
    ]
    advantages = credit(scores, list(positions_by_key(index).values()))
    length = response_mask.shape[1]
    rows = [
        [0.0] * length if turns is None else spread(turns, own, length)
        for turns, own in zip(advantages, spans, strict=True)
    ]
    values = token_level_rewards.new_tensor(rows)
    return values, values


def _whitened(values: Any, mask: Any) -> Any:
    """Return advantages that verl's own function normalizes over all own tokens of the batch."""
    from verl.utils.torch_functional import masked_whiten

    return masked_whiten(values, mask) * mask if mask.sum() > 1 else values


def _score(rewards: Sequence[float], spans: Sequence[Span]) -> Score | None:
    if not spans:
        return None
    entries = tuple(math.fsum(rewards[start:end]) for start, end in spans)
    return Score(math.fsum(entries), turns=entries)

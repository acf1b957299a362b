"""Advantages in verl: of turns, of components, and that of LEAR.

    actor_rollout_ref.rollout.agent.default_agent_loop=rag_group
    algorithm.adv_estimator=rag_turn_return
    +algorithm.rag_turn.gamma=1.0

`rag_group` writes the reward of each turn at its last own token. The estimators `rag_turn_igpo`,
`rag_turn_mt_grpo` and `rag_turn_return` read the turns from the runs of `response_mask`, and the
reward of a turn from the sum in its run. `rag_turn_given` is for other methods: `rag_group`, which
has the whole group, writes advantages, and the estimator passes them through. `rag_gdpo` does the
same with components that are normalized one by one, and normalizes the result over the batch.
`rag_grpo_clip_std` is the advantage of LEAR.
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
from rag_rewards.training.advantages import advantages_of_groups
from rag_rewards.training.credit import METHODS, Credit, gdpo, place
from rag_rewards.training.credit.entries import Advantages
from rag_rewards.training.curriculum import Curriculum
from rag_rewards_adapters.reading import Span, runs
from rag_rewards_adapters.scoring import token_values, turn_anchors, turn_spans
from rag_rewards_adapters.verl.config import plain_value
from rag_rewards_adapters.verl.rows import defines_correct

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

    estimator  name of the estimator
    method     the credit method with its options; None sums the rewards of the turns
    none       `zero` reads a turn without a reward as 0
    """

    estimator: str
    method: Credit | None = None
    none: str | None = None

    @classmethod
    def of(cls, algorithm: Any, stages: Sequence[Mapping[str, Any] | None] = ()) -> TurnCredit:
        """Return the credit of `algorithm` in verl's configuration and of a recipe's settings.

        `stages` are the settings of the recipe, or of each stage of a curriculum.
        `+algorithm.rag_turn` contains the options of the method; with `rag_turn_given`, also
        `method`. Options of the recipe apply to its own method. Raises UsageError, also for
        `rag_turn_given` and stages with different credit.
        """
        estimator = str(algorithm.get("adv_estimator") or "")
        if not reads_written_values(estimator):
            return cls(estimator)
        options = dict(plain_value(algorithm.get("rag_turn") or {}))
        if estimator == GDPO:
            return cls(estimator, _gdpo(algorithm, options))
        none = options.pop("none", None)
        of_stages = [Credit.of_settings(settings) for settings in stages]
        if estimator == GIVEN:
            credit = _given(options, of_stages)
        else:
            credit = Credit(estimator.removeprefix(PREFIX), options)
            for of_recipe in of_stages:
                if of_recipe is not None and of_recipe.method == credit.method:
                    _check_options(credit, of_recipe.options)
        if none not in (None, "zero"):
            raise UsageError(f"algorithm.rag_turn.none={none}: the only value is zero")
        return cls(estimator, credit, none)

    @classmethod
    def of_training(cls, config: Any, reward: Recipe | Curriculum) -> TurnCredit:
        """Return the credit of a training, with the checks of `check_config` and its components."""
        credit = cls.of(config.algorithm, [recipe.settings for recipe in reward.recipes])
        credit.check_config(config)
        names = [*reward.component_names, *(["acc"] if defines_correct(reward) else [])]
        for name in credit._components:
            if name not in names:
                raise UsageError(
                    f"algorithm.gdpo_reward_keys: no component {name!r}"
                    f"{did_you_mean(name, names)} ({reward.name} has {', '.join(names)})"
                )
        return credit

    @property
    def _components(self) -> list[str]:
        """The components that `rag_gdpo` normalizes by themselves."""
        return (
            list(self.method.options["weights"]) if self.method and self.estimator == GDPO else []
        )

    @property
    def reads_tokens(self) -> bool:
        """Whether the estimator reads where a reward is, and not only the sum of a response."""
        return self.method is not None or self.estimator in TOKEN_ESTIMATORS

    @property
    def gives_advantages(self) -> bool:
        """Whether `rag_group` writes advantages in place of rewards."""
        return self.estimator in (GIVEN, GDPO)

    # --- the values of a group -----------------------------------------------------------------

    def numbers(
        self, scores: Sequence[Score], advantages: Advantages | None
    ) -> list[dict[str, float]]:
        """Return what the filter of groups and the log read of each score: SIGNAL and VALUE."""
        rows: list[dict[str, float]] = [{} for _ in scores]
        if self.method is not None:
            of_group = signals(advantages) if advantages else [math.nan] * len(scores)
            rows = [{SIGNAL: signal} for signal in of_group]
        if self.gives_advantages:
            rows = [
                {VALUE: float(score.value or 0.0), **row}
                for score, row in zip(scores, rows, strict=True)
            ]
        return rows

    def advantages(self, scores: Sequence[Score], rollouts: Sequence[Rollout]) -> Advantages | None:
        """Return the advantages of the turns of a group; one number is that of all turns.

        A sum of rewards and a group of one, such as one of a validation, have none.
        """
        if self.method is None or len(scores) == 1:
            return None
        if names := self._components:
            members = [{name: [_component(score, name)] for name in names} for score in scores]
            return gdpo(members, **self.method.options)
        anchors = list(map(turn_anchors, scores, rollouts))
        return self.method(scores, [range(len(scores))], anchors)

    def token_values(
        self,
        scores: Sequence[Score],
        advantages: Advantages | None,
        rollouts: Sequence[Rollout],
        masks: Sequence[Sequence[int]],
    ) -> list[list[float]] | None:
        """Return the values of the tokens of each response of a group: rewards, or advantages.

        A group without advantages gets its rewards. The result is None if only the last token has
        a value. Raises DataError if the turns of a score are not those of the mask, and UsageError
        if a turn without a reward would count as 0 in a pool.
        """
        if self.method is None and not any(score.turns for score in scores):
            return None
        self._check_scores(scores)
        values = []
        for i, (score, rollout, mask) in enumerate(zip(scores, rollouts, masks, strict=True)):
            spans = turn_spans(score, rollout, mask)
            if self.gives_advantages and advantages is not None:
                values.append(token_values(advantages[i], spans, len(mask)))
            elif score.turns and len(spans) != len(score.turns):
                raise DataError(
                    f"the score has {len(score.turns)} turns, but the mask has {len(spans)} runs",
                    "turns",
                )
            else:
                rewards = turn_rewards(score.turns, score.value, len(spans)) or ()
                values.append(place(rewards, spans, len(mask)))
        return values

    # --- checks --------------------------------------------------------------------------------

    def check_config(self, config: Any) -> None:
        """Raise UsageError for settings of verl that do not fit the credit."""
        self._check_filter(config)
        if self.method is None:
            return
        if config.algorithm.get("use_kl_in_reward"):
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
        if "rag_rewards_adapters.verl" in str((sampler.get("custom_sampler") or {}).get("path")):
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

    def _check_scores(self, scores: Sequence[Score]) -> None:
        """Raise UsageError if a turn without a reward would count as 0 in a pool."""
        name = self.method.method if self.method else ""
        if name not in NEEDS_VALUES or self.gives_advantages or self.none == "zero":
            return
        if any(entry is None for score in scores for entry in score.turns[:-1]):
            raise UsageError(
                f"the recipe gives some turns no reward, which {self.estimator} cannot tell from "
                f"0: set algorithm.adv_estimator={GIVEN} and +algorithm.rag_turn.method={name}, "
                "or +algorithm.rag_turn.none=zero"
            )


def reads_written_values(estimator: str) -> bool:
    """Return whether an estimator reads values that the agent loop `rag_group` writes."""
    return estimator == GDPO or estimator.startswith(PREFIX)


def _given(options: dict[str, Any], of_stages: Sequence[Credit | None]) -> Credit:
    """Return the method of `rag_turn_given` with its options, which may be those of the recipe."""
    method = options.pop("method", None)
    of_recipe = of_stages[0] if of_stages else None
    if any(other != of_recipe for other in of_stages):
        if method is None:
            raise UsageError(
                "the stages of the curriculum have different credit: set "
                "+algorithm.rag_turn.method=return"
            )
    elif of_recipe is not None and method in (None, of_recipe.method):
        return Credit(of_recipe.method, {**of_recipe.options, **options})
    if method is None:
        raise UsageError(f"{GIVEN} requires a method: set +algorithm.rag_turn.method=gigpo")
    return Credit(str(method), options)


def _gdpo(algorithm: Any, options: dict[str, Any]) -> Credit:
    """Return the method gdpo with the weight of each of `gdpo_reward_keys`. Raises UsageError."""
    if "weights" in options:
        raise UsageError(f"{GDPO}: use algorithm.gdpo_reward_weights instead of weights")
    names = plain_value(algorithm.get("gdpo_reward_keys") or [])
    if not names or not isinstance(names, list):
        raise UsageError(f"{GDPO} requires components: set +algorithm.gdpo_reward_keys=[NAME,NAME]")
    if len(set(names)) < len(names):
        raise UsageError(f"algorithm.gdpo_reward_keys={names}: name each component once")
    weights = plain_value(algorithm.get("gdpo_reward_weights") or [1.0] * len(names))
    if not isinstance(weights, list) or len(weights) != len(names):
        raise UsageError(
            f"algorithm.gdpo_reward_weights={weights}: give a list with one weight for each of "
            f"the {len(names)} components in algorithm.gdpo_reward_keys"
        )
    for i, weight in enumerate(weights):
        if not isinstance(weight, (int, float)) or not math.isfinite(weight):
            raise UsageError(
                f"algorithm.gdpo_reward_weights[{i}]={weight}: set a finite number, the weight of "
                f"{names[i]}"
            )
    return Credit("gdpo", {**options, "weights": dict(zip(names, weights, strict=True))})


def _component(score: Score, name: str) -> float | None:
    return score.correct if name == "acc" else score.components.get(name)


def _check_options(credit: Credit, of_recipe: Mapping[str, Any]) -> None:
    """Raise UsageError if an estimator, which does not see the recipe, has other options."""
    parameters = inspect.signature(METHODS[credit.method]).parameters
    for name, value in of_recipe.items():
        if credit.options.get(name, parameters[name].default) != value:
            raise UsageError(
                f"the recipe has credit.{name}={value}, which {PREFIX}{credit.method} does not "
                f"see: set +algorithm.rag_turn.{name}={value}"
            )


def signals(advantages: Advantages) -> list[float]:
    """Return the number `rag_signal` of each rollout of a group.

    >>> signals([[0.5, 0.0], [-0.5]]), signals([[0.0], [0.0]])
    ([2.0, 0.0], [0.0, 0.0])
    """
    has_gradient = any(any(turns or ()) for turns in advantages)
    first = float(len(advantages)) if has_gradient else 0.0
    return [first, *[0.0] * (len(advantages) - 1)]


# --- the estimators ------------------------------------------------------------------------------


def grpo_clip_std(
    token_level_rewards: Any,
    response_mask: Any,
    index: Sequence[Any],
    config: Any = None,
    **_: Any,
) -> tuple[Any, Any]:
    """Return A = (R − mean)/max(std, floor) within each prompt, for each token of a response.

    The standard deviation is that of the population. The floor is `+algorithm.std_floor`, 0.1 by
    default. The estimator is registered as `rag_grpo_clip_std`. A prompt with one rollout has the
    advantage 0. Rows that verl adds to fill a batch have their own prompt and change no other.
    Source: LEAR, Eq. 11.
    """
    floor = 0.1 if config is None else float(config.get("std_floor", 0.1))
    rewards = token_level_rewards.sum(dim=-1)
    groups = list(positions_by_key(index).values())
    advantages = advantages_of_groups(rewards.tolist(), groups, std_floor=floor)
    per_token = rewards.new_tensor(advantages).unsqueeze(-1) * response_mask
    return per_token, per_token


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
    options = dict(plain_value((config or {}).get("rag_turn") or {}))
    options.pop("none", None)
    credit = Credit(estimator.removeprefix(PREFIX), options)
    spans = [runs(mask) for mask in response_mask.tolist()]
    scores = [
        _score(rewards, own)
        for rewards, own in zip(token_level_rewards.tolist(), spans, strict=True)
    ]
    advantages = credit(scores, list(positions_by_key(index).values()))
    length = response_mask.shape[1]
    rows = [token_values(turns, own, length) for turns, own in zip(advantages, spans, strict=True)]
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

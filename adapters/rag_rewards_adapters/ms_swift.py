"""Recipes as reward functions of ms-swift's GRPO.

A plugin file of two lines,

    from rag_rewards_adapters.ms_swift import register
    register("arena", settings={"bonus.value": 5})

is given as `--external_plugins plugin.py --reward_funcs arena`. The data set's columns have the
names of a row (`answers`, `documents`, `supporting`, …) beside `messages`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rag_rewards.errors import GroupError, RolloutError, UsageError
from rag_rewards.groups import positions_by_key
from rag_rewards.model_options import missing_model
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows.columns import (
    check_columns,
    column_names,
    last_question,
    rollout_from_columns,
    to_builtins,
)
from rag_rewards.scorer import Scorer
from rag_rewards.training.advantages import advantages_of_groups
from rag_rewards_adapters.logs import TrainingLog
from rag_rewards_adapters.unscored import Unscored

log = logging.getLogger("rag_rewards")


def register(name: str, *, asynchronous: bool = False, **options: Any) -> type[RagReward]:
    """Put a recipe into `swift.rewards.orms` under a name; returns its class.

    The recipe is the one of that name, or `recipe=`, or `stages=`; all options are RagReward's.
    `asynchronous` lets recipes that wait for a judge run beside other asynchronous rewards. What
    is wrong with the options is said here, before a model is loaded for training.
    """
    if "recipe" not in options and "stages" not in options:
        options["recipe"] = name
    kind = reward_class(name, asynchronous=asynchronous, **options)
    from swift.rewards import orms

    orms[name] = kind
    return kind


def reward_class(name: str, *, asynchronous: bool = False, **options: Any) -> type[RagReward]:
    """A class that ms-swift makes with `args=` alone, and whose name it logs the reward under."""
    own = Options.of(options)
    base = AsyncRagReward if asynchronous else RagReward

    def reduced(reward: RagReward) -> tuple[Callable[..., RagReward], tuple[Any, ...], Any]:
        return _made_again, (name, asynchronous, options), vars(reward)

    content = {"options": own, "__module__": __name__, "__reduce__": reduced}
    made: type[RagReward] = type(name, (base,), content)
    return made


def _made_again(name: str, asynchronous: bool, options: Mapping[str, Any]) -> RagReward:
    """A reward in a process that it was sent to, which has no class of its name."""
    return reward_class(name, asynchronous=asynchronous, **options)()


@dataclass(frozen=True)
class Options:
    """What a reward is made of; `scorer` holds the recipe and the models."""

    scorer: Scorer
    columns: Mapping[str, str]
    response_prefix: str | None
    std_floor: float | None
    patience: int

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """UsageError and SettingError where they cannot be used."""
        own: dict[str, Any] = {
            "columns": {},
            "response_prefix": None,
            "std_floor": None,
            "patience": 3,
        }
        mine = {key: given.get(key, default) for key, default in own.items()}
        prompting = {key: given[key] for key in ("prompt", "template") if key in given}
        rest = {k: v for k, v in given.items() if k not in own and k not in prompting}
        mine["columns"] = dict(mine["columns"] or {})
        check_columns(mine["columns"])
        return cls(Scorer.load(rest, **prompting), **mine)


class RagReward:
    """A recipe as an outcome reward of ms-swift: one float for each completion, always.

    recipe, settings, hardened, stages   as on the command line
    nli, judge, judge_model, model, …    the models to ask, by the command line's names
    prompt, template                     how a policy is asked, where one is
    columns          our field → the data set's column, where names differ
    response_prefix  what the prompt opened for the model; ms-swift puts what its own template
                     opens before the completion itself
    std_floor        (R − mean)/max(std, floor) of the group, LEAR's advantage, as the reward;
                     goes with --scale_rewards none
    patience         batches in a row without any score that are endured

    ms-swift sums rewards with nansum (swift/rl_core/advantage.py, compute_advantages): None would
    count as 0. So a completion without a score gets the mean of its group's scores, whose
    advantage is 0; it is counted in `not_scored` and logged. In the first batch it is an error.

    A reward pickles by its name and options: a process that gets one builds the recipe and its
    models again.
    """

    options: Options

    def __init__(self, args: Any = None, **_: Any) -> None:
        self.args = args
        self._unscored = Unscored(self.options.patience)
        self._shown = TrainingLog.of(args)
        if args is not None:
            self._check(args)

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float]:
        """What ms-swift calls: the texts, and a list for each column of the batch."""
        batch = _Batch(completions, columns)
        rollouts = self._rollouts(batch)
        groups = self._groups(batch)
        self._check_models(rollouts)
        return self._settled(batch, self.scorer.score_each(rollouts, groups), groups)

    @property
    def scorer(self) -> Scorer:
        """The recipe and its models."""
        return self.options.scorer

    @property
    def not_scored(self) -> int:
        """Completions so far that had no score."""
        return self._unscored.count

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def _grouped(self) -> bool:
        """Whether completions of a prompt must be seen together."""
        return self.scorer.scope == "group" or self.options.std_floor is not None

    # --- the trainer's arguments ---------------------------------------------------------------

    def _check(self, args: Any) -> None:
        """What cannot work with these arguments. UsageError."""
        if self._grouped:
            _check_ranks(self._name, args)
        scale = getattr(args, "scale_rewards", None)
        if self.options.std_floor is not None and scale not in (None, "none"):
            raise UsageError(
                f"std_floor normalises, and --scale_rewards {scale} would again: set "
                "--scale_rewards none"
            )

    # --- rollouts ------------------------------------------------------------------------------

    def _rollouts(self, batch: _Batch) -> list[Rollout | RolloutError]:
        names = column_names(self.options.columns, batch.columns)
        return [self._rollout(batch, i, names) for i in batch.members]

    def _check_models(self, rollouts: Sequence[Rollout | RolloutError]) -> None:
        """UsageError where these ask a kind of model that nobody gave."""
        missing = self.scorer.missing([r for r in rollouts if isinstance(r, Rollout)])
        if missing:
            raise missing_model(self._name, min(missing))

    def _rollout(self, batch: _Batch, i: int, names: Mapping[str, str]) -> Rollout | RolloutError:
        fields = {name: batch.at(column, i) for name, column in names.items()}
        before = (batch.at("messages", i) or [])[:-1]
        if fields["question"] is None:
            fields["question"] = last_question(before)
        turns = batch.at("response_token_ids", i) or []
        return rollout_from_columns(
            fields,
            response=batch.completions[i],
            response_prefix=self.options.response_prefix,
            prompt=before or None,
            response_token_ids=turns[-1] if turns and isinstance(turns[-1], list) else None,
            finish_reason=batch.at("finish_reason", i),
            step=batch.step,
            weight_version=batch.step,
        )

    def _groups(self, batch: _Batch) -> list[Sequence[int]]:
        """Positions among the batch's members: those of a prompt, in the trainer's group size."""
        prompts = batch.prompts
        size = _size(self.args, prompts)
        groups: list[Sequence[int]] = []
        for prompt, found in prompts.items():
            torn = size is not None and len(found) % size != 0
            if torn and self._grouped:
                raise GroupError(
                    f"{prompt} has {len(found)} completions in this batch, no whole groups of "
                    f"num_generations={size}: make per_device_train_batch_size × "
                    f"steps_per_generation a multiple of {size}"
                )
            block = len(found) if torn or size is None else size
            # Equal texts have one prompt_id: several groups of it stand one after another.
            groups += [found[at : at + block] for at in range(0, len(found), block)]
        return groups

    # --- scores --------------------------------------------------------------------------------

    def _settled(
        self, batch: _Batch, results: Sequence[ScoreOrError], groups: Sequence[Sequence[int]]
    ) -> list[float]:
        scores = self._unscored.settle(results, batch.members)
        values = [score.value if score else None for score in scores]
        self._log(batch, scores, values)
        if self.options.std_floor is not None:
            values = advantages_of_groups(values, groups, std_floor=self.options.std_floor)
        return batch.spread(_neutral(values, groups))

    def _log(
        self, batch: _Batch, scores: Sequence[Score | None], values: Sequence[float | None]
    ) -> None:
        """Means of the components: ms-swift itself logs the reward alone."""
        means: dict[str, float] = {}
        for name in self.scorer.reward.component_names:
            column = [score.components.get(name) for score in scores if score]
            if known := [value for value in column if value is not None]:
                means[f"{self._name}/{name}"] = fmean(known)
        means[f"{self._name}/not_scored"] = float(list(values).count(None))
        self._shown.write(means, batch.step)
        log.info(", ".join(f"{name} {mean:.4g}" for name, mean in means.items()))


class AsyncRagReward(RagReward):
    """The same for recipes that wait for servers; every batch has an event loop of its own."""

    async def __call__(  # type: ignore[override]
        self, completions: Sequence[Any], **columns: Any
    ) -> list[float]:
        batch = _Batch(completions, columns)
        rollouts = self._rollouts(batch)
        groups = self._groups(batch)
        self._check_models(rollouts)
        results = await self.scorer.score_each_async(rollouts, groups)
        return self._settled(batch, results, groups)


class _Batch:
    """The completions of a call. Of several samples of one request (turns), the last counts."""

    def __init__(self, completions: Sequence[Any], columns: Mapping[str, Any]) -> None:
        self.completions = completions
        self.columns = {
            name: to_builtins(values) if hasattr(values, "tolist") else values
            for name, values in columns.items()
        }
        self.step = getattr(columns.get("trainer_state"), "global_step", None)
        requests = self.columns.get("request_id") or range(len(completions))
        self._requests = [
            i if request in (None, "") else request for i, request in enumerate(requests)
        ]
        last = {request: i for i, request in enumerate(self._requests)}
        self.members = sorted(last.values())
        self._place = {self._requests[i]: at for at, i in enumerate(self.members)}

    def at(self, column: str, i: int) -> Any:
        values = self.columns.get(column)
        return values[i] if isinstance(values, (list, tuple)) else None

    @property
    def prompts(self) -> dict[str, list[int]]:
        """Positions among the members, by prompt. GroupError without prompt ids."""
        prompts = [self.at("prompt_id", i) for i in self.members]
        if not all(prompts):
            raise GroupError("prompt_id is missing: use ms-swift 4.0 or later, which provides it")
        return positions_by_key(map(str, prompts))

    def spread(self, values: Sequence[float]) -> list[float]:
        """Values of the members, for every sample of their requests."""
        return [values[self._place[request]] for request in self._requests]


def _size(args: Any, prompts: Mapping[str, Sequence[int]]) -> int | None:
    """Completions per prompt, one number for the whole batch; None where it is not known.

    ms-swift does not say whether it trains or evaluates: it evaluates where every prompt has
    exactly the evaluation's number. Else a part of a training group would pass for a whole one.
    """
    sizes = (getattr(args, name, None) for name in ("num_generations", "num_generations_eval"))
    training, evaluation = sizes
    evaluates = evaluation and all(len(found) == evaluation for found in prompts.values())
    return (evaluation if evaluates else training) or None


def _check_ranks(name: str, args: Any) -> None:
    """Groups that straddle ranks would be seen in parts. UsageError."""
    size = getattr(args, "num_generations", None)
    device, steps = (
        getattr(args, key, None) for key in ("per_device_train_batch_size", "steps_per_generation")
    )
    if not (size and device and steps) or (getattr(args, "world_size", 1) or 1) < 2:
        return
    if (local := device * steps) % size:
        raise UsageError(
            f"{name} compares the completions of a prompt, and a rank has {local} "
            "(per_device_train_batch_size × steps_per_generation), no multiple of "
            f"num_generations={size}: set one of them so that it is"
        )


def _neutral(values: Sequence[float | None], groups: Sequence[Sequence[int]]) -> list[float]:
    """Values that teach nothing where there are none: the mean of the group, else of the batch."""
    known = [value for value in values if value is not None]
    filled = [fmean(known) if known else 0.0] * len(values)
    for group in groups:
        scored = [value for i in group if (value := values[i]) is not None]
        for i in group:
            value = values[i]
            if value is not None:
                filled[i] = value
            elif scored:
                filled[i] = fmean(scored)
    return filled

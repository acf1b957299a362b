"""`RagReward`, a recipe as an outcome reward of ms-swift."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rag_rewards.errors import GroupError, RolloutError, UsageError
from rag_rewards.groups import Groups
from rag_rewards.rollout import Rollout, ScoreOrError
from rag_rewards.rows.column_map import ColumnMap
from rag_rewards.rows.columns import (
    DATASET_FIELDS,
)
from rag_rewards.scorer import PromptOptions, Scorer
from rag_rewards_adapters.component_rewards import exactly_equal
from rag_rewards_adapters.ms_swift.batch import Batch, MessageTexts, completion_fields
from rag_rewards_adapters.reading import dialect_at, read_rollout, with_errors, with_limit
from rag_rewards_adapters.row_checks import check_judge
from rag_rewards_adapters.scoring import with_group_means
from rag_rewards_adapters.trainer_reward import TrainerReward
from rag_rewards_adapters.training_log import TrainingLog

log = logging.getLogger("rag_rewards")


def reward_class(name: str, *, asynchronous: bool = False, **options: Any) -> type[RagReward]:
    """Return a class that ms-swift instantiates with `args=`, and whose name it logs."""
    base = AsyncRagReward if asynchronous else RagReward

    def reduce(reward: RagReward) -> tuple[Callable[..., RagReward], tuple[Any, ...], Any]:
        return _rebuild, (name, asynchronous, options), vars(reward)

    content = {"options": Options.of(options), "__module__": __name__, "__reduce__": reduce}
    reward: type[RagReward] = type(name, (base,), content)
    return reward


def _rebuild(name: str, asynchronous: bool, options: Mapping[str, Any]) -> RagReward:
    """Return a reward in a process that received its pickle and has no class of its name."""
    return reward_class(name, asynchronous=asynchronous, **options)()


@dataclass(frozen=True)
class Options:
    """The options of a reward. `scorer` contains the recipe and the models."""

    scorer: Scorer
    columns: Mapping[str, str] | None = None
    response_prefix: str | None = None
    std_floor: float | None = None
    patience: int = 3

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Options:
        """Load the recipe and its models. UsageError and SettingError for invalid options."""
        rest, names = dict(options), cls.__dataclass_fields__.keys() - {"scorer"}
        own = {name: rest.pop(name) for name in names & rest.keys()}
        prompting = {name: rest.pop(name) for name in ("prompt", "template") if name in rest}
        ColumnMap.of(own.get("columns"), DATASET_FIELDS)  # raises for an unknown field
        prompt = PromptOptions(response_limit="max_completion_length", **prompting)
        return cls(Scorer.load(rest, prompt=prompt), **own)


class RagReward(TrainerReward["Batch"]):
    """A recipe as an outcome reward of ms-swift, with one float for each completion.

    recipe, settings, hardened, stages   as on the command line
    nli, judge, judge_model, model, …    the models, with the names of the command-line options
    prompt, template                     the prompt of the policy and the arguments of its template
    columns          row field → column of the data set, where names differ
    response_prefix  the tag that the prompt opens. ms-swift adds what its own template opens to
                     the completion; do not set the option in that case.
    std_floor        return (R − mean)/max(std, floor) within the group, the advantage of LEAR;
                     requires --scale_rewards none
    patience         number of consecutive batches before the error is raised: those in which a
                     model failed and a tenth of the completions is unscored, or all are

    ms-swift sums rewards with nansum (swift/rl_core/advantage.py, compute_advantages), so None
    would count as 0. An unscored completion therefore gets the mean reward of its group, whose
    advantage is 0. It is counted in `not_scored` and logged. In the first batch its error is
    raised.

    A reward is pickled by its name and options. The process that receives it builds the recipe and
    its models again.
    """

    options: Options

    def __init__(self, args: Any = None, **_: Any) -> None:
        super().__init__(
            type(self).__name__,
            columns=self.options.columns,
            std_floor=self.options.std_floor,
            patience=self.options.patience,
        )
        self.args = args
        self._texts = MessageTexts(args)
        self._log_file = TrainingLog.of(args)
        if args is not None:
            self._check_arguments(args)

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float]:
        """Return the rewards of a batch: its texts, and one list for each column."""
        return self._score(Batch(completions, columns))

    @property
    def scorer(self) -> Scorer:
        """The recipe and its models."""
        return self.options.scorer

    def _check_arguments(self, args: Any) -> None:
        """Raise UsageError if the reward cannot work with the arguments of the trainer."""
        if self._compares_groups or self.scorer.has_models:
            _check_ranks(self.__name__, args)
        if not getattr(args, "process_index", 0):
            check_judge(self.scorer.models.judge, self.scorer.recipes)
        scale = getattr(args, "scale_rewards", None)
        if self._std_floor is not None and scale not in (None, "none"):
            raise UsageError(
                f"std_floor and --scale_rewards {scale} would normalize twice: set "
                "--scale_rewards none"
            )

    # --- rollouts ------------------------------------------------------------------------------

    @with_errors
    def _rollout(
        self, batch: Batch, position: int, fields: dict[str, Any]
    ) -> Rollout | RolloutError:
        messages = self._texts.of(batch.value("messages", position) or [])
        ids = batch.value("response_token_ids", position) or []
        has_turns = self._has_turns(ids)
        completion = completion_fields(
            batch.completions[position], messages, ids, has_turns=has_turns
        )
        rollout = read_rollout(
            fields,
            response_prefix=self.options.response_prefix,
            finish_reason=batch.value("finish_reason", position),
            step=batch.step,
            weight_version=batch.updates,
            **completion,
        )
        # A multi-turn scheduler reports how the last generation ended, also at `max_turns`.
        if has_turns and isinstance(rollout, Rollout):
            return with_limit(rollout, dialect_at(self.scorer.reward, batch.step))
        return rollout

    def _has_turns(self, turns: Sequence[Any]) -> bool:
        """Return whether a completion is read turn by turn. `turns` are lists of token ids."""
        recipes = self.scorer.recipes
        if not turns or not isinstance(turns[0], list):
            return False
        if any(recipe.needs_turns for recipe in recipes):
            return True
        return len(turns) > 1 and any(recipe.reads_turns for recipe in recipes)

    def _groups(self, batch: Batch) -> Groups:
        """Return the completions of each prompt, in groups of the trainer's size."""
        prompts = batch.prompts
        size = _group_size(self.args, prompts)
        groups: list[Sequence[int]] = []
        for prompt, members in prompts.items():
            is_incomplete = size is not None and len(members) % size != 0
            if is_incomplete and self._compares_groups:
                raise GroupError(
                    f"{prompt} has {len(members)} completions in this batch, which is not a "
                    f"multiple of num_generations={size}: make per_device_train_batch_size × "
                    f"steps_per_generation a multiple of {size}"
                )
            block = len(members) if is_incomplete or size is None else size
            # Equal texts have one prompt_id, so several groups can follow one another.
            groups += [members[start : start + block] for start in range(0, len(members), block)]
        return groups

    # --- rewards -------------------------------------------------------------------------------

    def _rewards(
        self,
        batch: Batch,
        rollouts: Sequence[Rollout | RolloutError],
        results: Sequence[ScoreOrError],
        groups: Groups | None,
    ) -> list[Any]:
        values = super()._rewards(batch, rollouts, results, groups)
        filled = with_group_means(values, groups or ())
        return batch.for_all_samples(exactly_equal(filled, groups or ()))

    def component_values(
        self, names: Sequence[str], completions: Sequence[Any], **columns: Any
    ) -> dict[str, list[float | None]]:
        """Score a batch, and return the values of these components.

        A missing value is None with `--scale_rewards gdpo`, which leaves it out, and otherwise the
        mean of its group. Raises UsageError for requests with several samples, for which ms-swift
        has no GDPO.
        """
        batch = Batch(completions, columns)
        is_gdpo = getattr(self.args, "scale_rewards", None) == "gdpo"
        if is_gdpo and len(batch.positions) < len(completions):
            raise UsageError(
                "ms-swift ignores --scale_rewards gdpo for requests with several samples: return "
                "one sample per request from the multi-turn scheduler"
            )
        self._score(batch)
        groups, result = self._groups(batch), {}
        for name in names:
            values = [score.components.get(name) if score else None for score in self.last_scores]
            filled = values if is_gdpo else with_group_means(values, groups)
            result[name] = batch.for_all_samples(exactly_equal(filled, groups))
        return result

    def _write_log(
        self,
        batch: Batch,
        columns: Mapping[str, Sequence[float | None]],
        means: Mapping[str, float],
    ) -> None:
        """Log the means of the components, because ms-swift itself logs only the reward."""
        self._log_file.write(means, batch.step)
        log.info(", ".join(f"{name} {mean:.4g}" for name, mean in means.items()))


class AsyncRagReward(RagReward):
    """The same for recipes that wait for servers. Every batch has its own event loop."""

    async def __call__(  # type: ignore[override]
        self, completions: Sequence[Any], **columns: Any
    ) -> list[float]:
        """Return the rewards of a batch: its texts, and one list for each column."""
        return await self._score_async(Batch(completions, columns))


def _group_size(args: Any, prompts: Mapping[str, Sequence[int]]) -> int | None:
    """Return the completions per prompt, one number for the whole batch, or None if unknown.

    A reward does not learn whether ms-swift trains or evaluates. It evaluates if every prompt has
    exactly the number of an evaluation; otherwise a part of a training group would count as a
    complete group.
    """
    training, evaluation = (
        getattr(args, name, None) for name in ("num_generations", "num_generations_eval")
    )
    evaluates = evaluation and all(len(members) == evaluation for members in prompts.values())
    return (evaluation if evaluates else training) or None


def _check_ranks(name: str, args: Any) -> None:
    """Raise UsageError if a group would be on two ranks."""
    size = getattr(args, "num_generations", None)
    device, steps = (
        getattr(args, key, None) for key in ("per_device_train_batch_size", "steps_per_generation")
    )
    if not (size and device and steps) or (getattr(args, "world_size", 1) or 1) < 2:
        return
    if (per_rank := device * steps) % size:
        raise UsageError(
            f"{name} scores the completions of a prompt together, and a rank has {per_rank} "
            "(per_device_train_batch_size × steps_per_generation), which is not a multiple of "
            f"num_generations={size}: change one of these settings"
        )

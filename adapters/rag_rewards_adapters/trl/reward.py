"""`RagReward`, a recipe as a reward function of TRL's GRPOTrainer.

The columns of the data set have the names of a row's fields (`answers`, `documents`, `supporting`,
…). `bind` reads the group size, the chat template and the model from the trainer.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from rag_rewards.errors import GroupError, RolloutError, UsageError
from rag_rewards.evidence.needs import ModelKind
from rag_rewards.evidence.protocols import Models
from rag_rewards.groups import Groups, group_by_position
from rag_rewards.loading import RecipeSource, load_recipe
from rag_rewards.prompts import Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows.columns import rollout_from_columns
from rag_rewards.scorer import PromptOptions, Scorer, required_models, split_options
from rag_rewards.scoring.rollout_dump import RolloutDump
from rag_rewards.training.curriculum import Curriculum
from rag_rewards_adapters.displacement import DisplacementMonitor
from rag_rewards_adapters.reading import dialect_at, read_rollout, with_errors
from rag_rewards_adapters.row_checks import (
    check_judge,
    check_prompts,
    check_rows,
    example_rollouts,
)
from rag_rewards_adapters.trainer_reward import TrainerReward
from rag_rewards_adapters.trl.batch import (
    Batch,
    CompletionReader,
    gold_column,
    has_unopened_thoughts,
)
from rag_rewards_adapters.trl.trainer_settings import (
    TrainerSettings,
    check_groups,
    check_ranks,
    check_scaling,
    first_rows,
    log_evaluation,
    tokenizer_of,
    training_policy,
)

log = logging.getLogger("rag_rewards")


_BIND = "call reward.bind(trainer) after you create the trainer"


class RagReward(TrainerReward[Batch]):
    """A recipe as a reward function: one float per completion, or None if it is unscored.

    recipe           a recipe in any form: a name, `module:name`, a Recipe, a reward, a function
    settings         dotted or nested settings of the recipe; `hardened` as on the command line
    stages           a curriculum: `[{"recipe": …, "until_step": 200}, {"recipe": …}]`
    models           the models as objects; or by name: `nli=`, `judge=` with `judge_model=`,
                     `similarity=`, `model=` with `backend=` (see ModelOptions)
    prompt           the form of the documents in the prompts, for recipes that leave some out
    truncate         drop non-supporting documents when a prompt exceeds the context length
    columns          row field → column of the data set, where names differ
    response_prefix  the tag that the prompt opens; `bind` finds it in the chat template
    group_size       completions per prompt; `bind` reads it from the trainer
    displacement_every  number of steps between two measurements of likelihood displacement (see
                     `displacement`); 0 disables them
    std_floor        return (R − mean)/max(std, floor) within the group, the advantage of LEAR;
                     the trainer must not scale again (scale_rewards="none")
    patience         number of consecutive batches before the error is raised: those in which a
                     model failed and a tenth of the completions is unscored, or all are
    name             name of the reward in the trainer's logs; default: that of the recipe
    dump             write every rollout with its score to this .jsonl file, or to a RolloutDump;
                     also `dump_mb` and `dump_files` (see DumpOptions)

    The reward can be pickled. Models that were passed as objects and the model of the trainer are
    not part of the pickle.

    Raises UsageError and SettingError at construction, at `bind`, or in the first batch;
    RolloutError, with the row of the data set, at `bind` or in the first batch. Later, an unscored
    completion is None, which the trainer excludes from its group. If a model fails, all completions
    of the prompt are None.
    """

    _way_to_policy = f"{_BIND}, or set"
    _way_to_turn_credit = "use rag_rewards_adapters.trl.TurnGRPOTrainer"

    def __init__(
        self,
        recipe: RecipeSource | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        hardened: bool = False,
        stages: Sequence[Mapping[str, Any]] = (),
        models: Models | None = None,
        prompt: Prompt | None = None,
        truncate: bool = False,
        columns: Mapping[str, str] | None = None,
        response_prefix: str | None = None,
        group_size: int | None = None,
        displacement_every: int = 0,
        std_floor: float | None = None,
        patience: int = 3,
        name: str | None = None,
        dump: str | RolloutDump | None = None,
        **model_options: Any,
    ) -> None:
        own = {"settings": settings, "hardened": hardened, "stages": list(stages)}
        options = {"recipe": recipe, **own, "dump": dump, **model_options}
        self._source, self._options, self._dump = split_options(options)
        self._reward: Recipe | Curriculum | None = None
        self._models = models
        self._prompt = prompt
        self._truncate = truncate
        self._prefix = response_prefix
        self._group_size = group_size
        self._displacement_every = displacement_every
        DisplacementMonitor.of(displacement_every)  # raises UsageError for a wrong number
        self._has_warned = False
        self._has_named_scaling = False
        self._settings: TrainerSettings | None = None
        self._trainer: Any = None
        self._training_policy: Any = None
        self.last_rollouts: list[Rollout | None] = []
        """The rollouts of the last batch, None for a completion that is no valid row."""
        self._scorer: Scorer | None = self._build_scorer(models or self._options.load())
        super().__init__(
            name or self._scorer.reward.name,
            columns=columns,
            std_floor=std_floor,
            patience=patience,
        )

    def __call__(self, prompts: Any, completions: Any, **batch: Any) -> list[float | None]:
        """Return the rewards of a batch: prompts, completions, completion_ids and the columns.

        Axolotl requires a function with two named parameters.
        """
        return self._score(Batch.of(prompts=prompts, completions=completions, **batch))

    def components(self, *names: str) -> list[Any]:
        """Return one reward function for each of these components, for GDPO.

        They share one scoring pass. Pass them as `reward_funcs`, with
        `multi_objective_aggregation="normalize_then_sum"` and a weight for each in
        `reward_weights`, and call `bind` of this reward. Raises UsageError for an unknown
        component, and with `std_floor`.
        """
        from rag_rewards_adapters.trl.components import component_rewards

        return component_rewards(self, names)

    # --- the scorer ----------------------------------------------------------------------------

    @property
    def scorer(self) -> Scorer:
        """The recipe and its models. A process that received the reward builds them again."""
        if self._scorer is None:
            self._scorer = self._build_scorer(self._options.load())
        return self._scorer

    def _build_scorer(self, models: Models) -> Scorer:
        template = self._settings.template if self._settings else {}
        prompt = PromptOptions.of(
            self._options,
            prompt=self._prompt,
            template=template,
            truncate=self._truncate,
            response_limit="max_completion_length",
        )
        self._reward = self._reward or load_recipe(self._source)
        return Scorer(self._reward, models, prompt=prompt, dump=self._dump)

    def __getstate__(self) -> dict[str, Any]:
        not_pickled = ("_scorer", "_reward", "_trainer", "_training_policy", "_models")
        last: dict[str, Any] = {"last_scores": [], "last_rollouts": []}
        return self.__dict__ | dict.fromkeys(not_pickled) | last

    # --- the trainer ---------------------------------------------------------------------------

    def bind(self, trainer: Any) -> None:
        """Read the settings of the trainer, and check them and its data sets.

        Call it once, after you create the trainer and before you train. A recipe that needs a
        policy gets the trainer's own model, at its current weights, unless another one was passed.
        An empty response to the first rows of each data set is scored, so that a row without its
        gold fields is an error now. So is a prompt from which the recipe cannot leave out a
        document, and one that is too long together with `max_completion_length`. A judge on a
        server is asked one question, so that it is known to answer. Raises UsageError and
        RolloutError.
        """
        if self._compares_groups:
            check_groups(trainer, self._group_size)
        if self._std_floor is not None:
            check_scaling(trainer.args)
        if trainer.args.remove_unused_columns:
            raise UsageError(
                "the trainer would drop the columns with gold data: set remove_unused_columns=False"
            )
        names = [getattr(reward, "__name__", "") for reward in trainer.reward_funcs]
        if names.count(self.__name__) > 1:
            raise UsageError(f"two rewards have the name {self.__name__!r}: pass name= to one")
        models = self.scorer.models
        if models.policy is self._training_policy:  # it belongs to a previous trainer
            models = replace(models, policy=None)
        self._trainer, self._settings = trainer, TrainerSettings.of(trainer)
        self._training_policy = None
        self._scorer = self._build_scorer(models)
        examples = example_rollouts()
        self._require_models(
            {kind for recipe in self.scorer.recipes for kind in required_models(recipe, examples)}
        )
        if self.scorer.has_models:  # the failure of a model makes its whole group unscored
            check_ranks(trainer)
        check_rows(self._empty_rollouts(trainer), self.scorer.recipes)
        length = trainer.args.max_completion_length
        check_prompts(self._empty_rollouts(trainer), self.scorer, length or 0)
        if trainer.accelerator.is_main_process:
            check_judge(self.scorer.models.judge, self.scorer.recipes)
        if monitor := DisplacementMonitor.of(self._displacement_every):
            check_ranks(trainer)
            self._watch(trainer, monitor)

    def _watch(self, trainer: Any, monitor: DisplacementMonitor) -> None:
        """Measure likelihood displacement. Raises UsageError for sharded weights."""
        from rag_rewards_adapters.trl.monitor import watch

        budget = self._options.token_budget
        policy = self._training_policy or training_policy(trainer, token_budget=budget)
        watch(trainer, self.__name__, monitor, policy, lambda: self.last_scores)

    def _empty_rollouts(self, trainer: Any) -> Iterator[tuple[str, Rollout | RolloutError]]:
        """Yield the name and an empty response for the first rows of each data set."""
        for name, row in first_rows(trainer):
            prompt = row.get("prompt")
            yield name, rollout_from_columns(self._fields(row), prompt=prompt, response="", step=0)

    def _require_models(self, kinds: Collection[ModelKind]) -> None:
        """Use the trainer's model for a missing policy. UsageError if another model is missing."""
        models = self.scorer.models
        needs_policy = any(
            kind in kinds and models.of_kind(kind) is None for kind in ("policy", "generator")
        )
        if needs_policy and self._trainer is not None:
            self._training_policy = training_policy(
                self._trainer, token_budget=self._options.token_budget
            )
            models = replace(models, policy=self._training_policy)
            self._scorer = self._build_scorer(models)
        super()._require_models(kinds)

    # --- groups --------------------------------------------------------------------------------

    def _groups(self, batch: Batch) -> Groups:
        """Return blocks of `num_generations` completions, the groups of the trainer.

        A reward that compares no rollouts needs no group size: adjacent equal prompts are a group.
        """
        if not self._compares_groups:
            same_prompt = groupby(batch.positions, key=lambda i: batch.prompts[i])
            return [list(group) for _, group in same_prompt]
        size, prompts = self.group_size, batch.prompts
        if size is None:
            name = self.__name__ if self._std_floor is None else "std_floor"
            raise UsageError(
                f"{name} compares the completions of a prompt, whose number is unknown: {_BIND}, "
                "or pass group_size="
            )
        if self._std_floor is not None and self._settings is None and not self._has_named_scaling:
            self._has_named_scaling = True
            log.warning(
                "std_floor without reward.bind(trainer), which checks the settings of the trainer: "
                'the trainer must not scale by the standard deviation again (scale_rewards="none")'
            )
        groups = group_by_position(len(prompts), size)
        for group in groups:
            for i in group:
                if prompts[i] != prompts[group[0]]:
                    raise GroupError(
                        f"completions {group[0]} and {i} of the batch have different prompts, but "
                        f"a group has {size} completions of one prompt: check "
                        f"num_generations={size}"
                    )
        return groups

    @property
    def group_size(self) -> int | None:
        """The number of completions per prompt, None if it is unknown."""
        if self._settings is not None:
            settings = self._settings
            return settings.eval_group_size if self._evaluates else settings.group_size
        return self._group_size

    @property
    def _evaluates(self) -> bool:
        return self._trainer is not None and not self._trainer.model.training

    @property
    def _split(self) -> str | None:
        """The field `split` of the rollouts, if the trainer is known."""
        return None if self._trainer is None else "validation" if self._evaluates else "train"

    def _step(self, batch: Batch) -> int | None:
        """Return the first optimizer step that trains a batch, as the trainer's log counts them.

        In an evaluation, this is the last step before it.
        """
        if batch.updates is None or self._evaluates:
            return batch.updates
        return batch.updates + 1

    # --- rollouts ------------------------------------------------------------------------------

    def _rollouts(self, batch: Batch) -> list[Rollout | RolloutError]:
        if self._displacement_every and self._settings is None:
            raise UsageError(f"displacement_every needs the trainer: {_BIND}")
        rollouts = super()._rollouts(batch)
        self.last_rollouts = [r if isinstance(r, Rollout) else None for r in rollouts]
        if not self._has_warned and has_unopened_thoughts(rollouts):
            self._has_warned = True
            log.warning(
                "a response closes <think> without opening it: if the chat template opens it, "
                "call reward.bind(trainer) or pass response_prefix='<think>'"
            )
        if self._training_policy is not None:
            self._training_policy.weight_version = batch.updates
        return rollouts

    @with_errors
    def _rollout(
        self, batch: Batch, position: int, fields: dict[str, Any]
    ) -> Rollout | RolloutError:
        batch.check_environment(position)
        turns, dialect, step = None, None, self._step(batch)
        if any(recipe.reads_turns for recipe in self.scorer.recipes):
            turns, dialect = fields.pop("turns", None), dialect_at(self.scorer.reward, step)
        tokenizer = None if self._trainer is None else tokenizer_of(self._trainer)
        reader = CompletionReader(self._prefix, self._settings, tokenizer)
        completion = reader.fields(batch, position, turns, dialect)
        return read_rollout(
            fields, step=step, split=self._split, weight_version=batch.updates, **completion
        )

    # --- logging -------------------------------------------------------------------------------

    def _logged_columns(
        self, scores: Sequence[Score | None], values: Sequence[float | None]
    ) -> dict[str, list[float | None]]:
        columns = super()._logged_columns(scores, values)
        columns[f"{self.__name__}/correct"] = [score.correct if score else None for score in scores]
        if self._std_floor is not None:
            columns[f"{self.__name__}/reward"] = list(values)
        return columns

    def _write_log(
        self,
        batch: Batch,
        columns: Mapping[str, Sequence[float | None]],
        means: Mapping[str, float],
    ) -> None:
        if batch.log_extra is not None:
            for name, column in columns.items():
                batch.log_extra(name, column)
            if gold := gold_column(self._fields(batch.columns)):
                batch.log_extra(f"{self.__name__}/gold", gold)
        if batch.log_metric is not None:
            for name, mean in means.items():
                if self._evaluates and name in columns:
                    log_evaluation(self._trainer, name, columns[name])
                else:
                    batch.log_metric(name, mean)


class AsyncRagReward(RagReward):
    """The same for rewards that wait for servers: the trainer runs several of them concurrently."""

    async def __call__(  # type: ignore[override]
        self, prompts: Any, completions: Any, **batch: Any
    ) -> list[float | None]:
        """Return the rewards of a batch, on the trainer's event loop."""
        return await self._score_async(Batch.of(prompts=prompts, completions=completions, **batch))

"""Recipes as reward functions of ms-swift's GRPO.

A plugin file of two lines,

    from rag_rewards_adapters.ms_swift import register
    register("arena", settings={"bonus.value": 5})

is used with `--external_plugins plugin.py --reward_funcs arena`. The columns of the data set have
the names of a row's fields (`answers`, `documents`, `supporting`, …), beside `messages`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rag_rewards.errors import DataError, GroupError, RolloutError, UsageError
from rag_rewards.groups import Groups, positions_by_key
from rag_rewards.loading import import_object
from rag_rewards.rollout import Rollout, ScoreOrError
from rag_rewards.rows.column_map import ColumnMap
from rag_rewards.rows.columns import (
    DATASET_FIELDS,
    last_question,
    rollout_from_columns,
    to_builtins,
)
from rag_rewards.scorer import PromptOptions, Scorer
from rag_rewards.turns.blocks import block_of
from rag_rewards_adapters.base import TrainerReward
from rag_rewards_adapters.component_rewards import exactly_flat
from rag_rewards_adapters.group_values import with_group_means
from rag_rewards_adapters.ms_swift_messages import MessageTexts
from rag_rewards_adapters.row_checks import check_judge
from rag_rewards_adapters.token_masks import spans_of_lists
from rag_rewards_adapters.training_log import TrainingLog
from rag_rewards_adapters.turn_rows import dialect_at, dialect_of_tags, queries_of, with_limit

T = TypeVar("T")

log = logging.getLogger("rag_rewards")


def register(
    name: str, *, asynchronous: bool = False, components: Sequence[str] = (), **options: Any
) -> type[RagReward]:
    """Add a recipe to `swift.rewards.orms` under a name, and return its class.

    The recipe is the one of that name, `recipe=`, or `stages=`. All options are those of RagReward.
    With `asynchronous`, the reward runs concurrently with other asynchronous rewards, which suits
    recipes that wait for a judge. With `components`, each of them is also a reward of its own,
    `NAME/COMPONENT`, for `--scale_rewards gdpo`; these rewards are never asynchronous. Raises
    UsageError and SettingError for invalid
    options, before the model in training is loaded.
    """
    if "recipe" not in options and "stages" not in options:
        options["recipe"] = name
    reward = reward_class(name, asynchronous=asynchronous, **options)
    from swift.rewards import orms

    orms[name] = reward
    if components:
        from rag_rewards_adapters.ms_swift_components import component_rewards

        orms.update(component_rewards(name, components, options))
    return reward


def register_search(
    search: Callable[[str], Sequence[Mapping[str, Any]]] | str,
    *,
    dialect: str = "search-r1",
    name: str = "search",
) -> type:
    """Add a scheduler with a search engine to `multi_turns` of ms-swift, and return its class.

    search   function from a query to a list of documents (`{id?, title?, text}`), or its
             `module:name`
    dialect  the dialect in which the policy searches: the scheduler answers the first query of each
             turn with a message of the user, until a turn has no query
    name     name for `--multi_turn_scheduler`; `--max_turns` limits the turns

    Raises UsageError for a dialect without tags.
    """
    from swift.rollout.multi_turn import MultiTurnScheduler, multi_turns

    tags = dialect_of_tags(dialect)
    retrieve = import_object(search) if isinstance(search, str) else search

    class Search(MultiTurnScheduler):  # type: ignore[misc]
        """Answers the queries of the policy."""

        def check_finished(
            self, infer_request: Any, response_choice: Any, current_turn: int
        ) -> bool:
            if not queries_of(response_choice.message.content or "", tags):
                return True
            return bool(super().check_finished(infer_request, response_choice, current_turn))

        def step(
            self, infer_request: Any, response_choice: Any, current_turn: int
        ) -> dict[str, Any]:
            query = queries_of(response_choice.message.content, tags)[0]
            reply = {"role": "user", "content": block_of(retrieve(query), tags)}
            infer_request.messages.append(reply)
            return {"infer_request": infer_request}

    multi_turns[name] = Search
    return Search


def use_k2_penalty() -> None:
    """Train with the KL penalty k2 of ARENA instead of k3, for `swift rlhf --rlhf_type grpo`.

    A plugin file calls it. `swift megatron rlhf` has other trainers and keeps k3.
    """
    from swift.trainers.trainer_factory import TrainerFactory

    TrainerFactory.TRAINER_MAPPING["grpo"] = "rag_rewards_adapters.ms_swift_k2_trainer.K2Trainer"


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
        names = cls.__dataclass_fields__.keys() - {"scorer"}
        own = {name: options[name] for name in names if name in options}
        prompting = {name: options[name] for name in ("prompt", "template") if name in options}
        rest = {
            name: value
            for name, value in options.items()
            if name not in own and name not in prompting
        }
        ColumnMap.of(own.get("columns"), DATASET_FIELDS)  # raises for an unknown field
        prompt = PromptOptions(response_limit="max_completion_length", **prompting)
        scorer = Scorer.load(rest, prompt=prompt)
        return cls(scorer, **own)


class RagReward(TrainerReward["_Batch"]):
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
        return self._score(_Batch(completions, columns))

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

    def _rollout(
        self, batch: _Batch, position: int, fields: dict[str, Any]
    ) -> Rollout | RolloutError:
        messages = self._texts.of(batch.value("messages", position) or [])
        turns = batch.value("response_token_ids", position) or []
        if self._has_turns(turns):
            return self._rollout_with_turns(batch, position, fields, messages, turns)
        before = messages[:-1]
        if fields.get("question") is None:
            fields["question"] = last_question(before)
        return rollout_from_columns(
            fields,
            response=batch.completions[position],
            response_prefix=self.options.response_prefix,
            prompt=before or None,
            response_token_ids=turns[-1] if turns and isinstance(turns[-1], list) else None,
            finish_reason=batch.value("finish_reason", position),
            step=batch.step,
            weight_version=batch.updates,
        )

    def _has_turns(self, turns: Sequence[Any]) -> bool:
        """Return whether a completion is read turn by turn. `turns` are lists of token ids."""
        recipes = self.scorer.recipes
        if not turns or not isinstance(turns[0], list):
            return False
        if any(recipe.needs_turns for recipe in recipes):
            return True
        return len(turns) > 1 and any(recipe.reads_turns for recipe in recipes)

    def _rollout_with_turns(
        self,
        batch: _Batch,
        position: int,
        fields: dict[str, Any],
        messages: Sequence[Mapping[str, Any]],
        turns: Sequence[Sequence[int]],
    ) -> Rollout | RolloutError:
        """Return a completion with a turn for each of its lists of token ids.

        A multi-turn scheduler reports how the last generation ended, also at `max_turns`.
        """
        own = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
        own = own[-len(turns) :]
        if len(own) != len(turns):
            return DataError(
                f"has {len(own)} assistant messages for {len(turns)} lists of token ids",
                "messages",
            )
        before = list(messages[: own[0]])
        spans = dict(zip(own, spans_of_lists(turns), strict=True))
        response = [
            dict(message, token_span=spans[i]) if i in spans else dict(message)
            for i, message in enumerate(messages)
        ][own[0] :]
        if fields.get("question") is None:
            fields["question"] = last_question(before)
        rollout = rollout_from_columns(
            fields,
            response=response,
            response_prefix=self.options.response_prefix,
            prompt=before or None,
            response_token_ids=[token for turn in turns for token in turn],
            finish_reason=batch.value("finish_reason", position),
            step=batch.step,
            weight_version=batch.updates,
        )
        if isinstance(rollout, RolloutError):
            return rollout
        return with_limit(rollout, dialect_at(self.scorer.reward, batch.step))

    def _groups(self, batch: _Batch) -> Groups:
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
        batch: _Batch,
        rollouts: Sequence[Rollout | RolloutError],
        results: Sequence[ScoreOrError],
        groups: Groups | None,
    ) -> list[Any]:
        values = super()._rewards(batch, rollouts, results, groups)
        filled = with_group_means(values, groups or ())
        return batch.for_all_samples(exactly_flat(filled, groups or ()))

    def component_values(
        self, names: Sequence[str], completions: Sequence[Any], **columns: Any
    ) -> dict[str, list[float | None]]:
        """Score a batch, and return the values of these components.

        A missing value is None with `--scale_rewards gdpo`, which leaves it out, and otherwise the
        mean of its group. Raises UsageError for requests with several samples, for which ms-swift
        has no GDPO.
        """
        batch = _Batch(completions, columns)
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
            result[name] = batch.for_all_samples(exactly_flat(filled, groups))
        return result

    def _write_log(
        self,
        batch: _Batch,
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
        return await self._score_async(_Batch(completions, columns))


class _Batch:
    """The completions of one call. If a request has several samples (turns), the last is scored."""

    def __init__(self, completions: Sequence[Any], columns: Mapping[str, Any]) -> None:
        self.completions = completions
        self.updates: int | None = getattr(columns.get("trainer_state"), "global_step", None)
        lists = {
            name: to_builtins(values) if hasattr(values, "tolist") else values
            for name, values in columns.items()
        }
        self.columns: dict[str, Sequence[Any]] = {
            name: values for name, values in lists.items() if isinstance(values, (list, tuple))
        }
        requests = self.columns.get("request_id") or range(len(completions))
        self._requests = [
            i if request in (None, "") else request for i, request in enumerate(requests)
        ]
        last = {request: i for i, request in enumerate(self._requests)}
        self.positions = sorted(last.values())
        self._index = {self._requests[i]: index for index, i in enumerate(self.positions)}

    @property
    def step(self) -> int | None:
        """The first optimizer step that trains the batch, as the trainer's log counts them.

        A reward does not learn whether ms-swift evaluates, which has the number of the next step.
        """
        return None if self.updates is None else self.updates + 1

    def value(self, column: str, position: int) -> Any:
        """Return a value of a column, or None if the batch does not have the column."""
        values = self.columns.get(column)
        return None if values is None else values[position]

    @property
    def prompts(self) -> dict[str, list[int]]:
        """The scored completions of each prompt. Raises GroupError without prompt ids."""
        prompts = [self.value("prompt_id", i) for i in self.positions]
        if not all(prompts):
            raise GroupError("prompt_id is missing: use ms-swift 4.0 or later, which provides it")
        return positions_by_key(map(str, prompts))

    def for_all_samples(self, values: Sequence[T]) -> list[T]:
        """Return the value of each sample: that of the scored sample of its request."""
        return [values[self._index[request]] for request in self._requests]


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

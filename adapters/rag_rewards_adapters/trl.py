"""Recipes as reward functions of TRL's GRPOTrainer.

    reward = RagReward("ctrl-rag")
    trainer = GRPOTrainer(model, reward_funcs=reward, args=args, train_dataset=rows)
    reward.bind(trainer)
    trainer.train()

The data set's columns have the names of a row (`answers`, `documents`, `supporting`, …). `bind`
gives the reward what only the trainer knows: the group size, the chat template, the model itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import fmean
from typing import Any

from rag_rewards.definition import Recipe
from rag_rewards.errors import GroupError, RolloutError, UsageError
from rag_rewards.evidence.needs import LogProbsNeed, ModelKind
from rag_rewards.evidence.protocols import Models, Policy
from rag_rewards.groups import group_by_position
from rag_rewards.loading import RecipeSource, load_recipe
from rag_rewards.model_options import missing_model
from rag_rewards.prompts import Prompt
from rag_rewards.rollout import Evidence, LogProbs, Rollout, Score, ScoreOrError
from rag_rewards.rows.columns import (
    check_columns,
    column_names,
    last_question,
    response_prefix_of,
    rollout_from_columns,
)
from rag_rewards.scorer import Scorer, required_models, split_options
from rag_rewards.training.advantages import advantages_of_groups
from rag_rewards.training.curriculum import Curriculum
from rag_rewards_adapters.unscored import Unscored

log = logging.getLogger("rag_rewards")

SCANNED = 2_000
"""Rows of each data set that `bind` looks at."""

_BIND = "call reward.bind(trainer) once the trainer is made"
_SHAPES = (
    "<think>Read [1].</think><answer>It is x [1].</answer>",
    "<reason>Read 1.</reason><extract>x</extract><answer>x</answer>",
    "<think>Read 1.</think>\\boxed{y}",
)
"""Responses in the shapes of the recipes: what is needed of them, a recipe needs."""


@dataclass(frozen=True)
class _Told:
    """What a trainer said about itself: plain values, which travel with the reward."""

    group_size: int
    group_size_eval: int
    ends: frozenset[int]
    prefix: str | None
    parses: bool
    template: Mapping[str, Any]


@dataclass(frozen=True)
class _Call:
    """One batch, as the trainer passes it."""

    prompts: Sequence[Any]
    completions: Sequence[Any]
    completion_ids: Sequence[Sequence[int]] | None = None
    trainer_state: Any = None
    log_extra: Any = None
    log_metric: Any = None
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, *, environments: Any = None, **batch: Any) -> _Call:
        own = {name: batch.pop(name) for name in cls.__dataclass_fields__ if name in batch}
        return cls(**own, columns=batch)

    @property
    def step(self) -> int | None:
        return getattr(self.trainer_state, "global_step", None)


class RagReward:
    """A recipe as a reward function: one float per completion, None where there is no score.

    recipe           a recipe in any form: a name, `module:name`, a Recipe, a reward, a function
    settings         dotted or nested settings of the recipe; `hardened` as on the command line
    stages           a curriculum: `[{"recipe": …, "until_step": 200}, {"recipe": …}]`
    models           models to ask, as objects; or by name: `nli=`, `judge=` with `judge_model=`,
                     `similarity=`, `model=` with `backend=` (ModelOptions has them all)
    prompt           how documents stand in the prompts, for recipes that leave some out
    truncate         prompts beyond the model's length lose documents that do not support
    columns          our field → the data set's column, where names differ
    response_prefix  what the prompt opened for the model; `bind` finds it in the chat template
    group_size       completions per prompt; `bind` takes it from the trainer
    std_floor        give (R − mean)/max(std, floor) of the group, LEAR's advantage; the trainer
                     must not scale again (scale_rewards="none")
    patience         batches in a row without any score that are endured
    name             as the trainer logs it; default: the recipe's

    Models that were given as objects do not travel by pickle, nor does the trainer's own.
    Raises UsageError and SettingError here, at `bind`, or at the first batch; RolloutError at
    `bind` or at the first batch, with the data set's row. Later, a completion that cannot be
    scored is None, which the trainer leaves out of its group.
    """

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
        std_floor: float | None = None,
        patience: int = 3,
        name: str | None = None,
        **model_options: Any,
    ) -> None:
        chosen = {"settings": settings, "hardened": hardened, "stages": list(stages)}
        self._source, self._options = split_options({"recipe": recipe, **chosen, **model_options})
        self._reward: Recipe | Curriculum | None = None
        self._models = models
        self._prompt = prompt
        self._truncate = truncate
        self._columns = dict(columns or {})
        self._prefix = response_prefix
        self._group_size = group_size
        self._std_floor = std_floor
        self._unscored = Unscored(patience)
        self._warned = False
        self._told: _Told | None = None
        self._trainer: Any = None
        self._live: Any = None
        self._scorer: Scorer | None = self._made(models or self._options.load())
        self.__name__ = name or self._scorer.reward.name
        check_columns(self._columns)

    def __call__(self, **batch: Any) -> list[float | None]:
        """What GRPOTrainer calls: prompts, completions, completion_ids, the columns, and so on."""
        call = _Call.of(**batch)
        rollouts, groups = self._rollouts(call)
        return self._settled(call, self.scorer.score_each(rollouts, groups), groups)

    # --- what it is made of --------------------------------------------------------------------

    @property
    def scorer(self) -> Scorer:
        """The recipe and its models; made again in a process that it was sent to."""
        if self._scorer is None:
            self._scorer = self._made(self._options.load())
        return self._scorer

    @property
    def signature(self) -> str:
        """One line that reproduces the rewards, the models' fingerprints included."""
        return self.scorer.signature

    @property
    def not_scored(self) -> int:
        """Completions so far that had no score."""
        return self._unscored.count

    def _made(self, models: Models) -> Scorer:
        template = self._told.template if self._told else {}
        prompting = self._options.prompting | {"truncate": self._truncate}
        self._reward = self._reward or load_recipe(self._source)
        return Scorer(self._reward, models, prompt=self._prompt, template=template, **prompting)

    def __getstate__(self) -> dict[str, Any]:
        own = ("_scorer", "_reward", "_trainer", "_live", "_models")
        return self.__dict__ | dict.fromkeys(own)

    # --- the trainer ---------------------------------------------------------------------------

    def bind(self, trainer: Any) -> None:
        """Take from the trainer what a reward must know, and check it and its data sets.

        Call it once, between making the trainer and training. Recipes that ask a policy get the
        trainer's own model, as it is at each step, unless another was given. The first rows of
        every data set are scored with an empty response, so that a row without its gold fields
        is an error here. UsageError, RolloutError.
        """
        if self._grouped:
            _check_groups(trainer, self._group_size)
        if self._std_floor is not None:
            _check_scaling(trainer.args)
        if trainer.args.remove_unused_columns:
            raise UsageError("the gold columns would be dropped: set remove_unused_columns=False")
        names = [getattr(reward, "__name__", "") for reward in trainer.reward_funcs]
        if names.count(self.__name__) > 1:
            raise UsageError(f"two rewards are named {self.__name__!r}: give one another name=")
        models = self.scorer.models
        if models.policy is self._live:  # that of a trainer before this one
            models = replace(models, policy=None)
        self._trainer, self._told, self._live = trainer, _told_by(trainer), None
        self._scorer = self._made(models)
        probes = _probes()
        self._provide(
            {kind for recipe in self.scorer.recipes for kind in required_models(recipe, probes)}
        )
        self._check_rows(trainer)

    @property
    def _grouped(self) -> bool:
        """Whether completions of a prompt must be seen together."""
        return self.scorer.scope == "group" or self._std_floor is not None

    def _provide(self, kinds: set[ModelKind]) -> None:
        """Whoever is asked is there: the trainer's model, where that is missing; or UsageError."""
        missing = {kind for kind in kinds if getattr(self.scorer.models, kind) is None}
        if "policy" in missing and self._trainer is not None:
            self._live = _live(self._trainer, self._options.token_budget)
            self._scorer = self._made(replace(self.scorer.models, policy=self._live))
            missing.remove("policy")
        if missing:
            kind = min(missing)
            way = f"{_BIND}, or set" if kind == "policy" else "set"
            raise missing_model(self.__name__, kind, way)

    def _check_rows(self, trainer: Any) -> None:
        """Raise what keeps an empty response to a row from a score.

        A row of a curriculum may be meant for one stage alone, and every stage needs rows.
        """
        served: set[int] = set()
        unserved: dict[int, RolloutError] = {}
        for where, row in _rows(trainer):
            faults = self._faults(where, row)
            known = [fault for fault in faults if fault is not None]
            if len(known) == len(faults):
                raise known[0]
            for i, fault in enumerate(faults):
                if fault is None:
                    served.add(i)
                else:
                    unserved.setdefault(i, fault)
        if starving := unserved.keys() - served:
            raise unserved[min(starving)]

    def _faults(self, where: str, row: Mapping[str, Any]) -> list[RolloutError | None]:
        """By stage, why the row cannot be scored there."""
        rollout = rollout_from_columns(self._fields(row), response="", step=0)
        if isinstance(rollout, RolloutError):
            return [_placed(rollout, where)]
        faults = [_fault(recipe, rollout) for recipe in self.scorer.recipes]
        return [fault and _placed(fault, where) for fault in faults]

    # --- rollouts ------------------------------------------------------------------------------

    def _rollouts(self, call: _Call) -> tuple[list[Rollout | RolloutError], list[range] | None]:
        groups = self._groups(call)
        columns = self._fields(call.columns)
        rollouts = [
            self._rollout(call, i, {name: values[i] for name, values in columns.items()})
            for i in range(len(call.prompts))
        ]
        self._warn_of_open_thoughts(rollouts)
        good = [rollout for rollout in rollouts if isinstance(rollout, Rollout)]
        self._provide(required_models(self.scorer.reward, good))
        if self._live is not None:
            self._live.weight_version = call.step
        return rollouts, groups

    def _groups(self, call: _Call) -> list[range] | None:
        """Contiguous blocks, as the trainer takes them; None where completions stand alone."""
        if not self._grouped:
            return None
        size, prompts = self._size(), call.prompts
        groups = group_by_position(len(prompts), size)
        for group in groups:
            for i in group:
                if prompts[i] != prompts[group[0]]:
                    raise GroupError(
                        f"completions {group[0]} and {i} of the batch have different prompts, but "
                        f"a group has {size} completions of one prompt: is num_generations={size}?"
                    )
        return groups

    def _size(self) -> int:
        if self._told is not None:
            evaluates = self._trainer is not None and not self._trainer.model.training
            return self._told.group_size_eval if evaluates else self._told.group_size
        if self._std_floor is not None:
            raise UsageError(f"std_floor goes with a trainer that does not scale: {_BIND}")
        if self._group_size is None:
            raise UsageError(
                f"{self.__name__} compares the completions of a prompt: {_BIND}, or give "
                "group_size="
            )
        return self._group_size

    def _fields(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What a data set has for us, a row or all its columns, under our names."""
        named = column_names(self._columns, row)
        return {name: row[column] for name, column in named.items() if column in row}

    def _rollout(self, call: _Call, i: int, row: dict[str, Any]) -> Rollout | RolloutError:
        prompt, completion = _before_the_last(call.prompts[i], call.completions[i])
        ids = call.completion_ids[i] if call.completion_ids is not None else None
        # With tool turns, the ids are those of the whole conversation.
        own = ids if completion is call.completions[i] else None
        response, prefix = self._said(completion, own, self._opened(prompt))
        if row.get("question") is None:
            row["question"] = last_question(prompt)
        return rollout_from_columns(
            row,
            prompt=prompt,
            response=response,
            response_prefix=prefix,
            response_token_ids=list(own) if own is not None else None,
            finish_reason=self._finish(ids),
            step=call.step,
            weight_version=call.step,
        )

    def _opened(self, prompt: Any) -> str | None:
        if self._prefix is not None:
            return self._prefix
        if isinstance(prompt, str):
            return response_prefix_of(prompt)
        return self._told.prefix if self._told else None

    def _said(
        self, completion: Any, ids: Sequence[int] | None, prefix: str | None
    ) -> tuple[Any, str | None]:
        """What the model said, thoughts included, and what the prompt had opened for it.

        A tokenizer with a response template parses thoughts out of the text, an opened tag too.
        """
        if isinstance(completion, str) or len(completion) != 1:
            return completion, prefix
        message = completion[0]
        thought = message.get("reasoning_content") or message.get("thinking")
        parsed = thought or (self._told is not None and self._told.parses)
        if not parsed:
            return completion, prefix
        if ids is not None and self._trainer is not None:
            whole = _tokenizer(self._trainer).decode(ids, skip_special_tokens=True)
            return whole, prefix
        said = message.get("content") or ""
        return (f"<think>{thought}</think>{said}" if thought else said), None

    def _finish(self, ids: Sequence[int] | None) -> str | None:
        if self._told is None or not ids:
            return None
        return "stop" if ids[-1] in self._told.ends else "length"

    def _warn_of_open_thoughts(self, rollouts: Sequence[Rollout | RolloutError]) -> None:
        if self._warned:
            return
        for rollout in rollouts:
            if isinstance(rollout, RolloutError) or rollout.response_prefix is not None:
                continue
            text = _text(rollout.response)
            if "</think>" in text and "<think>" not in text:
                self._warned = True
                log.warning(
                    "a response closes <think> without opening it: if the chat template opens it, "
                    "call reward.bind(trainer) or give response_prefix='<think>'"
                )
                return

    # --- scores --------------------------------------------------------------------------------

    def _settled(
        self, call: _Call, results: Sequence[ScoreOrError], groups: Sequence[Sequence[int]] | None
    ) -> list[float | None]:
        scores = self._unscored.settle(results, range(len(results)))
        values = [score.value if score else None for score in scores]
        self._log(call, scores, values)
        if self._std_floor is None or groups is None:
            return values
        return advantages_of_groups(values, groups, std_floor=self._std_floor)

    def _log(
        self, call: _Call, scores: Sequence[Score | None], values: Sequence[float | None]
    ) -> None:
        """Columns with a value per completion, and means over the completions that have one."""
        columns: dict[str, list[float | None]] = {
            name: [score.components.get(name) if score else None for score in scores]
            for name in self.scorer.reward.component_names
        }
        columns["correct"] = [score.correct if score else None for score in scores]
        if self._std_floor is not None:
            columns["reward"] = list(values)
        for name, column in columns.items():
            known = [value for value in column if value is not None]
            if call.log_extra is not None:
                call.log_extra(f"{self.__name__}/{name}", column)
            if call.log_metric is not None and known:
                call.log_metric(f"{self.__name__}/{name}", fmean(known))
        if call.log_metric is not None:
            call.log_metric(f"{self.__name__}/not_scored", float(list(values).count(None)))


class AsyncRagReward(RagReward):
    """The same for rewards that wait for servers: the trainer runs several at the same time."""

    async def __call__(self, **batch: Any) -> list[float | None]:  # type: ignore[override]
        """As RagReward's, on the trainer's event loop."""
        call = _Call.of(**batch)
        rollouts, groups = self._rollouts(call)
        results = await self.scorer.score_each_async(rollouts, groups)
        return self._settled(call, results, groups)


# --- asking the trainer ------------------------------------------------------------------------


def _told_by(trainer: Any) -> _Told:
    tokenizer = _tokenizer(trainer)
    ends = {*trainer.eos_token_ids, tokenizer.pad_token_id}
    template = dict(trainer.chat_template_kwargs)
    if trainer.chat_template is not None:
        template["chat_template"] = trainer.chat_template
    if trainer.tools:
        template["tools"] = trainer.tools
    parses = any(getattr(tokenizer, f"response_{how}", None) for how in ("template", "schema"))
    return _Told(
        group_size=trainer.num_generations,
        group_size_eval=trainer.num_generations_eval,
        ends=frozenset(end for end in ends if end is not None),
        prefix=_generation_prefix(tokenizer, template),
        parses=parses,
        template=template,
    )


def _tokenizer(trainer: Any) -> Any:
    """The tokenizer, also where a processor of several modalities holds it."""
    return getattr(trainer.processing_class, "tokenizer", trainer.processing_class)


def _generation_prefix(tokenizer: Any, template: Mapping[str, Any]) -> str | None:
    """What the chat template opens for the model at the end of every prompt."""
    if getattr(tokenizer, "chat_template", None) is None:
        return None
    chat = [{"role": "user", "content": "?"}]
    text = tokenizer.apply_chat_template(
        chat, tokenize=False, add_generation_prompt=True, **template
    )
    return response_prefix_of(text)


def _live(trainer: Any, token_budget: int | None) -> Policy:
    """The model in training, as a policy. UsageError where its weights are sharded."""
    plugin = getattr(trainer.accelerator.state, "deepspeed_plugin", None)
    zero3 = plugin is not None and plugin.zero_stage == 3
    if zero3 or trainer.is_fsdp_enabled:
        kind = "ZeRO-3" if zero3 else "FSDP"
        raise UsageError(
            f"{kind} shards the weights, so that every rank would have to score equally often: "
            'ask a server that has them, with model="http://host:8000", backend="vllm"'
        )
    from rag_rewards.backends.transformers import TransformersPolicy

    limit: dict[str, Any] = {} if token_budget is None else {"token_budget": token_budget}
    name = str(getattr(trainer.model.config, "_name_or_path", "")).rstrip("/").rpartition("/")[2]
    return TransformersPolicy(trainer.model, _tokenizer(trainer), name=name or "policy", **limit)


def _check_groups(trainer: Any, expected: int | None) -> None:
    args, size = trainer.args, trainer.num_generations
    if expected not in (None, size):
        raise UsageError(f"group_size={expected}, but the trainer has num_generations={size}")
    local = args.train_batch_size * args.steps_per_generation
    if trainer.accelerator.num_processes > 1 and local % size:
        raise UsageError(
            f"a rank has {local} completions (per_device_train_batch_size × steps_per_generation), "
            f"no multiple of num_generations={size}: groups would straddle ranks. Set "
            f"per_device_train_batch_size or steps_per_generation to a multiple of {size}"
        )
    if trainer.eval_dataset is not None and args.eval_batch_size % trainer.num_generations_eval:
        raise UsageError(
            f"per_device_eval_batch_size={args.per_device_eval_batch_size} is no multiple of "
            f"num_generations_eval={trainer.num_generations_eval}: groups would be split. Set "
            "one to fit the other"
        )


def _check_scaling(args: Any) -> None:
    if args.scale_rewards != "none":
        raise UsageError(
            f"std_floor normalises, and scale_rewards={args.scale_rewards!r} would again: set "
            'scale_rewards="none"'
        )
    if args.multi_objective_aggregation != "sum_then_normalize":
        raise UsageError('std_floor goes with multi_objective_aggregation="sum_then_normalize"')


def _rows(trainer: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The first rows of every data set that has a length, with what to call them."""
    evaluated = trainer.eval_dataset
    sets = {"train_dataset": trainer.train_dataset}
    if isinstance(evaluated, Mapping):
        sets |= {f"eval_dataset[{name!r}]": rows for name, rows in evaluated.items()}
    else:
        sets["eval_dataset"] = evaluated
    for name, rows in sets.items():
        if hasattr(rows, "__len__"):
            for i, row in enumerate(islice(rows, SCANNED)):
                yield f"{i} of {name}", row


# --- what a recipe needs -----------------------------------------------------------------------


def _probes() -> list[Rollout]:
    """A question with well-formed responses: what a recipe asks about them, it asks."""
    known: dict[str, Any] = {
        "question": "?",
        "documents": [{"text": "x"}],
        "supporting": [1],
        "answers": ["x"],
        "answerable": True,
    }
    rollouts = [rollout_from_columns(known, response=shape) for shape in _SHAPES]
    return [rollout for rollout in rollouts if isinstance(rollout, Rollout)]


def _placed(error: RolloutError, where: str) -> RolloutError:
    error.row = where if error.row is None else f"{error.row} ({where})"
    return error


def _fault(recipe: Recipe, rollout: Rollout) -> RolloutError | None:
    """Why an empty response could not be scored; it has the empty likelihood."""
    try:
        needs = recipe.needs(rollout)
    except RolloutError as error:
        return error.with_traceback(None)
    without = {label: () for n in needs if isinstance(n, LogProbsNeed) for label in n.without}
    if without:
        rollout = rollout.with_evidence(Evidence(logprobs=LogProbs(full=(), without={**without})))
    if not all(need.is_met(rollout) for need in needs):
        return None
    result = recipe.score_each([rollout], [[0]])[0]
    return result if isinstance(result, RolloutError) else None


# --- prompts and completions -------------------------------------------------------------------


def _before_the_last(prompt: Any, completion: Any) -> tuple[Any, Any]:
    """With tool turns: all that was said before the last answer, and that answer."""
    if isinstance(completion, str) or isinstance(prompt, str) or len(completion) < 2:
        return prompt, completion
    own = [i for i, message in enumerate(completion) if message["role"] == "assistant"]
    if not own:
        return prompt, completion
    return [*prompt, *completion[: own[-1]]], [completion[own[-1]]]


def _text(response: Any) -> str:
    return response if isinstance(response, str) else "".join(m.text for m in response)

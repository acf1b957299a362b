"""What the adapter reads from a GRPOTrainer: its settings, its data sets and its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.evidence.protocols import Policy
from rag_rewards.rows.columns import response_prefix_of

CHECKED_ROWS = 2_000
"""The number of rows of each data set that `bind` checks."""


@dataclass(frozen=True)
class TrainerSettings:
    """The settings of a trainer that a reward needs, as plain values that can be pickled.

    end_tokens        ids of the tokens that end a response
    response_prefix   the tag that the chat template opens at the end of each prompt
    parses_thoughts   whether the tokenizer separates thoughts from the text of a message
    template          arguments of the chat template
    max_turns         greatest number of messages of the model in the tool loop, None without tools
    """

    group_size: int
    eval_group_size: int
    end_tokens: frozenset[int]
    response_prefix: str | None
    parses_thoughts: bool
    template: Mapping[str, Any]
    max_turns: int | None

    @classmethod
    def of(cls, trainer: Any) -> TrainerSettings:
        """Return the settings of a trainer."""
        tokenizer = tokenizer_of(trainer)
        ends = {*trainer.eos_token_ids, tokenizer.pad_token_id}
        template = dict(trainer.chat_template_kwargs)
        if trainer.chat_template is not None:
            template["chat_template"] = trainer.chat_template
        if trainer.tools:
            template["tools"] = trainer.tools
        parsers = (getattr(tokenizer, f"response_{kind}", None) for kind in ("template", "schema"))
        return cls(
            group_size=trainer.num_generations,
            eval_group_size=trainer.num_generations_eval,
            end_tokens=frozenset(end for end in ends if end is not None),
            response_prefix=_template_prefix(tokenizer, template),
            parses_thoughts=any(parsers),
            template=template,
            max_turns=trainer.max_tool_calling_iterations + 1 if trainer.tools else None,
        )


def tokenizer_of(trainer: Any) -> Any:
    """Return the tokenizer, which a processor of several modalities contains."""
    return getattr(trainer.processing_class, "tokenizer", trainer.processing_class)


def _template_prefix(tokenizer: Any, template: Mapping[str, Any]) -> str | None:
    """Return the tag that the chat template opens for the model at the end of every prompt."""
    if getattr(tokenizer, "chat_template", None) is None:
        return None
    chat = [{"role": "user", "content": "?"}]
    text = tokenizer.apply_chat_template(
        chat, tokenize=False, add_generation_prompt=True, **template
    )
    return response_prefix_of(text)


def training_policy(trainer: Any, **options: Any) -> Policy:
    """Return the model in training as a policy with these options, where None is the default.

    Raises UsageError if its weights are sharded.
    """
    plugin = getattr(trainer.accelerator.state, "deepspeed_plugin", None)
    is_zero3 = plugin is not None and plugin.zero_stage == 3
    if is_zero3 or trainer.is_fsdp_enabled:
        kind = "ZeRO-3" if is_zero3 else "FSDP"
        raise UsageError(
            f"{kind} shards the weights, so every rank would have to score equally often: use a "
            'server with the weights, with model="http://host:8000", backend="vllm"'
        )
    from rag_rewards.models.transformers import TransformersPolicy

    arguments = {option: value for option, value in options.items() if value is not None}
    name = str(getattr(trainer.model.config, "_name_or_path", "")).rstrip("/").rpartition("/")[2]
    tokenizer = tokenizer_of(trainer)
    return TransformersPolicy(
        trainer.model, tokenizer, name=name or "policy", is_live=True, **arguments
    )


def log_evaluation(trainer: Any, name: str, values: Sequence[float | None]) -> None:
    """Add the values of all ranks to a metric of an evaluation, which TRL averages.

    `log_metric` averages the values of each batch first. The mean of these means is not the mean
    over the completions if batches have different numbers of values.
    """
    from accelerate import utils

    present = [value for value in values if value is not None]
    trainer._metrics["eval"][name].extend(utils.gather_object(present))


def first_rows(trainer: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the first rows of every data set that has a length, each with its name for errors."""
    evaluation = trainer.eval_dataset
    datasets = {"train_dataset": trainer.train_dataset}
    if isinstance(evaluation, Mapping):
        datasets |= {f"eval_dataset[{name!r}]": rows for name, rows in evaluation.items()}
    else:
        datasets["eval_dataset"] = evaluation
    for name, rows in datasets.items():
        if hasattr(rows, "__len__"):
            for i, row in enumerate(islice(rows, CHECKED_ROWS)):
                yield f"{i} of {name}", row


# --- checks of the settings --------------------------------------------------------------------


def check_groups(trainer: Any, group_size: int | None) -> None:
    """Raise UsageError if the trainer would divide a group. `group_size` is that of the reward."""
    args, size = trainer.args, trainer.num_generations
    if group_size not in (None, size):
        raise UsageError(f"group_size={group_size}, but the trainer has num_generations={size}")
    check_ranks(trainer)
    if trainer.eval_dataset is not None and args.eval_batch_size % trainer.num_generations_eval:
        raise UsageError(
            f"per_device_eval_batch_size={args.per_device_eval_batch_size} is not a multiple of "
            f"num_generations_eval={trainer.num_generations_eval}, so groups would be divided: "
            "change one of them"
        )


def check_ranks(trainer: Any) -> None:
    """Raise UsageError if a group would be on two ranks."""
    args, size = trainer.args, trainer.num_generations
    per_rank = args.train_batch_size * args.steps_per_generation
    if trainer.accelerator.num_processes > 1 and per_rank % size:
        raise UsageError(
            f"a rank has {per_rank} completions (per_device_train_batch_size × "
            f"steps_per_generation), which is not a multiple of num_generations={size}, so a group "
            "would be on two ranks: set per_device_train_batch_size or steps_per_generation to a "
            f"multiple of {size}"
        )


def check_scaling(args: Any, normalization: str = "std_floor") -> None:
    """Raise UsageError if the trainer would normalize the advantage of the reward again."""
    if args.scale_rewards != "none":
        raise UsageError(
            f"{normalization} and scale_rewards={args.scale_rewards!r} would normalize twice: set "
            'scale_rewards="none"'
        )
    if args.multi_objective_aggregation != "sum_then_normalize":
        raise UsageError(
            f"{normalization} and multi_objective_aggregation="
            f"{args.multi_objective_aggregation!r} would normalize twice: set "
            'multi_objective_aggregation="sum_then_normalize"'
        )

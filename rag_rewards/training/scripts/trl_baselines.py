"""Training scripts of TRL for supervised fine-tuning (SFT) and for DPO: one Python file each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from rag_rewards.errors import UsageError
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.training.scripts.start import Start
from rag_rewards.training.scripts.trl import ON_CPU, check_of, own_folder
from rag_rewards.training.scripts.writer import (
    YOUR_SETUP,
    Line,
    ScriptWriter,
    assignment,
    indented,
    python_value,
)
from rag_rewards.training.settings import FineTuning

_ONE_ROW = "one row at a time; on several devices divide the next value by their number"
_TEMPLATE = '''"""{title} with TRL, for the baselines of the recipe {name}: python train.py

The rows are those of `rag-rewards select --make {make}`.
Options of {config} on the command line take precedence, for example --max_steps 10.
"""

from pathlib import Path

import torch
from datasets import load_dataset
{peft_import}from transformers import HfArgumentParser
from trl import {config}, {trainer}

settings = dict(
{settings}
)


def load(path):
    return load_dataset("json", data_files=path, split="train")


if __name__ == "__main__":
    parser = HfArgumentParser({config})
    parser.set_defaults(**settings)
    trainer = {trainer}(
        {policy},
        args=parser.parse_args_into_dataclasses()[0],
        train_dataset=load({data}),
{validation}{peft}    )
    trainer.train()
    trainer.save_model()
'''


class _Method(NamedTuple):
    """A method, its classes in TRL, and the training sets that it reads."""

    name: str
    title: str
    config: str
    trainer: str
    make: str


_SFT = _Method(
    "sft", "Supervised fine-tuning", "SFTConfig", "SFTTrainer", "sft|rft|r-tuning|trust-sft"
)
_DPO = _Method("dpo", "Direct preference optimization", "DPOConfig", "DPOTrainer", "dpo|trust-dpo")


def write(method: _Method, start: Start) -> dict[str, str]:
    """Return the script. Raise UsageError for options of the reward, which it does not use."""
    if start.models != ModelOptions():
        raise UsageError(f"{method.name} has no reward: omit the options of models")
    validation, rank = start.validation, _settings(method, start).lora_rank
    return {
        "train.py": _TEMPLATE.format(
            **method._asdict() | {"name": start.name},
            settings=indented(_lines(method, start), lambda words: f"{words[0]},"),
            policy=python_value(start.policy),
            data=python_value(start.data),
            validation=f"        eval_dataset=load({python_value(validation)}),\n"
            if validation
            else "",
            peft_import="from peft import LoraConfig\n" if rank.value else "",
            peft=f"        # {rank.source}\n        peft_config=LoraConfig(r={rank.value}),\n"
            if rank.value
            else "",
        )
    }


def _settings(method: _Method, start: Start) -> FineTuning:
    settings: FineTuning = getattr(start.training, method.name)
    return settings


def _lines(method: _Method, start: Start) -> Iterator[Line]:
    settings = _settings(method, start)
    warmup = settings.warmup
    yield YOUR_SETUP, (own_folder(f"{start.name}-{method.name}"),)
    if start.validation:
        yield YOUR_SETUP, ('eval_strategy="steps"',)
        yield YOUR_SETUP, ("eval_steps=20",)
    yield ON_CPU
    yield _ONE_ROW, ("per_device_train_batch_size=1",)
    yield assignment("gradient_accumulation_steps", settings.batch)
    yield assignment("learning_rate", settings.learning_rate)
    yield assignment("lr_scheduler_type", settings.schedule, python_value)
    yield f"{warmup.source}, as a fraction of the steps", (f"warmup_steps={warmup.value}",)
    yield assignment("num_train_epochs", settings.epochs)
    yield assignment("max_grad_norm", settings.max_grad_norm)
    yield _max_length(start, settings)
    if method is _DPO:
        yield assignment("beta", settings.beta)
    else:
        yield "the loss of the response without the prompt", ("completion_only_loss=True",)


def _max_length(start: Start, settings: FineTuning) -> Line:
    if settings.max_tokens.value is not None:
        return assignment("max_length", settings.max_tokens)
    training = start.training
    length = training.prompt_tokens.value + training.response_tokens.value
    return "prompt and response; TRL truncates longer rows", (f"max_length={length}",)


BASELINES: dict[str, ScriptWriter] = {
    method.name: ScriptWriter(partial(write, method), "trl", check_of(method.config))
    for method in (_SFT, _DPO)
}
"""The writer of each method, by the name that `rag-rewards init` takes."""

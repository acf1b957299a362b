"""Supervised and preference training in the tiny world, with TRL's trainers."""

import copy
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

OPTIONS: Mapping[str, Any] = {
    "lr_scheduler_type": "constant",
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": "none",
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
}


def fine_tune(
    model: Any, tokenizer: Any, rows: Sequence[Mapping[str, str]], seed: int, **options: Any
) -> Any:
    """Return the model after supervised training on rows with a prompt and a completion."""
    from trl import SFTConfig, SFTTrainer

    return _train(SFTTrainer, SFTConfig, model, tokenizer, rows, seed, options)


def prefer(
    model: Any, tokenizer: Any, rows: Sequence[Mapping[str, str]], seed: int, **options: Any
) -> Any:
    """Return the model after DPO on rows with a prompt, and a chosen and a rejected completion.

    The reference of the loss is the model before this training.
    """
    from trl import DPOConfig, DPOTrainer

    # By default, TRL loads the reference from the folder of the model, which is the base model.
    trainer = partial(DPOTrainer, ref_model=separate_copy(model))
    return _train(trainer, DPOConfig, model, tokenizer, rows, seed, options)


def separate_copy(model: Any) -> Any:
    """Return a model with the same weights, which a training of the first model does not change.

    A trainer replaces `forward` of its model, so that a deep copy would call the first model.
    """
    separate = type(model)(copy.deepcopy(model.config))
    separate.load_state_dict(model.state_dict())
    return separate


def _train(
    trainer_class: Any,
    config_class: Any,
    model: Any,
    tokenizer: Any,
    rows: Sequence[Mapping[str, str]],
    seed: int,
    options: Mapping[str, Any],
) -> Any:
    from datasets import Dataset
    from transformers import PrinterCallback

    folder = Path(tempfile.mkdtemp())
    try:
        arguments = config_class(str(folder), seed=seed, **{**OPTIONS, **options})
        data = Dataset.from_list([_with_spaces(row) for row in rows])
        trainer = trainer_class(
            model, args=arguments, train_dataset=data, processing_class=tokenizer
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    finally:
        shutil.rmtree(folder)
    return trainer.model


def _with_spaces(row: Mapping[str, str]) -> dict[str, str]:
    """Start each completion with a space, because the tokens of the tiny world are words."""
    return {name: text if name == "prompt" else f" {text}" for name, text in row.items()}

"""Training scripts of TRL: one Python file."""

from __future__ import annotations

from collections.abc import Iterator

from rag_rewards.training.scripts.start import SEARCH_TURNS, Start
from rag_rewards.training.scripts.writer import (
    FOR_REWARD,
    NO_SCALING,
    ONE_PROMPT,
    SEARCH_MODULE,
    SEARCH_TOOL,
    YOUR_SETUP,
    Line,
    ScriptWriter,
    assignment,
    indented,
    python_call,
    python_names,
    python_value,
    search_module,
)
from rag_rewards.training.settings import NOT_STATED, Stated, Training

_LOSS_TYPES = {"response": '"grpo"', "token": '"dapo"'}
"""The aggregations in TRL, as Python code. `dapo` is the default of TRL."""
_TRAINERS = {
    (False, False): "GRPOTrainer",
    (False, True): "TurnGRPOTrainer",
    (True, False): "K2Trainer",
    (True, True): "K2TurnTrainer",
}
"""The trainer by whether the penalty is k2, and whether turns have their own advantages."""
ON_CPU: Line = (f"{YOUR_SETUP}: a CPU trains in float32", ("bf16=torch.cuda.is_available()",))
_TEMPLATE = '''"""GRPO with TRL and the reward {name}: python train.py

Options of GRPOConfig on the command line take precedence, for example --max_steps 10.
"""

{json}from pathlib import Path

import torch
from datasets import load_dataset
{own}from transformers import HfArgumentParser
from trl import {trl_names}

{adapter_imports}

settings = dict(
{settings}
)
reward = {reward}


def load(path):
    return load_dataset("json", data_files=path, split="train")


{tool}if __name__ == "__main__":
    parser = HfArgumentParser(GRPOConfig)
    parser.set_defaults(**settings)
    trainer = {trainer}(
        {policy},
        reward_funcs={rewards},
        args=parser.parse_args_into_dataclasses()[0],
        train_dataset=load({data}),
{validation}{tools}    )
    reward.bind(trainer)
    trainer.train()
'''


def write(start: Start) -> dict[str, str]:
    """Return the script, and the file with the search engine if the policy searches."""
    start = start.for_dialect("TRL", ["tools"])
    validation = start.validation
    is_k2, has_credit = start.training.kl.value == "k2", start.credit is not None
    trainer = _TRAINERS[is_k2, has_credit]
    imports = ["from rag_rewards_adapters.trl import RagReward"]
    if is_k2:
        imports.append(f"from rag_rewards_adapters.trl_k2_trainer import {trainer}")
    elif has_credit:
        imports[0] += f", {trainer}"
    files = {SEARCH_MODULE: search_module(start)} if start.searches else {}
    return files | {
        "train.py": _TEMPLATE.format(
            name=start.name,
            json="import json\n" if start.searches else "",
            own="from search import search as find\n" if start.searches else "",
            tool=f"{SEARCH_TOOL}\n\n" if start.searches else "",
            tools="        tools=[search],\n" if start.searches else "",
            trl_names="GRPOConfig, GRPOTrainer" if trainer == "GRPOTrainer" else "GRPOConfig",
            adapter_imports="\n".join(imports),
            trainer=trainer,
            settings=indented(_lines(start), lambda words: f"{words[0]},"),
            reward=python_call("RagReward", start.advantage_options, first="recipe"),
            rewards=python_names("reward.components", start.components)
            if start.components
            else "reward",
            policy=python_value(start.policy),
            data=python_value(start.data),
            validation=f"        eval_dataset=load({python_value(validation)}),\n"
            if validation
            else "",
        )
    }


def _lines(start: Start) -> list[Line]:
    training = start.training
    group, warmup, floor = training.group, training.warmup, training.std_floor
    lines: list[Line] = [
        (YOUR_SETUP, (own_folder(start.name),)),
        *_validation(start),
        ON_CPU,
        assignment("num_generations", group),
        (ONE_PROMPT, (f"per_device_train_batch_size={group.value}",)),
        assignment("gradient_accumulation_steps", training.prompts),
        assignment("learning_rate", training.learning_rate),
        assignment("lr_scheduler_type", training.schedule, python_value),
        (f"{warmup.source}, as a fraction of the steps", (f"warmup_steps={warmup.value}",)),
        assignment("num_train_epochs", training.epochs),
        *_kl(training),
        assignment("num_iterations", training.iterations),
        assignment("epsilon", training.clip),
        assignment("loss_type", training.loss_aggregation, _LOSS_TYPES.__getitem__),
        *_entropy(training),
        assignment("temperature", training.temperature),
        assignment("top_p", training.top_p),
        assignment("max_completion_length", start.response_tokens),
    ]
    if start.searches:
        # the first turn precedes the first call
        lines.append((YOUR_SETUP, (f"max_tool_calling_iterations={SEARCH_TURNS - 1}",)))
    if floor.value is not None:
        lines.append((NO_SCALING.format(floor.source), ('scale_rewards="none"',)))
    elif start.credit is not None:
        source = f"{FOR_REWARD}: credit.method={start.credit.method} normalizes"
        lines.append((source, ('scale_rewards="none"',)))
    if start.components:
        comment = f"{FOR_REWARD}: normalizes each component by itself (GDPO)"
        lines.append((comment, ('multi_objective_aggregation="normalize_then_sum"',)))
        lines.append((comment, (f"reward_weights={[*start.components.values()]}",)))
    lines.append(
        (f"{FOR_REWARD}: keeps the columns with gold data", ("remove_unused_columns=False",))
    )
    return lines


def _validation(start: Start) -> Iterator[Line]:
    if start.validation:
        yield YOUR_SETUP, ('eval_strategy="steps"',)
        yield YOUR_SETUP, ("eval_steps=20",)
        yield ONE_PROMPT, (f"per_device_eval_batch_size={start.training.group.value}",)


def own_folder(name: str) -> str:
    """Return the setting that writes checkpoints to a folder next to the script."""
    return f"output_dir=str(Path(__file__).resolve().parent / {python_value(name)})"


def _kl(training: Training) -> Iterator[Line]:
    kl = training.kl
    if kl.value == "none":
        yield assignment("beta", Stated(0.0, kl.source))
        return
    yield assignment("beta", training.kl_weight)
    yield (
        f"the penalty {kl.value} ({kl.source}) without TRL's importance weights",
        ("use_bias_correction_kl=False",),
    )


def _entropy(training: Training) -> Iterator[Line]:
    if training.entropy_weight.source != NOT_STATED:
        yield assignment("entropy_coef", training.entropy_weight)


_CHECK = """
import dataclasses, json, re
from pathlib import Path
from trl import {config}
names = {{field.name for field in dataclasses.fields({config})}}
text = (Path(folder) / "train.py").read_text()
array = text[text.index("settings = dict(") : text.index("\\n)\\n")]
used = re.findall(r"^    (\\w+)=", array, re.M)
print(json.dumps({{"unknown": [name for name in used if name not in names]}}))
"""


def check_of(config: str) -> str:
    """Return the check of a script whose settings are those of a class of TRL."""
    return _CHECK.format(config=config)


WRITER = ScriptWriter(write, "trl", check_of("GRPOConfig"), has_components=True)

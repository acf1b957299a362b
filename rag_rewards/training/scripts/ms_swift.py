"""Training scripts of ms-swift: a shell script, and a plugin that registers the reward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rag_rewards.training.packages import installed_version, run_isolated
from rag_rewards.training.scripts.start import SEARCH_TURNS, Start
from rag_rewards.training.scripts.writer import (
    FOR_REWARD,
    NO_SCALING,
    ONE_PROMPT,
    READ_SHELL_SETTINGS,
    SEARCH_CHECK,
    SEARCH_MODULE,
    TAG_DIALECTS,
    YOUR_SETUP,
    Line,
    ScriptWriter,
    flag,
    python_call,
    python_value,
    search_module,
    shell_script,
    stated_flag,
)
from rag_rewards.training.settings import NOT_STATED

_LOSS_TYPES = {"response": "grpo", "token": "dapo"}
"""The aggregations in ms-swift."""
_SEARCHES = f"{FOR_REWARD}: several turns, for which ms-swift requires vLLM"
_TYPES = f"{YOUR_SETUP}: the prompt of this template is that of the chat template in the folder"
_NOTE = """
# ms-swift derives the type and the template of a model from the name of its folder, or from its
# architecture if only one type has it. If this command ends with "Failed to automatically match",
# add --model_type and --template with names from the message.
"""
_FIND_TYPES = """
import json
from transformers import AutoConfig, AutoTokenizer
from swift.model import MODEL_MAPPING, get_model_processor
from swift.model.model_meta import get_matched_model_types
from swift.template import get_template

chat = [{"role": "user", "content": "Which river runs through Paris?"}]
tokenizer = AutoTokenizer.from_pretrained(folder)


def processor(kind=None):
    return get_model_processor(
        folder, model_type=kind, load_model=False, download_model=False
    )[1]


def prompt(kind, name):
    template = get_template(processor(kind), template_type=name)
    template.set_mode("transformers")
    return tokenizer.decode(template.encode({"messages": chat})["input_ids"])


def find():
    try:
        get_template(processor())
        return {}
    except ValueError:
        pass
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    expected = tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"])
    for kind in get_matched_model_types(AutoConfig.from_pretrained(folder).architectures):
        meta = MODEL_MAPPING[kind]
        if meta.task_type not in (None, "causal_lm"):
            continue
        for name in meta.candidate_templates:
            # `dummy` uses the chat template for rollouts only, and not in the training step
            if name != "dummy" and prompt(kind, name) == expected:
                return {"--model_type": kind, "--template": name}
    return {}


print("\\n" + json.dumps(find()))
"""
"""Code for a process in which `folder` is defined: it prints the flags as a JSON object."""


def write(start: Start) -> dict[str, str]:
    """Return the script and the plugin, with the search engine if the policy searches.

    Raise UsageError if the sum of turns is no reward, and for a dialect without tags.
    """
    start.check_sum("ms-swift")
    start = start.for_dialect("ms-swift", TAG_DIALECTS)
    options = start.advantage_options
    if start.components:
        options = {**options, "components": list(start.components)}
    if "recipe" not in options:
        options = {"name": start.name, **options}
    names, calls = ["register"], [python_call("register", options, first="recipe")]
    if start.training.kl.value == "k2":
        names, calls = [*names, "use_k2_penalty"], [*calls, "use_k2_penalty()"]
    command, files = "swift rlhf --rlhf_type grpo", {}
    if start.searches:
        dialect = start.dialect if start.dialect in TAG_DIALECTS else TAG_DIALECTS[0]
        names = [*names, "register_search"]
        calls = [*calls, f'register_search("search:search", dialect={python_value(dialect)})']
        command, files = SEARCH_CHECK + command, {SEARCH_MODULE: search_module(start)}
    return files | {
        "train.sh": shell_script(start, "ms-swift", _lines(start), command, _note(start)),
        "plugin.py": f"from rag_rewards_adapters.ms_swift import {', '.join(names)}\n\n"
        + "".join(f"{call}\n" for call in calls),
    }


def _lines(start: Start) -> Iterator[Line]:
    training = start.training
    kl_weight, floor = training.kl_weight, training.std_floor
    yield flag(YOUR_SETUP, "--model", start.policy)
    for name, value in _types(start.policy).items():
        yield flag(_TYPES, name, value)
    yield flag(YOUR_SETUP, "--dataset", start.data)
    yield flag(YOUR_SETUP, "--output_dir", start.name)
    if start.validation:
        yield flag(YOUR_SETUP, "--val_dataset", start.validation)
    yield flag(FOR_REWARD, "--external_plugins", "plugin.py")
    yield flag(FOR_REWARD, "--reward_funcs", *_rewards(start))
    yield stated_flag("--num_generations", training.group)
    yield flag(ONE_PROMPT, "--per_device_train_batch_size", training.group.value)
    yield stated_flag("--gradient_accumulation_steps", training.prompts)
    yield stated_flag("--learning_rate", training.learning_rate)
    yield stated_flag("--lr_scheduler_type", training.schedule)
    yield stated_flag("--warmup_ratio", training.warmup)
    yield stated_flag("--num_train_epochs", training.epochs)
    yield stated_flag("--beta", kl_weight)
    yield stated_flag("--num_iterations", training.iterations)
    yield stated_flag("--epsilon", training.clip)
    aggregation = training.loss_aggregation
    yield flag(aggregation.source, "--loss_type", _LOSS_TYPES[aggregation.value])
    entropy = training.entropy_weight
    if entropy.source != NOT_STATED:
        comment = f"{entropy.source}. ms-swift has no entropy bonus and can log the entropy"
        yield flag(comment, "--log_entropy", "true")
    yield stated_flag("--temperature", training.temperature)
    yield stated_flag("--top_p", training.top_p)
    yield stated_flag("--max_length", training.prompt_tokens)
    yield stated_flag("--max_completion_length", training.response_tokens)
    if start.searches:
        yield flag(_SEARCHES, "--multi_turn_scheduler", "search")
        yield flag(_SEARCHES, "--use_vllm", "true")
        yield flag(_SEARCHES, "--vllm_mode", "colocate")
        length = training.prompt_tokens.value + start.response_tokens.value
        yield flag(YOUR_SETUP, "--max_turns", SEARCH_TURNS)
        yield flag(YOUR_SETUP, "--vllm_max_model_len", length)
    if floor.value is not None:
        yield flag(NO_SCALING.format(floor.source), "--scale_rewards", "none")
    if start.components:
        comment = f"{FOR_REWARD}: normalizes each component by itself (GDPO)"
        yield flag(comment, "--reward_weights", *start.components.values())
        yield flag(comment, "--scale_rewards", "gdpo")


def _is_folder(policy: str) -> bool:
    return (Path(policy) / "config.json").is_file()


def _note(start: Start) -> str:
    """Return a comment about a folder from whose name ms-swift may not derive the types."""
    return _NOTE if _is_folder(start.policy) and not _types(start.policy) else ""


@cache
def _types(policy: str) -> dict[str, str]:
    """Return the flags `--model_type` and `--template` for a folder that ms-swift does not know.

    The template is the one whose prompt is equal to that of the chat template in the folder. There
    are no flags if ms-swift is not installed, derives both by itself, or has no such template.
    """
    if not _is_folder(policy) or installed_version("ms-swift") is None:
        return {}
    types, _ = run_isolated(f"folder = {str(Path(policy).resolve())!r}\n{_FIND_TYPES}")
    return types or {}


def _rewards(start: Start) -> list[str]:
    """Return the names of the rewards: that of the recipe, or those of its components."""
    return [f"{start.name}/{name}" for name in start.components] or [start.name]


_CHECK = (
    READ_SHELL_SETTINGS
    + """
import dataclasses
from swift.arguments import RLHFArguments
names = {field.name for field in dataclasses.fields(RLHFArguments)}
used = [word[2:] for word in words if word.startswith("--")]
print("\\n" + json.dumps({"unknown": [name for name in used if name not in names]}))
"""
)

WRITER = ScriptWriter(write, "ms-swift", _CHECK, has_components=True)

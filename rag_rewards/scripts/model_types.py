"""The type and the template of a model for ms-swift, which may not know the folder of a policy."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rag_rewards.scripts.packages import installed_version, run_isolated

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


def has_configuration(policy: str) -> bool:
    """Return whether a policy is a folder with the configuration of a model."""
    return (Path(policy) / "config.json").is_file()


@cache
def model_types(policy: str) -> dict[str, str]:
    """Return the flags `--model_type` and `--template` for a folder that ms-swift does not know.

    The template is the one whose prompt is equal to that of the chat template in the folder. There
    are no flags if ms-swift is not installed, derives both by itself, or has no such template.
    """
    if not has_configuration(policy) or installed_version("ms-swift") is None:
        return {}
    types, _ = run_isolated(f"folder = {str(Path(policy).resolve())!r}\n{_FIND_TYPES}")
    return types or {}

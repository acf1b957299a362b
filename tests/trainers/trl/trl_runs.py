"""Short runs of GRPOTrainer with a tiny model, for the tests of this folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[2]
sys.path.append(str(TESTS / "models"))

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from tiny_models import make_model, make_tokenizer, naive  # noqa: E402, F401
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

DOCUMENTS = [
    {"title": "Paris", "text": "Paris lies on the Seine."},
    {"title": "Lyon", "text": "Lyon lies on the Rhône."},
    {"title": "Nile", "text": "The Nile is long."},
]
BLOCKS = "\n\n".join(
    f"[{i}] {document['title']}\n{document['text']}" for i, document in enumerate(DOCUMENTS, 1)
)
QUESTIONS = ("Which river runs through Paris?", "On what does Paris lie?")


def rows(count: int = 4, **more: Any) -> Dataset:
    """Return chats with documents and their gold fields. `more` contains further columns."""
    return Dataset.from_list(
        [
            {
                "prompt": [{"role": "user", "content": f"{BLOCKS}\n\n{QUESTIONS[i % 2]} ({i})"}],
                "documents": DOCUMENTS,
                "supporting": [1],
                "answers": ["Seine", "the Seine"],
                "rubrics": ["<E0> runs through Paris."],
                "answerable": True,
                "out_of_knowledge": False,
                **more,
            }
            for i in range(count)
        ]
    )


def config(folder: Any, **changes: Any) -> GRPOConfig:
    options: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "num_generations": 4,
        "max_completion_length": 12,
        "max_steps": 2,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "seed": 3,
        "disable_tqdm": True,
        "num_completions_to_print": 1,
    }
    return GRPOConfig(**(options | changes))


def trainer(folder: Any, rewards: Any, **options: Any) -> GRPOTrainer:
    """Return a trainer of a tiny model. `args` are changes of the configuration."""
    defaults: dict[str, Any] = {
        "model": options.pop("model", None) or make_model("qwen2"),
        "processing_class": options.pop("tokenizer", None) or make_tokenizer(),
        "train_dataset": options.pop("train_dataset", None) or rows(),
    }
    args = config(folder, **options.pop("args", {}))
    return GRPOTrainer(reward_funcs=rewards, args=args, **defaults, **options)


def says(*texts: str) -> Any:
    """Return a rollout function that generates these texts, one for each member of a group."""

    def rollout(prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        tokenizer = trainer.processing_class
        ids = [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in texts]
        return {
            "prompt_ids": trainer._tokenize_prompts(prompts)[0],
            "completion_ids": [ids[i % len(ids)] for i in range(len(prompts))],
            "logprobs": None,
        }

    return rollout


def reports_of_ranks(script: str, folder: Path) -> list[dict[str, Any]]:
    """Return the reports of two processes of data-parallel training over gloo."""
    from processes import WAIT_SECONDS  # the script of a rank cannot import it

    launch = "-m torch.distributed.run --standalone --nproc-per-node 2".split()
    ran = subprocess.run(
        [sys.executable, *launch, str(Path(__file__).with_name(script)), str(folder)],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return [json.loads((folder / f"rank{i}.json").read_text()) for i in range(2)]


# --- the tool loop of TRL ------------------------------------------------------------------------

CALL = '<tool_call>\n{"name": "look_up", "arguments": {"query": "Paris"}}\n</tool_call>'


def look_up(query: str) -> str:
    """
    Search the library.

    Args:
        query: what to look for

    Returns:
        What was found.
    """
    return f"About {query}: the Seine, <answer>Seine</answer>."


def qwen3_tokenizer() -> Any:
    """Return the tokenizer with a chat template that has tools."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = files("trl").joinpath("chat_templates/qwen3.jinja").read_text()
    return tokenizer


def reply(trainer: Any, turns: Sequence[Sequence[str]]) -> None:
    """Replace the model of a trainer by fixed texts, one list for each generation of a batch."""
    tokenizer, most, replies = trainer.processing_class, trainer.max_completion_length, iter(turns)

    def sampled(prompt_ids: Any, *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        texts = next(replies)
        assert len(texts) == len(prompt_ids)
        end = tokenizer.eos_token_id
        return [[*tokenizer.encode(text), end][:most] for text in texts], None

    trainer._generate_single_turn = sampled


def advantages(trainer: GRPOTrainer) -> list[float]:
    """Return the advantages of the last generation, which the loss gets."""
    return list(trainer._logs["advantages"])


def weights(model: Any) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])

"""GRPO with TRL and the reward search-r1 of the environment: python train.py

Start the environment first. Options of GRPOConfig on the command line take precedence, for example
--max_steps 10.
"""

from pathlib import Path

import torch
from datasets import load_dataset
from rag_rewards_adapters.openenv import ScoredSearchTools
from transformers import HfArgumentParser
from trl import GRPOConfig, GRPOTrainer

FOLDER = Path(__file__).resolve().parent
settings = dict(
    # your setup
    output_dir=str(FOLDER / "search-r1"),
    # your setup: a CPU trains in float32
    bf16=torch.cuda.is_available(),
    # Search-R1, authors' code at a14dc3a: train_grpo_format.sh
    num_generations=5,
    # the rollouts of one prompt at a time; on several devices divide the next value by their number
    per_device_train_batch_size=5,
    # Search-R1, authors' code at a14dc3a: train_grpo_format.sh
    gradient_accumulation_steps=512,
    learning_rate=5e-07,
    # not stated
    lr_scheduler_type="constant",
    # Search-R1, authors' code at a14dc3a: train_grpo_format.sh, as a fraction of the steps
    warmup_steps=0.285,
    # not stated
    num_train_epochs=1,
    # Search-R1, authors' code at a14dc3a: train_grpo_format.sh
    beta=0.001,
    # the penalty k3 (Search-R1, authors' code at a14dc3a: train_grpo_format.sh) without TRL's importance weights
    use_bias_correction_kl=False,
    # not stated
    num_iterations=1,
    epsilon=0.2,
    loss_type="grpo",
    # Search-R1, authors' code at a14dc3a: train_grpo_format.sh
    temperature=1.0,
    # not stated
    top_p=1.0,
    # Search-R1, authors' code at a14dc3a: train_grpo_format.sh: 500 tokens of a turn; here of all turns and results
    max_completion_length=4096,
    # for the reward: keeps the column with the index of a row
    remove_unused_columns=False,
)


class Search(ScoredSearchTools):
    url = "http://localhost:8000"


if __name__ == "__main__":
    parser = HfArgumentParser(GRPOConfig)
    parser.set_defaults(**settings)
    rows = load_dataset("json", data_files=str(FOLDER / "train.jsonl"), split="train")
    prompts = rows.select_columns("prompt").add_column("index", list(range(len(rows))))
    trainer = GRPOTrainer(
        "Qwen/Qwen2.5-3B-Instruct",
        args=parser.parse_args_into_dataclasses()[0],
        train_dataset=prompts,
        environment_factory=Search,
    )
    trainer.train()

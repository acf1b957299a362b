"""What a reward adds to a step of TRL's GRPOTrainer, against a reward that is always 0.

    build/trainers/trl/bin/python benchmarks/trainers/trl_steps.py

The same real training loop on the CPU, a model of random weights, the same prompts and seed; the
rewards take turns. Random weights write nothing that parses, so rules are given well-formed
responses in the place of the model's own, 8 to a prompt. `ctrl-rag` asks the model in training,
one context with and one without the supporting document.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from rag_rewards_adapters.trl import RagReward
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

RESULT = Path(__file__).resolve().parents[1] / "results" / "trainers-trl.md"
TARGET = 0.02
GROUP, PROMPTS, TOKENS = 8, 1, 64
SHAPE = {
    "hidden_size": 384,
    "intermediate_size": 1_024,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4_096,
}
WORDS = "river city old bridge north water stone market year road hill tower east long king".split()
RESPONSES = [
    "<relevance>[1]</relevance><analysis>"
    + " ".join(WORDS[(i * 7 + j) % len(WORDS)] for j in range(60 + i))
    + f" [1]</analysis><answer>{answer}</answer>"
    for i, answer in enumerate(["Seine", "the Seine", "Rhône", "Seine", "", "Nile", "Seine", "x"])
]


def make_tokenizer() -> Any:
    """A token per word of the benchmark, bytes for the rest."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|end|>"]
    pad, end = special
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1_000, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([" ".join(WORDS), *RESPONSES] * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=end, pad_token=pad)


def rows(count: int) -> Dataset:
    """Five documents of 50 words, one of them supporting, and a question."""

    def document(i: int) -> dict[str, str]:
        return {"title": f"No {i}", "text": " ".join(WORDS[(i + j * i) % 15] for j in range(50))}

    def row(i: int) -> dict[str, Any]:
        documents = [document(i * 5 + j + 1) for j in range(5)]
        shown = [f"[{at}] {d['title']}\n{d['text']}" for at, d in enumerate(documents, 1)]
        prompt = "\n\n".join(shown) + f"\n\nWhich river is it? ({i})\n"
        gold = {"supporting": [1], "answers": ["Seine"]}
        return {"prompt": prompt, "documents": documents, **gold}

    return Dataset.from_list([row(i) for i in range(count)])


class Timed:
    """A reward, the seconds of its calls, and those from one call to the next: a step's.

    Processor time of one thread: neighbours on the machine do not count.
    """

    def __init__(self, reward: Any, texts: bool) -> None:
        self.reward, self.texts = reward, texts
        self.started: list[float] = []
        self.seconds: list[float] = []
        self.__name__ = "timed"

    def __call__(self, **batch: Any) -> list[float | None]:
        if self.texts:
            batch["completions"] = [RESPONSES[i % GROUP] for i in range(len(batch["prompts"]))]
        self.started.append(time.process_time())
        values = self.reward(**batch)
        self.seconds.append(time.process_time() - self.started[-1])
        return values

    @property
    def steps(self) -> list[float]:
        return [end - start for start, end in pairwise(self.started)]


def always_zero(prompts: Any, **_: Any) -> list[float]:
    return [0.0] * len(prompts)


def train(recipe: str | None, steps: int) -> tuple[list[float], list[float]]:
    """Seconds of every step and of every reward, without the first: it warms up."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    special = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=32_000, **SHAPE, **special))
    reward = RagReward(recipe) if recipe else always_zero
    timed = Timed(reward, texts=recipe == "arena")
    with tempfile.TemporaryDirectory() as folder:
        args = trl.GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=GROUP * PROMPTS,
            num_generations=GROUP,
            max_completion_length=TOKENS,
            generation_kwargs={"min_new_tokens": TOKENS},
            max_steps=steps + 1,
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
        )
        data = rows(PROMPTS * (steps + 1))
        trainer = trl.GRPOTrainer(
            model, timed, args=args, train_dataset=data, processing_class=tokenizer
        )
        if isinstance(reward, RagReward):
            reward.bind(trainer)
        trainer.train()
    return timed.steps, timed.seconds[1:]


def table(measured: dict[str | None, tuple[list[float], list[float]]], beside: str) -> str:
    zero = statistics.median(measured[None][0])
    lines = [
        "# What a reward adds to a step of GRPOTrainer",
        "",
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch "
        f"{torch.__version__}, transformers {transformers.__version__}, trl {trl.__version__}. "
        f"{PROMPTS} prompt of 5 documents × {GROUP} completions of {TOKENS} tokens, a Qwen2 of 6 "
        f"layers × 384 (34 million parameters with its 32,000 tokens), float32. {beside}",
        "",
        "| reward | step | reward | share of the step | a completion |",
        "| --- | --- | --- | --- | --- |",
    ]
    for recipe, (steps, seconds) in measured.items():
        step, spent = statistics.median(steps), statistics.median(seconds)
        each = spent / (GROUP * PROMPTS)
        name = f"`{recipe}`" if recipe else "always 0"
        lines.append(
            f"| {name} | {step:.2f} s | {spent * 1e3:.2f} ms | {spent / zero:.2%} | "
            f"{each * 1e3:.3f} ms |"
        )
    met = statistics.median(measured["arena"][1]) / zero < TARGET
    lines += [
        "",
        "Medians of processor time on one thread. Shares are of the step with the reward that is "
        f"always 0. Target for rules: below {TARGET:.0%}: {'met' if met else 'missed'}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=4)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--beside", default="", help="what else the machine was doing")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    measured: dict[str | None, tuple[list[float], list[float]]] = {}
    for _ in range(given.rounds):
        for recipe in (None, "arena", "ctrl-rag"):
            steps, seconds = train(recipe, given.steps)
            known = measured.setdefault(recipe, ([], []))
            known[0].extend(steps)
            known[1].extend(seconds)
    text = table(measured, given.beside)
    RESULT.write_text(text)
    print(text)


if __name__ == "__main__":
    main()

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
GROUP, PROMPTS, TOKENS = 8, 2, 96
SHAPE = {
    "hidden_size": 512,
    "intermediate_size": 1_408,
    "num_hidden_layers": 8,
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


def tokenizer_and_vocabulary() -> tuple[Any, int]:
    """A token per word of the benchmark, bytes for the rest."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1_000, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([" ".join(WORDS), *RESPONSES] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|end|>", pad_token="<|pad|>"
    )
    return tokenizer, made.get_vocab_size()


def rows(count: int) -> Dataset:
    """Five documents of 100 words, one of them supporting, and a question."""

    def document(i: int) -> dict[str, str]:
        return {"title": f"No {i}", "text": " ".join(WORDS[(i + j * i) % 15] for j in range(100))}

    def row(i: int) -> dict[str, Any]:
        documents = [document(i * 5 + j + 1) for j in range(5)]
        shown = [f"[{at}] {d['title']}\n{d['text']}" for at, d in enumerate(documents, 1)]
        prompt = "\n\n".join(shown) + f"\n\nWhich river is it? ({i})\n"
        gold = {"supporting": [1], "answers": ["Seine"]}
        return {"prompt": prompt, "documents": documents, **gold}

    return Dataset.from_list([row(i) for i in range(count)])


class Timed:
    """A reward and the seconds of its calls."""

    def __init__(self, reward: Any, texts: bool) -> None:
        self.reward, self.texts = reward, texts
        self.seconds: list[float] = []
        self.__name__ = "timed"

    def __call__(self, **batch: Any) -> list[float | None]:
        if self.texts:
            batch["completions"] = [RESPONSES[i % GROUP] for i in range(len(batch["prompts"]))]
        started = time.perf_counter()
        values = self.reward(**batch)
        self.seconds.append(time.perf_counter() - started)
        return values


def always_zero(prompts: Any, **_: Any) -> list[float]:
    return [0.0] * len(prompts)


def train(recipe: str | None, steps: int) -> tuple[list[float], list[float]]:
    """Seconds of every step and of every reward, without the first: it warms up."""
    torch.manual_seed(0)
    tokenizer, vocabulary = tokenizer_and_vocabulary()
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
            generation_kwargs={
                "min_new_tokens": TOKENS,
                "suppress_tokens": list(range(vocabulary, 32_000)),
            },
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
    taken = [logged["step_time"] for logged in trainer.state.log_history if "step_time" in logged]
    return taken[1:], timed.seconds[1:]


def table(measured: dict[str | None, tuple[list[float], list[float]]], beside: str) -> str:
    zero = statistics.median(measured[None][0])
    lines = [
        "# What a reward adds to a step of GRPOTrainer",
        "",
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch "
        f"{torch.__version__}, transformers {transformers.__version__}, trl {trl.__version__}. "
        f"{PROMPTS} prompts of 5 documents × {GROUP} completions of {TOKENS} tokens, a Qwen2 of 8 "
        f"layers × 512 (38 million parameters with its 32,000 tokens), float32. {beside}",
        "",
        "| reward | step, median | reward, median | share of the step | a completion |",
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
        f"Shares are of the median step with the reward that is always 0. Target for rules: below "
        f"{TARGET:.0%}: {'met' if met else 'missed'}.",
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

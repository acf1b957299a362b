"""Measure the time that a reward adds to a training step of TRL, against a reward that is always 0.

    build/trainers/trl/bin/python benchmarks/trainers/trl_steps.py
    build/trainers/trl/bin/python benchmarks/trainers/trl_steps.py --work likelihoods

Both use the real training loop on the CPU, a model with random weights, and the same prompts and
seed, in alternating runs. Random weights generate no well-formed response, so `arena` gets 8
well-formed responses per prompt instead. `ctrl-rag` uses the model in training, with one context
that contains the supporting document and one that does not. The work `likelihoods` has a larger
model, long prompts with two supporting documents, and `ctrl-rag-clr`, whose time is all log-
probabilities.
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
import warnings
from dataclasses import dataclass
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

RESULTS = Path(__file__).resolve().parents[1] / "results"
TARGET = 0.02
GROUP, PROMPTS = 8, 1


@dataclass(frozen=True)
class Work:
    """A model, prompts, and the rewards to measure.

    model       text that describes the model
    shape       sizes of the model
    vocabulary  number of tokens of the model
    documents   number of documents of a prompt
    words       number of words of a document
    supporting  numbers of the supporting documents
    tokens      number of tokens of a completion
    recipes     recipes of the rewards
    page        name of the file with the results
    """

    model: str
    shape: dict[str, int]
    vocabulary: int
    documents: int
    words: int
    supporting: tuple[int, ...]
    tokens: int
    recipes: tuple[str, ...]
    page: str


WORKS = {
    "rules": Work(
        model="6 layers × 384 (34 million parameters with its 32,000 tokens)",
        shape={
            "hidden_size": 384,
            "intermediate_size": 1_024,
            "num_hidden_layers": 6,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
        },
        vocabulary=32_000,
        documents=5,
        words=50,
        supporting=(1,),
        tokens=64,
        recipes=("arena", "ctrl-rag"),
        page="trainers-trl.md",
    ),
    # The shape of the reference work of benchmarks/likelihood.py.
    "likelihoods": Work(
        model="8 layers × 512 (101 million parameters with its 151,936 tokens, tied)",
        shape={
            "hidden_size": 512,
            "intermediate_size": 1_408,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
        },
        vocabulary=151_936,
        documents=10,
        words=80,
        supporting=(4, 7),
        tokens=96,
        recipes=("ctrl-rag-clr",),
        page="trainers-trl-likelihoods.md",
    ),
}
WORDS = "river city old bridge north water stone market year road hill tower east long king".split()
RESPONSES = [
    "<relevance>[1]</relevance><analysis>"
    + " ".join(WORDS[(i * 7 + j) % len(WORDS)] for j in range(60 + i))
    + f" [1]</analysis><answer>{answer}</answer>"
    for i, answer in enumerate(["Seine", "the Seine", "Rhône", "Seine", "", "Nile", "Seine", "x"])
]


def make_tokenizer() -> Any:
    """Return a tokenizer with one token for each word of the benchmark, and bytes otherwise."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|end|>"]
    pad, end = special
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1_000, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([" ".join(WORDS), *RESPONSES] * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, pad_token=pad)


def rows(count: int, work: Work) -> Dataset:
    """Return rows with a question and documents, some of them supporting."""

    def document(i: int) -> dict[str, str]:
        return {
            "title": f"No {i}",
            "text": " ".join(WORDS[(i + j * i) % 15] for j in range(work.words)),
        }

    def row(i: int) -> dict[str, Any]:
        documents = [document(i * work.documents + j + 1) for j in range(work.documents)]
        blocks = [f"[{i}] {d['title']}\n{d['text']}" for i, d in enumerate(documents, 1)]
        prompt = "\n\n".join(blocks) + f"\n\nWhich river is it? ({i})\n"
        gold = {"supporting": list(work.supporting), "answers": ["Seine"]}
        return {"prompt": prompt, "documents": documents, **gold}

    return Dataset.from_list([row(i) for i in range(count)])


class TimedReward:
    """A reward that records the seconds of its calls, and those between two calls (a step).

    It measures the processor time of one thread, which other processes do not affect.
    """

    def __init__(self, reward: Any, fixed_responses: bool) -> None:
        self.reward, self.fixed_responses = reward, fixed_responses
        self.started: list[float] = []
        self.seconds: list[float] = []
        self.__name__ = "timed"

    def __call__(self, **batch: Any) -> list[float | None]:
        if self.fixed_responses:
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


def train(recipe: str | None, steps: int, work: Work) -> tuple[list[float], list[float]]:
    """Return the seconds of each step and of each reward, without the first step (warm-up)."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    special = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1}
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=work.vocabulary,
            max_position_embeddings=4_096,
            tie_word_embeddings=work.vocabulary > 100_000,
            **work.shape,
            **special,
        )
    )
    reward = RagReward(recipe) if recipe else always_zero
    timed = TimedReward(reward, fixed_responses=recipe == "arena")
    with tempfile.TemporaryDirectory() as folder:
        args = trl.GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=GROUP * PROMPTS,
            num_generations=GROUP,
            max_completion_length=work.tokens,
            generation_kwargs={"min_new_tokens": work.tokens},
            max_steps=steps + 1,
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
        )
        data = rows(PROMPTS * (steps + 1), work)
        trainer = trl.GRPOTrainer(
            model, timed, args=args, train_dataset=data, processing_class=tokenizer
        )
        if isinstance(reward, RagReward):
            reward.bind(trainer)
        trainer.train()
    return timed.steps, timed.seconds[1:]


def table(times: dict[str | None, tuple[list[float], list[float]]], work: Work, load: str) -> str:
    zero = statistics.median(times[None][0])
    length = len(make_tokenizer()(rows(1, work)[0]["prompt"])["input_ids"])
    lines = [
        "# Time of a reward in a step of GRPOTrainer",
        "",
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch "
        f"{torch.__version__}, transformers {transformers.__version__}, trl {trl.__version__}. "
        f"{PROMPTS} prompt of {work.documents} documents ({length:,} tokens, "
        f"{len(work.supporting)} supporting) × {GROUP} completions of {work.tokens} tokens, "
        f"a Qwen2 of {work.model}, float32. {load}",
        "",
        "| reward | step | reward | share of the step | per completion |",
        "| --- | --- | --- | --- | --- |",
    ]
    for recipe, (steps, seconds) in times.items():
        step, total = statistics.median(steps), statistics.median(seconds)
        per_completion = total / (GROUP * PROMPTS)
        name = f"`{recipe}`" if recipe else "always 0"
        lines.append(
            f"| {name} | {step:.2f} s | {total * 1e3:,.2f} ms | {total / zero:.2%} | "
            f"{per_completion * 1e3:.3f} ms |"
        )
    lines += [
        "",
        "The values are medians of the processor time of one thread. A share is relative to the "
        "step with the reward that is always 0.",
    ]
    if "arena" in times:
        is_met = statistics.median(times["arena"][1]) / zero < TARGET
        met = "met" if is_met else "missed"
        lines[-1] += f" Target for rules: below {TARGET:.0%} ({met})."
    return "\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--work", choices=WORKS, default="rules")
    options.add_argument("--steps", type=int, default=4)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--load", default="", help="Describe the other load of the machine.")
    arguments = options.parse_args()
    warnings.simplefilter("ignore")
    work = WORKS[arguments.work]
    times: dict[str | None, tuple[list[float], list[float]]] = {}
    for _ in range(arguments.rounds):
        for recipe in (None, *work.recipes):
            steps, seconds = train(recipe, arguments.steps, work)
            columns = times.setdefault(recipe, ([], []))
            columns[0].extend(steps)
            columns[1].extend(seconds)
    text = table(times, work, arguments.load)
    (RESULTS / work.page).write_text(text)
    print(text)


if __name__ == "__main__":
    main()

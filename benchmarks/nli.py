"""How fast entailment is asked: pairs per second, and how much of the work is padding.

    python benchmarks/nli.py                 # a minute or two on one core
    python benchmarks/nli.py --device cuda

A cross-encoder of MiniLM's shape with random weights, on pairs of mixed lengths that all fit into
what it reads. Compared are one pair at a time, batches of 32 in the order given, and the backend;
the run ends with an error where their values differ.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tokenizers
import torch
import transformers

from rag_rewards.backends.nli import EntailmentUsage, load_entailment

WORDS = [f"w{i}" for i in range(5_000)]
Pairs = list[tuple[str, str]]


def save_model(folder: str) -> None:
    """MiniLM's shape: 6 layers, 384 wide, 12 heads."""
    own = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    ids = {token: i for i, token in enumerate([*own, *WORDS])}
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token=own[1]))
    core.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    core.post_processor = tokenizers.processors.TemplateProcessing(
        pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), own, strict=True))
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, model_input_names=inputs, **names
    ).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(ids),
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        id2label={0: "contradiction", 1: "entailment", 2: "neutral"},
        label2id={"contradiction": 0, "entailment": 1, "neutral": 2},
    )
    torch.manual_seed(0)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)


def mixed_pairs(count: int) -> Pairs:
    """Statements of 5 to 40 words, premises of 20 to 460: from one short passage to several."""
    random.seed(0)

    def words(n: int) -> str:
        return " ".join(random.choices(WORDS, k=n))

    return [
        (words(int(20 * 23 ** random.random())), words(random.randint(5, 40))) for _ in range(count)
    ]


def fixed_batches(
    folder: str, device: str, size: int
) -> Callable[[Pairs], tuple[list[float], float]]:
    """Batches of a fixed size in the order given: (values, share of padding)."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    model = model.to(device).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def ask(pairs: Pairs) -> tuple[list[float], float]:
        values: list[float] = []
        tokens = padded = 0
        for start in range(0, len(pairs), size):
            premises, hypotheses = zip(*pairs[start : start + size], strict=True)
            inputs = tokenizer(
                list(premises), list(hypotheses), padding=True, return_tensors="pt"
            ).to(device)
            with torch.inference_mode():
                values += model(**inputs).logits.softmax(-1)[:, 1].tolist()
            tokens += int(inputs["attention_mask"].sum())
            padded += inputs["attention_mask"].numel()
        return values, 1 - tokens / padded

    return ask


def backend(
    folder: str, device: str, budget: int | None
) -> Callable[[Pairs], tuple[list[float], float]]:
    model = load_entailment(Path(folder), device=device, token_budget=budget)

    def ask(pairs: Pairs) -> tuple[list[float], float]:
        model.usage = EntailmentUsage()
        values = model.entail_sync(pairs)
        return values, 1 - model.usage.tokens / model.usage.padded

    return ask


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budgets", type=int, nargs="*", default=[], help="other token budgets")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    pairs = mixed_pairs(asked.pairs)
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder)
        ways = {
            "one pair at a time": fixed_batches(folder, asked.device, 1),
            "batches of 32, as they come": fixed_batches(folder, asked.device, 32),
            "`load_entailment`": backend(folder, asked.device, None),
        }
        for budget in asked.budgets:
            ways[f"`token_budget={budget}`"] = backend(folder, asked.device, budget)
        rows, expected = [], None
        for name, ask in ways.items():
            ask(pairs[:8])
            began = time.perf_counter()
            values, padding = ask(pairs)
            rows.append((name, len(pairs) / (time.perf_counter() - began), padding))
            expected = expected or values
            worst = max(abs(a - b) for a, b in zip(values, expected, strict=True))
            if worst > 1e-5:
                raise SystemExit(f"{name}: values differ by {worst:.2g}")
    print(f"{len(pairs)} pairs on {asked.device}, {asked.threads} thread(s)\n")
    print("| | pairs/s | against one at a time | against batches of 32 | padding |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, rate, padding in rows:
        ratios = f"{rate / rows[0][1]:.2f} | {rate / rows[1][1]:.2f}"
        print(f"| {name} | {rate:.1f} | {ratios} | {padding:.0%} |")


if __name__ == "__main__":
    main()

"""Measure the pairs per second of an entailment model, and the share of padding.

    python benchmarks/nli.py                 # a minute or two on one core
    python benchmarks/nli.py --device cuda

The model is a cross-encoder of MiniLM's shape with random weights. The pairs have mixed lengths and
are not truncated. The benchmark compares one pair at a time, batches of 32 in the original order,
and the backend. It ends with an error if their values differ.
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

from rag_rewards.models.nli import EntailmentUsage, load_entailment

WORDS = [f"w{i}" for i in range(5_000)]
Pairs = list[tuple[str, str]]


def save_model(folder: str) -> None:
    """Save a model of MiniLM's shape: 6 layers, width 384, 12 heads."""
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
    """Return pairs with hypotheses of 5 to 40 words and premises of 20 to 460 words."""
    random.seed(0)

    def words(n: int) -> str:
        return " ".join(random.choices(WORDS, k=n))

    return [
        (words(int(20 * 23 ** random.random())), words(random.randint(5, 40))) for _ in range(count)
    ]


def fixed_batches(
    folder: str, device: str, size: int
) -> Callable[[Pairs], tuple[list[float], float]]:
    """Return a function from pairs to values and the share of padding, with a fixed batch size."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    model = model.to(device).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def score(pairs: Pairs) -> tuple[list[float], float]:
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

    return score


def backend(
    folder: str, device: str, budget: int | None
) -> Callable[[Pairs], tuple[list[float], float]]:
    model = load_entailment(Path(folder), device=device, token_budget=budget)

    def score(pairs: Pairs) -> tuple[list[float], float]:
        model.usage = EntailmentUsage()
        values = model.entail_sync(pairs)
        return values, 1 - model.usage.tokens / model.usage.padded

    return score


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budgets", type=int, nargs="*", default=[], help="other token budgets")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pairs = mixed_pairs(options.pairs)
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder)
        methods = {
            "one pair at a time": fixed_batches(folder, options.device, 1),
            "batches of 32, original order": fixed_batches(folder, options.device, 32),
            "`load_entailment`": backend(folder, options.device, None),
        }
        for budget in options.budgets:
            methods[f"`token_budget={budget}`"] = backend(folder, options.device, budget)
        rows, expected = [], None
        for name, score in methods.items():
            score(pairs[:8])
            started = time.perf_counter()
            values, padding = score(pairs)
            rows.append((name, len(pairs) / (time.perf_counter() - started), padding))
            expected = expected or values
            worst = max(abs(a - b) for a, b in zip(values, expected, strict=True))
            if worst > 1e-5:
                raise SystemExit(f"{name}: values differ by {worst:.2g}")
    print(f"{len(pairs)} pairs on {options.device}, {options.threads} thread(s)\n")
    print("| | pairs/s | against one at a time | against batches of 32 | padding |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, rate, padding in rows:
        ratios = f"{rate / rows[0][1]:.2f} | {rate / rows[1][1]:.2f}"
        print(f"| {name} | {rate:.1f} | {ratios} | {padding:.0%} |")


if __name__ == "__main__":
    main()

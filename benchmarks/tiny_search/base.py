"""The policy of the tiny search world before its training: supervised on a noisy demonstrator.

    PYTHONPATH=benchmarks python -m tiny_search.base --seed 1 -o build/tiny-world/search-noisy-1

The committed checkpoint of the tiny world gets four more words and learns to search from rollouts
of a demonstrator, first of one without errors and then of one that rarely makes both hops.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tiny_search.demonstrator import (
    GUESSING,
    NOISY,
    RIGHT,
    Habits,
    demonstrate,
)
from tiny_search.episode import draw_episode
from tiny_search.rollouts import (
    END_OF_QUERY,
    END_OF_RESULTS,
    QUERY,
    RESULTS,
    Trajectory,
    prompt_of,
)

from rag_rewards.errors import UsageError
from rag_rewards.tiny_world.model import CHECKPOINT, WEIGHT_STD, load, new_tokenizer

NEW_WORDS = (QUERY, END_OF_QUERY, RESULTS, END_OF_RESULTS)
BATCH = 64
LEARNING_RATE = 1.5e-3
RIGHT_STEPS = 160
NOISY_STEPS = 120
KINDS = {"noisy": NOISY, "guessing": GUESSING}
"""Kinds of policies: the habits of the demonstrator in the second lesson."""


def new_search_tokenizer(tokenizer: Any = None) -> Any:
    """Return the tokenizer of the tiny world with four more words."""
    from tokenizers import AddedToken

    tokenizer = tokenizer or new_tokenizer()
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in NEW_WORDS])
    return tokenizer


def extended(folder: str | Path = CHECKPOINT, seed: int = 0) -> tuple[Any, Any]:
    """Load a checkpoint of the tiny world and add the words of the searches.

    The weights of the new words are drawn with the seed. The files do not change.
    """
    import torch

    model, tokenizer = load(folder)
    old = len(tokenizer)
    new_search_tokenizer(tokenizer)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    table = model.get_input_embeddings().weight
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        shape = (len(tokenizer) - old, table.shape[1])
        table[old:] = WEIGHT_STD * torch.randn(shape, generator=generator)
    return model, tokenizer


def load_search(folder: str | Path) -> tuple[Any, Any]:
    """Load a policy of the tiny search world.

    Raises UsageError if the folder does not contain one.
    """
    return load(folder, new_search_tokenizer())


def learn(
    model: Any, tokenizer: Any, rng: random.Random, habits: Habits = NOISY
) -> Iterator[tuple[int, float]]:
    """Train on the demonstrator; yield the step and the loss per own token in nats."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98))
    schedule = [RIGHT] * RIGHT_STEPS + [habits] * NOISY_STEPS
    model.train()
    for step, lesson in enumerate(schedule):
        decay = (len(schedule) - step) / (0.4 * len(schedule))
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * min(1.0, (step + 1) / 30, decay)
        drawn = [demonstrate(draw_episode(rng), rng, lesson) for _ in range(BATCH)]
        ids, labels = supervised_batch(tokenizer, drawn)
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield step + 1, loss.item()
    model.eval()


def supervised_batch(tokenizer: Any, drawn: list[Trajectory]) -> tuple[Any, Any]:
    """Return token ids and labels. Only the policy's own words have a label.

    The padding is on the right side, where a causal model does not see it.
    """
    import torch

    vocabulary = tokenizer.get_vocab()
    rows = []
    for each in drawn:
        prompt = tokenizer(prompt_of(each.episode))["input_ids"]
        ids = [vocabulary[word] for word in each.words]
        own = [i if is_own else -100 for i, is_own in zip(ids, each.own, strict=True)]
        rows.append((prompt + ids, [-100] * len(prompt) + own))
    width = max(len(ids) for ids, _ in rows)
    pad = tokenizer.pad_token_id
    return (
        torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in rows]),
        torch.tensor([labels + [-100] * (width - len(labels)) for _, labels in rows]),
    )


def make_base(seed: int, folder: Path, kind: str = "noisy", *, verbose: bool = False) -> None:
    """Train a policy of one of `KINDS` and save it."""
    import torch

    start = time.perf_counter()
    model, tokenizer = extended(seed=seed)
    rng = random.Random(f"demonstrations {seed}")
    for step, loss in learn(model, tokenizer, rng, KINDS[kind]):
        if verbose and step % 25 == 0:
            seconds = time.perf_counter() - start
            print(f"step {step:>4}   loss {loss:.3f}   {seconds:4.0f} s", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    seconds = round(time.perf_counter() - start)
    facts = {"seed": seed, "kind": kind, "torch": torch.__version__, "seconds": seconds}
    (folder / "made.json").write_text(json.dumps(facts) + "\n", "utf-8")


def base(seed: int, folder: Path, kind: str = "noisy") -> Path:
    """Return the folder of a policy before its training. Train it if the folder has none."""
    made = folder / "made.json"
    if not made.exists():
        make_base(seed, folder, kind)
    facts = json.loads(made.read_text("utf-8"))
    if (facts["seed"], facts["kind"]) != (seed, kind):
        raise UsageError(f"{folder} contains another policy: delete it, or choose another folder")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="Set the seed of all random numbers.")
    parser.add_argument("--kind", choices=KINDS, default="noisy", help="Choose the demonstrator.")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="Write the policy to this folder."
    )
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)  # such a small model is not faster with more threads
    make_base(options.seed, options.output, options.kind, verbose=True)


if __name__ == "__main__":
    main()

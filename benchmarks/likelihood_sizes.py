"""Time and memory of likelihoods by the sizes that the policy holds in memory at a time.

`benchmarks/likelihood.py --sizes` prints these tables. The defaults of the policy come from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

REPEATS = 3
"""Number of measurements of the logits, of which the fastest counts."""
ROWS = (64, 256, 512, 1_024, 2_048)
PREFILL = (512, 1_024, 2_048, 4_096)
BUDGETS = (4_096, 16_384, 65_536)

Run = Callable[[str], dict[str, Any]]
"""A function from a method to what its process measures."""


def logits(model: Any, clock: Callable[[], float]) -> list[str]:
    """Return a table of the seconds of 3,072 rows of logits, by rows and tokens at a time."""
    import torch

    from rag_rewards.models.transformers.forward import ModelForward, PolicyUsage
    from rag_rewards.models.transformers.vocabulary import SLICE

    forward = ModelForward(model, float32_logits=False, usage=PolicyUsage())
    vocabulary = forward.vocabulary
    forward.run([(1, 2)], None)
    slices = [SLICE * factor // 2 for factor in (1, 2, 4, 8)]
    lines = table_head("rows", [f"{size:,} tokens" for size in slices])
    for rows in ROWS:
        hidden = torch.randn(rows, model.config.hidden_size, device=model.device, dtype=model.dtype)
        cells = []
        for size in slices:
            vocabulary.slice = size
            best = float("inf")
            with forward.inference():
                for _ in range(REPEATS):
                    start = clock()
                    vocabulary.logprobs(hidden, range(rows), [0] * rows, rows)
                    best = min(best, clock() - start)
            cells.append(f"{best * 3_072 / rows:.2f}")
        lines.append(f"| {rows:,} | {' | '.join(cells)} |")
    return lines


def policy(option: str, values: Sequence[int], method: str, runs: dict[str, Run]) -> list[str]:
    """Return a table of the seconds and the peak memory of a method, by an option of the policy.

    runs  for each workload by its name, a function that measures a method
    """
    lines = table_head(f"`{option}`", list(runs))
    for value in values:
        cells = []
        for measure in runs.values():
            run = measure(f"ours, {method}, {option}={value}")
            cells.append(f"{run['seconds']:.2f} s, {run['peak'] / 2**20:,.0f} MiB")
        lines.append(f"| {value:,} | {' | '.join(cells)} |")
    return lines


def table_head(first: str, rest: Sequence[str]) -> list[str]:
    """Return the head of a table."""
    return [f"| {first} | {' | '.join(rest)} |", f"| --- |{' --- |' * len(rest)}"]

"""Where the time of contrastive likelihoods goes, beside what the hardware can do.

`benchmarks/likelihood.py` prints this table. The matrix products of the model are measured on
their own, at the sizes that occur in the work. Their time is the limit of each part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

REPEATS = 5
"""Number of measurements of a matrix product, of which the fastest counts."""


@contextmanager
def timed_parts(clock: Callable[[], float]) -> Iterator[dict[str, float]]:
    """Measure the seconds in the parts of the policy with transformers, and what they computed."""
    from rag_rewards.models.transformers.forward import ModelForward
    from rag_rewards.models.transformers.tree import TreeAttention
    from rag_rewards.models.transformers.vocabulary import Vocabulary

    seconds: dict[str, float] = {}
    parts = {
        "forward": (ModelForward, "_hidden"),
        "attention": (TreeAttention, "attend"),
        "vocabulary": (Vocabulary, "logprobs"),
        "logits": (Vocabulary, "_logits"),
    }
    original = {name: getattr(owner, method) for name, (owner, method) in parts.items()}

    def timed(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            start = clock()
            result = original[name](*arguments, **options)
            seconds[name] = seconds.get(name, 0.0) + clock() - start
            return result

        return call

    for name, (owner, method) in parts.items():
        setattr(owner, method, timed(name))
    try:
        yield seconds
    finally:
        for name, (owner, method) in parts.items():
            setattr(owner, method, original[name])


def limits(model: Any, tokens: int, rows: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Return the operations of each part, and the seconds that its matrix products need alone.

    tokens  number of tokens that the model runs on
    rows    number of rows of logits
    """
    import torch

    from rag_rewards.models.transformers import TransformersPolicy
    from rag_rewards.models.transformers.vocabulary import SLICE

    head = model.get_output_embeddings().weight
    layers = [
        module.weight
        for module in model.modules()
        if isinstance(module, torch.nn.Linear) and module.weight is not head
    ]
    size = min(tokens, 2_048)
    rates = {shape: rate(shape, size, model, clock) for shape in {w.shape for w in layers}}
    trunk = sum(2 * tokens * w.numel() / rates[w.shape] for w in layers)
    width = min(head.shape[0], SLICE if model.device.type == "cpu" else head.shape[0])
    most = min(rows, TransformersPolicy.rows)
    vocabulary = 2 * rows * head.numel() / rate((width, head.shape[1]), most, model, clock)
    return {
        "trunk": {"operations": sum(2 * tokens * w.numel() for w in layers), "seconds": trunk},
        "logits": {"operations": 2 * rows * head.numel(), "seconds": vocabulary},
        "weights": sum(w.numel() for w in layers) * head.element_size(),
        "head": head.numel() * head.element_size(),
    }


def rate(shape: tuple[int, ...], rows: int, model: Any, clock: Callable[[], float]) -> float:
    """Return the operations per second of a product of [rows, N] with a weight [M, N]."""
    import torch

    kind = {"device": model.device, "dtype": model.dtype}
    left, weight = torch.randn(rows, shape[1], **kind), torch.randn(*shape, **kind)
    torch.nn.functional.linear(left, weight)
    count = max(int(2e9 / (rows * weight.numel())), 1)
    best = float("inf")
    for _ in range(REPEATS):
        start = clock()
        for _ in range(count):
            torch.nn.functional.linear(left, weight)
        best = min(best, (clock() - start) / count)
    return 2 * rows * weight.numel() / best


def table(run: Mapping[str, Any]) -> list[str]:
    """Return the lines of the table, from what `timed_parts` and `limits` measured."""
    parts, limit = run["parts"], run["limits"]
    attention = parts.get("attention", 0.0)
    logits = parts.get("logits", 0.0)
    forward, vocabulary = parts.get("forward", 0.0), parts.get("vocabulary", 0.0)
    # The time of attention is known only for the method tree.
    layers = "layers without attention" if attention else "layers with attention"
    rows = [
        (layers, forward - attention, limit["trunk"]),
        *([("attention", attention, None)] if attention else []),
        ("logits", logits, limit["logits"]),
        ("log Σ exp and targets", vocabulary - logits, None),
        ("everything else", run["whole"] - forward - vocabulary, None),
    ]
    lines = ["| part | seconds | 10⁹ operations | matrix products alone, s |"]
    lines += ["| --- | --- | --- | --- |"]
    for name, seconds, its_limit in rows:
        flops = f"{its_limit['operations'] / 1e9:,.0f}" if its_limit else ""
        alone = f"{its_limit['seconds']:.2f}" if its_limit else ""
        lines.append(f"| {name} | {seconds:.2f} | {flops} | {alone} |")
    floor = limit["trunk"]["seconds"] + limit["logits"]["seconds"]
    speed = (limit["trunk"]["operations"] + limit["logits"]["operations"]) / floor / 1e9
    return [
        *lines,
        "",
        f"The matrix products alone reach {speed:,.0f}·10⁹ operations per second and need "
        f"{floor / run['whole']:.0%} of the time. The weights of the layers have "
        f"{limit['weights'] / 2**20:,.0f} MiB and those of the head {limit['head'] / 2**20:,.0f} "
        "MiB.",
    ]

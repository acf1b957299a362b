"""Log-probabilities of groups, with keys and values that are stored once for a whole group.

The attention of a step to these keys is an attention function of transformers.

Attention to several blocks of keys is computed block by block. Each block has an output o and
l = log Σ exp of its scores. Two blocks have together

    o = o₁ + σ(l₂ − l₁)·(o₂ − o₁),    l = log(exp l₁ + exp l₂)

with the logistic function σ. Therefore all responses of a group read the same keys of their
context, and no mask is necessary.

The attention of a block is a private operation of torch for the CPU, because
`scaled_dot_product_attention` does not return log Σ exp. It takes sequences of equal length, so
that runs of similar length are computed together, with padding at their ends.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rag_rewards.evidence.protocols import ScoreRequest
from rag_rewards.models.runs import Plan, Step, similar_runs, steps
from rag_rewards.models.transformers.forward import ModelForward, Values
from rag_rewards.models.transformers.modules import import_torch

NAME = "rag_rewards_tree"
"""Name of the attention function."""

DEVICES = ("cpu",)
"""Kinds of devices with an operation that returns log Σ exp of attention."""

_LAYERS = {"full_attention", "sliding_attention", "chunked_attention"}
"""Kinds of layers in which each row attends to all keys before it, up to a distance."""

_OPTIONS = {"dropout", "is_causal", "position_ids", "cache_position", "position_embeddings"}
"""Options of attention functions that do not change causal attention without dropout."""


class NotInTreeError(Exception):
    """Attention that blocks of keys cannot express, or a device without the operation for it."""


def score_trees(
    forward: ModelForward, requests: Sequence[ScoreRequest], size: int, rows: int
) -> list[Values]:
    """Return the log-probabilities of each request, by (context, response) pair.

    size  number of tokens that run at a time
    rows  number of rows of logits in memory at a time

    Raises NotInTreeError if the attention of the model cannot be computed in this way.
    """
    plan = Plan()
    spans = [plan.add(request) for request in requests]
    targets = _Targets(plan)
    every = list(steps(plan.runs, size))
    capacity = max((run.end for run in plan.runs), default=0)
    with attention_in_tree(forward.causal, capacity) as attention:
        for step in every:
            targets.score(forward, step, attention, rows)
    return [
        {pair: targets.values[span] for pair, span in of_request.items()} for of_request in spans
    ]


class _Targets:
    """The targets of a plan, in the order of the rows that predict them, and their values."""

    def __init__(self, plan: Plan) -> None:
        self.values = array("f", [0.0]) * len(plan.targets)
        self._plan = plan
        self._order = sorted(range(len(plan.rows)), key=plan.rows.__getitem__)
        self._rows = [plan.rows[k] for k in self._order]
        self._done = 0

    def score(self, forward: ModelForward, step: Step, attention: TreeAttention, rows: int) -> None:
        """Run the next step, and score the targets that its rows predict."""
        tokens = step.tokens
        hidden = forward.run_step(tokens, step.positions, attention.of(step))
        first, self._done = self._done, self._done + len(tokens)
        span = slice(bisect_left(self._rows, first), bisect_left(self._rows, self._done))
        predictors = sorted(set(self._rows[span]))
        place = {row: number for number, row in enumerate(predictors)}
        logprobs = forward.logprobs(
            hidden[[row - first for row in predictors]],
            [place[row] for row in self._rows[span]],
            [self._plan.targets[k] for k in self._order[span]],
            rows,
        )
        for k, value in zip(self._order[span], logprobs, strict=True):
            self.values[k] = value


# --- attention -----------------------------------------------------------------------------------


class TreeAttention:
    """The keys and values of the current path, and the attention of the current step to them.

    `capacity` is the number of tokens of the longest path.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._step = Step((), (), ())
        self._parts: list[_Part] = []
        self._path: dict[int, tuple[Any, Any]] = {}

    def of(self, step: Step) -> TreeAttention:
        """Return the attention of the next step."""
        self._step = step
        self._parts = [_Part.of(runs) for runs in similar_runs(step.runs)]
        return self

    def attend(self, layer: int, query: Any, key: Any, value: Any, scale: float) -> Any:
        """Return the output [1, H, N, V] of a layer in float32, and keep what later steps need.

        query  [1, H, N, D]
        key    [1, K, N, D] with K heads, where H is a multiple of K
        value  [1, K, N, V], where V is at most D
        """
        length = value.shape[3]
        if missing := key.shape[3] - length:  # latent attention
            value = import_torch().nn.functional.pad(value, (0, missing))
        output, total = self._within_runs(query, key, value, scale)
        for block in self._step.blocks:
            keys, values = self._path[layer] if block.of_path else (key, value)
            part, its_total = attention_to_block(
                query[:, :, block.rows], keys[:, :, block.keys], values[:, :, block.keys], scale
            )
            _merge(output[:, :, block.rows], total[:, :, block.rows], part, its_total)
        self._keep(layer, key, value)
        return output[..., :length]

    def _within_runs(self, query: Any, key: Any, value: Any, scale: float) -> tuple[Any, Any]:
        """Return the attention of each row to the rows of its own run up to itself."""
        results = []
        for part in self._parts:
            own, keys, values = (rows[:, :, part.rows] for rows in (query, key, value))
            results.append(_within_equal_runs(own, keys, values, part.count, scale))
        if len(results) == 1 and self._parts[0].own is None:
            return results[0]
        torch = import_torch()
        output = torch.empty((*query.shape[:3], value.shape[3]), dtype=torch.float32)
        total = torch.empty(query.shape[:3], dtype=torch.float32)
        for part, (its_output, its_total) in zip(self._parts, results, strict=True):
            if part.own is None:
                output[:, :, part.rows], total[:, :, part.rows] = its_output, its_total
            else:
                rows = part.rows[part.own]
                output[:, :, rows] = its_output[:, :, part.own]
                total[:, :, rows] = its_total[:, :, part.own]
        return output, total

    def _keep(self, layer: int, key: Any, value: Any) -> None:
        if not self._step.path_rows:
            return
        if layer not in self._path:
            shape = (1, key.shape[1], self.capacity, key.shape[3])
            self._path[layer] = key.new_empty(shape), value.new_empty(shape)
        keys, values = self._path[layer]
        for rows, position in self._step.path_rows:
            place = slice(position, position + rows.stop - rows.start)
            keys[:, :, place] = key[:, :, rows]
            values[:, :, place] = value[:, :, rows]


@contextmanager
def attention_in_tree(causal: Any, capacity: int) -> Iterator[TreeAttention]:
    """Use this attention in all layers of a model, with paths of at most `capacity` tokens.

    Raises NotInTreeError for a model that is not on a CPU, for windows that are shorter than a
    path, and for layers without a window that do not attend to all keys. The latter can have the
    right values for short sequences.
    """
    from transformers import AttentionInterface

    if causal.device.type not in DEVICES:
        raise NotInTreeError(f"a model on {causal.device.type}")
    config = causal.config.get_text_config()
    if unknown := sorted(set(getattr(config, "layer_types", None) or ()) - _LAYERS):
        raise NotInTreeError(f"layers of the kind {', '.join(unknown)}")
    for name in ("sliding_window", "attention_chunk_size"):
        window = getattr(config, name, None)
        if window is not None and capacity > window:
            raise NotInTreeError(f"{name}={window}")
    AttentionInterface.register(NAME, tree_attention)
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield TreeAttention(capacity)
    finally:
        config._attn_implementation = before


def tree_attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    *,
    tree: TreeAttention,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Any, None]:
    """Return the attention [1, N, H, V] of a layer to its step, for transformers."""
    if attention_mask is not None:
        raise NotInTreeError("attention with a mask")
    set_options = {name for name, each in options.items() if each is not None and each is not False}
    if unknown := sorted(set_options - _OPTIONS):
        raise NotInTreeError(f"attention with {', '.join(unknown)}")
    if sliding_window is not None and tree.capacity > sliding_window:
        raise NotInTreeError(f"a window of {sliding_window} tokens")
    if value.shape[-1] > key.shape[-1]:
        raise NotInTreeError("attention with values that are longer than keys")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = tree.attend(module.layer_idx, query, key, value, scale)
    return output.to(query.dtype).transpose(1, 2).contiguous(), None


# --- blocks of keys ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """Runs of a step that are computed together.

    count  number of runs
    rows   rows of the step in the order of the runs: a slice, or [count · L] with padded runs
    own    places in `rows` that are not padding; None for a slice
    """

    count: int
    rows: Any
    own: Any = None

    @classmethod
    def of(cls, runs: Sequence[tuple[int, int]]) -> _Part:
        """Return runs by their first row and their length. The last row is the padding of a run."""
        start, length = runs[0]
        if all(run == (start + number * length, length) for number, run in enumerate(runs)):
            return cls(len(runs), slice(start, start + len(runs) * length))
        torch = import_torch()
        firsts, lengths = torch.tensor(runs).T[:, :, None]
        place = torch.arange(max(length for _, length in runs))[None]
        rows = firsts + torch.minimum(place, lengths - 1)
        own = (place < lengths).flatten().nonzero()[:, 0]
        return cls(len(runs), rows.flatten(), own)


def attention_to_block(query: Any, key: Any, value: Any, scale: float) -> tuple[Any, Any]:
    """Return the attention of all rows to all keys [1, H, N, V], and log Σ exp [1, H, N], in nats.

    The queries of all heads that share a key are rows of the same matrix, so that keys are not
    repeated.
    """
    heads, rows = query.shape[1:3]
    shared = key.shape[1]
    stacked = query.reshape(1, shared, heads // shared * rows, query.shape[3])
    output, total = _attention(stacked, key, value, False, scale)
    return output.reshape(1, heads, rows, value.shape[3]), total.reshape(1, heads, rows)


def _within_equal_runs(
    query: Any, key: Any, value: Any, count: int, scale: float
) -> tuple[Any, Any]:
    """Return the attention within each of `count` runs of equal length, and log Σ exp."""
    heads, rows = query.shape[1:3]
    each = heads // key.shape[1]
    output, total = _attention(
        _by_run(query, count, 1),
        _by_run(key, count, each),
        _by_run(value, count, each),
        True,
        scale,
    )
    output = output.transpose(0, 1).reshape(1, heads, rows, value.shape[3])
    return output, total.transpose(0, 1).reshape(1, heads, rows)


def _by_run(rows: Any, count: int, each: int) -> Any:
    """Return rows [1, K, R·T, D] as [R, K·each, T, D], with each head repeated `each` times."""
    split = rows[0].unflatten(1, (count, -1)).transpose(0, 1)
    return split if each == 1 else split.repeat_interleave(each, 1)


def _attention(query: Any, key: Any, value: Any, causal: bool, scale: float) -> tuple[Any, Any]:
    """Return attention in float32 and log Σ exp of the scores."""
    output, total = import_torch().ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, scale=scale
    )
    return output.float(), total.float()


def _merge(output: Any, total: Any, part: Any, its_total: Any) -> None:
    """Add the attention to a block to `output` and `total`, in place."""
    torch = import_torch()
    output.lerp_(part, torch.sigmoid(its_total - total)[..., None])
    torch.logaddexp(total, its_total, out=total)

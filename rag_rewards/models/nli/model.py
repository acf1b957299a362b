"""Entailment by a model in this process: P(premise entails hypothesis).

Classifiers of text pairs, T5 models that generate "1" or "0", and the fact checkers of
`profiles.py` are supported. A premise that is too long is divided into pieces, and the highest
probability of a piece counts. Special tokens in a text ("[SEP]", "</s>") are ordinary text
for the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_rewards.errors import BackendError, UsageError, needs_extra
from rag_rewards.models.local_models import (
    LocalModel,
    identity,
    model_files,
    model_folder,
    read_config,
    require_complete,
    torch_device,
    torch_dtype,
)
from rag_rewards.models.nli.classifier import PairClassifier, load_classifier
from rag_rewards.models.nli.pieces import Both, Pair, Piece, divide, highest
from rag_rewards.models.nli.profiles import check_architecture, profile_of
from rag_rewards.models.nli.seq2seq import Seq2SeqEntailment, load_seq2seq

Network = PairClassifier | Seq2SeqEntailment
_TOKEN_BUDGET = {"cuda": 16_384, "cpu": 1_024}
"""Tokens of a batch, including padding. On a CPU, larger batches only add padding."""


def load_entailment(
    model: str | Path,
    *,
    device: str | None = None,
    dtype: str = "float32",
    revision: str | None = None,
    max_length: int | None = None,
    overlap: int = 64,
    token_budget: int | None = None,
    entailment_label: str | int | None = None,
    profile: str | None = None,
) -> LocalEntailment:
    """Load an entailment model from a folder, or by its name from the Hugging Face hub.

    device            "cpu", "cuda", "cuda:1", …; default: a GPU if there is one
    dtype             "float32", "bfloat16", "float16", or "auto" for the saved precision
    revision          revision of a model from the hub
    max_length        maximum number of tokens of an input; default: the value in the model's
                      files. T5 has no table of positions and accepts more (TRUE: 2048)
    overlap           number of tokens that neighboring pieces of a long premise share
    token_budget      number of tokens of a batch, including padding; default: 16,384, on a CPU
                      1,024. It is halved when memory is exhausted
    entailment_label  name or index of the classifier's label for entailment, if its config does
                      not specify it
    profile           name of the profile of a fact checker, a key of `profiles.PROFILES`; default:
                      that of the name of the model, or of its config

    Raises MissingExtraError if the packages are not installed, and UsageError for invalid
    arguments, such as a label that is not unique, or a folder that does not exist, is incomplete or
    has the weights of another kind of model.
    """
    with needs_extra("nli", "sentence-transformers"):
        import torch  # noqa: F401
        import transformers  # noqa: F401
    if overlap < 0:
        raise UsageError(f"overlap must be at least 0, found {overlap}")
    for name, value in (("max_length", max_length), ("token_budget", token_budget)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, found {value}")
    torch_dev, precision = torch_device(device), torch_dtype(dtype)
    folder = model_folder(model, revision)
    require_complete(folder)
    config = read_config(folder)
    checker = profile_of(model, config, profile)
    check_architecture(checker, config)
    network: Network
    if checker.output == "answer":
        if entailment_label is not None:
            raise UsageError("entailment_label is for classifiers, and not for a T5 model")
        network = load_seq2seq(folder, precision, torch_dev, checker)
    else:
        network = load_classifier(folder, precision, torch_dev, config, entailment_label, checker)
    return LocalEntailment(
        network,
        name=f"nli {config.get('model_type', '')} {identity(folder, model_files(folder))}",
        max_length=_max_length(network, max_length),
        overlap=overlap,
        token_budget=token_budget or _TOKEN_BUDGET.get(torch_dev.type, _TOKEN_BUDGET["cuda"]),
    )


@dataclass
class EntailmentUsage:
    """The work of an entailment model: distinct pairs, pieces, tokens, and tokens with padding."""

    pairs: int = 0
    pieces: int = 0
    tokens: int = 0
    padded: int = 0


class LocalEntailment(LocalModel):
    """P(premise entails hypothesis), 0 to 1, by a model in this process; see `load_entailment`.

    Equal pairs are computed once. An empty premise or hypothesis (without text, or without a token
    of the tokenizer) and a hypothesis that does not fit into the model have probability 0.0 without
    a run of the model. A value does not depend on the other pairs of a call, up to rounding (1e-5
    in float32).
    """

    kind = "entailment"

    def __init__(
        self,
        network: Network,
        *,
        name: str,
        max_length: int,
        overlap: int,
        token_budget: int,
    ) -> None:
        self.max_length = max_length
        self.overlap = overlap
        self.token_budget = token_budget
        self.usage = EntailmentUsage()
        precision = str(network.model.dtype).removeprefix("torch.")
        super().__init__(
            network,
            f"{name} {precision} {network.label} max_length={max_length} overlap={overlap}",
        )

    async def entail(self, pairs: Sequence[Pair]) -> list[float]:
        """Return the probabilities of (premise, hypothesis) pairs, in order.

        The model runs in a thread; simultaneous calls run one after the other. Raises BackendError
        for a value that is not finite, and if the memory is not sufficient for a single piece.
        """
        return await asyncio.to_thread(self.entail_sync, pairs)

    def entail_sync(self, pairs: Sequence[Pair]) -> list[float]:
        """Return the same as `entail`, without an event loop."""
        with self._in_use():
            return [entailment for entailment, _ in self._of_pairs(pairs)]

    async def entail_and_contradict(self, pairs: Sequence[Pair]) -> list[Both]:
        """Return the probabilities of entailment and of contradiction of each pair, in order.

        Of a premise in pieces, the highest probability of a piece counts for each of the two.
        Raises BackendError as `entail`, and for a model without a label for contradiction.
        """
        return await asyncio.to_thread(self._entail_and_contradict, pairs)

    def _entail_and_contradict(self, pairs: Sequence[Pair]) -> list[Both]:
        with self._in_use():
            network = self._model
            if not isinstance(network, PairClassifier) or network.contradiction is None:
                raise BackendError(
                    "the entailment model has no label for contradiction: use a classifier with "
                    "the labels entailment, neutral and contradiction"
                )
            return self._of_pairs(pairs)

    def _of_pairs(self, pairs: Sequence[Pair]) -> list[Both]:
        """Return the probabilities of each pair, which are computed once for equal pairs."""
        distinct = list(dict.fromkeys((p, h) for p, h in pairs if p.strip() and h.strip()))
        encoded = self._model.encode(distinct)
        chunk = self._model.profile.chunk
        pieces, owners = divide(encoded, self.max_length, self.overlap, chunk)
        best = highest(len(distinct), owners, self._run(pieces))
        values = dict(zip(distinct, best, strict=True))
        self.usage.pairs += len(distinct)
        return [values.get((p, h), (0.0, 0.0)) for p, h in pairs]

    def _run(self, pieces: Sequence[Piece]) -> list[Both]:
        """Return the probabilities of each piece.

        The longest pieces run first: batches need little padding, and insufficient memory shows at
        once.
        """
        order = sorted(range(len(pieces)), key=lambda i: len(pieces[i].ids), reverse=True)
        values = [(0.0, 0.0)] * len(pieces)
        done = 0
        while done < len(order):
            longest = len(pieces[order[done]].ids)
            batch = order[done : done + max(1, self.token_budget // longest)]
            results = self._run_batch([pieces[i] for i in batch])
            if results is None:
                continue
            for i, value in zip(batch, results, strict=True):
                values[i] = value
            done += len(batch)
        return values

    def _run_batch(self, batch: Sequence[Piece]) -> list[Both] | None:
        """Return the values of a batch; None if memory is exhausted and the budget is halved."""
        padded = len(batch) * max(len(piece.ids) for piece in batch)
        values = self._run_within_memory(
            lambda: _probabilities(self._model, batch),
            f"one piece of {padded} tokens" if len(batch) == 1 else None,
        )
        if values is None:
            self.token_budget = max(padded // 2, 1)
            self._continue_with(f"a token budget of {self.token_budget}")
            return None
        self.usage.pieces += len(batch)
        self.usage.tokens += sum(len(piece.ids) for piece in batch)
        self.usage.padded += padded
        return values


def _probabilities(network: Network, batch: Sequence[Piece]) -> list[Both]:
    """Return the probabilities of pieces that run as one padded batch."""
    import torch

    longest = max(len(piece.ids) for piece in batch)
    inputs = {
        "input_ids": [piece.ids + [network.pad] * (longest - len(piece.ids)) for piece in batch],
        "attention_mask": [
            [1] * len(piece.ids) + [0] * (longest - len(piece.ids)) for piece in batch
        ],
    }
    if batch[0].types is not None:
        inputs["token_type_ids"] = [
            (piece.types or []) + [0] * (longest - len(piece.ids)) for piece in batch
        ]
    if network.profile.output == "claim_tokens":
        inputs["hypothesis_mask"] = [
            [int(first <= i < last) for i in range(longest)]
            for first, last in (piece.hypothesis for piece in batch)
        ]
    with torch.inference_mode():
        device = network.model.device
        tensors = {name: torch.tensor(rows, device=device) for name, rows in inputs.items()}
        probabilities = network.probabilities(tensors)
        if not bool(torch.isfinite(probabilities).all()):
            raise BackendError(
                "the entailment model computes values that are not finite in "
                f"{network.model.dtype}; try dtype='bfloat16' or 'float32'"
            )
        return [(entailment, contradiction) for entailment, contradiction in probabilities.tolist()]


# --- lengths -----------------------------------------------------------------------------------


def _max_length(network: Network, max_length: int | None) -> int:
    """Return the maximum number of tokens of an input. UsageError for more than the positions."""
    limit, config = network.profile.limit, network.model.config
    # DeBERTa without a table of positions reads more tokens than its config says.
    is_relative = not getattr(config, "position_biased_input", True)
    positions = None if limit and is_relative else _positions(network.model)
    if max_length is not None:
        if positions is not None and max_length > positions:
            raise UsageError(
                f"max_length={max_length} is more than the model's maximum of {positions}"
            )
        return max_length
    of_tokenizer = network.tokenizer.model_max_length
    of_files = of_tokenizer if of_tokenizer < 1e9 else None
    lengths = [positions, limit or of_files]
    return min((n for n in lengths if n), default=512)


def _positions(model: Any) -> int | None:
    """Return the number of positions; RoBERTa reserves the first rows of its table for padding."""
    configured = getattr(model.config, "max_position_embeddings", None)
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            return int(module.num_embeddings) - int(padding) - 1
    return None if configured is None else int(configured)

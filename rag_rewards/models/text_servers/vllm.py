"""Models of vLLM: POST /classify and /score for classifiers, POST /v1/embeddings for encoders.

/score takes pairs of texts, but only of models with one output. /classify takes one text, so that
the tokens of a pair are sent. Checked against `vllm/entrypoints/pooling` of version 0.32.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rag_rewards.errors import UsageError
from rag_rewards.models.http import Place
from rag_rewards.models.local_models import read_config
from rag_rewards.models.nli.classifier import (
    PairClassifier,
    contradiction_index,
    entailment_index,
    label_names,
)
from rag_rewards.models.nli.pieces import HypothesisTooLong
from rag_rewards.models.text_servers.connection import Connection, probability
from rag_rewards.models.text_servers.description import Description
from rag_rewards.models.text_servers.long_pairs import probabilities_of_parts
from rag_rewards.models.text_servers.long_texts import plain_text
from rag_rewards.models.tokenizer import resolve_tokenizer

_BATCH = 64
_OVERLAP = 64
_FOLDER = (
    "vLLM reports neither the labels nor the tokens of a pair: set nli_tokenizer (or tokenizer= of "
    "EntailmentServer) to the folder of the model, or of its config and its tokenizer"
)


class _Class(msgspec.Struct):
    index: int
    label: str | None
    probs: list[float]


class _Classes(msgspec.Struct):
    data: list[_Class]


class _Score(msgspec.Struct):
    index: int
    score: float


class _Scores(msgspec.Struct):
    data: list[_Score]


class _Embedding(msgspec.Struct):
    index: int
    embedding: list[float]


class _Embeddings(msgspec.Struct):
    data: list[_Embedding]


def vllm_classifier(
    connection: Connection,
    description: Description,
    label: str | int | None,
    folder: Any,
    too_long_is_error: bool,
) -> VllmClassifier | VllmScorer:
    """Return the classifier of a server. Its labels are those in the config of its folder."""
    card = description.data[0]
    source = card.root if folder is None else folder
    if not isinstance(source, (str, os.PathLike)) or not os.path.isdir(source):
        raise UsageError(_FOLDER)
    config = read_config(Path(source))
    names = label_names(config)
    entailment = entailment_index(names, label)
    if len(names) == 1:
        return VllmScorer(connection, card.id, too_long_is_error)
    tokenizer: Any = resolve_tokenizer(source, None)
    has_types = "token_type_ids" in getattr(tokenizer, "model_input_names", ())
    if has_types and int(config.get("type_vocab_size", 2)) > 1:
        raise UsageError(
            f"{card.id} has token types, which /classify of vLLM does not take: serve the model "
            "with text-embeddings-inference or `rag-rewards serve`"
        )
    contradiction = contradiction_index(names)
    encoder = PairClassifier(None, tokenizer, 0, entailment, contradiction)
    length = card.max_model_len
    if length is None:
        raise connection.error("does not report max_model_len, the maximum length of the model")
    return VllmClassifier(
        connection, card.id, tuple(names), encoder, length, too_long_is_error=too_long_is_error
    )


@dataclass(frozen=True)
class VllmClassifier:
    """A classifier with several labels. The pieces of a pair are those of a local model."""

    connection: Connection
    model: str
    labels: tuple[str, ...]
    encoder: PairClassifier
    max_length: int
    too_long_is_error: bool = False
    batch: int = _BATCH

    @property
    def fingerprint(self) -> str:
        """The model, the label, and the settings that affect a value."""
        too_long = " too_long=error" if self.too_long_is_error else ""
        return (
            f"nli vllm:{self.model} {self.encoder.label} max_length={self.max_length} "
            f"overlap={_OVERLAP}{too_long}"
        )

    async def send(
        self, pairs: Sequence[tuple[str, str]], place: Place, contradiction: bool
    ) -> Sequence[tuple[float, float]]:
        """Return the probabilities of entailment and of contradiction, 0 without its label."""
        if contradiction and self.encoder.contradiction is None:
            raise self.connection.error("serves a model without a label for contradiction")
        inputs, owners = await asyncio.to_thread(self._pieces, pairs)
        best = [(0.0, 0.0)] * len(pairs)
        for at in range(0, len(inputs), self.batch):
            values = await self._classify(inputs[at : at + self.batch], place)
            for owner, (first, second) in zip(owners[at : at + self.batch], values, strict=True):
                best[owner] = (max(best[owner][0], first), max(best[owner][1], second))
        return best

    def _pieces(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[list[int]], list[int]]:
        """Return the token ids of all pieces, and the position of the pair of each."""
        inputs: list[list[int]] = []
        owners: list[int] = []
        for i, pair in enumerate(self.encoder.encode(pairs)):
            if pair is None:
                continue
            try:
                pieces = pair.pieces(self.max_length, _OVERLAP)
            except HypothesisTooLong:
                if self.too_long_is_error:
                    raise
                continue
            inputs += [piece.ids for piece in pieces]
            owners += [i] * len(pieces)
        return inputs, owners

    async def _classify(self, inputs: list[list[int]], place: Place) -> list[tuple[float, float]]:
        body = {"model": self.model, "input": inputs}
        answer = await place.post("/classify", body, _Classes)
        rows = sorted(answer.data, key=lambda row: row.index)
        if [row.index for row in rows] != list(range(len(inputs))):
            raise self.connection.error(f"returned {len(rows)} results for {len(inputs)} texts")
        return [self._both(row) for row in rows]

    def _both(self, row: _Class) -> tuple[float, float]:
        """Return both probabilities. The label of the greatest one must be that of the config."""
        shares = [probability(value, self.connection) for value in row.probs]
        if len(shares) != len(self.labels):
            raise self.connection.error(
                f"returned {len(shares)} classes, and the config has the labels {self.labels}"
            )
        if abs(sum(shares) - 1) > 0.01:
            raise self.connection.error(f"returned classes whose sum is {sum(shares):g}, not 1")
        greatest = self.labels[shares.index(max(shares))]
        if row.label != greatest:
            raise self.connection.error(
                f"returned the label {row.label!r} where the config has {greatest!r}: the folder "
                "of the tokenizer belongs to another model"
            )
        other = self.encoder.contradiction
        return shares[self.encoder.index], 0.0 if other is None else shares[other]


@dataclass(frozen=True)
class VllmScorer:
    """A classifier with one output, which is that of entailment."""

    connection: Connection
    model: str
    too_long_is_error: bool = False
    batch: int = _BATCH

    @property
    def fingerprint(self) -> str:
        """The model, and the settings that affect a value."""
        too_long = " too_long=error" if self.too_long_is_error else ""
        return f"nli vllm:{self.model} score{too_long}"

    async def send(
        self, pairs: Sequence[tuple[str, str]], place: Place, contradiction: bool
    ) -> Sequence[tuple[float, float]]:
        """Return the probabilities of entailment. There is no label for contradiction."""
        if contradiction:
            raise self.connection.error("serves a model without a label for contradiction")

        async def score(parts: Sequence[tuple[str, str]]) -> list[tuple[float, float]]:
            body = {
                "model": self.model,
                "text_1": [plain_text(premise) for premise, _ in parts],
                "text_2": [plain_text(hypothesis) for _, hypothesis in parts],
            }
            answer = await place.post("/score", body, _Scores)
            rows = sorted(answer.data, key=lambda row: row.index)
            if [row.index for row in rows] != list(range(len(parts))):
                raise self.connection.error(f"returned {len(rows)} results for {len(parts)} texts")
            return [(probability(row.score, self.connection), 0.0) for row in rows]

        return await probabilities_of_parts(pairs, score, self.too_long_is_error)


@dataclass(frozen=True)
class VllmEncoder:
    """A sentence encoder on vLLM, or on another server with the embeddings API of OpenAI."""

    connection: Connection
    model: str
    batch: int = _BATCH

    @classmethod
    def of(cls, connection: Connection, description: Description) -> VllmEncoder:
        """Return the encoder, which is the first model of the server."""
        return cls(connection, description.data[0].id)

    @property
    def fingerprint(self) -> str:
        """The model."""
        return f"similarity openai:{self.model}"

    async def embed(self, texts: Sequence[str], place: Place) -> list[list[float]]:
        """Return one embedding for each text."""
        body = {"model": self.model, "input": texts, "encoding_format": "float"}
        answer = await place.post("/v1/embeddings", body, _Embeddings)
        return [row.embedding for row in sorted(answer.data, key=lambda row: row.index)]

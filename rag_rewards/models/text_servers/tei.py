"""Models of text-embeddings-inference: POST /predict for classifiers, POST /embed for encoders.

Checked against the types and handlers of its router in version 1.9.3 (`router/src/http`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.models.http import Place
from rag_rewards.models.nli.classifier import (
    contradiction_index,
    entailment_index,
    label_names,
)
from rag_rewards.models.text_servers.connection import Connection
from rag_rewards.models.text_servers.description import Description
from rag_rewards.models.text_servers.long_pairs import probabilities_of_parts
from rag_rewards.models.text_servers.long_texts import plain_text


class _Prediction(msgspec.Struct):
    score: float
    label: str


@dataclass(frozen=True)
class TeiClassifier:
    """A classifier of text pairs. `labels` are its labels in the order of its outputs.

    Raw scores are requested, so that the activation does not depend on the server.
    """

    connection: Connection
    model: str
    labels: tuple[str, ...]
    entailment: int
    contradiction: int | None
    batch: int
    too_long_is_error: bool = False

    @classmethod
    def of(
        cls,
        connection: Connection,
        description: Description,
        label: str | int | None,
        too_long_is_error: bool,
    ) -> TeiClassifier:
        """Return the classifier. BackendError if the server has another kind of model."""
        kinds = description.model_type or {}
        config = kinds.get("classifier") or kinds.get("reranker")
        if not isinstance(config, Mapping):
            raise connection.error(
                f"serves {model_name(description)}, which is not a classifier of text pairs"
            )
        try:
            names = label_names(config)
            entailment = entailment_index(names, label)
        except (UsageError, BackendError) as error:
            raise connection.error(f"serves {model_name(description)}: {error}") from None
        return cls(
            connection,
            model_name(description),
            tuple(names),
            entailment,
            contradiction_index(names),
            description.max_client_batch_size,
            too_long_is_error,
        )

    @property
    def fingerprint(self) -> str:
        """The model, its revision and precision, and the label."""
        too_long = " too_long=error" if self.too_long_is_error else ""
        return f"nli tei:{self.model} label={self.entailment}{too_long}"

    async def send(
        self, pairs: Sequence[tuple[str, str]], place: Place, contradiction: bool
    ) -> Sequence[tuple[float, float]]:
        """Return the probabilities of entailment and of contradiction, 0 without its label."""
        if contradiction and self.contradiction is None:
            raise self.connection.error("serves a model without a label for contradiction")

        async def predict(parts: Sequence[tuple[str, str]]) -> list[tuple[float, float]]:
            inputs = [[plain_text(premise), plain_text(text)] for premise, text in parts]
            body = {"inputs": inputs, "truncate": False, "raw_scores": True}
            answer = await place.post("/predict", body, list[list[_Prediction]])
            if len(answer) != len(parts):
                raise self.connection.error(
                    f"returned {len(answer)} results for {len(parts)} texts"
                )
            return [self._both(predictions) for predictions in answer]

        return await probabilities_of_parts(pairs, predict, self.too_long_is_error)

    def _both(self, predictions: Sequence[_Prediction]) -> tuple[float, float]:
        """Return the probabilities of both labels. The server sorts predictions by their score."""
        scores = {prediction.label: prediction.score for prediction in predictions}
        if scores.keys() != set(self.labels) or len(predictions) != len(self.labels):
            raise self.connection.error(
                f"returned the labels {sorted(scores)}, and /info the labels {sorted(self.labels)}"
            )
        shares = softmax([scores[label] for label in self.labels])
        other = 0.0 if self.contradiction is None else shares[self.contradiction]
        return shares[self.entailment], other


@dataclass(frozen=True)
class TeiEncoder:
    """A sentence encoder."""

    connection: Connection
    model: str
    batch: int

    @classmethod
    def of(cls, connection: Connection, description: Description) -> TeiEncoder:
        """Return the encoder. BackendError if the server has another kind of model."""
        if "embedding" not in (description.model_type or {}):
            raise connection.error(f"serves {model_name(description)}, which is not an encoder")
        return cls(connection, model_name(description), description.max_client_batch_size)

    @property
    def fingerprint(self) -> str:
        """The model, its revision and precision."""
        return f"similarity tei:{self.model}"

    async def embed(self, texts: Sequence[str], place: Place) -> list[list[float]]:
        """Return one embedding for each text."""
        body = {"inputs": texts, "truncate": False, "normalize": True}
        return await place.post("/embed", body, list[list[float]])


def model_name(description: Description) -> str:
    """Return the model with its revision and precision."""
    revision = f"@{description.model_sha[:12]}" if description.model_sha else ""
    return f"{description.model_id}{revision} {description.model_dtype}".strip()


def softmax(logits: Sequence[float]) -> list[float]:
    """Return the probabilities of logits; of a single logit, its sigmoid.

    >>> softmax([0.0, 0.0]), softmax([0.0])
    ([0.5, 0.5], [0.5])
    """
    values: list[Any] = [0.0, *logits] if len(logits) == 1 else list(logits)
    greatest = max(values)
    powers = [math.exp(value - greatest) for value in values]
    return [power / sum(powers) for power in powers][-len(logits) :]

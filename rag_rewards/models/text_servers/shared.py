"""The models that `rag-rewards serve` shares: POST /entailment and POST /similarity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from rag_rewards.models.http import Place
from rag_rewards.models.text_servers.connection import Connection, probability
from rag_rewards.models.text_servers.description import Description

_BATCH = 1024
"""Maximum number of pairs in a request that a server accepts by default."""


class _Entailments(msgspec.Struct):
    entailment: list[float]
    contradiction: list[float] | None = None


class _Similarities(msgspec.Struct):
    similarity: list[float]


@dataclass(frozen=True)
class SharedEntailment:
    """The entailment model of a server. Its values are those of the model in a process."""

    connection: Connection
    fingerprint: str
    batch: int = _BATCH

    @classmethod
    def of(cls, connection: Connection, description: Description) -> SharedEntailment:
        """Return the model. BackendError if the server has none."""
        if description.entailment is None:
            raise connection.error("has no entailment model: start the server with --nli MODEL")
        return cls(connection, description.entailment.fingerprint)

    async def send(
        self, pairs: Sequence[tuple[str, str]], place: Place, contradiction: bool
    ) -> Sequence[tuple[float, float]]:
        """Return the probabilities of entailment and, on request, of contradiction."""
        body = {"pairs": pairs, "contradiction": contradiction}
        answer = await place.post("/entailment", body, _Entailments)
        second = answer.contradiction if contradiction else [0.0] * len(answer.entailment)
        if second is None or len(second) != len(answer.entailment):
            raise self.connection.error("returned no contradictions")
        return [
            (probability(first, self.connection), probability(other, self.connection))
            for first, other in zip(answer.entailment, second, strict=True)
        ]


@dataclass(frozen=True)
class SharedSimilarity:
    """The similarity model of a server. Its values are those of the model in a process."""

    connection: Connection
    fingerprint: str
    batch: int = _BATCH

    @classmethod
    def of(cls, connection: Connection, description: Description) -> SharedSimilarity:
        """Return the model. BackendError if the server has none."""
        if description.similarity is None:
            raise connection.error(
                "has no similarity model: start the server with --similarity MODEL"
            )
        return cls(connection, description.similarity.fingerprint)

    async def send(self, pairs: Sequence[tuple[str, str]], place: Place) -> Sequence[float]:
        """Return the similarities of the pairs."""
        answer = await place.post("/similarity", {"pairs": pairs}, _Similarities)
        for value in answer.similarity:
            if not -1.0001 <= value <= 1.0001:
                raise self.connection.error(f"returned {value:g}, which is not a similarity")
        return [min(max(value, -1.0), 1.0) for value in answer.similarity]

"""An entailment model on an HTTP server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, Protocol

from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.models.endpoints import Limits
from rag_rewards.models.health import Health
from rag_rewards.models.http import Place
from rag_rewards.models.text_servers.connection import Connection
from rag_rewards.models.text_servers.shared import SharedEntailment
from rag_rewards.models.text_servers.tei import TeiClassifier
from rag_rewards.models.text_servers.vllm import vllm_classifier

Pair = tuple[str, str]
Both = tuple[float, float]
"""The probabilities of entailment and of contradiction."""
KEY_VARIABLE = "RAG_REWARDS_NLI_KEY"


class EntailmentApi(Protocol):
    """An API that returns probabilities for pairs of texts."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def batch(self) -> int:
        """Maximum number of pairs in one request."""
        ...

    async def send(
        self, pairs: Sequence[Pair], place: Place, contradiction: bool
    ) -> Sequence[Both]: ...


class EntailmentServer:
    """P(premise entails hypothesis), 0 to 1, by a model on a server, or on several servers.

    url               addresses of `rag-rewards serve`, of text-embeddings-inference or of vLLM
    entailment_label  name or index of the label for entailment, if the server's labels do not
                      specify it
    tokenizer         vLLM only: folder of the model, or of its config and its tokenizer; default:
                      the folder that the server reports, if it exists on this machine
    too_long          result of a hypothesis that does not fit into the model: "zero" for a
                      probability of 0, or "error". `rag-rewards serve` decides this by itself
    api_key           key for the Authorization header; default: RAG_REWARDS_NLI_KEY
    limits            timeouts, retries, concurrency, and pairs in a request

    Equal pairs are sent once. A premise that is too long is divided, and the highest probability
    of a part counts. An empty premise or hypothesis has probability 0.0. The error of a request is
    the result of its pairs.

    Raises UsageError for invalid arguments.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        entailment_label: str | int | None = None,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        too_long: Literal["zero", "error"] = "zero",
        api_key: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._connection = Connection.of("nli", url, api_key, KEY_VARIABLE, limits)
        self._label, self._tokenizer, self._too_long = entailment_label, tokenizer, too_long
        self._api: EntailmentApi | None = None

    @property
    def health(self) -> Health:
        """The health of the servers."""
        return self._connection.servers.health

    @property
    def fingerprint(self) -> str:
        """The model and the settings that affect a value, as the server describes them."""
        if self._api is None:
            self._connection.description()
            self._api = self._new_api()
        return self._api.fingerprint

    async def entail(self, pairs: Sequence[Pair]) -> list[float | Exception]:
        """Return the probability, or the error, of each (premise, hypothesis) pair, in order."""
        values = await self._values(pairs, contradiction=False)
        return [value if isinstance(value, Exception) else value[0] for value in values]

    async def entail_and_contradict(self, pairs: Sequence[Pair]) -> list[Both | Exception]:
        """Return the probabilities of entailment and of contradiction of each pair, in order."""
        return await self._values(pairs, contradiction=True)

    async def close(self) -> None:
        """Do nothing: no connection is kept open between calls."""

    async def _values(self, pairs: Sequence[Pair], contradiction: bool) -> list[Both | Exception]:
        complete = [(p, h) for p, h in pairs if p.strip() and h.strip()]
        if not complete:
            return [(0.0, 0.0)] * len(pairs)
        if self._api is None:
            await self._connection.describe()
            self._api = self._new_api()
        api = self._api
        values = await self._connection.in_batches(
            complete,
            api.batch,
            lambda pair: len(pair[0]) + len(pair[1]),
            lambda batch, place: api.send(batch, place, contradiction),
        )
        return [values.get((p, h), (0.0, 0.0)) for p, h in pairs]

    def _new_api(self) -> EntailmentApi:
        connection = self._connection
        description = connection.description()
        if description.api == "rag-rewards":
            return SharedEntailment.of(connection, description)
        is_error = self._too_long == "error"
        if description.api == "tei":
            return TeiClassifier.of(connection, description, self._label, is_error)
        return vllm_classifier(connection, description, self._label, self._tokenizer, is_error)

"""An entailment model on an HTTP server."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rag_rewards.errors import BackendError, UsageError
from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.models.client import Sender
from rag_rewards.models.limits import Limits
from rag_rewards.models.local_models import read_config, resolve_tokenizer
from rag_rewards.models.nli.classifier import (
    PairClassifier,
    contradiction_index,
    entailment_index,
    label_names,
)
from rag_rewards.models.nli.pieces import Both, Pair, divide, highest
from rag_rewards.models.text_servers.long_texts import (
    plain_text,
    probabilities_of_parts,
)
from rag_rewards.models.text_servers.server import (
    SHARED_BATCH,
    VLLM_BATCH,
    Api,
    Description,
    Rows,
    TextServer,
)

_OVERLAP = 64
_FOLDER = (
    "vLLM reports neither the labels nor the tokens of a pair: set nli_tokenizer (or tokenizer= of "
    "EntailmentServer) to the folder of the model, or of its config and its tokenizer"
)


class _Entailments(msgspec.Struct):
    entailment: list[float]
    contradiction: list[float] | None = None


class _Prediction(msgspec.Struct):
    score: float
    label: str


class _Class(msgspec.Struct):
    index: int
    label: str | None
    probs: list[float]


class _Score(msgspec.Struct):
    index: int
    score: float


@dataclass(frozen=True)
class _Labels:
    """The labels of a classifier in the order of its outputs, and the indices of two of them."""

    names: tuple[str, ...]
    entailment: int
    contradiction: int | None

    @classmethod
    def of(cls, config: Mapping[str, Any], label: str | int | None) -> _Labels:
        names = label_names(config)
        return cls(tuple(names), entailment_index(names, label), contradiction_index(names))

    def both(self, shares: Sequence[float]) -> Both:
        """Return the probabilities of entailment and of contradiction, 0 without its label."""
        other = 0.0 if self.contradiction is None else shares[self.contradiction]
        return shares[self.entailment], other


class EntailmentServer(TextServer):
    """P(premise entails hypothesis), 0 to 1, by a model on a server, or on several servers.

    url               addresses of `rag-rewards serve`, of text-embeddings-inference or of vLLM
    entailment_label  name or index of the label for entailment, if the server's labels do not
                      specify it
    tokenizer         vLLM only: folder of the model, or of its config and its tokenizer; default:
                      the folder that the server reports, if it exists on this machine
    api_key           key for the Authorization header; default: RAG_REWARDS_NLI_KEY
    limits            timeouts, retries, concurrency, and pairs in a request

    Equal pairs are sent once. A premise that is too long is divided, and the highest probability
    of a part counts. An empty premise or hypothesis, and a hypothesis that is too long, have
    probability 0.0. The error of a request is the result of its pairs.

    Raises UsageError for invalid arguments, and MissingExtraError if httpx is not installed.
    """

    kind = "nli"
    key_variable = "RAG_REWARDS_NLI_KEY"

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        entailment_label: str | int | None = None,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        api_key: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(url, api_key, limits)
        self._label, self._tokenizer = entailment_label, tokenizer
        self._has_contradiction = True

    async def entail(self, pairs: Sequence[Pair]) -> list[float | Exception]:
        """Return the probability, or the error, of each (premise, hypothesis) pair, in order."""
        values = await self._values(pairs, contradiction=False)
        return [value if isinstance(value, Exception) else value[0] for value in values]

    async def entail_and_contradict(self, pairs: Sequence[Pair]) -> list[Both | Exception]:
        """Return the probabilities of entailment and of contradiction of each pair, in order."""
        return await self._values(pairs, contradiction=True)

    async def _values(self, pairs: Sequence[Pair], contradiction: bool) -> list[Both | Exception]:
        complete = [(p, h) for p, h in pairs if p.strip() and h.strip()]
        if not complete:
            return [(0.0, 0.0)] * len(pairs)
        deadline = self._client.new_deadline()
        api = await self._described(deadline)
        values: dict[Pair, Both | Exception]
        if contradiction and not self._has_contradiction:
            error = self._error("serves a model without a label for contradiction")
            values = dict.fromkeys(complete, error)
        else:
            values = await self._in_batches(
                complete,
                api.batch,
                lambda pair: len(pair[0]) + len(pair[1]),
                lambda batch, sender: api.send(batch, sender, contradiction),
                deadline,
            )
        return [values.get((p, h), (0.0, 0.0)) for p, h in pairs]

    # --- the APIs ------------------------------------------------------------------------------

    def _new_api(self, description: Description) -> Api:
        if description.api == "rag-rewards":
            if description.entailment is None:
                raise self._error("has no entailment model: start the server with --nli MODEL")
            return Api(description.entailment.fingerprint, SHARED_BATCH, self._send_shared)
        if description.api == "tei":
            return self._tei_api(description)
        return self._vllm_api(description)

    async def _send_shared(
        self, pairs: Sequence[Pair], sender: Sender, contradiction: bool
    ) -> list[Both]:
        """Return the probabilities that `rag-rewards serve` computes."""
        body = {"pairs": pairs, "contradiction": contradiction}
        answer = await sender.post("/entailment", body, _Entailments)
        second = answer.contradiction if contradiction else [0.0] * len(answer.entailment)
        if second is None or len(second) != len(answer.entailment):
            raise self._error("returned no contradictions")
        first = map(self._probability, answer.entailment)
        return list(zip(first, map(self._probability, second), strict=True))

    def _tei_api(self, description: Description) -> Api:
        """Return POST /predict. Raw scores do not depend on the activation of the server."""
        model, kinds = description.tei_model, description.model_type or {}
        config = kinds.get("classifier") or kinds.get("reranker")
        if not isinstance(config, Mapping):
            raise self._error(f"serves {model}, which is not a classifier of text pairs")
        try:
            labels = _Labels.of(config, self._label)
        except (UsageError, BackendError) as error:
            raise self._error(f"serves {model}: {error}") from None

        async def predict(parts: Sequence[Pair], sender: Sender) -> list[Both]:
            body = {"inputs": parts, "truncate": False, "raw_scores": True}
            rows = await sender.post("/predict", body, list[list[_Prediction]])
            self._check_count(rows, parts)
            return [self._softmax(row, labels) for row in rows]

        self._has_contradiction = labels.contradiction is not None
        fingerprint = f"nli tei:{model} label={labels.entailment}"
        return self._dividing_api(fingerprint, description.max_client_batch_size, predict)

    def _dividing_api(
        self,
        fingerprint: str,
        batch: int,
        request: Callable[[Sequence[Pair], Sender], Awaitable[list[Both]]],
    ) -> Api:
        """Return an API for servers that refuse long pairs, whose premises are divided."""

        async def send(pairs: Sequence[Pair], sender: Sender, _: bool) -> list[Both]:
            async def send_parts(parts: Sequence[Pair]) -> list[Both]:
                return await request([(plain_text(p), plain_text(h)) for p, h in parts], sender)

            return await probabilities_of_parts(pairs, send_parts)

        return Api(fingerprint, batch, send)

    def _softmax(self, row: Sequence[_Prediction], labels: _Labels) -> Both:
        """Return the probabilities of both labels. The server sorts a row by its scores."""
        scores = {prediction.label: prediction.score for prediction in row}
        if scores.keys() != set(labels.names) or len(row) != len(labels.names):
            raise self._error(
                f"returned the labels {sorted(scores)}, and /info the labels {sorted(labels.names)}"
            )
        return labels.both(softmax([scores[name] for name in labels.names]))

    def _vllm_api(self, description: Description) -> Api:
        """Return POST /classify, or /score for a model with one output.

        /score takes pairs of texts, but only of models with one output. /classify takes one text,
        so that the tokens of a pair are sent. The labels are those in the config of the folder.
        """
        card = description.data[0]
        source: Any = card.root if self._tokenizer is None else self._tokenizer
        if not isinstance(source, (str, os.PathLike)) or not os.path.isdir(source):
            raise UsageError(_FOLDER)
        config = read_config(Path(source))
        labels = _Labels.of(config, self._label)
        self._has_contradiction = labels.contradiction is not None
        if len(labels.names) == 1:
            return self._vllm_score_api(card.id)
        tokenizer: Any = resolve_tokenizer(source, None)
        has_types = "token_type_ids" in getattr(tokenizer, "model_input_names", ())
        if has_types and int(config.get("type_vocab_size", 2)) > 1:
            raise UsageError(
                f"{card.id} has token types, which /classify of vLLM does not take: serve the "
                "model with text-embeddings-inference or `rag-rewards serve`"
            )
        encoder = PairClassifier(None, tokenizer, 0, labels.entailment, labels.contradiction)
        length = card.max_model_len
        if length is None:
            raise self._error("does not report max_model_len, the maximum length of the model")

        async def send(pairs: Sequence[Pair], sender: Sender, _: bool) -> list[Both]:
            pieces, owners = await asyncio.to_thread(
                divide, encoder.encode(pairs), length, _OVERLAP
            )
            shares: list[Both] = []
            for at in range(0, len(pieces), VLLM_BATCH):
                batch = pieces[at : at + VLLM_BATCH]
                body = {"model": card.id, "input": [piece.ids for piece in batch]}
                rows = (await sender.post("/classify", body, Rows[_Class])).data
                shares += [self._shares(row, labels) for row in self._in_order(rows, batch)]
            return highest(len(pairs), owners, shares)

        return Api(
            f"nli vllm:{card.id} {encoder.label} max_length={length} overlap={_OVERLAP}",
            VLLM_BATCH,
            send,
        )

    def _vllm_score_api(self, model: str) -> Api:
        """Return POST /score, for a classifier with one output, which is that of entailment."""

        async def score(parts: Sequence[Pair], sender: Sender) -> list[Both]:
            premises, hypotheses = zip(*parts, strict=True)
            body = {"model": model, "text_1": premises, "text_2": hypotheses}
            rows = (await sender.post("/score", body, Rows[_Score])).data
            return [(self._probability(row.score), 0.0) for row in self._in_order(rows, parts)]

        return self._dividing_api(f"nli vllm:{model} score", VLLM_BATCH, score)

    def _shares(self, row: _Class, labels: _Labels) -> Both:
        """Return both probabilities. The label of the greatest one must be that of the config."""
        shares = list(map(self._probability, row.probs))
        if len(shares) != len(labels.names):
            raise self._error(
                f"returned {len(shares)} classes, and the config has the labels {labels.names}"
            )
        if abs(sum(shares) - 1) > 0.01:
            raise self._error(f"returned classes whose sum is {sum(shares):g}, not 1")
        greatest = labels.names[shares.index(max(shares))]
        if row.label != greatest:
            raise self._error(
                f"returned the label {row.label!r} where the config has {greatest!r}: the folder "
                "of the tokenizer belongs to another model"
            )
        return labels.both(shares)


def softmax(logits: Sequence[float]) -> list[float]:
    """Return the probabilities of logits; of a single logit, its sigmoid.

    >>> softmax([0.0, 0.0]), softmax([0.0])
    ([0.5, 0.5], [0.5])
    """
    values: list[Any] = [0.0, *logits] if len(logits) == 1 else list(logits)
    greatest = max(values)
    powers = [math.exp(value - greatest) for value in values]
    return [power / sum(powers) for power in powers][-len(logits) :]

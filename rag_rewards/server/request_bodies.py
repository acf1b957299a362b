"""The bodies of requests: they are decoded, and their rows are counted and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from rag_rewards.errors import RolloutError, RowError
from rag_rewards.models.responses import UNDECODABLE
from rag_rewards.rollout import Rollout
from rag_rewards.rows import decode_or_error, row_error
from rag_rewards.server import openrlhf
from rag_rewards.server.batching import INLINE_BYTES, Workers
from rag_rewards.server.options import ServerOptions
from rag_rewards.server.pair_models import EntailmentRequest, Pair, SimilarityRequest
from rag_rewards.server.request_errors import RequestError

_T = TypeVar("_T")
_P = TypeVar("_P", EntailmentRequest, SimilarityRequest)


class RowsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /score. `recipe` is optional and must be the served recipe."""

    rollouts: list[Rollout]
    recipe: str | None = None


class BodyReader:
    """Decodes the bodies of requests, and checks the limits of their rows."""

    def __init__(self, options: ServerOptions, workers: Workers) -> None:
        self._workers = workers
        self._max_row, self._max_rows = options.max_row, options.max_rows

    @staticmethod
    def decode(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
        """Return the decoded body. Raises 400 for other text than JSON, 422 for another form."""
        try:
            return decoder.decode(body)
        except RowError as error:  # turns that contradict each other
            path = f"{_place_of_fault(body)}{error.path}"
            raise RequestError(422, "RowError", error.message, path) from None
        except msgspec.ValidationError as error:
            fault = row_error(error)
            raise RequestError(422, "RowError", fault.message, fault.path) from None
        except UNDECODABLE as error:
            raise RequestError(400, "RowError", f"the body is not JSON: {error}") from None

    async def read(self, body: bytes, work: Callable[[], _T]) -> _T:
        """Return the result of `work`, which reads a body; in a thread if the body is large."""
        return work() if len(body) <= INLINE_BYTES else await self._workers.run(len(body), work)

    async def decode_rows(self, body: bytes) -> RowsRequest:
        """Decode the body of POST /score."""

        def decode() -> RowsRequest:
            if len(body) > self._max_row:
                rows = self.decode(_RAW_ROWS, body).rollouts
                self.check_sizes((len(bytes(row)) for row in rows), len(body), "rollouts")
            return self.decode(_ROWS_REQUEST, body)

        return await self.read(body, decode)

    async def decode_samples(self, body: bytes) -> list[Rollout | RolloutError]:
        """Decode the body of POST /openrlhf, and return a rollout or an error for each query."""

        def decode() -> list[Rollout | RolloutError]:
            request = self.decode(_SAMPLES, body)
            self.check_rows(len(request.query), "query")
            for name, texts in (("query", request.query), ("labels", request.labels)):
                self.check_sizes((len(text or "") for text in texts), len(body), name)
            return openrlhf.rollouts_of(request)

        return await self.read(body, decode)

    async def decode_pairs(self, decoder: msgspec.json.Decoder[_P], body: bytes) -> _P:
        """Decode the body of POST /entailment or POST /similarity."""

        def decode() -> _P:
            request = self.decode(decoder, body)
            self.check_pairs(request.pairs, len(body))
            return request

        return await self.read(body, decode)

    def check_sizes(self, sizes: Iterable[int], body: int, path: str) -> None:
        """Raise 413 for a row above the limit. A body below the limit contains no such row."""
        limit = self._max_row
        if body <= limit:
            return
        for i, size in enumerate(sizes):
            if size > limit:
                message = f"a row has at most {limit:,} bytes, found {size:,}: shorten its texts"
                raise RequestError(413, "TooLarge", message, f"{path}[{i}]")

    def check_pairs(self, pairs: Sequence[Pair], body: int) -> None:
        """Raise 413 for too many pairs, and for a pair that is too long."""
        self.check_rows(len(pairs), "pairs")
        self.check_sizes((len(first) + len(second) for first, second in pairs), body, "pairs")

    def check_rows(self, rows: int, path: str) -> None:
        """Raise 413 for too many rows."""
        if rows > self._max_rows:
            message = f"a request has at most {self._max_rows:,} rows, found {rows:,}"
            raise RequestError(413, "TooLarge", message, path)


class _Rows(msgspec.Struct):
    rollouts: list[msgspec.Raw] = []


_ROWS_REQUEST = msgspec.json.Decoder(RowsRequest)
_SAMPLES = msgspec.json.Decoder(openrlhf.SampleRequest)
_RAW_ROWS = msgspec.json.Decoder(_Rows)


def _place_of_fault(body: bytes) -> str:
    """Return the path of the first row of a request that cannot be decoded, with a dot."""
    try:
        rows = _RAW_ROWS.decode(body).rollouts
    except UNDECODABLE:  # the text after this row is not JSON
        return ""
    errors = (isinstance(decode_or_error(bytes(row)), RolloutError) for row in rows)
    return next((f"rollouts[{i}]." for i, is_error in enumerate(errors) if is_error), "")

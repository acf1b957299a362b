"""The bodies of requests and responses: their types, their decoding, and the limits of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

from rag_rewards.errors import RolloutError, RowError
from rag_rewards.models.responses import UNDECODABLE
from rag_rewards.rollout import Rollout
from rag_rewards.rows import decode_or_error, row_error
from rag_rewards.server.options import MIB, ServerOptions
from rag_rewards.server.request_errors import RequestError
from rag_rewards.training import openrlhf

Pair = tuple[str, str]
T = TypeVar("T")


class ScoreRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /score. `recipe` is optional and must be the served recipe."""

    rollouts: list[Rollout]
    recipe: str | None = None


class ScoreResponse(msgspec.Struct):
    """A score or an error for each rollout, in the order of the request."""

    scores: list[dict[str, Any]]
    signature: str


class EntailmentRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Pairs of a premise and a hypothesis. `contradiction` requests its probabilities as well."""

    pairs: list[Pair]
    contradiction: bool = False


class EntailmentResponse(msgspec.Struct, omit_defaults=True):
    """A probability for each pair of a premise and a hypothesis, in order."""

    entailment: list[float]
    contradiction: list[float] | None = None


class SimilarityRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Pairs of a text and a reference."""

    pairs: list[Pair]


class SimilarityResponse(msgspec.Struct):
    """A similarity for each pair of a text and a reference, in order."""

    similarity: list[float]


class ModelDescription(msgspec.Struct):
    """A model of the server."""

    fingerprint: str


class ModelsResponse(msgspec.Struct):
    """The version of the server and its models, null for a model that is not loaded."""

    rag_rewards: str
    entailment: ModelDescription | None
    similarity: ModelDescription | None


class HealthResponse(msgspec.Struct, omit_defaults=True):
    """Whether the server can score, otherwise the reason; the states of models on servers."""

    ready: bool
    recipe: str | msgspec.UnsetType | None = msgspec.UNSET
    reason: str | msgspec.UnsetType = msgspec.UNSET
    backends: dict[str, str] = {}


class _Rows(msgspec.Struct):
    rollouts: list[msgspec.Raw] = []


Request = ScoreRequest | openrlhf.SampleRequest | EntailmentRequest | SimilarityRequest
R = TypeVar("R", bound=Request)
_RAW_ROWS = msgspec.json.Decoder(_Rows)
_decoder: Any = cache(msgspec.json.Decoder)


def decode_request(kind: type[R], body: bytes, options: ServerOptions) -> R:
    """Return the body of a request, whose rows are within the limits.

    Raises RequestError: 400 for other text than JSON, 422 for another form, 413 above a limit.
    """
    request: R = _decode(_decoder(kind), body)
    rows = _rows(request)
    for path, each in rows.items():
        if len(each) > options.max_rows:
            message = f"a request has at most {options.max_rows:,} rows, found {len(each):,}"
            raise RequestError(413, "TooLarge", message, path)
    limit = int(options.max_row * MIB)
    if len(body) <= limit:  # it contains no row above the limit
        return request
    if isinstance(request, ScoreRequest):
        rows = {"rollouts": _RAW_ROWS.decode(body).rollouts}
    for path, each in rows.items():
        for i, size in enumerate(map(_size, each)):
            if size > limit:
                message = f"a row has at most {limit:,} bytes, found {size:,}: shorten its texts"
                raise RequestError(413, "TooLarge", message, f"{path}[{i}]")
    return request


def _rows(request: Request) -> dict[str, Sequence[Any]]:
    """Return the rows of a request by the names of their fields."""
    if isinstance(request, ScoreRequest):
        return {"rollouts": request.rollouts}
    if isinstance(request, openrlhf.SampleRequest):
        return {"query": request.query, "labels": request.labels}
    return {"pairs": request.pairs}


def _size(row: msgspec.Raw | Pair | str | None) -> int:
    """Return the size of a row; of texts, the number of characters."""
    if isinstance(row, tuple):
        return sum(map(len, row))
    return len(bytes(row) if isinstance(row, msgspec.Raw) else row or "")


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
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


def _place_of_fault(body: bytes) -> str:
    """Return the path of the first row of a request that cannot be decoded, with a dot."""
    try:
        rows = _RAW_ROWS.decode(body).rollouts
    except UNDECODABLE:  # the text after this row is not JSON
        return ""
    errors = (isinstance(decode_or_error(bytes(row)), RolloutError) for row in rows)
    return next((f"rollouts[{i}]." for i, is_error in enumerate(errors) if is_error), "")

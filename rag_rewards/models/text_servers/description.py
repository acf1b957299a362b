"""What a server says about its model. This decides which of the three APIs it has.

- `rag-rewards serve`: GET /models
- text-embeddings-inference: GET /info
- vLLM, and other servers with the embeddings API of OpenAI: GET /v1/models
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Api = Literal["rag-rewards", "tei", "vllm"]
PATHS = ("/info", "/models", "/v1/models")
"""The paths in the order of the requests. Each API answers the paths before its own with 404."""


class SharedModel(msgspec.Struct):
    """A model of `rag-rewards serve`."""

    fingerprint: str


class ModelCard(msgspec.Struct):
    """A model in the list of an OpenAI-compatible server; `root` is its folder."""

    id: str
    root: str | None = None
    max_model_len: int | None = None


class Description(msgspec.Struct):
    """The response of any of the paths. Each API sets other fields."""

    rag_rewards: str | None = None
    entailment: SharedModel | None = None
    similarity: SharedModel | None = None

    model_type: Mapping[str, Any] | None = None
    model_id: str = ""
    model_sha: str | None = None
    model_dtype: str = ""
    max_client_batch_size: int = 32

    data: list[ModelCard] = []

    @property
    def api(self) -> Api | None:
        """The API of the server, None if the response belongs to another server."""
        if self.rag_rewards is not None:
            return "rag-rewards"
        if self.model_type is not None:
            return "tei"
        return "vllm" if self.data else None

"""NeMo Gym: the resources server of a recipe. It imports nemo_gym.

    # resources_servers/rag_rewards/app.py
    from rag_rewards_adapters.nemo_gym_server import RagRewardsServer

    if __name__ == "__main__":
        RagRewardsServer.run_webserver()

`POST /verify` scores one rollout, and `POST /search` is a tool of the policy if `retriever` is set.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse
from nemo_gym import base_resources_server as nemo
from pydantic import BaseModel, ConfigDict

from rag_rewards.errors import DataError, RolloutError, RowError, ScoringError
from rag_rewards.rows.columns import DATASET_FIELDS
from rag_rewards_adapters.nemo_gym import RETRIEVER_ERROR, ROW, Verifier
from rag_rewards_adapters.reading import SearchTool

_ROW_ERRORS = (DataError, RowError, ScoringError)
"""Errors of the row itself (status 422). Others are failures of a model or a retriever (503)."""
_Response: Any = getattr(nemo, "BaseMultiRewardVerifyResponse", nemo.BaseVerifyResponse)
"""The response with several rewards, which NeMo Gym has since 0.5."""


def http_error(error: RolloutError) -> HTTPException:
    """Return the error of an unscored rollout as an HTTP error, with the fix."""
    if not isinstance(error, _ROW_ERRORS):
        return HTTPException(503, f"{error}: the rollout can be verified again")
    is_field = re.split(r"[.\[]", error.path)[0] in DATASET_FIELDS
    return HTTPException(422, f"{error}: correct it in {ROW}" if is_field else str(error))


class RagRewardsConfig(nemo.BaseResourcesServerConfig):  # type: ignore[misc]
    """The configuration of the server.

    reward     the recipe, its settings and its models, with the names of the command line
    retriever  `module:name` of a function from a query to a list of documents
               (`{id?, title?, text}`)
    """

    reward: dict[str, Any]
    retriever: str | None = None


class RagVerifyRequest(nemo.BaseVerifyRequest):  # type: ignore[misc]
    """A rollout of an agent, with the fields of its row."""

    model_config = ConfigDict(extra="allow")

    verifier_metadata: dict[str, Any] | None = None


class RagVerifyResponse(_Response):  # type: ignore[misc]
    """The request with the reward and its components."""

    model_config = ConfigDict(extra="allow")

    reward_components: dict[str, float]


class SearchRequest(BaseModel):
    """A call of the tool `search`."""

    query: str


class RagRewardsServer(nemo.SimpleResourcesServer):  # type: ignore[misc]
    """A recipe as a resources server.

    The recipe and its models are loaded at construction. An unscored rollout is an HTTP error that
    names the row, the field and the fix: 422 for an error of the row, 503 for the failure of a
    model or of the retriever.
    """

    config: RagRewardsConfig

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._verifier = Verifier(self.config.reward)
        name = self.config.retriever
        self._tool = SearchTool(name) if name else None

    def setup_webserver(self) -> FastAPI:
        """Return the application of NeMo Gym, with the tool `search` if there is a retriever."""
        app: FastAPI = super().setup_webserver()
        if self._tool is not None:
            app.post("/search")(self.search)
        return app

    async def verify(self, body: RagVerifyRequest) -> RagVerifyResponse:
        """Return the reward of a rollout and its components."""
        try:
            score = await self._verifier.score(body.model_dump())
        except RolloutError as error:
            raise http_error(error) from None
        return RagVerifyResponse(**{**body.model_dump(), **self._verifier.fields(score)})

    async def search(self, body: SearchRequest) -> Any:
        """Return the documents of a query. The failure of the retriever is an object, status 503.

        The agent passes both to the policy. A rollout with such a failure is unscored.
        """
        try:
            return await asyncio.to_thread(self._tool.documents, body.query)  # type: ignore[union-attr]
        except Exception as error:
            return JSONResponse({RETRIEVER_ERROR: f"{type(error).__name__}: {error}"}, 503)

"""NeMo Gym: the resources server of a recipe. It imports nemo_gym.

    # resources_servers/rag_rewards/app.py
    from rag_rewards_adapters.nemo_gym_server import RagRewardsServer

    if __name__ == "__main__":
        RagRewardsServer.run_webserver()

`POST /verify` scores a rollout, with `group_size` together with the others of its prompt.
`POST /search` is a tool of the policy if `retriever` is set.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, ClassVar

from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse
from nemo_gym import base_resources_server as nemo
from nemo_gym.config_types import AggregateMetricsRequest
from pydantic import BaseModel, ConfigDict, Field

from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.rows.columns import DATASET_FIELDS
from rag_rewards_adapters.nemo_gym import (
    DEADLINE,
    FAILURE_CLASS,
    PATIENCE,
    RETRIEVER_ERROR,
    ROW,
    ROW_ERRORS,
    Verifier,
)
from rag_rewards_adapters.reading import SearchTool

_Response: Any = getattr(nemo, "BaseMultiRewardVerifyResponse", nemo.BaseVerifyResponse)
"""The response with several rewards, which NeMo Gym has since 0.5."""
_STATELESS: Any = getattr(getattr(nemo, "ReverifyMode", None), "STATELESS", None)
"""Responses can be verified again, which NeMo Gym asks a server since 0.5."""


def http_error(error: RolloutError) -> HTTPException:
    """Return the error of an unscored rollout as an HTTP error, with the fix."""
    if not isinstance(error, ROW_ERRORS):
        return HTTPException(503, f"{error}: repair the cause, and continue from the last step")
    is_field = re.split(r"[.\[]", error.path)[0] in DATASET_FIELDS
    return HTTPException(422, f"{error}: correct it in {ROW}" if is_field else str(error))


class RagRewardsConfig(nemo.BaseResourcesServerConfig):  # type: ignore[misc]
    """The configuration of the server.

    reward     the recipe, its settings and its models, with the names of the command line
    retriever  `module:name` of a function from a query to a list of documents
               (`{id?, title?, text}`)

    The other fields are arguments of `Verifier`.
    """

    REVERIFY_MODE: ClassVar[Any] = _STATELESS

    reward: dict[str, Any]
    retriever: str | None = None
    group_size: int | None = Field(None, ge=1)
    group_deadline: float = Field(DEADLINE, gt=0)
    std_floor: float | None = Field(None, gt=0)
    patience: int = Field(PATIENCE, ge=1)
    keep_evidence: bool = False

    def verifier(self) -> Verifier:
        """Return the verifier. Raises UsageError for several processes, which share no groups."""
        if self.group_size and (self.num_workers or 1) > 1:
            raise UsageError(
                f"num_workers={self.num_workers}: the rollouts of a prompt would reach different "
                "processes: set num_workers to 1, or remove group_size"
            )
        return Verifier(
            self.reward,
            group_size=self.group_size,
            group_deadline=self.group_deadline,
            std_floor=self.std_floor,
            patience=self.patience,
            keep_evidence=self.keep_evidence,
        )


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

    The recipe and its models are loaded at construction. An error of the row is an HTTP error with
    status 422 that names the row, the field and the fix. A rollout is a row with a failure class if
    a model, the retriever or the group failed. After too many of them, a failure has status 503.
    """

    config: RagRewardsConfig

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._verifier = self.config.verifier()
        name = self.config.retriever
        self._tool = SearchTool(name) if name else None

    def setup_webserver(self) -> FastAPI:
        """Return the application of NeMo Gym, with the tool `search` if there is a retriever."""
        app: FastAPI = super().setup_webserver()
        if self._tool is not None:
            app.post("/search")(self.search)
        return app

    async def verify(self, body: RagVerifyRequest) -> RagVerifyResponse:
        """Return the reward of a rollout and its components, or its failure class."""
        request = body.model_dump()
        try:
            fields = await self._verifier.verify(request)
        except RolloutError as error:
            raise http_error(error) from None
        return RagVerifyResponse(**{**request, **fields})

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> Any:
        """Return the metrics of the scored rollouts. NeMo Gym 0.4 also passes those that failed."""
        scored = [each for each in body.verify_responses if FAILURE_CLASS not in each]
        return await super().aggregate_metrics(AggregateMetricsRequest(verify_responses=scored))

    async def search(self, body: SearchRequest) -> Any:
        """Return the documents of a query. The failure of the retriever is an object, status 503.

        The agent passes both to the policy. A rollout with such a failure is unscored.
        """
        try:
            return await asyncio.to_thread(self._tool.documents, body.query)  # type: ignore[union-attr]
        except Exception as error:
            return JSONResponse({RETRIEVER_ERROR: f"{type(error).__name__}: {error}"}, 503)

"""`rag-rewards serve`: serve a recipe over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from rag_rewards.cli.options import (
    DUMP,
    MODEL_DEFAULTS,
    RAY,
    RECIPE_DEFAULTS,
    Models,
    Recipe,
)
from rag_rewards.scoring.ray_cluster import Engine, check_engine
from rag_rewards.scoring.rollout_dump import DumpOptions
from rag_rewards.server.logs import LogOptions
from rag_rewards.server.on_ray import ReplicaOptions, serve_on_ray
from rag_rewards.server.options import RequestOptions, ServerOptions
from rag_rewards.server.run import max_in_flight, read_token, run_server

ADDRESS = Group("Address", sort_key=1)
REQUESTS = Group("Requests", sort_key=2)
LOG_DEFAULTS = LogOptions()
REQUEST_DEFAULTS = RequestOptions()
NO_REPLICAS = ReplicaOptions()
DUMP_DEFAULTS = DumpOptions()


def serve(
    *,
    host: Annotated[str, Parameter(group=ADDRESS)] = "127.0.0.1",
    port: Annotated[int, Parameter(group=ADDRESS)] = 8000,
    token_file: Annotated[Path | None, Parameter(group=ADDRESS)] = None,
    requests: Annotated[RequestOptions, Parameter(name="*", group=REQUESTS)] = REQUEST_DEFAULTS,
    logs: Annotated[
        LogOptions, Parameter(name="*", group=Group("Logs", sort_key=3))
    ] = LOG_DEFAULTS,
    recipe: Recipe = RECIPE_DEFAULTS,
    models: Models = MODEL_DEFAULTS,
    dump: Annotated[DumpOptions, Parameter(name="*", group=DUMP)] = DUMP_DEFAULTS,
    engine: Annotated[Engine, Parameter(group=RAY)] = "local",
    replicas: Annotated[ReplicaOptions, Parameter(name="*", group=RAY)] = NO_REPLICAS,
) -> None:
    """Serve a recipe over HTTP.

    The routes are POST /score, POST /openrlhf, POST /entailment, POST /similarity, GET /models,
    GET /health, GET /metrics, GET /docs and a status page at /. Without a recipe, the server shares
    the models of --nli and --similarity with other processes.

    Parameters
    ----------
    host
        Listen on this address. Any address except the loopback address requires a token.
    port
        Listen on this port.
    token_file
        Read the access token of the server from this file.
        By default, read it from the environment variable RAG_REWARDS_TOKEN.
    engine
        Serve in this process (local), or in replicas on a Ray cluster (ray).
    """
    check_engine(engine, replicas)
    model_options = models.options(recipe.models)
    options = ServerOptions(
        **vars(requests),
        token=read_token(token_file),
        in_flight=max_in_flight(model_options),
        logs_requests=logs.log_requests,
        dump=dump.open(),
    )
    arguments = (recipe.optional_spec(), model_options, host, port, options, logs)
    if engine == "ray":
        serve_on_ray(*arguments, replicas, token_file)
    else:
        run_server(*arguments)

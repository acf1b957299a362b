"""Run the HTTP reward server until it is stopped."""

from __future__ import annotations

import logging
import os
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from rag_rewards.errors import OptionError, UsageError, needs_extra
from rag_rewards.loading import RecipeSource, RecipeSpec, load_recipe
from rag_rewards.models.addresses import is_url
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.scorer import Scorer
from rag_rewards.server.options import ServerOptions

if TYPE_CHECKING:
    from rag_rewards.server.app import RewardServer
    from rag_rewards.server.logs import LogOptions

log = logging.getLogger("rag_rewards.server")

TOKEN_VARIABLE = "RAG_REWARDS_TOKEN"  # noqa: S105 (the name of a variable)
MAX_PORT = 65_535
GRACE_SECONDS = 1
"""Time in addition to the deadline of a request before a stopped server exits."""
REMOTE_IN_FLIGHT = 8
"""Concurrent batches for models behind a server. A local model scores one batch at a time."""


def run_server(
    recipe: RecipeSource | None,
    models: ModelOptions,
    host: str,
    port: int,
    options: ServerOptions,
    logs: LogOptions,
) -> None:
    """Serve until SIGTERM or Ctrl-C, and then complete the requests in progress.

    Without a recipe, the server offers only the entailment and the similarity model. Raises
    OptionError for an address that other machines can reach without a token, and for a port that
    does not exist.
    """
    check_address(host, port, options)
    with needs_extra("server", "uvicorn"):
        import uvicorn
    from rag_rewards.server.connections import LimitedProtocol
    from rag_rewards.server.logs import configure_logs
    from rag_rewards.server.routes import Application

    configure_logs(logs.log_format)
    server, name = server_of(recipe, models, options, sends_traces=logs.traces)
    log.info("rag-rewards: %s on http://%s:%d", name, host, port)
    uvicorn.run(
        Application(server),
        host=host,
        port=port,
        http=LimitedProtocol,
        log_level="warning",
        log_config=None,  # the loggers of uvicorn use the handler of `configure_logs`
        access_log=False,
        timeout_graceful_shutdown=int(options.deadline) + GRACE_SECONDS,
        server_header=False,
    )


def check_address(host: str, port: int, options: ServerOptions) -> None:
    """Raise OptionError for a port that does not exist, and for an address without a token."""
    if not 0 <= port <= MAX_PORT:
        raise OptionError(
            "{port} must be from 0 to {last}, found {value}", last=MAX_PORT, value=port
        )
    if not _is_loopback(host) and options.token is None:
        raise OptionError(
            "{host} {address} can be reached from other machines: set {token_file}, or the "
            "environment variable {variable}",
            address=host,
            variable=TOKEN_VARIABLE,
        )


def server_of(
    recipe: RecipeSource | None,
    models: ModelOptions,
    options: ServerOptions,
    *,
    sends_traces: bool = False,
) -> tuple[RewardServer, str]:
    """Return the server, and what it serves. Raises OptionError if that is nothing."""
    from rag_rewards.server.app import RewardServer
    from rag_rewards.server.tracing import Tracing

    if recipe is None:
        name = f"{_shared_models(models, options)} model"
        server = RewardServer(models.load, (), options)
    else:
        reward = load_recipe(recipe)
        name, models = reward.name, models.for_profile(hardened=RecipeSpec.of(recipe).hardened)
        if reward.scope == "group":
            log.info("this recipe compares groups: send whole groups to POST /score")
        server = RewardServer(
            lambda: Scorer.load(reward, models=models, dump=options.dump),
            reward.component_names,
            options,
        )
    if sends_traces:
        server.telemetry.tracing = Tracing.to_collector()
    return server, name


def _shared_models(models: ModelOptions, options: ServerOptions) -> str:
    """Return the names of the models that a server without a recipe shares."""
    names = {"entailment": models.nli, "similarity": models.similarity}
    shared = " and ".join(name for name, path in names.items() if path)
    if not shared or models.model or models.judge:
        raise OptionError(
            "no recipe is given: set {recipe}; without a recipe, the server shares only the "
            "models {nli} and {similarity}"
        )
    if options.dump is not None:
        raise OptionError("{dump} writes scored rollouts: set {recipe}, or remove {dump}")
    return shared


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def max_in_flight(models: ModelOptions) -> int:
    """Return the number of batches that the models may process at the same time."""
    encoders = (models.nli, models.similarity)
    local = any(model and not is_url(model) for model in encoders) or (
        models.model and models.backend == "transformers"
    )
    return 1 if local else REMOTE_IN_FLIGHT


def read_token(file: Path | None) -> str | None:
    """Return the token from a file, or from the environment if there is no file.

    Raises UsageError when the token is empty, or the file cannot be read.
    """
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE)
        if token is not None and not token.strip():
            raise UsageError(f"the environment variable {TOKEN_VARIABLE} is empty")
        return token.strip() if token else None
    try:
        token = file.read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise OptionError(
            "cannot read {token_file} {file}: {error}", file=file, error=error
        ) from None
    if not token:
        raise OptionError("{token_file} {file} is empty", file=file)
    return token

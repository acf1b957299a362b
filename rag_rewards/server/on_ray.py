"""The server as a Ray Serve application: replicas of the same routes behind Ray's HTTP proxies."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from rag_rewards.errors import OptionError, UsageError, describe, needs_extra
from rag_rewards.loading import RecipeSource, RecipeSpec
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.scoring.ray_cluster import (
    RayOptions,
    absolute_models,
    absolute_recipe,
    ray_cluster,
)
from rag_rewards.server.logs import LogOptions, configure_logs
from rag_rewards.server.options import ServerOptions
from rag_rewards.server.run import TOKEN_VARIABLE, check_address, read_token, server_of

log = logging.getLogger("rag_rewards.server")

APPLICATION = "rag-rewards"
MAX_ONGOING = 256
"""Number of requests that a replica handles at the same time, so that they can form batches."""
GRACE_SECONDS = 5.0
"""Time in addition to the deadline of a request before a proxy or a stopped replica gives up."""
CONTROLLER_ENVIRONMENT = {"RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60"}
"""Ray Serve ends a proxy that has not started within this time, by default 5 seconds, which is too
short on a busy machine."""


@dataclass(frozen=True, kw_only=True)
class ReplicaOptions(RayOptions):
    """The replicas of a server on Ray."""

    replicas: int = 1
    """Number of replicas, each with its own models."""
    max_replicas: int | None = None
    """Maximum number of replicas. Ray starts and stops replicas with the number of requests."""
    target_requests: float = 16.0
    """Average number of open requests of a replica above which Ray starts another one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.replicas < 1:
            raise OptionError("{replicas} must be at least 1, found {value}", value=self.replicas)
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise OptionError(
                "{max_replicas} must be at least {replicas}, found {value}",
                value=self.max_replicas,
            )
        if not 0 < self.target_requests <= MAX_ONGOING:
            raise OptionError(
                "{target_requests} must be above 0 and at most {limit}, found {value}",
                limit=MAX_ONGOING,
                value=self.target_requests,
            )

    @property
    def scaling(self) -> dict[str, Any]:
        """The number of replicas, as options of a deployment."""
        if self.max_replicas is None:
            return {"num_replicas": self.replicas}
        bounds = {"min_replicas": self.replicas, "max_replicas": self.max_replicas}
        return {"autoscaling_config": bounds | {"target_ongoing_requests": self.target_requests}}


def serve_on_ray(
    recipe: RecipeSource | None,
    models: ModelOptions,
    host: str,
    port: int,
    options: ServerOptions,
    logs: LogOptions,
    replicas: ReplicaOptions,
    token_file: Path | None = None,
) -> None:
    """Serve on a Ray cluster until SIGTERM or Ctrl-C, and then complete the requests in progress.

    Each replica reads the token itself: from `token_file`, or from the environment variable
    RAG_REWARDS_TOKEN of its process. The token is not sent to the cluster.

    Raises UsageError when Ray Serve already runs on the cluster, and when the replicas do not
    start, also because of one of these signals.
    """
    if options.dump is not None:
        raise OptionError("{dump} is for one process: remove it, or use {engine} local")
    if port == 0:
        raise OptionError("{port} must be from 1 to 65535 with {engine} ray")
    check_address(host, port, options)
    configure_logs(logs.log_format)
    # Raises for options that contradict each other, and for packages that are missing.
    server, name = server_of(recipe, models, options, sends_traces=logs.traces)
    server.telemetry.tracing.close()
    with needs_extra("ray"):
        import ray.serve  # noqa: F401
    application = _builder(recipe, models, options, logs, token_file)
    with ray_cluster(replicas.ray_address):
        _handle_signals(signal.default_int_handler)  # after Ray, which sets its own handlers
        with _running(application, host, port, options, replicas):
            stop = threading.Event()
            _handle_signals(lambda *_: stop.set())
            log.info("rag-rewards: %s on http://%s:%d (Ray)", name, host, port)
            while not stop.wait(1.0):
                pass


@contextmanager
def _running(
    application: Callable[[], Any],
    host: str,
    port: int,
    options: ServerOptions,
    replicas: ReplicaOptions,
) -> Iterator[None]:
    """Run the application for the time of the block, and stop what was started.

    Raises UsageError if Ray Serve already runs on the cluster: it would ignore the host and the
    port.
    """
    from ray import serve

    status = serve.status()
    if status.proxies or status.applications:
        raise UsageError(
            "Ray Serve already runs on this cluster: stop it (`serve shutdown`), or use another "
            "cluster"
        )
    timeout = options.deadline + GRACE_SECONDS
    seconds = 0.0  # no request is in progress before the start, also if a replica waits for a GPU
    try:
        _start(application, {"host": host, "port": port}, timeout, replicas)
        seconds = timeout
        yield
    finally:
        _handle_signals(lambda *_: None)  # another signal would leave Serve on the cluster
        _stop(seconds)


def _start(
    application: Callable[[], Any],
    address: dict[str, Any],
    timeout: float,
    replicas: ReplicaOptions,
) -> None:
    """Start Serve and the application.

    Raises UsageError when a replica does not start, and on Ctrl-C before the replicas have started.
    """
    from ray import serve
    from ray.exceptions import RayError

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    deployment = serve.deployment(
        name="RewardServer",
        max_ongoing_requests=MAX_ONGOING,
        graceful_shutdown_timeout_s=timeout,
        graceful_shutdown_wait_loop_s=0.1,
        ray_actor_options=replicas.resources,
        **replicas.scaling,
    )(serve.ingress(application)())
    quiet = {"log_level": "WARNING", "enable_access_log": False}
    try:
        serve.start(
            http_options=address | {"request_timeout_s": timeout},
            logging_config=quiet,
            controller_options={"runtime_env": {"env_vars": CONTROLLER_ENVIRONMENT}},
        )
        serve.run(deployment.bind(), name=APPLICATION, route_prefix="/", logging_config=quiet)
    except KeyboardInterrupt:
        raise UsageError("the server was stopped before its replicas had started") from None
    except (RayError, RuntimeError, ValueError, OSError) as error:
        raise UsageError(f"the server did not start on Ray: {describe(error)[:500]}") from None


def _stop(seconds: float) -> None:
    """Delete the application, and stop Serve unless it has other applications now.

    Waits at most this time until the replicas have completed their requests.
    """
    from ray import serve
    from ray.exceptions import RayError

    end = time.monotonic() + seconds
    with suppress(RayError):  # the cluster has ended
        if APPLICATION in serve.status().applications:
            serve.delete(APPLICATION, _blocking=False)  # the replicas complete their requests
        while APPLICATION in serve.status().applications and time.monotonic() < end:
            time.sleep(0.1)
        if not serve.status().applications.keys() - {APPLICATION}:
            serve.shutdown()


def _builder(
    recipe: RecipeSource | None,
    models: ModelOptions,
    options: ServerOptions,
    logs: LogOptions,
    token_file: Path | None,
) -> Callable[[], Any]:
    """Return the function with which each replica builds the application of `serve`.

    Ray stores it in the cluster, so that it must not contain the token. Paths become absolute,
    since each replica has its own folder.
    """
    has_token, options = options.token is not None, replace(options, token=None)
    token_file = None if token_file is None else token_file.absolute()
    recipe = None if recipe is None else absolute_recipe(RecipeSpec.of(recipe))
    models = absolute_models(models)

    def build_application() -> Any:
        from rag_rewards.server.routes import Application

        configure_logs(logs.log_format)
        own = replace(options, token=_token(token_file)) if has_token else options
        return Application(server_of(recipe, models, own, sends_traces=logs.traces)[0])

    return build_application


def _token(file: Path | None) -> str:
    """Return the token in the file or the environment of a replica. OptionError without one."""
    token = read_token(file)
    if token is None:
        raise OptionError(
            "a replica has no token: set the environment variable {variable} on all nodes of the "
            "cluster, or {token_file} with a file that they share",
            variable=TOKEN_VARIABLE,
        )
    return token


def _handle_signals(handler: Callable[[int, FrameType | None], Any]) -> None:
    """Set the handler of SIGTERM and Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)

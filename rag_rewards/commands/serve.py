"""`rag-rewards serve`: the HTTP reward server."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from rag_rewards.errors import MissingExtraError, OptionError, UsageError
from rag_rewards.loading import RecipeSource, load_recipe
from rag_rewards.model_options import ModelOptions
from rag_rewards.scorer import Scorer

if TYPE_CHECKING:
    from rag_rewards.server.options import ServerOptions

TOKEN = "RAG_REWARDS_TOKEN"  # noqa: S105 (the name of a variable)
GRACE_SECONDS = 1
"""Beyond the deadline of a request, when the server is told to end."""
REMOTE_IN_FLIGHT = 8
"""Batches with servers at a time; a model in this process takes one after the other."""


@dataclass(frozen=True)
class Address:
    """Where to listen. Another address than this machine's own needs a token."""

    host: str = "127.0.0.1"
    port: int = 8000

    @property
    def local(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def serve(
    recipe: RecipeSource, models: ModelOptions, address: Address, options: ServerOptions
) -> None:
    """Serve until SIGTERM or Ctrl-C. Requests that are being scored then are finished."""
    if not address.local and options.token is None:
        raise OptionError(
            "{host} {address} can be reached from other machines: set {token_file}, or the "
            "environment variable {variable}",
            address=address.host,
            variable=TOKEN,
        )
    try:
        import uvicorn
    except ImportError:
        raise MissingExtraError("uvicorn", extra="server") from None
    from rag_rewards.server.app import RewardServer, build

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # one line per judge request otherwise
    reward = load_recipe(recipe)

    def load() -> Scorer:
        return Scorer.load(reward, models=models)

    server = RewardServer(load, reward.component_names, options)
    print(f"rag-rewards: {reward.name} on http://{address.host}:{address.port}", file=sys.stderr)
    if reward.scope == "group":
        print("a recipe of groups: POST /score takes whole groups", file=sys.stderr)
    uvicorn.run(
        build(server),
        host=address.host,
        port=address.port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=int(options.deadline) + GRACE_SECONDS,
        server_header=False,
    )


def in_flight(models: ModelOptions) -> int:
    """How many batches may be with the models at a time."""
    local = models.nli or models.similarity or (models.model and models.backend == "transformers")
    return 1 if local else REMOTE_IN_FLIGHT


def read_token(file: Path | None) -> str | None:
    """The token, from a file or the environment. UsageError for an empty or unreadable one."""
    if file is None:
        token = os.environ.get(TOKEN)
        if token is not None and not token.strip():
            raise UsageError(f"{TOKEN} is empty")
    else:
        try:
            token = file.read_text("utf-8")
        except (OSError, UnicodeError) as error:
            raise OptionError(
                "cannot read {token_file} {file}: {error}", file=file, error=error
            ) from None
        if not token.strip():
            raise OptionError("{token_file} {file} is empty", file=file)
    return token.strip() if token else None

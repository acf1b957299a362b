"""rag-rewards serve"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rag_rewards.cli import option


class Unanswered(str, Enum):
    fail = "fail"
    value = "value"


def serve(
    context: typer.Context,
    recipe: option.Recipe = None,
    changes: option.Set = None,
    config: option.Config = None,
    hardened: option.Hardened = False,
    host: Annotated[
        str, typer.Option("--host", help="Another address than this machine's needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with the token; or RAG_REWARDS_TOKEN.")
    ] = None,
    max_body: Annotated[int, typer.Option("--max-body", help="MiB of a request.")] = 16,
    max_rows: Annotated[int, typer.Option("--max-rows", help="Rows of a request.")] = 1024,
    deadline: Annotated[float, typer.Option("--deadline", help="Seconds for a request.")] = 120.0,
    batch_ms: Annotated[
        float,
        typer.Option("--batch-ms", help="A request waits for others before a model is asked."),
    ] = 5.0,
    on_error: Annotated[
        Unanswered,
        typer.Option("--on-error", help="POST /openrlhf without a score: fail, or --error-value."),
    ] = Unanswered.fail,
    error_value: Annotated[float | None, typer.Option("--error-value")] = None,
    model: option.Model = None,
    backend: option.Backend = "transformers",
    dtype: option.Dtype = "auto",
    device: option.Device = None,
    adapter: option.Adapter = None,
    tokenizer: option.Tokenizer = None,
    token_budget: option.TokenBudget = None,
    truncate: option.Truncate = False,
    document_form: option.DocumentForm = None,
    document_separator: option.DocumentSeparator = None,
    nli: option.Nli = None,
    similarity: option.Similarity = None,
    judge: option.Judge = None,
    judge_model: option.JudgeModel = None,
    judge_cache: option.JudgeCache = None,
    judge_retries: option.JudgeRetries = 5,
) -> None:
    """Serve one recipe over HTTP: POST /score, POST /openrlhf, GET /health, /metrics and a page."""
    from rag_rewards.commands.plans import make_plan
    from rag_rewards.commands.serve import Address, in_flight, read_token
    from rag_rewards.commands.serve import serve as run_server
    from rag_rewards.errors import UsageError
    from rag_rewards.server.options import ServerOptions

    if (on_error is Unanswered.value) != (error_value is not None):
        raise UsageError("--on-error value and --error-value NUMBER go together")
    models = option.models_of(context)
    options = ServerOptions(
        token=read_token(token_file),
        max_body=max_body << 20,
        max_rows=max_rows,
        deadline=deadline,
        batch_wait=batch_ms / 1000,
        in_flight=in_flight(models),
        error_value=error_value,
    )
    plan = make_plan(recipe, changes or (), config, hardened=hardened)
    run_server(plan, models, Address(host, port), options)

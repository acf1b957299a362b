"""rag-rewards score"""

from __future__ import annotations

import sys
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from rag_rewards.cli import option
from rag_rewards.cli.output import console

if TYPE_CHECKING:
    from rag_rewards.commands.score import Options, Run


class OnError(str, Enum):
    report = "report"
    stop = "stop"


def score(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="IN", help="JSONL or .parquet; - is stdin.")],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Scored rows; .parquet or JSONL; - is stdout."),
    ] = None,
    recipe: option.Recipe = None,
    changes: option.Set = None,
    config: option.Config = None,
    hardened: option.Hardened = False,
    workers: Annotated[int, typer.Option("--workers", help="Processes that score.")] = 1,
    keep_evidence: Annotated[
        bool, typer.Option("--keep-evidence", help="Write what models said beside the score.")
    ] = False,
    on_error: Annotated[
        OnError,
        typer.Option("--on-error", help="report: bad rows to OUT.errors.jsonl; stop at the first."),
    ] = OnError.report,
    group_size: option.GroupSize = None,
    sort: option.Sort = False,
    progress: option.Progress = None,
    table: Annotated[
        bool | None,
        typer.Option(
            "--table/--jsonl",
            help="A table for people; default on a terminal without -o.",
            show_default=False,
        ),
    ] = None,
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
    """Score rollouts with a recipe: a row in, the same row with its reward and reasons out."""
    from rag_rewards.commands.plans import make_plan
    from rag_rewards.commands.score import Options
    from rag_rewards.commands.score import score as run_score
    from rag_rewards.report.terminal import print_scores

    readable = output is None and sys.stdout.isatty() if table is None else table
    plan = make_plan(
        recipe,
        changes or (),
        config,
        hardened=hardened,
        keep_evidence=keep_evidence,
        collect=readable,
    )
    options = Options(
        source=source,
        output=output or "-",
        workers=workers,
        on_error=on_error.value,
        group_size=group_size,
        sort=sort,
        progress=sys.stderr.isatty() if progress is None else progress,
        table=readable and output is None,
        models=option.models_of(context),
    )
    run = run_score(plan, options)
    if readable:
        built = plan.build()
        print_scores(console(110), built.name, built.equation, run.tally, run.told)
    _tell(run, options)
    raise typer.Exit(run.exit_code)


def _tell(run: Run, options: Options) -> None:
    """How it went, on standard error."""
    from rich.console import Console

    from rag_rewards.report.progress import told
    from rag_rewards.report.terminal import plain, print_summary

    if run.stopped_by:
        print(f"stopped at {plain(run.stopped_by)}", file=sys.stderr)
        if run.partial:
            print(
                f"{run.tally.rows:,} rows scored before it stand in {run.partial}", file=sys.stderr
            )
        return
    print_summary(Console(stderr=True), run.tally, run.seconds, run.signature)
    if asked := told(run.usage):
        print(f"models: {asked}", file=sys.stderr)
    if run.judged:
        print(f"judge: {run.judged}", file=sys.stderr)
    if run.tally.errors and options.errors:
        print(f"bad rows: {options.errors}", file=sys.stderr)

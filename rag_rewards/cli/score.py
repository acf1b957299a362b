"""`rag-rewards score`: score rollouts with a recipe."""

from __future__ import annotations

import gc
import sys
from functools import partial
from typing import Annotated, Literal

from cyclopts import Parameter

from rag_rewards.cli.options import (
    FILES,
    GROUP_DEFAULTS,
    MODEL_DEFAULTS,
    RAY,
    RAY_DEFAULTS,
    RECIPE_DEFAULTS,
    Columns,
    Grouping,
    Input,
    Models,
    OptionalOutput,
    Progress,
    Recipe,
)
from rag_rewards.cli.output import console, print_messages
from rag_rewards.errors import plain
from rag_rewards.loading import RecipeSpec
from rag_rewards.report.plain import summary
from rag_rewards.report.progress import ProgressBar, judge_usage
from rag_rewards.scoring.options import OnOutput, OutputFormat, ScoreOptions, ScoringRun
from rag_rewards.scoring.ray_cluster import Engine, RayOptions
from rag_rewards.scoring.score_file import score_file

ALL_SCORED, STOPPED, SOME_IN_ERROR = 0, 2, 3


def score(
    source: Input,
    /,
    *,
    columns: Columns = None,
    output: OptionalOutput = None,
    output_format: Annotated[OutputFormat, Parameter(group=FILES)] = "file",
    keep_evidence: Annotated[bool, Parameter(group=FILES)] = False,
    on_error: Annotated[Literal["report", "stop"], Parameter(group=FILES)] = "report",
    table: Annotated[
        bool | None, Parameter(negative="--jsonl", show_default=False, group=FILES)
    ] = None,
    workers: int = 1,
    resume: Annotated[bool, Parameter(negative="", group=FILES)] = False,
    progress: Progress = None,
    recipe: Recipe = RECIPE_DEFAULTS,
    grouping: Grouping = GROUP_DEFAULTS,
    models: Models = MODEL_DEFAULTS,
    engine: Annotated[Engine, Parameter(group=RAY)] = "local",
    ray: Annotated[RayOptions, Parameter(name="*", group=RAY)] = RAY_DEFAULTS,
) -> int:
    """Score rollouts with a recipe.

    The output contains each input row with its reward, components and details, in input order. The
    exit code is 3 if some rows cannot be scored.

    Parameters
    ----------
    source
        Read rows from this file: JSON lines (.gz, .zst) or .parquet; - is standard input.
    output
        Write scored rows to this file: JSON lines (.gz, .zst) or .parquet; - is standard output.
    output_format
        Write one file (file), or a folder with a file of rows for each shard and manifest.json
        (parts). With parts, --output is the folder.
    keep_evidence
        Include the evidence (model outputs, such as log-probabilities) in the scored rows.
    on_error
        Write unscored rows to OUT.errors.jsonl and continue (report), or stop at the first (stop).
        OUT is the value of --output.
    table
        Print a table, or print rows as JSON lines.
        Without -o, a table is the default on a terminal.
    workers
        Number of processes that score rows.
    resume
        Continue an interrupted run: score only the rows that are not in the output yet. The input
        and the options must be those of that run. The record OUTPUT.run.json remains, so that the
        same command finds the complete output.
    engine
        Score in processes of this machine (local), or on a Ray cluster (ray). With ray, --workers
        is the number of workers on the cluster, and each of them loads the models.
    """
    as_table = output is None and sys.stdout.isatty() if table is None else table
    options = ScoreOptions(
        source=source,
        columns=columns,
        output=output or (None if as_table else "-"),
        output_format=output_format,
        workers=workers,
        keep_evidence=keep_evidence,
        on_error=on_error,
        group_size=grouping.group_size,
        sort=grouping.sort,
        resume=resume,
        models=models.options(),
        engine=engine,
        ray=ray,
    )
    show_progress = sys.stderr.isatty() if progress is None else progress
    run_score = partial(_run, recipe.spec(), options, ProgressBar if show_progress else None)
    if as_table:
        from rag_rewards.report.score_tables import TableRow, print_scores, table_rows

        rows: list[TableRow] = []
        run = run_score(lambda output: rows.extend(table_rows(output)))
        print_scores(console(110), run.recipe, run.equation, run.totals, rows)
    else:
        run = run_score()
    _print_summary(run, options)
    if run.stopped_by:
        return STOPPED
    return SOME_IN_ERROR if run.totals.errors else ALL_SCORED


def _run(
    spec: RecipeSpec,
    options: ScoreOptions,
    display: type[ProgressBar] | None,
    on_output: OnOutput | None = None,
) -> ScoringRun:
    """Score rows. The message of an interruption says how to continue."""
    gc.freeze()  # imported modules remain, so that garbage collection need not visit them
    try:
        return score_file(spec, options, progress=display, on_output=on_output)
    except KeyboardInterrupt:
        if options.is_resumable:
            raise KeyboardInterrupt("continue with the same command and --resume") from None
        raise
    finally:
        gc.unfreeze()


def _print_summary(run: ScoringRun, options: ScoreOptions) -> None:
    """Print a summary on standard error."""
    if run.stopped_by:
        print(f"stopped at {plain(run.stopped_by)}", file=sys.stderr)
        if run.partial:
            print(f"{run.totals.rows:,} rows before it are in {run.partial}", file=sys.stderr)
        return
    if run.was_complete:
        print(f"{options.output} is complete", file=sys.stderr)
    print_messages(summary(run.totals, run.seconds, run.signature))
    if run.usage is not None and str(run.usage):
        print(f"models: {run.usage}", file=sys.stderr)
    if usage := judge_usage(run.judge):
        print(f"judge: {usage}", file=sys.stderr)
    if run.totals.errors and options.errors:
        print(f"rows in error: {options.errors}", file=sys.stderr)

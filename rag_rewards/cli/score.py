"""`rag-rewards score`: score rollouts with a recipe."""

from __future__ import annotations

import gc
import sys
from functools import partial
from typing import Annotated

import msgspec
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
    Recipe,
)
from rag_rewards.cli.output import console, print_messages, shows_progress
from rag_rewards.errors import plain
from rag_rewards.loading import RecipeSpec
from rag_rewards.report.plain import summary
from rag_rewards.report.progress import ProgressBar, judge_usage
from rag_rewards.scoring.options import (
    EstimateOptions,
    OnOutput,
    RunOptions,
    ScoreOptions,
    ScoringRun,
)
from rag_rewards.scoring.ray_cluster import RayOptions
from rag_rewards.scoring.score_file import score_file

ALL_SCORED, STOPPED, SOME_IN_ERROR = 0, 2, 3
RUN_DEFAULTS = RunOptions()
ESTIMATE_DEFAULTS = EstimateOptions()


def score(
    source: Input,
    /,
    *,
    columns: Columns = None,
    output: OptionalOutput = None,
    table: Annotated[
        bool | None, Parameter(negative="--jsonl", show_default=False, group=FILES)
    ] = None,
    run: Annotated[RunOptions, Parameter(name="*", group=FILES)] = RUN_DEFAULTS,
    estimate: Annotated[EstimateOptions, Parameter(name="*")] = ESTIMATE_DEFAULTS,
    recipe: Recipe = RECIPE_DEFAULTS,
    grouping: Grouping = GROUP_DEFAULTS,
    models: Models = MODEL_DEFAULTS,
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
    table
        Print a table, or print rows as JSON lines.
        Without -o, a table is the default on a terminal.
    """
    as_table = output is None and sys.stdout.isatty() if table is None else table
    options = ScoreOptions(
        source,
        output or (None if as_table else "-"),
        columns=columns,
        models=models.options(recipe.models),
        ray=ray,
        **vars(run),
        **vars(grouping),
    )
    if estimate.estimate:
        return _estimate(recipe.spec(), options, estimate, as_json=table is False)
    run_score = partial(_run, recipe.spec(), options)
    if as_table:
        from rag_rewards.report.score_tables import TableRow, print_scores, table_rows

        rows: list[TableRow] = []
        result = run_score(lambda output: rows.extend(table_rows(output)))
        print_scores(console(110), result.recipe, result.equation, result.totals, rows)
    else:
        result = run_score()
    _print_summary(result, options)
    if result.stopped_by:
        return STOPPED
    return SOME_IN_ERROR if result.totals.errors else ALL_SCORED


def _estimate(
    spec: RecipeSpec, options: ScoreOptions, prices: EstimateOptions, *, as_json: bool
) -> int:
    """Print the work of the models, and return the exit code."""
    from rag_rewards.report.terminal import titled_table
    from rag_rewards.scoring.estimate import estimate_file

    estimate = estimate_file(spec, options, prices)
    if as_json:
        print(msgspec.json.encode(estimate).decode())
        return SOME_IN_ERROR if estimate.errors else ALL_SCORED
    columns = ("model", "requests", "prompt tokens", "completion tokens")
    table = titled_table(f"estimate for {estimate.rows:,} rows", columns, columns[1:])
    for kind, work in estimate.work.items():
        counts = (work.requests, work.prompt_tokens, work.completion_tokens)
        table.add_row(kind, *(f"{count:,}" for count in counts))
    out = console(110)
    if estimate.work:
        out.print(table)
        own = f", except those of {' and '.join(estimate.exact)}" if estimate.exact else ""
        out.print(f"tokens are characters / 4{own}; no model was called", highlight=False)
    else:
        out.print(f"no requests for {estimate.rows:,} rows", highlight=False)
    if estimate.cost is not None:
        out.print(f"cost of the judge: {estimate.cost:,.4f}", highlight=False)
    if estimate.errors:
        out.print(f"{estimate.errors:,} rows cannot be scored", style="red", highlight=False)
    return SOME_IN_ERROR if estimate.errors else ALL_SCORED


def _run(spec: RecipeSpec, options: ScoreOptions, on_output: OnOutput | None = None) -> ScoringRun:
    """Score rows. The message of an interruption says how to continue."""
    display = ProgressBar if shows_progress() else None
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

"""rag-rewards evaluate"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rag_rewards.cli import option
from rag_rewards.cli.output import console


def evaluate(
    context: typer.Context,
    sources: Annotated[
        list[str], typer.Argument(metavar="IN…", help="JSONL or .parquet; further runs to compare.")
    ],
    metrics: Annotated[
        list[str],
        typer.Option("--metrics", "-m", help="A list: em,f1(normalizer=triviaqa),pass@8,by:hops"),
    ],
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="Also per value of a field of the rows; or: confidence."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="JSON to a file, beside the table.")
    ] = None,
    json: option.Json = False,
    resamples: Annotated[int, typer.Option("--resamples", help="Of the bootstrap.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="Of the bootstrap.")] = 0,
    nli: option.Nli = None,
    device: option.Device = None,
    judge: option.Judge = None,
    judge_model: option.JudgeModel = None,
    judge_cache: option.JudgeCache = None,
    judge_retries: option.JudgeRetries = 5,
) -> None:
    """Metrics of rows, with the counts behind them and 95% intervals; several runs compared.

    Exit code 3 when rows were in error, or lacked what a metric needs.
    """
    from rag_rewards.commands.evaluate import Options, as_json, print_evaluation, write
    from rag_rewards.commands.evaluate import evaluate as run

    options = Options(
        sources=sources,
        metrics=metrics,
        by=by or (),
        output=output,
        resamples=resamples,
        seed=seed,
        models=option.models_of(context),
    )
    found = run(options)
    if output:
        write(found, output)
    if json:
        print(as_json(found).decode(), end="")
    else:
        print_evaluation(console(120), found)
    if found.asked:
        print(f"models: {found.asked}", file=sys.stderr)
    print(found.signature, file=sys.stderr)
    raise typer.Exit(3 if found.in_error else 0)

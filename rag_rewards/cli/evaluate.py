"""`rag-rewards evaluate`"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from rag_rewards.cli.options import (
    ENCODER_DEFAULTS,
    FILES,
    JUDGE_DEFAULTS,
    MODELS,
    Judge,
    OptionalOutput,
    models_of,
)
from rag_rewards.cli.output import console
from rag_rewards.commands.evaluate import Options, as_json, print_evaluation, write
from rag_rewards.commands.evaluate import evaluate as compute_metrics
from rag_rewards.model_options import EncoderOptions, PolicyOptions


def evaluate(
    *sources: Annotated[str, Parameter(name="IN", group=FILES, allow_leading_hyphen=True)],
    metrics: Annotated[Sequence[str], Parameter(alias="-m")],
    by: Sequence[str] = (),
    output: OptionalOutput = None,
    json: bool = False,
    resamples: int = 1000,
    seed: int = 0,
    nli: Annotated[str | None, Parameter(group=MODELS)] = ENCODER_DEFAULTS.nli,
    device: Annotated[str | None, Parameter(group=MODELS)] = None,
    judge: Judge = JUDGE_DEFAULTS,
) -> int:
    """Compute metrics of rows, with confidence intervals.

    Each value has its counts and a 95% interval. With several files, each further file is compared
    with the first. The exit code is 3 when rows are in error or lack what a metric needs.

    Parameters
    ----------
    sources
        Read rows from these files: JSON lines or .parquet; - is standard input.
    metrics
        Compute these metrics: `em,f1(normalizer=triviaqa),pass@8,by:hops`. Repeatable.
    by
        Compute the metrics for each value of this field, or of `confidence`. Repeatable.
    output
        Write the result as JSON to this file.
    json
        Print JSON.
    resamples
        Number of bootstrap resamples.
    seed
        Seed of the bootstrap.
    nli
        Folder of an entailment model.
    device
        Device of local models: cpu, cuda, …; default: a GPU if there is one.
    """
    models = models_of(PolicyOptions(device=device), EncoderOptions(nli=nli), judge)
    options = Options(sources, metrics, by, output, resamples, seed, models)
    evaluation = compute_metrics(options)
    if output:
        write(evaluation, output)
    if json:
        print(as_json(evaluation).decode(), end="")
    else:
        print_evaluation(console(120), evaluation)
    if evaluation.asked:
        print(f"models: {evaluation.asked}", file=sys.stderr)
    print(evaluation.signature, file=sys.stderr)
    return 3 if evaluation.in_error else 0

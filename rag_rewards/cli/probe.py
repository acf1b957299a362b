"""rag-rewards probe"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rag_rewards.cli import option
from rag_rewards.cli.output import tell


def probe(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="IN", help="Rollouts in groups; with --model, questions.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A row a question, with its label. JSON lines.")
    ],
    recipe: option.Recipe = None,
    changes: option.Set = None,
    config: option.Config = None,
    hardened: option.Hardened = False,
    samples: Annotated[
        int, typer.Option("--samples", help="Responses to each question; with --model.")
    ] = 256,
    temperature: Annotated[float, typer.Option("--temperature", help="Of the sampling.")] = 1.0,
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="Of a response.")] = 2048,
    seed: Annotated[int, typer.Option("--seed", help="Of the sampling.")] = 0,
    batch: Annotated[
        int, typer.Option("--batch", help="Responses asked for at a time; lost at most if killed.")
    ] = 64,
    keep_rollouts: Annotated[
        str | None, typer.Option("--keep-rollouts", help="File for what was sampled, as rows.")
    ] = None,
    right_at: option.RightAt = 1.0,
    group_size: option.GroupSize = None,
    sort: option.Sort = False,
    progress: option.Progress = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Policy to sample from: a folder, or a server's URL."),
    ] = None,
    backend: option.Backend = "transformers",
    dtype: option.Dtype = "auto",
    device: option.Device = None,
    adapter: option.Adapter = None,
    tokenizer: option.Tokenizer = None,
    truncate: option.Truncate = False,
    nli: option.Nli = None,
    similarity: option.Similarity = None,
    judge: option.Judge = None,
    judge_model: option.JudgeModel = None,
    judge_cache: option.JudgeCache = None,
    judge_retries: option.JudgeRetries = 5,
) -> None:
    """Label questions out of knowledge: none of k responses is right, as the recipe says.

    With --model the responses are sampled and kept in OUT.samples.jsonl: run it again to go on.
    """
    from rag_rewards.commands.plans import plan_if_asked
    from rag_rewards.commands.probe import Options, told, told_of_sampling
    from rag_rewards.commands.probe import probe as run
    from rag_rewards.datasets.sampling import Drawing

    options = Options(
        source=source,
        output=output,
        plan=plan_if_asked(recipe, changes or (), config, hardened=hardened),
        models=option.models_of(context),
        drawing=Drawing(samples, temperature, max_tokens, seed, batch),
        right_at=right_at,
        keep_rollouts=keep_rollouts,
        group_size=group_size,
        sort=sort,
        progress=sys.stderr.isatty() if progress is None else progress,
    )
    done = run(options)
    tell((*told(options, done), *told_of_sampling(options, done)))
    if done.broken:
        print(f"bad rows: {options.errors}", file=sys.stderr)
    raise typer.Exit(3 if done.broken else 0)

"""rag-rewards init"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rag_rewards.cli import option


def init(
    context: typer.Context,
    trainer: Annotated[str, typer.Argument(help="trl, verl, openrlhf or ms-swift.")],
    recipe: option.Recipe = None,
    policy: Annotated[
        str, typer.Option("--policy", help="The model to train: a folder or a hub's name.")
    ] = "path/to/model",
    data: Annotated[
        str | None, typer.Option("--data", help="What `rag-rewards prepare` wrote.")
    ] = None,
    validation: Annotated[str | None, typer.Option("--validation")] = None,
    folder: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")] = Path(
        "training"
    ),
    changes: option.Set = None,
    config: option.Config = None,
    hardened: option.Hardened = False,
    model: option.Model = None,
    backend: option.Backend = "transformers",
    tokenizer: option.Tokenizer = None,
    nli: option.Nli = None,
    similarity: option.Similarity = None,
    judge: option.Judge = None,
    judge_model: option.JudgeModel = None,
) -> None:
    """Write a start script with a recipe's published training side, a source beside each value."""
    from rag_rewards.commands.init import check, start_of, write
    from rag_rewards.commands.plans import make_plan

    plan = make_plan(recipe, changes or (), config, hardened=hardened)
    models = option.models_of(context)
    rows = data or ("train.parquet" if trainer == "verl" else "train.jsonl")
    for path in write(trainer, start_of(plan, models, policy, rows, validation), folder):
        print(path)
    if fault := check(trainer, folder):
        print(f"the installed {trainer} does not know: {fault}", file=sys.stderr)
        raise typer.Exit(1)

"""rag-rewards audit"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from rag_rewards.cli import option
from rag_rewards.cli.output import console, print_json
from rag_rewards.errors import UsageError

if TYPE_CHECKING:
    from rag_rewards.grading import ModelOptions

_MOST_SEEDS = 2**32
_MOST_STEPS = 10_000


def audit(
    context: typer.Context,
    source: Annotated[
        str | None, typer.Argument(metavar="[IN]", help="Rows of your own to attack.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option("--recipe", "-r", help="A recipe, or module:name of a reward of your own."),
    ] = None,
    changes: option.Set = None,
    config: option.Config = None,
    hardened: option.Hardened = False,
    attacks: Annotated[
        list[str] | None,
        typer.Option("--attack", help="module:name of an attack of your own; repeatable."),
    ] = None,
    train: Annotated[
        bool,
        typer.Option("--train", help="Train a small policy against it: what does it learn?"),
    ] = False,
    steps: Annotated[
        int | None,
        typer.Option(min=1, max=_MOST_STEPS, help="--train: how long; default: 60."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=_MOST_SEEDS - 1, help="--train: of all that is drawn; default: 0."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="--train: plain, truthrl, arena, ground or lear; default: the recipe's, or plain.",
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(help="--train: folder of the policy to begin with; default: our own."),
    ] = None,
    progress: option.Progress = None,
    json: option.Json = False,
    model: option.Model = None,
    backend: option.Backend = "transformers",
    tokenizer: option.Tokenizer = None,
    nli: option.Nli = None,
    similarity: option.Similarity = None,
    judge: option.Judge = None,
    judge_model: option.JudgeModel = None,
    judge_cache: option.JudgeCache = None,
) -> None:
    """Try every known way to cheat a reward: which attack pays? Or let a policy look for one.

    Exit code 1 when one does, or when training raised the reward and lowered the truth; else 3
    when some rows could not be scored.
    """
    from rag_rewards.commands.audit import as_data, print_audit, reward_of
    from rag_rewards.commands.audit import run as run_audit

    models = option.models_of(context)
    if train:
        _train(context, models)
    if any(given is not None for given in (steps, seed, form, start)):
        raise UsageError("--steps, --seed, --format and --start go with --train")
    reward = reward_of(recipe, changes or (), config, hardened=hardened)
    found = run_audit(reward, source, attacks or (), models)
    if json:
        print_json(as_data(found))
    else:
        print_audit(console(120), found)
    raise typer.Exit((3 if found.failed else 0) if found.ok else 1)


def _train(context: typer.Context, models: ModelOptions) -> NoReturn:
    """`--train`, with the options of the running command."""
    from rag_rewards.commands.adversary import Options, as_data, print_attacked
    from rag_rewards.commands.adversary import train as run_training

    given = context.params
    if given["source"] or given["attacks"]:
        raise UsageError("--train makes its own rows and attacks: leave IN and --attack out")
    found = run_training(
        Options(
            recipe=given["recipe"],
            changes=given["changes"] or (),
            config=given["config"],
            hardened=given["hardened"],
            steps=60 if given["steps"] is None else given["steps"],
            seed=given["seed"] or 0,
            form=given["form"],
            start=given["start"],
            models=models,
            progress=sys.stderr.isatty() if given["progress"] is None else given["progress"],
        )
    )
    if given["json"]:
        print_json(as_data(found))
    else:
        print_attacked(console(120), found)
    raise typer.Exit(1 if found.found else 0)

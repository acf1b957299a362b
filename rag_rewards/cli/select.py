"""rag-rewards select"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rag_rewards.cli import option
from rag_rewards.cli.output import tell


def select(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="Scored rollouts in groups; - is stdin.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A row a question, or --rollouts, or --make.")
    ],
    recipe: option.Recipe = None,
    changes: option.Set = None,
    config: option.Config = None,
    hardened: option.Hardened = False,
    passes: Annotated[
        list[str] | None,
        typer.Option(
            "--pass", help="Share of right responses, LOW:HIGH[=SHARE of the rows]; repeatable."
        ),
    ] = None,
    std_of: Annotated[
        str, typer.Option("--std-of", help="S (log-likelihood) or E (evidential contribution).")
    ] = "S",
    min_std: Annotated[
        float | None,
        typer.Option("--min-std", help="Its standard deviation over the group is above this."),
    ] = None,
    min_spread: Annotated[
        float | None,
        typer.Option("--min-spread", help="max − min of the reward is above this; 0: a signal."),
    ] = None,
    min_samples: Annotated[
        int, typer.Option("--min-samples", help="Groups of at least so many responses.")
    ] = 1,
    right_at: option.RightAt = 1.0,
    unique: Annotated[
        bool, typer.Option("--unique", help="Each question once, whatever its documents.")
    ] = False,
    exclude: Annotated[
        str | None, typer.Option("--exclude", help="File of questions to leave out.")
    ] = None,
    sample: Annotated[int | None, typer.Option("--sample", help="Draw so many questions.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of all that is drawn.")] = 0,
    rollouts: Annotated[
        bool, typer.Option("--rollouts", help="All rollouts of the questions that are kept.")
    ] = False,
    make: Annotated[
        str | None,
        typer.Option("--make", help="A training set of chats: r-tuning, rft, dpo or sft."),
    ] = None,
    style: Annotated[
        str,
        typer.Option("--style", help="sft: direct (the gold answer) or reasoning (a response)."),
    ] = "direct",
    group_size: option.GroupSize = None,
    sort: option.Sort = False,
) -> None:
    """Select questions to train on by what was made of them, or make a training set of chats.

    Counts before and after each step stand in the summary and in OUT.card.md.
    """
    from rag_rewards.commands.plans import plan_if_asked
    from rag_rewards.commands.select import Options, told
    from rag_rewards.commands.select import select as run

    options = Options(
        source=source,
        output=output,
        plan=plan_if_asked(recipe, changes or (), config, hardened=hardened),
        passes=tuple(passes or ()),
        std_of=std_of,
        min_std=min_std,
        min_spread=min_spread,
        min_samples=min_samples,
        right_at=right_at,
        unique=unique,
        exclude=exclude,
        sample=sample,
        seed=seed,
        rollouts=rollouts,
        make=make,
        style=style,
        group_size=group_size,
        sort=sort,
    )
    done = run(options)
    tell(told(options, done))
    if done.broken:
        print(f"bad rows: {options.errors}", file=sys.stderr)
    raise typer.Exit(3 if done.broken else 0)

"""`rag-rewards select`"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from rag_rewards.cli.options import (
    FILES,
    GROUP_DEFAULTS,
    RECIPE_DEFAULTS,
    Grouping,
    Output,
    Recipe,
)
from rag_rewards.cli.output import print_messages
from rag_rewards.commands.select import Options, told
from rag_rewards.commands.select import select as select_questions

SELECTION = "Selection"
TRAINING_SET = "Training set"


def select(
    source: Annotated[str, Parameter(name="IN", group=FILES, allow_leading_hyphen=True)],
    /,
    *,
    output: Output,
    passes: Annotated[Sequence[str], Parameter(name="--pass", group=SELECTION)] = (),
    std_of: Annotated[str, Parameter(group=SELECTION)] = "S",
    min_std: Annotated[float | None, Parameter(group=SELECTION)] = None,
    min_spread: Annotated[float | None, Parameter(group=SELECTION)] = None,
    min_samples: Annotated[int, Parameter(group=SELECTION)] = 1,
    right_at: Annotated[float, Parameter(group=SELECTION)] = 1.0,
    unique: Annotated[bool, Parameter(group=SELECTION)] = False,
    exclude: Annotated[str | None, Parameter(group=SELECTION)] = None,
    sample: Annotated[int | None, Parameter(group=SELECTION)] = None,
    seed: Annotated[int, Parameter(group=SELECTION)] = 0,
    rollouts: Annotated[bool, Parameter(group=FILES)] = False,
    make: Annotated[str | None, Parameter(group=TRAINING_SET)] = None,
    style: Annotated[str, Parameter(group=TRAINING_SET)] = "direct",
    recipe: Recipe = RECIPE_DEFAULTS,
    grouping: Grouping = GROUP_DEFAULTS,
) -> int:
    """Select questions for training.

    The command selects questions by their rollouts or, with `--make`, writes a training set of
    chats. The counts before and after each step are in the summary and in OUT.card.md.

    Parameters
    ----------
    source
        Read scored rollouts in groups from this file; - is standard input.
    output
        Write one row per question to this file.
    passes
        Keep pass rates from LOW to HIGH: `LOW:HIGH[=SHARE of the rows]`. Repeatable.
    std_of
        Likelihood for --min-std: S (log-likelihood) or E (evidential contribution).
    min_std
        Keep groups with a larger standard deviation, in nats.
    min_spread
        Keep groups whose rewards differ by more than this value; 0 keeps each training signal.
    min_samples
        Keep groups of at least this number of responses.
    right_at
        Count a response as right when `correct` is at least this value.
    unique
        Keep each question once, even if its documents differ.
    exclude
        Exclude the questions of this file.
    sample
        Sample this number of questions.
    seed
        Seed of the sampling.
    rollouts
        Write all rollouts of the selected questions.
    make
        Write a training set of chats: r-tuning, rft, dpo or sft.
    style
        Style of sft: direct (the gold answer) or reasoning (a response).
    """
    options = Options(
        source=source,
        output=output,
        recipe=recipe.spec_if_given(),
        passes=tuple(passes),
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
        group_size=grouping.group_size,
        sort=grouping.sort,
    )
    done = select_questions(options)
    print_messages(told(options, done))
    if done.broken:
        print(f"rows in error: {options.errors}", file=sys.stderr)
    return 3 if done.broken else 0

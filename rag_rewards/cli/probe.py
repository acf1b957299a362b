"""`rag-rewards probe`"""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from rag_rewards.cli.options import (
    ENCODER_DEFAULTS,
    FILES,
    GROUP_DEFAULTS,
    JUDGE_DEFAULTS,
    POLICY_DEFAULTS,
    RECIPE_DEFAULTS,
    Encoders,
    Grouping,
    Judge,
    Output,
    Policy,
    Progress,
    Recipe,
    models_of,
)
from rag_rewards.cli.output import print_messages
from rag_rewards.commands.probe import Options, told, told_of_sampling
from rag_rewards.commands.probe import probe as label_questions
from rag_rewards.datasets.sampling import Drawing

SAMPLING = "Sampling"


def probe(
    source: Annotated[str, Parameter(name="IN", group=FILES, allow_leading_hyphen=True)],
    /,
    *,
    output: Output,
    keep_rollouts: Annotated[str | None, Parameter(group=FILES)] = None,
    right_at: float = 1.0,
    progress: Progress = None,
    samples: Annotated[int, Parameter(group=SAMPLING)] = 256,
    temperature: Annotated[float, Parameter(group=SAMPLING)] = 1.0,
    max_tokens: Annotated[int, Parameter(group=SAMPLING)] = 2048,
    seed: Annotated[int, Parameter(group=SAMPLING)] = 0,
    batch: Annotated[int, Parameter(group=SAMPLING)] = 64,
    recipe: Recipe = RECIPE_DEFAULTS,
    grouping: Grouping = GROUP_DEFAULTS,
    policy: Policy = POLICY_DEFAULTS,
    encoders: Encoders = ENCODER_DEFAULTS,
    judge: Judge = JUDGE_DEFAULTS,
) -> int:
    """Label questions that the policy cannot answer.

    A question is out of knowledge when none of its responses is right. With `--model`, responses
    are sampled and stored in OUT.samples.jsonl; run the command again to continue.

    Parameters
    ----------
    source
        Read rollouts in groups from this file or, with --model, questions.
    output
        Write one row per question to this file, as JSON lines.
    keep_rollouts
        Write the sampled rollouts to this file.
    right_at
        Count a response as right when `correct` is at least this value.
    progress
        Show a progress bar. The default is to show it on a terminal.
    samples
        Number of responses to each question.
    temperature
        Sampling temperature.
    max_tokens
        Maximum number of tokens of a response.
    seed
        Seed of the sampling.
    batch
        Number of responses to request at a time. An interrupted run loses at most one batch.
    """
    options = Options(
        source=source,
        output=output,
        recipe=recipe.spec_if_given(),
        models=models_of(policy, encoders, judge),
        drawing=Drawing(samples, temperature, max_tokens, seed, batch),
        right_at=right_at,
        keep_rollouts=keep_rollouts,
        group_size=grouping.group_size,
        sort=grouping.sort,
        progress=sys.stderr.isatty() if progress is None else progress,
    )
    done = label_questions(options)
    print_messages((*told(options, done), *told_of_sampling(options, done)))
    if done.broken:
        print(f"rows in error: {options.errors}", file=sys.stderr)
    return 3 if done.broken else 0

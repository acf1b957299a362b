"""`rag-rewards probe`: label questions that the policy cannot answer."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from rag_rewards.cli.options import (
    FILES,
    GROUP_DEFAULTS,
    MODEL_DEFAULTS,
    RECIPE_DEFAULTS,
    Columns,
    Grouping,
    Input,
    Models,
    Output,
    Progress,
    Recipe,
)
from rag_rewards.cli.output import print_messages
from rag_rewards.selection.probe import ProbeOptions, counts
from rag_rewards.selection.probe import probe as label_questions
from rag_rewards.selection.sampling import SamplingOptions

SAMPLING_DEFAULTS = SamplingOptions()


def probe(
    source: Input,
    /,
    *,
    columns: Columns = None,
    output: Output,
    keep_rollouts: Annotated[str | None, Parameter(group=FILES)] = None,
    right_at: float = 1.0,
    progress: Progress = None,
    sampling: Annotated[SamplingOptions, Parameter(name="*", group="Sampling")] = SAMPLING_DEFAULTS,
    recipe: Recipe = RECIPE_DEFAULTS,
    grouping: Grouping = GROUP_DEFAULTS,
    models: Models = MODEL_DEFAULTS,
) -> int:
    """Label questions that the policy cannot answer.

    A question is out of knowledge if none of its responses is correct. With `--model`, the command
    samples responses and stores them in OUT.samples.jsonl, so that you can run the command again to
    continue an interrupted run. The exit code is 3 if some rows cannot be scored.

    Parameters
    ----------
    source
        Read groups of rollouts from this file, or questions if --model is set.
    output
        Write one row per question to this file, as JSON lines.
    keep_rollouts
        Write the sampled responses to this file, as rows that `rag-rewards select` reads.
    right_at
        Count a response as correct if `correct` is at least this value.
    """
    options = ProbeOptions(
        source=source,
        columns=columns,
        output=output,
        recipe=recipe.optional_spec(),
        models=models.options(),
        sampling=sampling,
        right_at=right_at,
        keep_rollouts=keep_rollouts,
        group_size=grouping.group_size,
        sort=grouping.sort,
        progress=sys.stderr.isatty() if progress is None else progress,
    )
    result = label_questions(options)
    lines = [f"{result.questions:,} questions → {options.output}", *counts(result)]
    if options.is_sampling:
        responses = f"{result.new_responses:,} new, {result.stored_responses:,} from earlier runs"
        lines.append(f"sampled responses: {responses}: {options.samples}")
    if result.rows_in_error:
        lines.append(f"rows in error: {options.errors}")
    print_messages(lines)
    return 3 if result.rows_in_error else 0

"""`rag-rewards probe`: label questions that the policy cannot answer."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from rag_rewards.cli.options import (
    GROUP_DEFAULTS,
    MODEL_DEFAULTS,
    RECIPE_DEFAULTS,
    Columns,
    Grouping,
    Input,
    Models,
    Output,
    Recipe,
)
from rag_rewards.cli.output import print_messages, shows_progress
from rag_rewards.selection.probe import LabelOptions, ProbeOptions, counts
from rag_rewards.selection.probe import probe as label_questions
from rag_rewards.selection.run import summary
from rag_rewards.selection.sampling import SamplingOptions

LABEL_DEFAULTS = LabelOptions()
SAMPLING_DEFAULTS = SamplingOptions()


def probe(
    source: Input,
    /,
    *,
    columns: Columns = None,
    output: Output,
    labels: Annotated[LabelOptions, Parameter(name="*", group="Labels")] = LABEL_DEFAULTS,
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
    """
    options = ProbeOptions(
        source=source,
        columns=columns,
        output=output,
        recipe=recipe.optional_spec(),
        models=models.options(recipe.models),
        sampling=sampling,
        progress=shows_progress(),
        **vars(labels),
        **vars(grouping),
    )
    result = label_questions(options)
    print_messages(summary(options, result, [f"{result.questions:,} questions", *counts(result)]))
    return 3 if result.rows_in_error else 0

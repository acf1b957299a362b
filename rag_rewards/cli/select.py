"""`rag-rewards select`: select questions for training."""

from __future__ import annotations

from collections.abc import Sequence
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
from rag_rewards.cli.output import print_messages
from rag_rewards.selection.options import (
    SelectionCriteria,
    SelectOptions,
    TrainingSetOptions,
)
from rag_rewards.selection.run import summary
from rag_rewards.selection.select import counts
from rag_rewards.selection.select import select as select_questions

SELECTION = "Selection"
CRITERIA_DEFAULTS = SelectionCriteria()
TRAINING_SET_DEFAULTS = TrainingSetOptions()


def select(
    source: Input,
    /,
    *,
    columns: Columns = None,
    output: Output,
    passes: Annotated[Sequence[str], Parameter(name="--pass", group=SELECTION)] = (),
    criteria: Annotated[
        SelectionCriteria, Parameter(name="*", group=SELECTION)
    ] = CRITERIA_DEFAULTS,
    training_set: Annotated[
        TrainingSetOptions, Parameter(name="*", group="Training set")
    ] = TRAINING_SET_DEFAULTS,
    recipe: Recipe = RECIPE_DEFAULTS,
    grouping: Grouping = GROUP_DEFAULTS,
    models: Models = MODEL_DEFAULTS,
) -> int:
    """Select questions for training.

    The command selects questions by the scores of their rollouts. With `--make`, it writes a
    training set for another training method, such as DPO. With `--model`, a model writes texts from
    the gold data, which are stored in OUT.samples.jsonl, so that you can run the command again to
    continue an interrupted run. The summary and OUT.card.md contain the number of questions before
    and after each step. The exit code is 3 if some rows cannot be scored.

    Parameters
    ----------
    source
        Read groups of scored rollouts from this file; - is standard input.
    output
        Write one row per question to this file.
    passes
        Keep questions whose pass rate (share of correct responses) is in LOW:HIGH. Repeatable.
        LOW:HIGH=SHARE also sets the share of these questions in the output.
    """
    options = SelectOptions(
        source=source,
        columns=columns,
        output=output,
        passes=tuple(passes),
        recipe=recipe.optional_spec(),
        models=models.options(recipe.models),
        **vars(criteria),
        **vars(training_set),
        **vars(grouping),
    )
    result = select_questions(options)
    first = f"{result.written:,} of {result.read:,} questions ({result.rows:,} rows)"
    print_messages(summary(options, result, [first, *counts(result)]))
    return 3 if result.rows_in_error else 0

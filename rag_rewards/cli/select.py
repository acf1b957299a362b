"""`rag-rewards select`: select questions for training."""

from __future__ import annotations

from collections.abc import Sequence
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
    Recipe,
)
from rag_rewards.cli.output import print_messages
from rag_rewards.selection.options import (
    SelectionCriteria,
    SelectOptions,
    TrainingSetOptions,
)
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
    rollouts: Annotated[bool, Parameter(group=FILES)] = False,
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
    continue an interrupted run. The summary and OUT.card.md contain the
    number of questions before and after each step. The exit code is 3 if some rows cannot be
    scored.

    Parameters
    ----------
    source
        Read groups of scored rollouts from this file; - is standard input.
    output
        Write one row per question to this file.
    passes
        Keep questions whose pass rate (share of correct responses) is in LOW:HIGH. Repeatable.
        LOW:HIGH=SHARE also sets the share of these questions in the output.
    rollouts
        Write all rollouts of the selected questions instead of one row per question.
    """
    options = SelectOptions(
        source,
        output,
        recipe.optional_spec(),
        tuple(passes),
        rollouts,
        **vars(criteria),
        **vars(training_set),
        **vars(grouping),
        models=models.options(),
        columns=columns,
    )
    result = select_questions(options)
    questions = f"{result.written:,} of {result.read:,} questions ({result.rows:,} rows)"
    lines = [f"{questions} → {options.output}", *counts(result)]
    if options.models.model:
        texts = f"{result.new_texts:,} new, {result.stored_texts:,} from earlier runs"
        lines.append(f"written texts: {texts}: {options.samples}")
    if result.rows_in_error:
        lines.append(f"rows in error: {options.errors}")
    print_messages(lines)
    return 3 if result.rows_in_error else 0

"""`rag-rewards report`"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from rag_rewards.cli.options import FILES, RECIPE_DEFAULTS, Output, Recipe
from rag_rewards.cli.output import print_messages
from rag_rewards.commands.report import report as write_report


def report(
    source: Annotated[str, Parameter(name="IN", group=FILES, allow_leading_hyphen=True)],
    /,
    *,
    output: Output,
    title: str | None = None,
    recipe: Recipe = RECIPE_DEFAULTS,
) -> int:
    """Write a page about scored rows.

    The page contains charts, groups, changes over training, and all rollouts. With `--recipe`, rows
    without a score are scored first. The exit code is 3 when some rows cannot be shown.

    Parameters
    ----------
    source
        Read scored rows from this file: JSON lines or .parquet; - is standard input.
    output
        Write the page to this .html file.
    title
        Set the title of the page.
    """
    done = write_report(source, output, recipe.spec_if_given(), title)
    print_messages(done.messages)
    return 3 if done.faults else 0

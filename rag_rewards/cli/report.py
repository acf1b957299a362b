"""`rag-rewards report`: write an HTML page about scored rows."""

from __future__ import annotations

from collections.abc import Iterator

from rag_rewards.cli.options import RECIPE_DEFAULTS, Columns, Input, Output, Recipe
from rag_rewards.cli.output import print_messages
from rag_rewards.errors import UsageError
from rag_rewards.report.report_page import ReportSummary, write_report

LISTED_FAULTS = 5


def report(
    *sources: Input,
    columns: Columns = None,
    output: Output,
    title: str | None = None,
    recipe: Recipe = RECIPE_DEFAULTS,
) -> int:
    """Write an HTML page about scored rows, which also compares files.

    The page contains means with intervals, charts, groups, changes over training, and a table of
    all rollouts. It compares each further file with the first one: differences of the means, and
    the rows that changed most. With `--recipe`, rows without a reward are scored first. The exit
    code is 3 if some rows cannot be scored.

    Parameters
    ----------
    sources
        Read scored rows from these files: JSON lines (.gz, .zst) or .parquet; - is standard input.
    output
        Write the page to this .html file.
    title
        Title of the page.
    """
    if not sources:
        raise UsageError("no file of rows is given: give at least one")
    recipe.refuse_models("report")
    summary = write_report(sources, output, recipe.optional_spec(), title, columns)
    print_messages(_messages(summary, output))
    return 3 if summary.faults else 0


def _messages(summary: ReportSummary, output: str) -> Iterator[str]:
    yield f"{summary.rows:,} rollouts in {output}, {summary.size / 1e6:.1f} MB"
    yield from (f"note: {note}" for note in summary.notes)
    yield from (f"{fault.row}: {fault.message}" for fault in summary.faults[:LISTED_FAULTS])
    if len(summary.faults) > LISTED_FAULTS:
        yield f"{len(summary.faults):,} rows in error, of which {LISTED_FAULTS} are listed"

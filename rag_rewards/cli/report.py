"""`rag-rewards report`: write an HTML page about scored rows."""

from __future__ import annotations

from collections.abc import Iterator

from rag_rewards.cli.options import RECIPE_DEFAULTS, Columns, Input, Output, Recipe
from rag_rewards.cli.output import print_messages
from rag_rewards.report.report_page import ReportSummary, write_report

LISTED_FAULTS = 5


def report(
    source: Input,
    /,
    *,
    columns: Columns = None,
    output: Output,
    title: str | None = None,
    recipe: Recipe = RECIPE_DEFAULTS,
) -> int:
    """Write an HTML page about scored rows.

    The page contains charts, groups, changes over training, and a table of all rollouts. With
    `--recipe`, rows without a reward are scored first. The exit code is 3 if some rows cannot be
    scored.

    Parameters
    ----------
    source
        Read scored rows from this file: JSON lines or .parquet; - is standard input.
    columns
        Read fields from columns of other names, as in `response=completion,documents=contexts`, or
        choose a preset: ragas, trl, verl, openrlhf, verifiers or search-r1.
    output
        Write the page to this .html file.
    title
        Title of the page.
    """
    summary = write_report(source, output, recipe.optional_spec(), title, columns)
    print_messages(_messages(summary, output))
    return 3 if summary.faults else 0


def _messages(summary: ReportSummary, output: str) -> Iterator[str]:
    yield f"{summary.rows:,} rollouts in {output}, {summary.size / 1e6:.1f} MB"
    yield from (f"note: {note}" for note in summary.notes)
    yield from (f"{fault.row}: {fault.message}" for fault in summary.faults[:LISTED_FAULTS])
    if len(summary.faults) > LISTED_FAULTS:
        yield f"{len(summary.faults):,} rows in error, of which {LISTED_FAULTS} are listed"

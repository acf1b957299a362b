"""`rag-rewards explain`: explain the score of one row."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from rag_rewards.cli.options import (
    FILES,
    MODEL_DEFAULTS,
    RECIPE_DEFAULTS,
    Columns,
    Input,
    Models,
    OptionalOutput,
    Recipe,
)
from rag_rewards.cli.output import console, print_json
from rag_rewards.report.explain_data import explain_row
from rag_rewards.report.page import html_page, write_page


def explain(
    source: Input,
    /,
    *,
    columns: Columns = None,
    row_id: Annotated[str, Parameter(name="--id", group=FILES)],
    output: OptionalOutput = None,
    svg: Annotated[str | None, Parameter(group=FILES)] = None,
    json: bool = False,
    recipe: Recipe = RECIPE_DEFAULTS,
    models: Models = MODEL_DEFAULTS,
) -> None:
    """Explain the score of one row.

    The explanation shows each component with its reason, the rewards of changed responses, and the
    contribution of each document to each word.

    Parameters
    ----------
    source
        Read rows from this file: JSON lines (.gz, .zst) or .parquet; - is standard input.
    row_id
        Explain the row with this id. The id of a row without the field `id` is its line number.
    output
        Write an HTML page to this .html file.
    svg
        Write the terminal output as a picture to this .svg file.
    json
        Print JSON.
    """
    options = models.options(recipe.models)
    explanation = explain_row(source, row_id, recipe.optional_spec(), options, columns)
    if output:
        write_page(output, html_page(f"{explanation.id} – rag-rewards", ("row.js",), explanation))
    if svg:
        write_page(svg, explanation.svg())
    if json:
        print_json(explanation)
    elif not (output or svg):
        console(110).print(explanation, crop=False)

"""rag-rewards explain"""

from __future__ import annotations

from typing import Annotated

import typer

from rag_rewards.cli import option
from rag_rewards.cli.output import console, print_json


def explain(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="IN", help="Rows, scored or not; - is stdin.")],
    name: Annotated[str, typer.Option("--id", help="Which row; one without an id is its line.")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="A page, one .html file.")
    ] = None,
    svg: Annotated[
        str | None, typer.Option("--svg", help="What a terminal shows, as a picture.")
    ] = None,
    recipe: option.Recipe = None,
    changes: option.Set = None,
    config: option.Config = None,
    hardened: option.Hardened = False,
    json: option.Json = False,
    model: option.Model = None,
    backend: option.Backend = "transformers",
    dtype: option.Dtype = "auto",
    device: option.Device = None,
    adapter: option.Adapter = None,
    tokenizer: option.Tokenizer = None,
    truncate: option.Truncate = False,
    document_form: option.DocumentForm = None,
    document_separator: option.DocumentSeparator = None,
    nli: option.Nli = None,
    similarity: option.Similarity = None,
    judge: option.Judge = None,
    judge_model: option.JudgeModel = None,
    judge_cache: option.JudgeCache = None,
) -> None:
    """Explain one row: words by what the documents added, documents, components and reasons."""
    from rag_rewards.commands.explain import explained
    from rag_rewards.commands.plans import plan_if_asked
    from rag_rewards.commands.report import write_page
    from rag_rewards.report.picture import picture
    from rag_rewards.report.shaded import print_explanation

    models = option.models_of(context)
    plan = plan_if_asked(recipe, changes or (), config, hardened=hardened)
    found = explained(source, name, plan, models)
    if output:
        from rag_rewards.report.page import page

        write_page(output, page(f"{found.id} – rag-rewards", "row.js", found))
    if svg:
        write_page(svg, picture(found))
    if json:
        print_json(found)
    elif not (output or svg):
        print_explanation(console(110), found)

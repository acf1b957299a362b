"""`rag-rewards preflight`: check sampled rollouts before a training."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rag_rewards.cli.options import (
    MODEL_DEFAULTS,
    RECIPE_DEFAULTS,
    Columns,
    Input,
    Models,
    Recipe,
)
from rag_rewards.cli.output import console, print_json, with_flags
from rag_rewards.errors import plain
from rag_rewards.report.preflight import Measure, Preflight, PreflightOptions
from rag_rewards.report.preflight import preflight as check_rollouts
from rag_rewards.report.terminal import titled_table

DEFAULTS = PreflightOptions()
_MARKS = {"problem": ("✗", "red"), "warning": ("!", "yellow")}
_STYLES = {"ready": "green", "ready with warnings": "yellow", "not ready": "red"}


def preflight(
    source: Input,
    /,
    *,
    columns: Columns = None,
    json: bool = False,
    sample: Annotated[PreflightOptions, Parameter(name="*", group="Sample")] = DEFAULTS,
    recipe: Recipe = RECIPE_DEFAULTS,
    models: Models = MODEL_DEFAULTS,
) -> int:
    """Check sampled rollouts before a training.

    The command scores a sample of the prompts with the recipe, and shows what is wrong with the
    rows, the form of the responses, the groups and the models, each with its fix. Evidence in the
    rows is used; the rest is requested from the models. The exit code is 1 if the rows are not
    ready.

    Parameters
    ----------
    source
        Read rollouts from this file: JSON lines (.gz, .zst) or .parquet; - is standard input.
    json
        Print JSON.
    """
    options = models.options(recipe.models)
    result = check_rollouts(source, recipe.spec(), sample, options, columns)
    findings = [
        msgspec.structs.replace(each, message=with_flags(each.message), fix=with_flags(each.fix))
        for each in result.findings
    ]
    result = msgspec.structs.replace(result, findings=findings)
    if json:
        print_json(result)
    else:
        _print(console(110), result)
    return int(result.verdict == "not ready")


def _print(out: Console, result: Preflight) -> None:
    counts = f"responses: {result.sampled:,} · prompts: {result.prompts:,}"
    if result.sampled < result.rows:
        counts += f" · rows in the file: {result.rows:,}"
    out.print(
        Text.assemble((plain(result.recipe), "bold"), plain(f"   {result.source} · {counts}"))
    )
    for finding in result.findings:
        mark, style = _MARKS[finding.level]
        out.print(Text(plain(f"{mark} {finding.code}: {finding.message}"), style=style))
        out.print(Padding(Text(plain(f"fix: {finding.fix}")), (0, 0, 0, 2), expand=False))
    measures = [each for each in result.measures if each.value is not None]
    if measures:
        table = titled_table("", ("measure", "value", "note"), ("value",))
        for measure in measures:
            table.add_row(Text(measure.name), Text(_value(measure)), Text(plain(measure.note)))
        out.print(table)
    out.print(Text(f"verdict: {result.verdict}", style=f"bold {_STYLES[result.verdict]}"))


def _value(measure: Measure) -> str:
    value = measure.value or 0.0
    if measure.unit == "share":
        return f"{value:.0%}"
    return f"{value:,.4g} {measure.unit}".strip()

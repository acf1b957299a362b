"""`rag-rewards evaluate`: compute metrics of rows, with confidence intervals."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_rewards.calibration.threshold_file import ThresholdFile
from rag_rewards.cli.options import (
    FILES,
    MODEL_DEFAULTS,
    Columns,
    Input,
    Models,
    OptionalOutput,
)
from rag_rewards.cli.output import console, print_errors
from rag_rewards.cli.recipe_options import RecipeOptions
from rag_rewards.errors import UsageError, plain
from rag_rewards.loading import RecipeSpec
from rag_rewards.metrics.comparison import Comparison, Difference, Overlap
from rag_rewards.metrics.evaluation import (
    EvaluateOptions,
    Evaluation,
    RunReport,
    as_json,
)
from rag_rewards.metrics.evaluation import evaluate as compute_metrics
from rag_rewards.metrics.intervals import RESAMPLES, MetricReport, Value
from rag_rewards.report.plain import decisions_text
from rag_rewards.report.terminal import titled_table
from rag_rewards.rows.decisions import undecided_warning

NUMBERS = ("value", "base", "other", "other − base")
"""Columns that are aligned on the right."""


def evaluate(
    *sources: Input,
    columns: Columns = None,
    metrics: Annotated[Sequence[str], Parameter(alias="-m")] = (),
    config: Path | None = None,
    by: Sequence[str] = (),
    questions: Annotated[str | None, Parameter(group=FILES)] = None,
    output: OptionalOutput = None,
    resamples: int = RESAMPLES,
    models: Models = MODEL_DEFAULTS,
) -> int:
    """Compute metrics of rows, with confidence intervals.

    Each metric has its counts and a 95% confidence interval. With several files, the command
    compares each further file with the first one. The exit code is 3 if some rows are invalid or
    lack a field that a metric needs.

    Parameters
    ----------
    sources
        Read rows from these files: JSON lines (.gz, .zst) or .parquet; - is standard input.
    metrics
        Compute these metrics, for example `em,f1(normalizer=triviaqa),pass@8`. Repeatable.
        The page docs/evaluate.md lists all metrics.
    config
        Compute also the metric of this file, with the threshold that `calibrate` chose. It can also
        contain `models`.
    by
        Compute the metrics for each value of this field. Repeatable.
        `--by confidence` divides the rows into ten bins by their mean token probability.
    questions
        Evaluate only rows whose question is in this file.
    output
        Write the result as JSON to this file; - is standard output, in place of the tables.
    resamples
        Number of bootstrap resamples.
    """
    file = RecipeOptions(config=config)
    options = EvaluateOptions(
        sources,
        [*metrics, *_metric_of(file)],
        by,
        None if output == "-" else output,
        resamples,
        models=models.options(file.models),
        questions=questions,
        columns=columns,
    )
    evaluation = compute_metrics(options)
    if output == "-":
        print(as_json(evaluation).decode(), end="")
    else:
        print_evaluation(console(120), evaluation)
    if evaluation.model_usage:
        print(f"models: {evaluation.model_usage}", file=sys.stderr)
    print(evaluation.signature, file=sys.stderr)
    return 3 if evaluation.has_errors else 0


def _metric_of(options: RecipeOptions) -> list[str]:
    """Return the metric with the threshold of a threshold file."""
    spec = options.spec(required=False)
    if spec == RecipeSpec():  # no file, or one with settings of models only
        return []
    file = ThresholdFile.of(spec)
    if file.metric is None:
        raise UsageError(
            f"{options.config} has no threshold of a metric (decision.metric and "
            "decision.threshold): write it with `rag-rewards calibrate --metrics … "
            "--threshold-file`"
        )
    return [f"{file.metric}>={file.threshold!r}"]


def print_evaluation(console: Console, evaluation: Evaluation) -> None:
    """Print an evaluation as tables."""
    for run in evaluation.runs:
        _print_run(console, run)
    if evaluation.pairs:
        names = " and ".join(plain(run.name) for run in evaluation.runs)
        console.print(_metric_table(f"with and without documents: {names}", evaluation.pairs))
        for report in evaluation.pairs:
            print_errors(console, report.left_out, report.metric)
    for comparison in evaluation.comparisons:
        _print_comparison(console, comparison)


def _print_run(console: Console, run: RunReport) -> None:
    counts = [f"{run.rows:,} rows", f"{run.groups:,} groups", f"{run.errors:,} in error"]
    if run.unscored:
        counts.append(f"{run.unscored:,} unscored")
    if run.truncated:
        counts.append(f"{run.truncated:,} truncated at the length limit")
    console.print(Text.assemble((plain(run.name), "bold"), f"   {', '.join(counts)}"))
    if run.decisions:
        console.print(Text(f"answers: {decisions_text(run.decisions)}"))
    if warning := undecided_warning(run.decisions):
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    print_errors(console, run.broken)
    if run.metrics:
        console.print(_metric_table("", run.metrics))
    for report in run.metrics:
        print_errors(console, report.left_out, report.metric)
    for name, parts in run.by.items():
        console.print(_split_table(name, parts))


def _metric_table(title: str, reports: Sequence[MetricReport]) -> Table:
    table = titled_table(title, ("metric", "value", "95% interval", "from"), NUMBERS)
    for report in reports:
        for i, (name, value) in enumerate(report.values.items()):
            first = Text(report.metric if i == 0 else f"  {name}", style="cyan" if i == 0 else "")
            table.add_row(first, *_cells(value), Text(_counts(report) if i == 0 else ""))
    return table


def _split_table(name: str, parts: dict[str, list[MetricReport]]) -> Table:
    field = plain(name)
    columns = (field, "metric", "value", "95% interval", "from")
    table = titled_table(f"by {field}", columns, NUMBERS)
    for label, reports in parts.items():
        for at, report in enumerate(reports):
            value = next(iter(report.values.values()))
            first = Text(plain(label) if at == 0 else "", style="bold")
            table.add_row(first, Text(report.metric), *_cells(value), f"{report.units:,}")
    return table


def _cells(value: Value) -> tuple[str, str]:
    interval = "" if value.low is None else f"{_number(value.low)} to {_number(value.high)}"
    return _number(value.value), interval


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.4f}"


def _counts(report: MetricReport) -> str:
    if not report.units:
        return "no data"
    counts = {name: n for name, n in report.counts.items() if ":" not in name}
    if not counts:
        return f"{report.units:,} {report.unit}s"
    return " · ".join(
        f"{name} {n:,.0f}" if n == int(n) else f"{name} {n:,.2f}" for name, n in counts.items()
    )


def _print_comparison(console: Console, comparison: Comparison) -> None:
    title = f"{plain(comparison.other)} compared with {plain(comparison.base)}"
    console.print(Text(title, style="bold"))
    overlaps = (_overlap("rows", comparison.rows), _overlap("groups", comparison.groups))
    console.print(Text("; ".join(overlaps)))
    columns = ("metric", "base", "other", "other − base", "95% interval", "holds", "from")
    table = titled_table("", columns, NUMBERS)
    for difference in comparison.differences:
        table.add_row(*_difference_cells(difference))
    console.print(table)


def _overlap(units: str, overlap: Overlap) -> str:
    counts = [f"{overlap.shared:,} {units} in both files"]
    counts += [f"{overlap.only_base:,} only in the first"] * bool(overlap.only_base)
    counts += [f"{overlap.only_other:,} only in the second"] * bool(overlap.only_other)
    counts += [f"{overlap.twice:,} repeated ids, which are excluded"] * bool(overlap.twice)
    return ", ".join(counts)


def _difference_cells(difference: Difference) -> tuple[Text | str, ...]:
    is_main = difference.metric.partition("(")[0] == difference.name
    name = Text(
        difference.metric if is_main else f"  {difference.name}", style="cyan" if is_main else ""
    )
    change = "—" if difference.difference is None else f"{difference.difference:+.4f}"
    low, high = difference.low, difference.high
    interval = "" if low is None or high is None else f"{low:+.4f} to {high:+.4f}"
    holds = Text("no" if difference.holds is False else "")
    if difference.holds:
        holds = Text("yes", style="green")
    base, other = _number(difference.base), _number(difference.other)
    return name, base, other, change, interval, holds, f"{difference.units:,}"

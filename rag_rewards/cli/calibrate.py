"""`rag-rewards calibrate`: compare scores with human labels, and choose thresholds."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_rewards.calibration.calibrate import calibrate as compare_with_labels
from rag_rewards.calibration.calibrate import write_calibration
from rag_rewards.calibration.graded import GradedReport
from rag_rewards.calibration.options import AgreementOptions
from rag_rewards.calibration.orders import OrderReport
from rag_rewards.calibration.report import Calibration, Cost, Pair, ScoreReport, as_json
from rag_rewards.calibration.threshold_file import ThresholdFile
from rag_rewards.cli.options import (
    GROUP_DEFAULTS,
    MODEL_DEFAULTS,
    RECIPE_DEFAULTS,
    Columns,
    Grouping,
    Input,
    Models,
    OptionalOutput,
    Recipe,
)
from rag_rewards.cli.output import console, print_errors, shows_progress
from rag_rewards.errors import plain
from rag_rewards.metrics.agreement import Figure, Figures
from rag_rewards.report.terminal import titled_table

AGREEMENT_DEFAULTS = AgreementOptions()
NUMBERS = ("threshold", "κ", "false positives", "false negatives", "AUC", "rows", "equal", "error")
"""Columns that are aligned on the right."""


def calibrate(
    *sources: Input,
    columns: Columns = None,
    label: Annotated[Sequence[str], Parameter(alias="-l")],
    column: Annotated[Sequence[str], Parameter(alias="-c")] = (),
    metrics: Annotated[Sequence[str], Parameter(name=["--metrics", "--metric"], alias="-m")] = (),
    output: OptionalOutput = None,
    agreement: Annotated[AgreementOptions, Parameter(name="*")] = AGREEMENT_DEFAULTS,
    recipe: Recipe = RECIPE_DEFAULTS,
    grouping: Grouping = GROUP_DEFAULTS,
    models: Models = MODEL_DEFAULTS,
) -> int:
    """Compare scores with human labels, and choose thresholds.

    A score is a column, a metric, a recipe or an entailment model. The command shows Cohen's κ, the
    rates of false positives and false negatives, and the AUC, with 95% confidence intervals. A
    false positive is a response that the score accepts and the label does not. For grades, it shows
    κ with quadratic weights and Spearman's correlation. The exit code is 3 if some rows are invalid
    or lack what a score needs.

    Parameters
    ----------
    sources
        Read rows from these files: JSON lines (.gz, .zst) or .parquet; - is standard input.
    label
        Compare the scores with the labels in this column: true, false, 0, 1, yes, no, correct,
        incorrect, or grades, which are other numbers. Repeatable.
    column
        Use the numbers in this column as a score, such as `judge_score` or `scores.judge`.
        Repeatable.
    metrics
        Use these metrics of `rag-rewards evaluate` as scores, for example `f1,lenient`. Repeatable.
    output
        Write the result as JSON to this file; - is standard output, in place of the tables.
    """
    options = ThresholdFile.of(recipe.spec(required=False)).options(
        sources=sources,
        label=label,
        column=column,
        columns=columns,
        metrics=metrics,
        models=models.options(recipe.models),
        output=None if output == "-" else output,
        progress=shows_progress(),
        **vars(agreement),
        **vars(grouping),
    )
    calibration = compare_with_labels(options)
    if output == "-":
        print(as_json(calibration).decode(), end="")
    else:
        print_calibration(console(140), calibration)
    print(calibration.signature, file=sys.stderr)
    write_calibration(options, calibration)
    return 3 if calibration.has_errors else 0


def print_calibration(console: Console, calibration: Calibration) -> None:
    """Print a calibration as tables."""
    console.print(Text(f"{calibration.rows:,} rows", style="bold"))
    print_errors(console, calibration.errors)
    for labels in calibration.labels:
        counts = f"{labels.yes:,} yes, {labels.no:,} no, {labels.missing:,} without a label"
        if labels.grades:
            counts = f"{labels.grades:,} grades, {labels.missing:,} without a grade"
        console.print(Text.assemble((plain(labels.label), "bold"), f"   {counts}"))
        print_errors(console, labels.errors)
    reports = calibration.scores
    if reports:
        console.print(_score_table(reports, with_label=len(calibration.labels) > 1))
    for report in reports:
        print_errors(console, report.errors, report.score)
        _print_reasons(console, report.score, _reasons(report))
    for labels in calibration.labels:
        own = [report for report in reports if report.label == labels.label]
        suffix = f", label {labels.label}" if len(calibration.labels) > 1 else ""
        for name in own[0].by if own else ():
            console.print(_subset_table(own, name, suffix))
    if len(reports) == 1 and reports[0].reliability.bins:
        console.print(_reliability_table(reports[0]))
    _print_graded(console, calibration.graded)
    _print_orders(console, calibration.orders)
    _print_pairs(console, "labels", calibration.label_pairs)
    _print_pairs(console, "scores", calibration.score_pairs)
    _print_cost(console, calibration.cost_per_1000)


def _score_table(reports: Sequence[ScoreReport], with_label: bool) -> Table:
    columns = ["score", "label", "threshold", "κ", "false positives", "false negatives", "AUC"]
    if not with_label:
        columns.remove("label")
    table = titled_table("agreement with labels", (*columns, "rows"), NUMBERS)
    for report in reports:
        label = [Text(plain(report.label))] * with_label
        value = report.threshold.value
        threshold = "—" if value is None else f"{value:.6g}"
        numbers = map(_with_interval, _figures(report.all))
        score = Text(plain(report.score), style="cyan")
        table.add_row(score, *label, threshold, *numbers, f"{report.all.rows:,}")
    return table


def _figures(figures: Figures) -> tuple[Figure, Figure, Figure, Figure]:
    return (
        figures.kappa,
        figures.false_positive_rate,
        figures.false_negative_rate,
        figures.auc,
    )


def _with_interval(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return _number(figure)
    low, high = (round(end, 2) + 0.0 for end in (figure.low, figure.high))  # no negative zero
    return f"{_number(figure)} ({low:.2f} to {high:.2f})"


def _number(figure: Figure) -> str:
    return "—" if figure.value is None else f"{round(figure.value, 3) + 0.0:.3f}"


def _print_reasons(console: Console, score: str, reasons: Iterator[str]) -> None:
    for reason in reasons:
        console.print(Text(plain(f"{score}: {reason}"), style="yellow"), soft_wrap=True)


def _missing(count: int) -> Iterator[str]:
    """Yield the number of rows with a label and without a score, unless it is 0."""
    if count:
        rows = "row with a label has" if count == 1 else "rows with a label have"
        yield f"{count:,} {rows} no score"


def _reasons(report: ScoreReport) -> Iterator[str]:
    """Yield why the report has no threshold, or lacks a number."""
    yield from _missing(report.missing)
    if report.threshold.reason:
        yield f"no threshold: {report.threshold.reason}"
    if report.reliability.reason:
        yield f"no reliability curve: {report.reliability.reason}"
    figures = report.all
    for name, figure in (("κ", figures.kappa), ("AUC", figures.auc)):
        if figure.reason:
            yield f"no {name}: {figure.reason}"


def _subset_table(reports: Sequence[ScoreReport], name: str, suffix: str) -> Table:
    """Return the agreement of several scores with one label, for each subset of the rows."""
    columns = (plain(name), "score", "κ", "false positives", "false negatives", "AUC", "rows")
    table = titled_table(f"by {plain(name + suffix)}", columns, NUMBERS)
    for subset in dict.fromkeys(subset for report in reports for subset in report.by[name]):
        first = plain(subset)
        for report in reports:
            if subset in report.by[name]:
                figures = report.by[name][subset]
                kappa, *rest = _figures(figures)
                numbers = _with_interval(kappa), *map(_number, rest), f"{figures.rows:,}"
                table.add_row(Text(first, style="bold"), Text(plain(report.score)), *numbers)
                first = ""
    return table


def _reliability_table(report: ScoreReport) -> Table:
    columns = ("score from", "to", "mean score", "share of yes", "rows")
    title = f"reliability of {plain(report.score)}: expected calibration error "
    table = titled_table(f"{title}{report.reliability.error:.4f}", columns, (*columns, *NUMBERS))
    for each in report.reliability.bins:
        ends = f"{each.low:.1f}", f"{each.high:.1f}"
        table.add_row(*ends, f"{each.mean_score:.3f}", f"{each.yes_share:.3f}", f"{each.rows:,}")
    return table


def _print_graded(console: Console, reports: Sequence[GradedReport]) -> None:
    """Print the agreement with grades, of all rows and of each subset."""
    if not reports:
        return
    columns = ("score", "grades", "rows of", "κ, quadratic weights", "Spearman", "rows")
    table = titled_table("agreement with grades", columns, columns[3:])
    for report in reports:
        print_errors(console, report.errors, report.score)
        _print_reasons(console, report.score, _missing(report.missing))
        label = report.label
        if report.scale:
            label += " from {:g} to {:g}".format(*report.scale)
        names = [Text(plain(report.score), style="cyan"), Text(plain(label))]
        parts = {"all": report.all}
        for name, subsets in report.by.items():
            parts |= {f"{name} {subset}": figures for subset, figures in subsets.items()}
        for part, figures in parts.items():
            cells = _with_interval(figures.kappa), _with_interval(figures.spearman)
            table.add_row(*names, Text(plain(part)), *cells, f"{figures.rows:,}")
            names = [Text(""), Text("")]
    console.print(table)


def _print_orders(console: Console, reports: Sequence[OrderReport]) -> None:
    """Print the spread and the position bias of the grades of groups."""
    if not reports:
        return
    columns = ("component", "spread between orders", "first to last position", "responses")
    table = titled_table("grades in several orders", columns, columns[1:])
    for report in reports:
        cells = _with_interval(report.spread), _with_interval(report.position_bias)
        table.add_row(Text(plain(report.component)), *cells, f"{report.texts:,}")
    console.print(table)


def _print_pairs(console: Console, what: str, pairs: Sequence[Pair]) -> None:
    if not pairs:
        return
    table = titled_table(
        f"agreement between {what}", ("first", "second", "equal", "κ", "rows"), NUMBERS
    )
    for pair in pairs:
        cells = _with_interval(pair.equal), _with_interval(pair.kappa), f"{pair.rows:,}"
        table.add_row(Text(plain(pair.first)), Text(plain(pair.second)), *cells)
    console.print(table)


def _print_cost(console: Console, cost: Cost | None) -> None:
    if cost is not None:
        console.print(
            f"judge, for 1,000 rows: {cost.requests:,.0f} requests, {cost.prompt_tokens:,.0f} "
            f"prompt tokens, {cost.completion_tokens:,.0f} completion tokens",
            soft_wrap=True,
        )

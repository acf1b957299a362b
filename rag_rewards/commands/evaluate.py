"""`rag-rewards evaluate`: metrics of one or more files of rows, with counts and intervals."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_rewards.errors import UsageError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models
from rag_rewards.io.sinks import Output, partial_of
from rag_rewards.io.sources import chunks, open_source
from rag_rewards.metrics.bootstrap import RESAMPLES
from rag_rewards.metrics.comparison import (
    Comparison,
    Difference,
    Shared,
    check_pairs,
    compare,
    reliance,
)
from rag_rewards.metrics.measuring import Asking, Gather, measure
from rag_rewards.metrics.metric import Metric
from rag_rewards.metrics.naming import metrics_of
from rag_rewards.metrics.sample import Fault, Run
from rag_rewards.metrics.splitting import split
from rag_rewards.metrics.summary import MetricReport, Resampling, Value, summarise
from rag_rewards.model_options import ModelOptions
from rag_rewards.report.progress import model_usage
from rag_rewards.report.terminal import plain
from rag_rewards.rows import ScoredRow
from rag_rewards.signature import Signature


@dataclass(frozen=True)
class Options:
    """What `evaluate` was asked to do."""

    sources: Sequence[str]
    metrics: Sequence[str]
    by: Sequence[str] = ()
    output: str | None = None
    resamples: int = RESAMPLES
    seed: int = 0
    models: ModelOptions = field(default_factory=ModelOptions)

    def __post_init__(self) -> None:
        if not self.sources:
            raise UsageError("which rows? give one file or more")
        if self.sources.count("-") > 1:
            raise UsageError("standard input can be read once")
        for made in (self.output, partial_of(self.output or "-")):
            if made and any(_same_file(made, source) for source in self.sources):
                raise UsageError(f"{self.output} would overwrite the rows: give another -o")


def _same_file(one: str | os.PathLike[str], other: str) -> bool:
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


class RunReport(msgspec.Struct, kw_only=True):
    """One run: what was read, what was wrong, and its metrics, whole and split."""

    name: str
    rows: int
    errors: int
    groups: int
    truncated: int
    unscored: int
    broken: list[Fault]
    metrics: list[MetricReport]
    by: dict[str, dict[str, list[MetricReport]]] = {}


class Evaluation(msgspec.Struct, kw_only=True):
    """What came of an evaluation; `asked` says what models were asked, in a few words."""

    signature: str
    runs: list[RunReport]
    pairs: list[MetricReport] = []
    comparisons: list[Comparison] = []
    asked: str = ""

    @property
    def in_error(self) -> bool:
        """Whether any row, or any metric of it, is in error. Too small groups are not."""
        faults = [fault for run in self.runs for fault in run.broken]
        reports = [report for run in self.runs for report in run.metrics] + self.pairs
        faults += [fault for report in reports for fault in report.left_out]
        return any(fault.unit == "row" for fault in faults)


def evaluate(options: Options) -> Evaluation:
    """Read every run once, then resample. UsageError for what cannot be evaluated."""
    metrics, fields = metrics_of(options.metrics)
    by = list(dict.fromkeys((*options.by, *fields)))
    resampling = Resampling(options.resamples, options.seed)
    check_pairs(metrics, len(options.sources))
    asking = options.models.load()
    gatherer = Gatherer(asking)
    gather = _gathering(gatherer, metrics) if asking != Models() else None
    try:
        runs = [_read(source, metrics, by, gather) for source in options.sources]
    finally:
        if gather is not None:
            _close(asking)
    pairs = reliance(runs, metrics, resampling)
    return Evaluation(
        signature=signature(metrics, by, resampling, gatherer.fingerprints if gather else {}),
        runs=[_report(run, metrics, by, resampling) for run in runs],
        pairs=pairs,
        comparisons=_comparisons(runs, metrics, resampling),
        asked=model_usage(gatherer.usage),
    )


def signature(
    metrics: Sequence[Metric], by: Sequence[str], resampling: Resampling, models: dict[str, str]
) -> str:
    """Return one line that identifies everything that affects the numbers."""
    settings = {
        "metrics": list(map(repr, metrics)),
        "by": list(by),
        "resamples": resampling.resamples,
        "seed": resampling.seed,
    }
    return str(Signature(recipe="evaluate", settings=settings, models=models))


def _gathering(gatherer: Gatherer, metrics: Sequence[Metric]) -> Gather:
    asking = Asking(metrics)

    def gather(rows: Sequence[ScoredRow]) -> Sequence[object]:
        return gatherer.gather_sync(asking, rows)

    return gather  # type: ignore[return-value]


def _close(models: Models) -> None:
    import asyncio

    asyncio.run(models.close())


def _read(source: str, metrics: Sequence[Metric], by: Sequence[str], gather: Gather | None) -> Run:
    name = "standard input" if source == "-" else source
    with contextlib.closing(open_source(source)) as opened:
        run = measure(name, chunks(opened.lines), metrics, by=by, gather=gather)
    if not run.rows:
        raise UsageError(f"{name} has no rows")
    return run


def _report(
    run: Run, metrics: Sequence[Metric], by: Sequence[str], resampling: Resampling
) -> RunReport:
    alone = [i for i, metric in enumerate(metrics) if metric.unit != "pair"]
    chosen = [metrics[i] for i in alone]
    reports = summarise(chosen, [run.samples[i] for i in alone], resampling)
    for report, i in zip(reports, alone, strict=True):
        report.left_out = run.left_out[i]
    parted = {
        name: {
            label: summarise(chosen, [samples[i] for i in alone], resampling)
            for label, samples in split(run, metrics, name).items()
        }
        for name in by
    }
    return RunReport(
        name=run.name,
        rows=run.rows,
        errors=run.rows - len(run.ids),
        groups=len(run.groups),
        truncated=run.truncated,
        unscored=run.unscored,
        broken=run.faults.all(),
        metrics=reports,
        by=parted,
    )


def _comparisons(
    runs: Sequence[Run], metrics: Sequence[Metric], resampling: Resampling
) -> list[Comparison]:
    """Every further run against the first."""
    alone = [i for i, metric in enumerate(metrics) if metric.unit != "pair"]
    base, *others = runs
    return [compare(base, other, metrics, alone, resampling) for other in others if alone]


def write(evaluation: Evaluation, path: str) -> None:
    """The evaluation as JSON; the file appears when it is whole."""
    output = Output(path)
    try:
        output.write(as_json(evaluation))
        output.commit()
    finally:
        output.close()


def as_json(evaluation: Evaluation) -> bytes:
    return msgspec.json.format(msgspec.json.encode(evaluation), indent=2) + b"\n"


# --- for people --------------------------------------------------------------------------------


def print_evaluation(console: Console, evaluation: Evaluation) -> None:
    """The evaluation as tables."""
    for run in evaluation.runs:
        _print_run(console, run)
    if evaluation.pairs:
        names = " and ".join(plain(run.name) for run in evaluation.runs)
        console.print(_metrics(f"with and without documents: {names}", evaluation.pairs))
        for report in evaluation.pairs:
            _print_faults(console, f"{report.metric}: ", report.left_out)
    for comparison in evaluation.comparisons:
        _print_comparison(console, comparison)


def _print_run(console: Console, run: RunReport) -> None:
    said = [f"{run.rows:,} rows", f"{run.groups:,} groups", f"{run.errors:,} in error"]
    if run.unscored:
        said.append(f"{run.unscored:,} that a scoring left in error")
    if run.truncated:
        said.append(f"{run.truncated:,} cut at the length limit")
    console.print(Text.assemble((plain(run.name), "bold"), f"   {', '.join(said)}"))
    _print_faults(console, "", run.broken)
    if run.metrics:
        console.print(_metrics("", run.metrics))
    for report in run.metrics:
        _print_faults(console, f"{report.metric}: ", report.left_out)
    for name, parts in run.by.items():
        console.print(_split(name, parts))


def _print_faults(console: Console, of: str, faults: Sequence[Fault]) -> None:
    for fault in faults:
        units = fault.unit if fault.count == 1 else f"{fault.unit}s"
        line = f"{of}{fault.count:,} {units} left out, the first: {fault.first}"
        style = "red" if fault.unit == "row" else "yellow"
        console.print(Text(plain(line), style=style), soft_wrap=True)


def _metrics(title: str, reports: Sequence[MetricReport]) -> Table:
    table = _table(title, ("metric", "value", "95% interval", "from"))
    for report in reports:
        for i, (name, value) in enumerate(report.values.items()):
            first = Text(report.metric if i == 0 else f"  {name}", style="cyan" if i == 0 else "")
            table.add_row(first, *_cells(value), Text(_counts(report) if i == 0 else ""))
    return table


def _split(name: str, parts: dict[str, list[MetricReport]]) -> Table:
    table = _table(f"by {plain(name)}", (name, "metric", "value", "95% interval", "from"))
    for label, reports in parts.items():
        for at, report in enumerate(reports):
            value = next(iter(report.values.values()))
            shown = Text(plain(label) if at == 0 else "", style="bold")
            table.add_row(shown, Text(report.metric), *_cells(value), f"{report.units:,}")
    return table


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(
        title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for name in columns:
        right = name in ("value", "base", "other", "other − base")
        table.add_column(plain(name), justify="right" if right else "left", overflow="fold")
    return table


def _cells(value: Value) -> tuple[str, str]:
    return _number(value.value), _interval(value.low, value.high)


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None else f"{_number(low)} to {_number(high)}"


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.4f}"


def _counts(report: MetricReport) -> str:
    if not report.units:
        return "nothing to measure"
    counts = {name: n for name, n in report.counts.items() if ":" not in name}
    if not counts:
        return f"{report.units:,} {report.unit}s"
    return " · ".join(
        f"{name} {n:,.0f}" if n == int(n) else f"{name} {n:,.2f}" for name, n in counts.items()
    )


def _print_comparison(console: Console, found: Comparison) -> None:
    title = f"{plain(found.other)} against {plain(found.base)}"
    console.print(Text(title, style="bold"))
    console.print(Text(f"{_shared('rows', found.rows)}; {_shared('groups', found.groups)}"))
    table = _table("", ("metric", "base", "other", "other − base", "95% interval", "holds", "from"))
    for each in found.differences:
        table.add_row(*_difference(each))
    console.print(table)


def _shared(what: str, shared: Shared) -> str:
    said = [f"{shared.shared:,} {what} shared"]
    said += [f"{shared.only_base:,} in the first alone"] * bool(shared.only_base)
    said += [f"{shared.only_other:,} in the second alone"] * bool(shared.only_other)
    said += [f"{shared.twice:,} names twice, not joined"] * bool(shared.twice)
    return ", ".join(said)


def _difference(each: Difference) -> tuple[Text | str, ...]:
    main = each.metric.partition("(")[0] == each.name
    name = Text(each.metric if main else f"  {each.name}", style="cyan" if main else "")
    change = "—" if each.difference is None else f"{each.difference:+.4f}"
    ends = "" if each.low is None or each.high is None else f"{each.low:+.4f} to {each.high:+.4f}"
    holds = Text("yes", style="green") if each.holds else Text("no" if each.holds is False else "")
    return name, _number(each.base), _number(each.other), change, ends, holds, f"{each.units:,}"

"""Compare scores with human labels, and choose thresholds.

calibrate(CalibrateOptions(["answers.jsonl"], ["human"], metrics=["f1", "lenient"]))
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from array import array
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import isnan
from typing import Any

from rag_rewards.calibration.graded import graded_reports
from rag_rewards.calibration.options import CalibrateOptions
from rag_rewards.calibration.orders import order_reports
from rag_rewards.calibration.report import (
    Calibration,
    Cost,
    LabelReport,
    Pair,
    ScoreReport,
    Threshold,
    as_json,
    reliability,
)
from rag_rewards.calibration.samples import (
    LabelColumn,
    SampleReader,
    Samples,
    ScoreColumn,
    positions,
)
from rag_rewards.calibration.scores import (
    ColumnScores,
    EntailmentScores,
    MetricScores,
    RecipeScores,
)
from rag_rewards.calibration.threshold_file import threshold_yaml
from rag_rewards.errors import UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.files.grouped_lines import read_groups
from rag_rewards.files.output import check_output, write_whole
from rag_rewards.files.sources import chunks, group_chunks, open_source
from rag_rewards.loading import load_recipe
from rag_rewards.metrics.agreement import (
    ALL_EQUAL,
    CELLS,
    NO_NO,
    NO_ROWS,
    NO_YES,
    Agreement,
    Figure,
    Labelled,
    ScoreCounts,
    agreement_of,
    cell_of,
    figures,
)
from rag_rewards.metrics.intervals import Resampling, intervals_of
from rag_rewards.metrics.metric import Parts, Values
from rag_rewards.metrics.metric_names import metrics_of
from rag_rewards.report.progress import TerminalBar
from rag_rewards.rows import Chunk
from rag_rewards.scorer import PromptOptions, Scorer
from rag_rewards.signature import Signature

Source = ColumnScores | MetricScores | RecipeScores | EntailmentScores
MAX_PAIRED = 12
"""Number of scores up to which all pairs of them are compared."""


def calibrate(options: CalibrateOptions) -> Calibration:
    """Compare scores with labels.

    Raises UsageError for a file without rows, for a column that no row has, and for an unknown
    metric or score.
    """
    for path in (options.output, options.threshold_file):
        check_output(path)
    resampling = Resampling(options.resamples, options.seed)
    metrics, fields = metrics_of(options.metrics) if options.metrics else ([], [])
    options = replace(
        options,
        label=list(dict.fromkeys(options.label)),
        column=list(dict.fromkeys(options.column)),
        by=list(dict.fromkeys((*options.by, *fields))),
    )
    recipe = options.recipe
    reward = load_recipe(recipe) if recipe else None  # before models are loaded
    hardened = recipe is not None and recipe.hardened
    models = options.models.for_profile(hardened=hardened).load()
    try:
        sources: list[Source] = [*map(ColumnScores, options.column)]
        sources += [MetricScores(metric, models) for metric in metrics]  # type: ignore[arg-type]
        if reward is not None:
            scorer = Scorer(reward, models, prompt=PromptOptions.of(options.models))
            sources.append(RecipeScores.of(scorer, options.score))
        if options.claims and models.entailment:
            kinds = {"whole": [False], "statements": [True], "both": [False, True]}
            sources += [EntailmentScores(models.entailment, s) for s in kinds[options.claims]]
        samples = _read(options, sources)
    finally:
        asyncio.run(models.close())
    _check_columns(samples, options)
    return _calibration(options, samples, sources, models, resampling)


# --- reading -------------------------------------------------------------------------------------


def _read(options: CalibrateOptions, sources: Sequence[Source]) -> Samples:
    reader = SampleReader(options, sources)
    by_group = any(isinstance(s, RecipeScores) and s.scorer.scope == "group" for s in sources)
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(TerminalBar(None)) if options.progress else None
        for path in options.sources:
            name = "standard input" if path == "-" else path
            before = reader.samples.lines
            with contextlib.closing(_chunks(path, options, by_group)) as opened:
                reader.read(name, opened if bar is None else _counted(opened, bar, reader))
            if reader.samples.lines == before:
                raise UsageError(f"{name} has no rows")
    for labels in reader.samples.labels:
        labels.settle(is_graded=options.label_range is not None)
    return reader.samples


def _counted(chunks: Iterable[Chunk], bar: TerminalBar, reader: SampleReader) -> Iterator[Chunk]:
    """Yield chunks, and show how many rows were read before each."""
    started = time.perf_counter()
    for chunk in chunks:
        lines = reader.samples.lines
        rate = lines / max(time.perf_counter() - started, 1e-9)
        bar.show(0, f"{lines:,} rows · {rate:,.0f}/s")
        yield chunk


def _chunks(path: str, options: CalibrateOptions, by_group: bool) -> Generator[Chunk, None, None]:
    with contextlib.closing(open_source(path, options.columns)) as source:
        if by_group:
            yield from group_chunks(read_groups(source, options.group_size, options.sort))
        else:
            yield from chunks(source.lines)


def _check_columns(samples: Samples, options: CalibrateOptions) -> None:
    """Raise UsageError for a column of labels, scores or subsets that no row has."""
    for labels in samples.labels:
        rows = len(labels.values) + labels.left_out
        if rows and not labels.errors.counts() and not labels.grades:
            raise UsageError(
                f"no row has a label in the column {labels.name!r}: set --label to the column with "
                "the human labels"
            )
    for scores in samples.scores:
        if len(samples) and scores.missing == len(samples):
            raise UsageError(
                f"no row has a score in {scores.name!r}: set --column to a column with numbers"
            )
    for field in options.by:
        if len(samples) and set(samples.subsets[field].names) == {"(none)"}:
            raise UsageError(f"no row has {field!r}: choose another field to divide the rows by")


# --- the result ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """The comparison of one score with one column of labels."""

    samples: Samples
    scores: ScoreColumn
    labels: LabelColumn

    def labelled(self, rows: Sequence[int]) -> Labelled:
        """Return those of the rows that have a label and a score."""
        labels, scores = self.labels.values, self.scores.values
        chosen = [at for at in rows if not (isnan(labels[at]) or isnan(scores[at]))]
        return Labelled(
            [scores[at] for at in chosen],
            [labels[at] == 1 for at in chosen],
            [self.samples.prompts[at] for at in chosen],
        )


def _calibration(
    options: CalibrateOptions,
    samples: Samples,
    sources: Sequence[Source],
    models: Models,
    resampling: Resampling,
) -> Calibration:
    binary = [labels for labels in samples.labels if not labels.is_graded]
    jobs = [_Job(samples, scores, labels) for labels in binary for scores in samples.scores]
    graded = graded_reports(samples, options, resampling)
    reports = [_score_report(job, options, resampling) for job in jobs]
    labels = [(labels.name, label_verdicts(labels)) for labels in binary]
    scores = [
        (report.score, score_verdicts(scores, report.threshold.value))
        for scores, report in zip(samples.scores, reports, strict=False)
    ]
    if len(scores) > MAX_PAIRED:
        scores = []
    texts = [text for s in sources if isinstance(s, RecipeScores) for text in s.orders]
    return Calibration(
        signature=_signature(options, sources, models),
        rows=samples.lines,
        errors=samples.errors.counts(),
        labels=[_label_report(labels) for labels in samples.labels],
        scores=reports,
        label_pairs=pairs_of(labels, samples, resampling),
        score_pairs=pairs_of(scores, samples, resampling),
        cost_per_1000=_cost(models.judge, len(samples)),
        graded=graded,
        orders=order_reports(texts, samples.prompts, resampling),
    )


def _label_report(labels: LabelColumn) -> LabelReport:
    errors = labels.errors.counts()
    missing = len(labels.values) - len(labels.grades)
    missing += labels.left_out - sum(error.count for error in errors)
    counts = {"yes": labels.grades.count(1.0), "no": labels.grades.count(0.0)}
    if labels.is_graded:
        counts = {"yes": 0, "no": 0, "grades": len(labels.grades)}
    return LabelReport(label=labels.name, missing=missing, errors=errors, **counts)


def _score_report(job: _Job, options: CalibrateOptions, resampling: Resampling) -> ScoreReport:
    everything = job.labelled(range(len(job.samples)))
    counts = everything.counts
    threshold = _threshold(counts, options)
    by = {}
    for name in job.samples.subsets:
        by[name] = {
            subset: figures(part, part.counts, threshold.value, resampling)
            for subset, rows in positions(job.samples, name)
            if (part := job.labelled(rows)).labels
        }
    labelled = len(job.labels.grades)
    return ScoreReport(
        score=job.scores.name,
        label=job.labels.name,
        missing=labelled - len(everything.labels),
        errors=job.scores.errors.counts(),
        threshold=threshold,
        all=figures(everything, counts, threshold.value, resampling),
        reliability=reliability(counts),
        by=by,
    )


def _threshold(counts: ScoreCounts, options: CalibrateOptions) -> Threshold:
    """Return the threshold by the rule of the options."""
    if options.threshold is not None:
        return Threshold(value=options.threshold, rule="given")
    if options.max_false_positive_rate is not None:
        return _within_rate(counts, options.max_false_positive_rate)
    if set(counts.scores) <= {0.0, 1.0} and counts.scores:
        return Threshold(value=1.0, rule="binary")
    reason = _one_class(counts)
    return Threshold(value=counts.best_kappa(), rule="best_kappa", reason=reason)


def _one_class(counts: ScoreCounts) -> str:
    """Return the reason why the rows do not have both labels, or an empty text if they do."""
    if not counts.scores:
        return NO_ROWS
    missing = [
        reason for rows, reason in ((counts.yes, NO_YES), (counts.no, NO_NO)) if not any(rows)
    ]
    return f"{missing[0]}; add rows with this label" if missing else ""


def _within_rate(counts: ScoreCounts, limit: float) -> Threshold:
    rule = "max_false_positive_rate"
    value = counts.for_false_positive_rate(limit)
    if value is not None:
        return Threshold(value=value, rule=rule)
    if not any(counts.no):
        reason = _one_class(counts)
    else:
        highest = counts.scores[-1]
        rate = counts.at(highest).false_positive_rate
        reason = (
            f"the threshold {highest:g}, which is the highest score, has the false-positive rate "
            f"{rate:.4f}, which is more than {limit:g}; allow a higher false-positive rate, or use "
            "another score"
        )
    return Threshold(value=None, rule=rule, reason=reason)


def _cost(judge: Any, rows: int) -> Cost | None:
    """Return the cost of a judge for 1,000 rows, or None if none was asked."""
    usage = getattr(judge, "usage", None)
    if usage is None or not usage.verdicts or not rows:
        return None
    scale = 1000 / rows
    return Cost(
        requests=usage.verdicts * scale,
        prompt_tokens=(usage.prompt_tokens + usage.cached_prompt_tokens) * scale,
        completion_tokens=(usage.completion_tokens + usage.cached_completion_tokens) * scale,
    )


def _signature(options: CalibrateOptions, sources: Sequence[Source], models: Models) -> str:
    """Return one line that identifies everything that affects the numbers."""
    names = (
        *("label_threshold", "max_false_positive_rate", "threshold", "by", "lengths", "seed"),
        *("claims", "group_size", "label_range"),
    )
    settings: dict[str, Any] = {name: getattr(options, name) for name in names}
    settings |= {"labels": options.label, "resamples": options.resamples}
    settings["scores"] = [source.name for source in sources]
    recipes = [s.scorer.reward for s in sources if isinstance(s, RecipeScores)]
    if recipes:
        settings["recipe"] = str(recipes[0].identity)
    shown = {name: value for name, value in settings.items() if value not in (None, (), [])}
    return str(Signature(recipe="calibrate", settings=shown, models=models.fingerprints))


# --- pairs of scores, or of labels ---------------------------------------------------------------

Verdicts = Mapping[int, bool]
"""Verdicts by the position of the row."""


def label_verdicts(column: LabelColumn) -> Verdicts:
    """Return the labels of a column as verdicts."""
    return {row: value == 1 for row, value in enumerate(column.values) if not isnan(value)}


def score_verdicts(scores: ScoreColumn, threshold: float | None) -> Verdicts:
    """Return the verdicts of scores at a threshold; none without a threshold."""
    if threshold is None:
        return {}
    return {row: s >= threshold for row, s in enumerate(scores.values) if not isnan(s)}


def pairs_of(
    verdicts: Sequence[tuple[str, Verdicts]], samples: Samples, resampling: Resampling
) -> list[Pair]:
    """Return the agreement of each pair of named verdicts."""
    pairs = combinations(verdicts, 2)
    return [_pair((a, b), one, other, samples, resampling) for (a, one), (b, other) in pairs]


def _pair(
    names: tuple[str, str], one: Verdicts, other: Verdicts, samples: Samples, resampling: Resampling
) -> Pair:
    """Return the agreement of the verdicts of the rows that have both."""
    cells = {row: (verdict, other[row]) for row, verdict in one.items() if row in other}
    order = {p: at for at, p in enumerate(dict.fromkeys(samples.prompts[row] for row in cells))}
    columns = {name: array("d", bytes(8 * len(order))) for name in CELLS}
    for row, cell in cells.items():
        columns[cell_of(*cell)][order[samples.prompts[row]]] += 1.0
    ends = intervals_of([(_agreement, columns)], resampling)[0] if order else {}
    figures = {
        name: Figure(value, *(ends.get(name) or ()))
        if value is not None
        else Figure(None, reason=ALL_EQUAL if cells else NO_ROWS)
        for name, value in _values(Agreement.of(cells.values())).items()
    }
    return Pair(first=names[0], second=names[1], rows=len(cells), **figures)


def _agreement(sums: Parts) -> Values:
    return _values(agreement_of(sums))


def _values(agreement: Agreement) -> Values:
    """Return the share of equal verdicts, and κ. None where it is not defined."""
    if not agreement.count:
        return {"equal": None, "kappa": None}
    equal = (agreement.true_positives + agreement.true_negatives) / agreement.count
    return {"equal": equal, "kappa": None if isnan(agreement.kappa) else agreement.kappa}


# --- files ---------------------------------------------------------------------------------------


def write_calibration(options: CalibrateOptions, calibration: Calibration) -> None:
    """Write the files of the options: the result and the threshold file.

    Raises UsageError if a file cannot be written, and if no threshold reaches the false-positive
    rate.
    """
    if options.output:
        write_whole(options.output, as_json(calibration))
    if options.threshold_file:
        write_whole(options.threshold_file, threshold_yaml(options, calibration.scores[0]).encode())

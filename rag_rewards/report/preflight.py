"""Checks of sampled rollouts before a training: what is wrong with them, and how to fix it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from rag_rewards.errors import BackendError, OptionError, RagRewardsError, UsageError, shorten
from rag_rewards.evidence.needs import ModelKind
from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.files.sources import open_source
from rag_rewards.loading import RecipeSpec
from rag_rewards.models.addresses import without_credentials
from rag_rewards.models.local_models import resolve_tokenizer
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.report.preflight_checks import Lengths, Sampled, check
from rag_rewards.report.preflight_sample import Sample, chunk_of, sample_groups
from rag_rewards.rollout import EVIDENCE_FIELDS
from rag_rewards.rows import ErrorRecord, Finding, ScoredChunk, ScoredRow
from rag_rewards.rows.findings import Level
from rag_rewards.scorer import Scorer, required_models
from rag_rewards.scoring.options import Prices

Verdict = Literal["ready", "ready with warnings", "not ready"]
RETRIES = 1
"""Number of times to retry a request to the judge, which may be unavailable."""


@dataclass(frozen=True, kw_only=True)
class PreflightOptions(Prices):
    """The sample of a preflight. Raises OptionError for a number below 1."""

    limit: int = 64
    """Check at most this number of prompts, each with its rollouts. They are chosen at random."""
    group_size: int | None = None
    """Number of consecutive rows of a group. By default, rows with equal `group` form a group."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("limit", "group_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{{{name}}} must be at least 1, found {{value}}", value=value)


class Measure(msgspec.Struct, frozen=True):
    """A measure of the sample. `unit` is empty for a number without a unit."""

    name: str
    value: float | None
    unit: Literal["", "share", "tokens", "words", "rows"] = ""
    note: str = ""


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a preflight.

    rows      number of rows in the file
    sampled   number of rows in the sample
    prompts   number of prompts in the sample
    """

    verdict: Verdict
    recipe: str
    signature: str
    source: str
    rows: int
    sampled: int
    prompts: int
    findings: list[Finding]
    measures: list[Measure]


def preflight(
    source: str,
    recipe: RecipeSpec,
    options: PreflightOptions,
    models: ModelOptions,
    columns: str | None = None,
) -> Preflight:
    """Score a sample of the prompts of a file, and return what is wrong with it for a training.

    Evidence in the rows is used. What is missing is requested from the models, and a model that
    does not respond is a finding. Raises UsageError for an invalid file, recipe or option.
    """
    plain, tokenizer = Scorer.load(recipe), _tokenizer(models)
    with contextlib.closing(open_source(source, columns)) as opened:
        sample = sample_groups(opened.lines, options.limit, options.group_size)
    scorer, fault = _with_models(recipe, models, plain)
    with scorer:
        fault = fault or _dead_model(scorer, models, sample)
        used = plain if fault else scorer
        before = _usage(used)
        chunk = used.score_rows(chunk_of(sample.groups, compares=used.scope == "group"))
        sampled = _sampled(used, sample, chunk, tokenizer)
        usage = [new - old for new, old in zip(_usage(used), before, strict=True)]
        signature = used.signature
    findings = check(sampled, has_dead_model=fault is not None)
    findings = [fault, *findings] if fault else findings
    return Preflight(
        verdict=_verdict(each.level for each in findings),
        recipe=plain.reward.name,
        signature=signature,
        source=source,
        rows=sample.rows,
        sampled=sampled.rows_in_sample,
        prompts=len(sample.groups),
        findings=findings,
        measures=[*_measures(sampled), *_judge_measures(sampled, usage, options)],
    )


def _verdict(levels: Iterable[Level]) -> Verdict:
    levels = set(levels)
    if "problem" in levels:
        return "not ready"
    return "ready with warnings" if levels else "ready"


# --- scoring --------------------------------------------------------------------------------------


def _with_models(
    recipe: RecipeSpec, options: ModelOptions, plain: Scorer
) -> tuple[Scorer, Finding | None]:
    """Return a scorer with the models, or one without and what is wrong with the models."""
    if not options.is_set:
        return plain, None
    retries = min(options.judge_retries, RETRIES)
    try:
        scorer = Scorer.load(recipe, models=replace(options, judge_retries=retries))
    except (RagRewardsError, OSError) as error:
        return plain, _dead(options, OPTIONS, error)
    return scorer, None


def _dead_model(scorer: Scorer, options: ModelOptions, sample: Sample) -> Finding | None:
    """Call each model for a group, whose evidence is ignored, and return what is wrong.

    A model whose first group gets no evidence, such as for a question that a server refuses, is
    called for a second one.
    """
    kinds = {kind for kind in OPTIONS if scorer.models.of_kind(kind) is not None}
    failures: list[BackendError] = []
    try:
        _ = scorer.signature  # a server describes its model
    except BackendError as error:
        return _dead(options, kinds, error)
    for group in sample.groups:
        rows = [
            msgspec.structs.replace(row, **dict.fromkeys(EVIDENCE_FIELDS)) for row in group.decoded
        ]
        rows = [row for row in rows if kinds & required_models(scorer.reward, [row])]
        if not rows:
            continue
        results = scorer.gather(rows, [range(len(rows))])
        errors = [each for each in results if isinstance(each, BackendError)]
        if len(errors) < len(results):
            kinds, failures = kinds - required_models(scorer.reward, rows), []
        elif failures:
            break
        else:
            failures = errors[:1]
    return _dead(options, kinds, failures[0]) if failures else None


OPTIONS: dict[ModelKind, str] = {
    "policy": "model",
    "generator": "generator",
    "entailment": "nli",
    "similarity": "similarity",
    "judge": "judge",
}
"""The option that sets each kind of model."""


def _dead(options: ModelOptions, kinds: Collection[ModelKind], error: Exception) -> Finding:
    """Return the finding for models of these kinds, with the options that set them."""
    names = [name for kind, name in OPTIONS.items() if kind in kinds and getattr(options, name)]
    is_unreachable = any(text in str(error) for text in ("lost the connection", "gave no answer"))
    fixes = []
    for name in names:
        value = without_credentials(getattr(options, name))
        is_down = is_unreachable and "://" in value
        fix = f"start {value}, or" if is_down else f"correct {value}:"
        fixes.append(f"{fix} set the option {name}")
    what = "gives no result" if isinstance(error, BackendError) else "cannot be loaded"
    return Finding(
        "model", "problem", f"a model {what}: {shorten(str(error), 300)}", "; ".join(fixes)
    )


_ROW = msgspec.json.Decoder(ScoredRow)


def _sampled(
    scorer: Scorer, sample: Sample, chunk: ScoredChunk, tokenizer: Tokenizer | None
) -> Sampled:
    """Return a sample with its scored rows. `chunk` contains all of its groups."""
    rows = list(map(_ROW.decode, chunk.output.split(b"\n")[:-1]))
    places = {number: i for i, number in enumerate(chunk.numbers)}
    groups = [
        [places[number] for number, _ in group.lines if number in places] for group in sample.groups
    ]
    return Sampled(
        scorer=scorer,
        sample=sample,
        rows=rows,
        groups=list(filter(None, groups)),
        totals=chunk.totals,
        errors=[msgspec.json.decode(line, type=ErrorRecord) for line in chunk.errors],
        tokenizer=tokenizer,
    )


def _tokenizer(options: ModelOptions) -> Tokenizer | None:
    """Return the tokenizer of the options, or that of the model if it is on this machine."""
    if options.tokenizer:
        return resolve_tokenizer(options.tokenizer, None)
    with contextlib.suppress(UsageError):
        return resolve_tokenizer(None, options.model)
    return None


# --- measures -------------------------------------------------------------------------------------


def _measures(sampled: Sampled) -> Iterator[Measure]:
    numbers, totals = sampled.statistics, sampled.totals
    rates = numbers.rates
    without = sum(totals.without_form.values())
    if sampled.parts:
        share = _share(totals.rows - without, totals.rows)
        yield Measure("responses in the form", share, "share", sampled.form)
    yield Measure("correct format", rates["correct format"], "share")
    signal = _share(totals.groups - totals.flat, totals.groups)
    yield Measure("groups with signal", signal, "share", f"of {totals.groups:,} groups")
    sizes = ", ".join(f"{count:,} × {size}" for size, count in numbers.sizes.items())
    group = sampled.definition.training.group
    note = "; ".join(filter(None, (sizes, f"recipe: {group.value}")))
    mean = _share(sampled.rows_in_sample, len(sampled.sample.groups))
    yield Measure("responses per prompt", mean, "", note)
    means = totals.means()
    others = " · ".join(f"{name} {mean:.3g}" for name, mean in list(means.items())[1:])
    yield Measure("mean reward", means.get("reward"), "", others)
    exact, lenient = sampled.exact_and_lenient
    yield Measure("right by exact match", exact, "share")
    yield Measure("right by lenient match", lenient, "share")
    for name in ("undecided answers", "decided by the judge", "abstentions", "refusals", "empty"):
        yield Measure(name, rates[name], "share")
    yield Measure("duplicates in a group", sampled.duplicate_share, "share")
    yield Measure("unanswerable", sampled.unanswerable_share, "share")
    yield Measure("rows in error", _share(totals.errors, sampled.rows_in_sample), "share")
    for lengths in (sampled.prompt_lengths, sampled.response_lengths):
        yield from _length_measures(lengths)


def _length_measures(lengths: Lengths) -> Iterator[Measure]:
    if lengths.values:
        middle, largest = lengths.quantile(0.5), max(lengths.values)
        note = f"largest {largest:,}; limit of the recipe {lengths.limit:,} tokens"
        yield Measure(f"{lengths.name} length, median", middle, lengths.unit, note)


def _judge_measures(sampled: Sampled, usage: Sequence[int], prices: Prices) -> Iterator[Measure]:
    if not (needs := sampled.judge_needs):
        return
    note = f"{sum(needs):,} of them contain the verdicts"
    yield Measure("rows that need the judge", len(needs), "rows", note)
    requests, *tokens = usage
    if not requests:
        return
    yield Measure("requests to the judge", requests, "", "for the sample")
    yield Measure("tokens of the judge", sum(tokens), "tokens", "for the sample")
    if (cost := prices.cost(*tokens)) is not None:
        note = f"for the sample of {sampled.rows_in_sample:,} rows"
        yield Measure("cost of the judge", cost, "", note)


def _usage(scorer: Scorer) -> list[int]:
    """Return the requests of the judge so far, and its prompt and completion tokens."""
    usage = getattr(scorer.models.judge, "usage", None)
    return [getattr(usage, name, 0) for name in ("requests", "prompt_tokens", "completion_tokens")]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None

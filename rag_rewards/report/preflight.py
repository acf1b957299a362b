"""Checks of sampled rollouts before a training: what is wrong with them, and how to fix it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

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
from rag_rewards.report.preflight_sample import Sample, SampledGroup, chunk_of, sample_groups
from rag_rewards.rollout import EVIDENCE_FIELDS
from rag_rewards.rows import ErrorRecord, Finding, ScoredChunk, ScoredRow, decode_line
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


class Figure(msgspec.Struct, frozen=True):
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
    figures: list[Figure]


def preflight(
    source: str,
    recipe: RecipeSpec,
    options: PreflightOptions,
    models: ModelOptions,
    columns: str | None = None,
) -> Preflight:
    """Score a sample of the prompts of a file, and return what is wrong with it for a training.

    Evidence in the rows is used. The models are asked for what is missing, and a model that does
    not respond is a finding. Raises UsageError for an invalid file, recipe or option.
    """
    plain = Scorer.load(recipe)
    with contextlib.closing(open_source(source, columns)) as opened:
        sample = sample_groups(opened.lines, options.limit, options.group_size)
    scorer, fault = _with_models(recipe, models, plain)
    with scorer:
        fault = fault or _dead_model(scorer, models, sample)
        used = plain if fault else scorer
        chunk = used.score_rows(chunk_of(sample.groups, compares=used.scope == "group"))
        sampled = _sampled(used, sample, chunk, _tokenizer(models))
        usage = getattr(used.models.judge, "usage", None)
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
        figures=[*_figures(sampled), *_judge_figures(sampled, usage, options)],
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
        return plain, _dead(options, (), f"a model cannot be loaded: {error}")
    return scorer, None


def _dead_model(scorer: Scorer, options: ModelOptions, sample: Sample) -> Finding | None:
    """Ask each model about one group, whose evidence is ignored, and return what is wrong."""
    kinds = [kind for kind in OPTIONS if scorer.models.of_kind(kind) is not None]
    try:
        _ = scorer.signature  # a server describes its model
        for group in sample.groups:
            rows = list(_without_evidence(group))
            if not kinds:
                break
            if asked := required_models(scorer.reward, rows).intersection(kinds):
                for result in scorer.gather(rows, [range(len(rows))]):
                    if isinstance(result, BackendError):
                        raise result
                kinds = [kind for kind in kinds if kind not in asked]
    except BackendError as error:
        return _dead(options, kinds, f"a model gives no result: {shorten(str(error), 300)}")
    return None


OPTIONS: dict[ModelKind, str] = {
    "policy": "model",
    "generator": "generator",
    "entailment": "nli",
    "similarity": "similarity",
    "judge": "judge",
}
"""The option that sets each kind of model."""


def _dead(options: ModelOptions, kinds: Sequence[ModelKind], message: str) -> Finding:
    """Return the finding for a model, which names the options of these kinds, or of all."""
    names = [name for name in map(OPTIONS.__getitem__, kinds or OPTIONS) if getattr(options, name)]
    values = (without_credentials(getattr(options, name)) for name in names)
    fixes = [
        f"start {value}, or, if this is wrong, set the option {name}"
        for name, value in zip(names, values, strict=True)
    ]
    return Finding("model", "problem", message, "; ".join(fixes))


def _without_evidence(group: SampledGroup) -> Iterator[ScoredRow]:
    """Yield the rows of a group that can be decoded, without their evidence."""
    for _, line in group.lines:
        row = decode_line(line, _ROW)
        if isinstance(row, ScoredRow):
            yield msgspec.structs.replace(row, **dict.fromkeys(EVIDENCE_FIELDS))


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
    """Return the tokenizer of the options, if it is on this machine."""
    with contextlib.suppress(UsageError):
        return resolve_tokenizer(options.tokenizer, options.model)
    return None


# --- figures --------------------------------------------------------------------------------------


def _figures(sampled: Sampled) -> Iterator[Figure]:
    numbers, totals = sampled.statistics, sampled.totals
    rates = numbers.rates
    without = sum(totals.without_form.values())
    if sampled.parts:
        form = sampled.definition.output.description
        yield Figure(
            "responses in the form", _share(totals.rows - without, totals.rows), "share", form
        )
    yield Figure("correct format", rates["correct format"], "share")
    signal = _share(totals.groups - totals.flat, totals.groups)
    yield Figure("groups with signal", signal, "share", f"of {totals.groups:,} groups")
    sizes = ", ".join(f"{count:,} × {size}" for size, count in numbers.sizes.items())
    group = sampled.definition.training.group
    yield Figure("responses per prompt", _mean(sampled), "", f"{sizes}; recipe: {group.value}")
    means = totals.means()
    others = " · ".join(f"{name} {mean:.3g}" for name, mean in list(means.items())[1:])
    yield Figure("mean reward", means.get("reward"), "", others)
    exact, lenient = sampled.exact_and_lenient
    yield Figure("right by exact match", exact, "share")
    yield Figure("right by lenient match", lenient, "share")
    for name in ("undecided answers", "decided by the judge", "abstentions", "refusals", "empty"):
        yield Figure(name, rates[name], "share")
    yield Figure("duplicates in a group", sampled.duplicate_share, "share")
    yield Figure("unanswerable", sampled.unanswerable_share, "share")
    yield Figure("rows in error", _share(totals.errors, sampled.rows_in_sample), "share")
    for lengths in (sampled.prompt_lengths, sampled.response_lengths):
        yield from _length_figures(lengths)


def _length_figures(lengths: Lengths) -> Iterator[Figure]:
    if lengths.values:
        middle, largest = lengths.quantile(0.5), max(lengths.values)
        note = f"largest {largest:,}; limit of the recipe {lengths.limit:,} tokens"
        yield Figure(f"{lengths.name} length, median", middle, lengths.unit, note)


def _judge_figures(sampled: Sampled, usage: Any, prices: Prices) -> Iterator[Figure]:
    if not sampled.judged:
        return
    note = f"{sampled.judged - sampled.unjudged:,} of them contain the verdicts"
    yield Figure("rows that need the judge", sampled.judged, "rows", note)
    if usage is None or not usage.requests:
        return
    yield Figure("requests to the judge", usage.requests, "", "for the sample")
    tokens = usage.prompt_tokens or 0, usage.completion_tokens or 0
    yield Figure("tokens of the judge", sum(tokens), "tokens", "for the sample")
    if (cost := prices.cost(*tokens)) is not None:
        note = f"for the sample of {sampled.rows_in_sample:,} rows"
        yield Figure("cost of the judge", cost, "", note)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _mean(sampled: Sampled) -> float | None:
    return _share(sampled.rows_in_sample, len(sampled.sample.groups))

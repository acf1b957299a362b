"""Label questions by the pass rate of k responses: those without a right one are out of knowledge.

The responses are in the rows, or a policy samples them. Sampled responses are stored in
`OUT.samples.jsonl` at once, so that an interrupted run, or a run with other settings for labels,
requests no response twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from rag_rewards.errors import DataError, OptionError, RolloutError, UsageError
from rag_rewards.files.output import Output
from rag_rewards.files.output_check import refuse_overwriting_with_card
from rag_rewards.files.sources import Source
from rag_rewards.report.progress import ProgressBar
from rag_rewards.rows import Totals
from rag_rewards.selection.questions import ErrorLog, Question, has_response, read_question_row
from rag_rewards.selection.run import (
    CorrectnessOptions,
    Run,
    RunCounts,
    RunOptions,
    open_run,
    write_card,
)
from rag_rewards.selection.sampling import SamplingOptions

NO_RESPONSE = "set a model that samples responses for rows without one"
HAS_RESPONSE = "the row has a response: leave out the model to label rows by their responses"
NO_RECIPE = "no recipe is given, which decides whether a response is correct: set {recipe}"


@dataclass(frozen=True, kw_only=True)
class LabelOptions(CorrectnessOptions):
    """How questions are labelled."""

    keep_rollouts: str | None = None
    """Write the sampled responses to this file, as rows that `rag-rewards select` reads."""


@dataclass(frozen=True, kw_only=True)
class ProbeOptions(LabelOptions, RunOptions):
    """The options of `probe`. Without `models.model`, the rows contain the responses.

    Raises UsageError when options contradict each other, and when an input would be overwritten.
    """

    sampling: SamplingOptions = SamplingOptions()
    progress: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_sampling and self.recipe is None:
            raise OptionError(NO_RECIPE)
        if self.is_sampling and (self.sort or self.group_size is not None):
            raise OptionError(
                "{sort} and {group_size} arrange the rollouts of the file, but {model} samples new "
                "ones"
            )
        if self.keep_rollouts is not None and not self.is_sampling:
            raise OptionError("{keep_rollouts} requires {model}, which samples the rollouts")
        outputs = {"output": self.output, "keep_rollouts": self.keep_rollouts}
        refuse_overwriting_with_card(outputs, [self.source])

    @property
    def is_sampling(self) -> bool:
        """Whether a policy samples the responses."""
        return self.models.model is not None


@dataclass
class ProbeResult(RunCounts):
    """The counts of a run."""

    questions: int = 0
    out_of_knowledge: int = 0
    pass_rates: float = 0.0
    """Sum of the pass rates."""
    responses: int = 0
    signature: str = ""

    @property
    def pass_rate(self) -> float:
        """Mean pass rate of the questions."""
        return self.pass_rates / max(self.questions, 1)

    def add(self, question: Question, rate: float) -> None:
        """Count a question."""
        self.questions += 1
        self.responses += len(question.rollouts)
        self.out_of_knowledge += rate == 0
        self.pass_rates += rate

    @property
    def totals(self) -> Totals:
        """The numbers of a progress bar."""
        sums = {"pass rate": self.pass_rates, "out of knowledge": float(self.out_of_knowledge)}
        return Totals(
            rows=self.questions,
            errors=self.rows_in_error,
            sums=sums,
            counts=dict.fromkeys(sums, self.questions),
        )


def probe(options: ProbeOptions) -> ProbeResult:
    """Write one row per question, with `out_of_knowledge`, `pass_rate` and `samples`, and a card.

    Raises UsageError when no question is labelled, and BackendError when the policy fails
    repeatedly.
    """
    with open_run(options, options.recipe, "label") as run:
        result = _label_questions(options, run)
    _write_card(options, result)
    return result


def _label_questions(options: ProbeOptions, run: Run) -> ProbeResult:
    result = ProbeResult(signature=run.models.signature)
    with contextlib.ExitStack() as stack:
        rollouts: Output | None = None
        if options.keep_rollouts is not None:
            rollouts = stack.enter_context(Output(options.keep_rollouts))
        questions: Iterable[Question] = run.questions()
        if options.is_sampling:
            questions = _questions_without_response(run.source, run.errors)
        texts = run.with_texts(enumerate(questions), options.sampling)
        bar = stack.enter_context(ProgressBar(run.source.size)) if options.progress else None
        for _, question in stack.enter_context(contextlib.closing(texts)):
            if rollouts is not None:
                _write_rollouts(rollouts, question, result.signature)
            _label(question, run.output, result, run.errors)
            if bar is not None:
                result.rows_in_error = run.errors.rows
                bar.update(result.totals, run.source.position())
        run.count(result)
        if not result.questions:
            reason = result.first_error or "there are no rows"
            raise UsageError(f"no question is labelled: {reason}")
        if rollouts is not None:
            rollouts.commit()
        run.commit()
    return result


def _label(question: Question, output: Output, result: ProbeResult, errors: ErrorLog) -> None:
    rate = question.pass_rate
    if rate is not None:
        result.add(question, rate)
        size = len(question.rollouts)
        label = {"out_of_knowledge": rate == 0, "pass_rate": rate, "samples": size}
        output.write(msgspec.json.encode(question.fields() | label) + b"\n")
    elif question.rollouts:
        message = (
            "missing for a response of the group: score with a recipe that decides whether a "
            "response is correct"
        )
        for rollout in question.rollouts:
            errors.add(rollout.number, rollout.line, DataError(message, "correct"))
    elif not result.questions:
        raise UsageError(f"line {question.line[0]} has no response: {NO_RESPONSE}")
    else:
        errors.add(*question.line, DataError(f"missing; {NO_RESPONSE}", "response"))


def _questions_without_response(source: Source, errors: ErrorLog) -> Iterator[Question]:
    """Yield the rows as questions for which a policy samples responses."""
    is_first = True
    for line in source.lines:
        row = read_question_row(line[1])
        if isinstance(row, RolloutError):
            errors.add(*line, row)
        elif not has_response(line[1]):
            is_first = False
            yield Question(line, row)
        elif is_first:
            raise UsageError(f"line {line[0]}: {HAS_RESPONSE}")
        else:
            errors.add(*line, DataError(HAS_RESPONSE, "response"))


def _write_rollouts(output: Output, question: Question, signature: str) -> None:
    """Write the responses to a question as rows for `select`."""
    for number, (_, _, rollout, score, _) in enumerate(question.rollouts, start=1):
        fields = {
            "id": f"{question.name}#{number}",
            "group": question.name,
            "response": rollout.response,
            "response_prefix": rollout.response_prefix,
            "finish_reason": rollout.finish_reason,
            "correct": score.correct,
            "details": score.details,
            "signature": signature,
        }
        present = {name: value for name, value in fields.items() if value is not None}
        output.write(msgspec.json.encode(question.fields() | present) + b"\n")


# --- summary -------------------------------------------------------------------------------------


def _write_card(options: ProbeOptions, result: ProbeResult) -> None:
    settings: dict[str, Any] = {
        "right_at": options.right_at,
        "group_size": options.group_size,
        "sort": options.sort,
    }
    if options.is_sampling:
        settings |= {"samples": options.sampling.samples, **options.sampling.settings}
    facts: dict[str, Any] = {
        "counts": {
            "questions": result.questions,
            "out of knowledge": result.out_of_knowledge,
            "mean pass rate": round(result.pass_rate, 6),
            "responses": result.responses,
            "rows in error": result.rows_in_error,
        }
    }
    if result.signature:
        facts["correct"] = result.signature
    write_card("probe", options, settings, facts, counts(result))


def counts(result: ProbeResult) -> list[str]:
    """Return the counts of a run, one sentence each."""
    share = result.out_of_knowledge / max(result.questions, 1)
    return [
        f"{result.out_of_knowledge:,} out of knowledge ({share:.1%}): no response is correct",
        f"mean pass rate {result.pass_rate:.4f} over {result.responses:,} responses",
        *result.error_lines,
    ]

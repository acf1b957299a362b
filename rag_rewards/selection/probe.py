"""Label questions by the pass rate of k responses: those without a right one are out of knowledge.

The responses are in the rows, or a policy samples them. Sampled responses are stored in
`OUT.samples.jsonl` at once, so that an interrupted run, or a run with other settings for labels,
requests no response twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import msgspec

from rag_rewards.errors import DataError, OptionError, RolloutError, UsageError
from rag_rewards.evidence.protocols import Policy
from rag_rewards.files.output import Output, refuse_second_run
from rag_rewards.files.output_check import refuse_overwriting_with_card
from rag_rewards.files.progress import NoProgress
from rag_rewards.files.questions import (
    ErrorLog,
    Question,
    QuestionRow,
    Questions,
    check_right_at,
    has_response,
    question_of,
    read_question_row,
)
from rag_rewards.files.sources import Source, open_source
from rag_rewards.groups import first_error
from rag_rewards.loading import RecipeSource, RecipeSpec, load_recipe
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.recipe_object import Recipe
from rag_rewards.report.progress import ProgressBar
from rag_rewards.rollout import Rollout
from rag_rewards.rows import Line, Totals
from rag_rewards.scorer import PromptOptions, Scorer
from rag_rewards.selection.card import write_card
from rag_rewards.selection.sampling import SampleFile, Sampler, SamplingOptions
from rag_rewards.signature import signature_of

NO_RESPONSE = "set a model that samples responses for rows without one"
HAS_RESPONSE = "the row has a response: leave out the model to label rows by their responses"
NO_RECIPE = "no recipe is given, which decides whether a response is correct: set {recipe}"


@dataclass(frozen=True)
class ProbeOptions:
    """The options of `probe`. Without `models.model`, the rows contain the responses.

    Raises UsageError when options contradict each other, and when an input would be overwritten.
    """

    source: str
    output: str
    recipe: RecipeSource | None = None
    models: ModelOptions = ModelOptions()
    sampling: SamplingOptions = SamplingOptions()
    right_at: float = 1.0
    keep_rollouts: str | None = None
    group_size: int | None = None
    sort: bool = False
    progress: bool = False
    columns: str | None = None

    def __post_init__(self) -> None:
        check_right_at(self.right_at)
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

    @property
    def errors(self) -> str:
        """Path of the rows in error."""
        return f"{self.output}.errors.jsonl"

    @property
    def samples(self) -> str:
        """Path of the sampled responses."""
        return f"{self.output}.samples.jsonl"


@dataclass
class ProbeResult:
    """The counts of a run."""

    questions: int = 0
    out_of_knowledge: int = 0
    pass_rates: float = 0.0
    """Sum of the pass rates."""
    responses: int = 0
    rows_in_error: int = 0
    first_error: str = ""
    new_responses: int = 0
    """Responses that the policy gave in this run."""
    stored_responses: int = 0
    """Responses of earlier runs that were used again."""
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
    refuse_second_run(options.output)
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(
            contextlib.closing(open_source(options.source, options.columns))
        )
        models = stack.enter_context(contextlib.closing(_Models(options)))
        result = _label_questions(options, source, models)
    _write_card(options, result)
    return result


@dataclass
class _Models:
    """The policy that samples responses, and the scorer that decides which ones are right.

    The scorer uses only the recipe's reward for correctness. Its prompt is that of rows without a
    prompt.
    """

    options: ProbeOptions
    recipe: Recipe | None = None
    scorer: Scorer | None = None
    policy: Policy | None = None

    def __post_init__(self) -> None:
        hardened = False
        if self.options.recipe is not None:
            spec = RecipeSpec.of(self.options.recipe)
            self.recipe, hardened = _single_recipe(spec), spec.hardened
        models = self.options.models.for_profile(hardened=hardened).load()
        self.policy = models.policy
        if self.recipe is not None:
            correct = self.recipe.correct
            if correct is None:
                raise UsageError(
                    f"recipe {self.recipe.name} does not decide whether a response is correct: "
                    "choose another recipe"
                )
            reward = replace(self.recipe, components=(correct,), total=correct)
            prompt = PromptOptions.of(self.options.models)
            self.scorer = Scorer(reward, replace(models, policy=None), prompt=prompt)

    @property
    def signature(self) -> str:
        if self.recipe is None or self.scorer is None:
            return ""
        return signature_of(self.recipe, self.scorer.models.fingerprints)

    def close(self) -> None:
        if self.scorer is not None:
            self.scorer.close()
        if self.policy is not None:
            asyncio.run(self.policy.close())


def _single_recipe(source: RecipeSource) -> Recipe:
    recipe = load_recipe(source)
    if not isinstance(recipe, Recipe):
        raise UsageError(
            "a curriculum has several recipes: choose the one that decides whether a response is "
            "correct"
        )
    return recipe


def _label_questions(options: ProbeOptions, source: Source, models: _Models) -> ProbeResult:
    result = ProbeResult(signature=models.signature)
    with contextlib.ExitStack() as stack:
        output = Output(options.output)  # its lock also protects the errors and the samples
        stack.callback(output.close)
        errors = stack.enter_context(contextlib.closing(ErrorLog(options.errors)))
        questions: Iterable[Question] = Questions(
            *(source, errors, models.scorer, options.right_at),
            *(options.group_size, options.sort),
        )
        sampled = None
        if models.policy is not None:
            sampled = _sampled_questions(options, models.policy, source, errors, models)
            stack.callback(sampled.close)
            questions = sampled
        show = stack.enter_context((ProgressBar if options.progress else NoProgress)(source))
        for question in questions:
            _label(question, output, result, errors)
            result.rows_in_error = errors.rows
            show.update(result.totals, source.position())
        result.rows_in_error, result.first_error = errors.rows, errors.first
        if not result.questions:
            raise UsageError(f"no question is labelled: {errors.first or 'there are no rows'}")
        if sampled is not None:
            sampled.commit()
            result.new_responses = sampled.sampler.new_responses
            result.stored_responses = sampled.sampler.stored_responses
        errors.close()
        output.commit()
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


# --- sampling ------------------------------------------------------------------------------------


def _sampled_questions(
    options: ProbeOptions, policy: Policy, source: Source, errors: ErrorLog, models: _Models
) -> _SampledQuestions:
    settings: dict[str, str | float | int] = {
        "model": policy.fingerprint,
        **options.sampling.settings,
    }
    samples = SampleFile(options.samples, settings)
    if models.scorer is None:
        raise OptionError(NO_RECIPE)
    prompt = models.scorer.prompt
    sampler = Sampler(policy, options.sampling, samples, prompt, options.models.truncate)
    return _SampledQuestions(options, sampler, source, errors, models)


@dataclass
class _SampledQuestions:
    """The questions of a file, each with the responses that a policy gives to it."""

    options: ProbeOptions
    sampler: Sampler
    source: Source
    errors: ErrorLog
    models: _Models
    rollouts: Output | None = None
    questions: int = 0

    def __post_init__(self) -> None:
        if self.options.keep_rollouts is not None:
            self.rollouts = Output(self.options.keep_rollouts)

    def __iter__(self) -> Iterator[Question]:
        sampling = self.options.sampling
        size = max(1, sampling.batch // sampling.samples)
        while lines := list(islice(self.source.lines, size)):
            yield from self._sample([line for line in map(self._row, lines) if line is not None])

    def _row(self, line: Line) -> tuple[Line, QuestionRow] | None:
        row = read_question_row(line[1])
        if isinstance(row, QuestionRow) and not has_response(line[1]):
            self.questions += 1
            return line, row
        if isinstance(row, RolloutError):
            self.errors.add(*line, row)
        elif not self.questions:
            raise UsageError(f"line {line[0]}: {HAS_RESPONSE}")
        else:
            self.errors.add(*line, DataError(HAS_RESPONSE, "response"))
        return None

    def _sample(self, rows: Sequence[tuple[Line, QuestionRow]]) -> Iterator[Question]:
        sampled = self.sampler.rollouts([row for _, row in rows])
        for (line, _), rollouts in zip(rows, sampled, strict=True):
            question = self._score(line, rollouts)
            if isinstance(question, RolloutError):
                self.errors.add(*line, question)
                continue
            self._write_rollouts(question)
            yield question

    def _score(self, line: Line, rollouts: list[Rollout] | RolloutError) -> Question | RolloutError:
        if isinstance(rollouts, RolloutError):
            return rollouts
        if self.models.scorer is None:
            raise OptionError(NO_RECIPE)
        scores = self.models.scorer.score_each(rollouts, [range(len(rollouts))])
        if (error := first_error(scores)) is not None:
            return error
        return question_of([line] * len(rollouts), rollouts, scores, self.options.right_at)

    def _write_rollouts(self, question: Question) -> None:
        """Write the responses as rows for `select`."""
        if self.rollouts is None:
            return
        for number, (_, _, rollout, score, _) in enumerate(question.rollouts, start=1):
            fields = {
                "id": f"{question.name}#{number}",
                "group": question.name,
                "response": rollout.response,
                "response_prefix": rollout.response_prefix,
                "finish_reason": rollout.finish_reason,
                "correct": score.correct,
                "details": score.details,
                "signature": self.models.signature,
            }
            present = {name: value for name, value in fields.items() if value is not None}
            self.rollouts.write(msgspec.json.encode(question.fields() | present) + b"\n")

    def commit(self) -> None:
        if self.rollouts is not None:
            self.rollouts.commit()

    def close(self) -> None:
        self.sampler.samples.close()
        if self.rollouts is not None:
            self.rollouts.close()


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
    write_card("probe", options.source, options.output, settings, facts, counts(result))


def counts(result: ProbeResult) -> list[str]:
    """Return the counts of a run, one sentence each."""
    share = result.out_of_knowledge / max(result.questions, 1)
    lines = [
        f"{result.out_of_knowledge:,} out of knowledge ({share:.1%}): no response is correct",
        f"mean pass rate {result.pass_rate:.4f} over {result.responses:,} responses",
    ]
    if result.rows_in_error:
        lines.append(f"{result.rows_in_error:,} rows in error, the first: {result.first_error}")
    return lines

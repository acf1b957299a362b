"""`rag-rewards probe`: which questions are out of a policy's knowledge, from k responses to each.

The responses stand in the rows, or are sampled: then they are kept in `OUT.samples.jsonl` as they
come, and a run that was interrupted, or that labels anew with other settings, asks for none twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import msgspec

from rag_rewards.datasets.notes import refuse_overwriting, write_card
from rag_rewards.datasets.sampling import Drawing, Sampler, Samples
from rag_rewards.datasets.trials import (
    Faults,
    Question,
    QuestionRow,
    Questions,
    answered,
    check_right_at,
    question_of,
    read_question_row,
)
from rag_rewards.definition import Recipe, custom
from rag_rewards.errors import DataError, OptionError, RolloutError, UsageError
from rag_rewards.evidence.protocols import Policy
from rag_rewards.groups import first_error
from rag_rewards.io.sinks import Output, refuse_second_run
from rag_rewards.io.sources import Source, open_source
from rag_rewards.loading import RecipeSource, load_recipe
from rag_rewards.model_options import ModelOptions
from rag_rewards.prompts import GROUNDED
from rag_rewards.report.progress import no_progress, progress_bar
from rag_rewards.rollout import Rollout
from rag_rewards.rows import Line, Totals
from rag_rewards.scorer import Scorer
from rag_rewards.signature import signature_of

NO_RESPONSE = "set a model that samples responses for rows without one"
A_RESPONSE = "the row has a response: leave the model out to label rows by their responses"


@dataclass(frozen=True)
class Options:
    """What `probe` was asked to do. Without `models.model` the rows bring their responses."""

    source: str
    output: str
    recipe: RecipeSource | None = None
    models: ModelOptions = ModelOptions()
    drawing: Drawing = Drawing()
    right_at: float = 1.0
    keep_rollouts: str | None = None
    group_size: int | None = None
    sort: bool = False
    progress: bool = False

    def __post_init__(self) -> None:
        check_right_at(self.right_at)
        if self.sampled and self.recipe is None:
            raise OptionError("no recipe is given, which decides what is right: set {recipe}")
        if self.sampled and (self.sort or self.group_size is not None):
            raise OptionError(
                "{sort} and {group_size} arrange rollouts of the file, and {model} samples new ones"
            )
        if self.keep_rollouts is not None and not self.sampled:
            raise OptionError("{keep_rollouts} requires {model}, which samples the rollouts")
        made = (self.errors, self.samples, f"{self.output}.card.md", *self._kept)
        refuse_overwriting(self.output, made, [self.source])
        if self.keep_rollouts in (self.output, *made[:3]):
            raise OptionError(
                "{keep_rollouts} {path} is another file of this run", path=self.keep_rollouts
            )

    @property
    def _kept(self) -> tuple[str, ...]:
        return (self.keep_rollouts,) if self.keep_rollouts else ()

    @property
    def sampled(self) -> bool:
        return self.models.model is not None

    @property
    def errors(self) -> str:
        return f"{self.output}.errors.jsonl"

    @property
    def samples(self) -> str:
        return f"{self.output}.samples.jsonl"


@dataclass
class Probed:
    """What came of it."""

    rows: int = 0
    questions: int = 0
    unknown: int = 0
    right: float = 0.0
    """Sum of the pass rates."""
    responses: int = 0
    broken: int = 0
    first_error: str = ""
    asked: int = 0
    reused: int = 0
    signature: str = ""

    @property
    def pass_rate(self) -> float:
        return self.right / max(self.questions, 1)

    def add(self, question: Question, rate: float) -> None:
        self.questions += 1
        self.responses += len(question.samples)
        self.unknown += rate == 0
        self.right += rate

    @property
    def totals(self) -> Totals:
        """The numbers of a progress bar."""
        sums = {"pass rate": self.right, "out of knowledge": float(self.unknown)}
        return Totals(
            rows=self.questions,
            errors=self.broken,
            sums=sums,
            counts=dict.fromkeys(sums, self.questions),
        )


def probe(options: Options) -> Probed:
    """Write a row a question, with `out_of_knowledge`, `pass_rate` and `samples`, and a card."""
    refuse_second_run(options.output)
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(contextlib.closing(open_source(options.source)))
        judging = stack.enter_context(contextlib.closing(_Judging(options)))
        done = _probed(options, source, judging)
    _write_card(options, done)
    return done


@dataclass
class _Judging:
    """Decides what is right, by the recipe's own `correct` and no other part of it."""

    options: Options
    recipe: Recipe | None = None
    scorer: Scorer | None = None
    policy: Policy | None = None

    def __post_init__(self) -> None:
        if self.options.recipe is not None:
            self.recipe = _recipe(self.options.recipe)
        loaded = self.options.models.load()
        self.policy = loaded.policy
        if self.recipe is not None:
            correct = self.recipe.correct
            if correct is None:
                raise UsageError(f"recipe {self.recipe.name} does not decide what is right")
            models = replace(loaded, policy=None)
            self.scorer = Scorer(custom(self.recipe.name, correct, correct=correct), models)

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


def _recipe(source: RecipeSource) -> Recipe:
    recipe = load_recipe(source)
    if not isinstance(recipe, Recipe):
        raise UsageError(
            "a curriculum has several recipes: choose one, which decides what is right"
        )
    return recipe


def _probed(options: Options, source: Source, judging: _Judging) -> Probed:
    done = Probed(signature=judging.signature)
    with contextlib.ExitStack() as stack:
        output = Output(options.output)  # its lock also protects the errors and the samples
        stack.callback(output.close)
        faults = stack.enter_context(contextlib.closing(Faults(options.errors)))
        questions: Iterator[Question] = iter(
            Questions(
                *(source, faults, judging.scorer, options.right_at),
                *(options.group_size, options.sort),
            )
        )
        if judging.policy is not None:
            sampling = _sampling(options, judging.policy, source, faults, judging)
            stack.callback(sampling.close)
            questions = iter(sampling)
        show = stack.enter_context(progress_bar(source) if options.progress else no_progress())
        for question in questions:
            _label(question, output, done, faults)
            done.broken = faults.rows
            show.update(done.totals, source.position())
        done.broken, done.first_error = faults.rows, faults.first
        if not done.questions:
            raise UsageError(f"no question is labelled: {faults.first or 'there are no rows'}")
        if judging.policy is not None:
            sampling.commit()
            done.asked, done.reused = sampling.sampler.asked, sampling.sampler.reused
        faults.close()
        output.commit()
    return done


def _label(question: Question, output: Output, done: Probed, faults: Faults) -> None:
    rate = question.pass_rate
    if rate is not None:
        done.add(question, rate)
        size = len(question.samples)
        label = {"out_of_knowledge": rate == 0, "pass_rate": rate, "samples": size}
        output.write(msgspec.json.encode(question.row() | label) + b"\n")
    elif question.samples:
        for sample in question.samples:
            said = "missing for a response of the group: score with a recipe that says it"
            faults.add(sample.number, sample.line, DataError(said, "correct"))
    elif not done.questions:
        raise UsageError(f"line {question.line[0]} has no response: {NO_RESPONSE}")
    else:
        faults.add(*question.line, DataError(f"missing; {NO_RESPONSE}", "response"))


# --- sampling ------------------------------------------------------------------------------------


def _sampling(
    options: Options, policy: Policy, source: Source, faults: Faults, judging: _Judging
) -> _Sampling:
    made_with: dict[str, str | float | int] = {
        "model": policy.fingerprint,
        **options.drawing.settings,
    }
    samples = Samples(options.samples, made_with)
    prompt = judging.recipe.prompt if judging.recipe else GROUNDED
    sampler = Sampler(policy, options.drawing, samples, prompt, options.models.truncate)
    return _Sampling(options, sampler, source, faults, judging)


@dataclass
class _Sampling:
    """The questions of a file, each with the responses that a policy gives to it."""

    options: Options
    sampler: Sampler
    source: Source
    faults: Faults
    judging: _Judging
    kept: Output | None = None
    questions: int = 0

    def __post_init__(self) -> None:
        if self.options.keep_rollouts is not None:
            self.kept = Output(self.options.keep_rollouts)

    def __iter__(self) -> Iterator[Question]:
        drawing = self.options.drawing
        at_a_time = max(1, drawing.batch // drawing.samples)
        while lines := list(islice(self.source.lines, at_a_time)):
            yield from self._asked([line for line in map(self._row, lines) if line is not None])

    def _row(self, line: Line) -> tuple[Line, QuestionRow] | None:
        trial = read_question_row(line[1])
        if isinstance(trial, QuestionRow) and not answered(line[1]):
            self.questions += 1
            return line, trial
        if isinstance(trial, RolloutError):
            self.faults.add(*line, trial)
        elif not self.questions:
            raise UsageError(f"line {line[0]}: {A_RESPONSE}")
        else:
            self.faults.add(*line, DataError(A_RESPONSE, "response"))
        return None

    def _asked(self, rows: Sequence[tuple[Line, QuestionRow]]) -> Iterator[Question]:
        found = self.sampler.rollouts([trial for _, trial in rows])
        for (line, _), rollouts in zip(rows, found, strict=True):
            question = self._judged(line, rollouts)
            if isinstance(question, RolloutError):
                self.faults.add(*line, question)
                continue
            self._keep(question)
            yield question

    def _judged(
        self, line: Line, rollouts: list[Rollout] | RolloutError
    ) -> Question | RolloutError:
        if isinstance(rollouts, RolloutError):
            return rollouts
        scorer = self.judging.scorer
        if scorer is None:
            raise OptionError("no recipe is given, which decides what is right: set {recipe}")
        scored = scorer.score_each(rollouts, [range(len(rollouts))])
        if (error := first_error(scored)) is not None:
            return error
        return question_of([line] * len(rollouts), rollouts, scored, self.options.right_at)

    def _keep(self, question: Question) -> None:
        """The responses as rows, ready for `select`."""
        if self.kept is None:
            return
        for number, sample in enumerate(question.samples, start=1):
            rollout, score = sample.rollout, sample.score
            said = {
                "id": f"{question.name}#{number}",
                "group": question.name,
                "response": rollout.response,
                "response_prefix": rollout.response_prefix,
                "finish_reason": rollout.finish_reason,
                "correct": score.correct,
                "details": score.details,
                "signature": self.judging.signature,
            }
            known = {name: value for name, value in said.items() if value is not None}
            self.kept.write(msgspec.json.encode(question.row() | known) + b"\n")

    def commit(self) -> None:
        if self.kept is not None:
            self.kept.commit()

    def close(self) -> None:
        self.sampler.samples.close()
        if self.kept is not None:
            self.kept.close()


# --- what is said of it --------------------------------------------------------------------------


def _write_card(options: Options, done: Probed) -> None:
    drawn: dict[str, Any] = {}
    if options.sampled:
        drawn = {"samples": options.drawing.samples, **options.drawing.settings}
    facts = {
        "counts": {
            "questions": done.questions,
            "out of knowledge": done.unknown,
            "mean pass rate": round(done.pass_rate, 6),
            "responses": done.responses,
            "rows in error": done.broken,
        }
    } | ({"correct": done.signature} if done.signature else {})
    asked = {"right_at": options.right_at, "group_size": options.group_size, "sort": options.sort}
    write_card(
        *("probe", options.source, options.output), asked | drawn, facts, told(options, done)[1:]
    )


def told(options: Options, done: Probed) -> list[str]:
    """The summary, a line each."""
    share = done.unknown / max(done.questions, 1)
    lines = [
        f"{done.questions:,} questions → {options.output}",
        f"{done.unknown:,} out of knowledge ({share:.1%}): none of their responses is right",
        f"mean pass rate {done.pass_rate:.4f} over {done.responses:,} responses",
    ]
    if done.broken:
        lines.append(f"{done.broken:,} rows in error, the first: {done.first_error}")
    return lines


def told_of_sampling(options: Options, done: Probed) -> list[str]:
    """What was asked of the policy in this very run."""
    if not options.sampled:
        return []
    asked = f"{done.asked:,} responses sampled, {done.reused:,} there before"
    return [f"{asked}: {options.samples}"]

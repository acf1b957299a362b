"""Select questions for training, or write a training set, from groups of rollouts.

The file is read once. The output of each suitable question is stored on disk until it is known
which questions are sampled. Memory holds a few bytes per question.
"""

from __future__ import annotations

import contextlib
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rag_rewards.datasets.gold import Problem, generator
from rag_rewards.datasets.question_list import questions_in
from rag_rewards.errors import UsageError
from rag_rewards.files.output import Spool
from rag_rewards.selection.models import SelectionModels
from rag_rewards.selection.options import SelectOptions
from rag_rewards.selection.questions import Question
from rag_rewards.selection.rules import (
    Likelihood,
    Rules,
    SelectionStep,
    draw,
    windows,
)
from rag_rewards.selection.run import Run, RunCounts, open_run, write_card


@dataclass
class SelectResult(RunCounts):
    """The counts of a selection. `steps` are the rules, then the training set, then the sample."""

    rows: int = 0
    read: int = 0
    written: int = 0
    steps: list[tuple[str, int, int]] = field(default_factory=list)
    unsuitable: Counter[str] = field(default_factory=Counter)
    """Questions that the training set cannot use, by reason."""
    windows: dict[str, int] = field(default_factory=dict)
    """Written questions by the range of their pass rate."""


def select(options: SelectOptions) -> SelectResult:
    """Write the selected questions and a card.

    Raises UsageError when no question is left, and when the sample is larger than the rest.
    """
    rules = Rules(
        windows=windows(options.passes),
        min_samples=options.min_samples,
        std_of=msgspec.convert(options.std_of, Likelihood),
        min_std=options.min_std,
        min_spread=options.min_spread,
        unique=options.unique,
        excluded=questions_in(options.exclude) if options.exclude else frozenset(),
    )
    with open_run(options, options.scoring_recipe, options.purpose) as run:
        selection = _Selection(options, rules, run)
        with contextlib.closing(selection.spool):
            selection.survey()
            selection.write()
        facts = _facts(selection.result, run.models)
    write_card("select", options, options.settings, facts, counts(selection.result))
    return selection.result


def _facts(result: SelectResult, models: SelectionModels) -> dict[str, Any]:
    names = ("step", "before", "after")
    facts: dict[str, Any] = {
        "counts": {
            "rows": result.rows,
            "questions": result.read,
            "rows in error": result.rows_in_error,
            "steps": [dict(zip(names, step, strict=True)) for step in result.steps],
            "cannot be made": dict(result.unsuitable.most_common()),
            "by window": result.windows,
            "written": result.written,
        }
    }
    if models.signature:
        facts["reward"] = models.signature
    if models.policy is not None:
        facts["texts"] = models.policy.fingerprint
    return facts


@dataclass
class _Selection:
    """The state of a selection: the output of each suitable question until the sample is drawn."""

    options: SelectOptions
    rules: Rules
    run: Run
    result: SelectResult = field(default_factory=SelectResult)
    spool: Spool = field(default_factory=Spool)
    prompt_types: set[type] = field(default_factory=set)
    passed: int = 0
    """Number of questions that pass all conditions."""

    def __post_init__(self) -> None:
        self.conditions: list[SelectionStep] = self.rules.steps()
        scorer = self.run.models.scorer
        # A curriculum has several output forms: the signature of a row names its recipe.
        is_single = scorer is not None and len(scorer.recipes) == 1
        self.maker = self.options.maker(scorer.recipes[0] if scorer and is_single else None)
        self.numbers = [array("q") for _ in self.rules.windows or (None,)]
        """Numbers of the suitable questions by window."""
        self.questions = self.run.questions()

    def survey(self) -> None:
        """Store the output of each question that passes all steps."""
        after = 0
        candidates = self.run.with_texts(self.candidates(), self.options.sampling)
        for (number, window), question in candidates:
            lines = self.lines(question)
            if isinstance(lines, Problem):
                self.result.unsuitable[lines.reason] += 1
                continue
            after += 1
            self.spool.add(number, lines)
            self.numbers[window].append(number)
        steps = [(step.name, step.before, step.after) for step in self.conditions]
        if self.options.make:
            steps.append((f"suitable for {self.options.make}", self.passed, after))
        self.result.steps, self.result.rows = steps, self.questions.rows
        self.run.count(self.result)

    def candidates(self) -> Iterator[tuple[tuple[int, int], Question]]:
        """Yield the questions that pass all conditions, with number and position of the window."""
        for number, question in enumerate(self.questions):
            self.result.read += 1
            if all(step(question) for step in self.conditions):
                self.passed += 1
                yield (number, self.rules.window_of(question) or 0), question

    def lines(self, question: Question) -> bytes | Problem:
        """Return the output lines of a question."""
        if self.options.rollouts and not question.rollouts:
            return Problem("no response in the row")
        if self.options.rollouts:
            return b"".join(rollout.line.rstrip(b"\r\n") + b"\n" for rollout in question.rollouts)
        if self.maker is None:
            row = question.fields()
            if question.rollouts and question.pass_rate is not None:
                row |= {"pass_rate": question.pass_rate, "samples": len(question.rollouts)}
            return msgspec.json.encode(row) + b"\n"
        chat = self.maker(question)
        if isinstance(chat, Problem):
            return chat
        self.refuse_mixed(chat)
        return msgspec.json.encode(chat) + b"\n"

    def refuse_mixed(self, chat: dict[str, Any]) -> None:
        """Raise UsageError when some prompts are chats and others are texts."""
        self.prompt_types.add(type(chat["prompt"]))
        if len(self.prompt_types) > 1:
            raise UsageError(
                "some prompts are chats and some are text, but a trainer reads one kind: remove "
                "`prompt` from the rows to use the prompt of the recipe"
            )

    def write(self) -> None:
        """Write the sampled questions. The file gets its name when it is complete."""
        options, result = self.options, self.result
        left = sum(map(len, self.numbers))
        if not left:
            raise UsageError(self.no_question_message())
        rng = generator(options.seed, "questions")
        sampled = draw(self.numbers, self.rules.windows, options.sample, rng)
        if options.sample is not None or len(sampled) < left:
            result.steps.append((f"sampled with seed {options.seed}", left, len(sampled)))
        if not sampled:
            raise UsageError(self.no_question_message())
        try:
            for line in self.spool.lines(frozenset(sampled)):
                self.run.output.write(line)
            self.run.commit()
        except OSError as error:
            raise UsageError(f"cannot write {options.output}: {error.strerror or error}") from None
        result.written = len(sampled)
        for window, numbers in zip(self.rules.windows, self.numbers, strict=False):
            members = frozenset(numbers)
            result.windows[str(window)] = sum(number in members for number in sampled)

    def no_question_message(self) -> str:
        """Return the reasons why no question is left."""
        result = self.result
        if not result.rows:
            return f"{self.options.source} has no rows"
        if not result.read:
            return f"every row is in error, the first: {result.first_error}"
        steps = [f"{name}: {before:,} → {after:,}" for name, before, after in result.steps]
        reasons = [f"{reason}: {n:,}" for reason, n in result.unsuitable.most_common(3)]
        if result.rows_in_error:
            reasons.append(f"rows in error: {result.rows_in_error:,}, {result.first_error}")
        return "no question is left: " + "; ".join(steps + reasons)


def counts(result: SelectResult) -> list[str]:
    """Return the counts of a selection, one line each."""
    lines = [f"{name}: {before:,} → {after:,}" for name, before, after in result.steps]
    lines += [f"pass rate in {name}: {n:,}" for name, n in result.windows.items()]
    lines += [f"unsuitable: {reason}: {n:,}" for reason, n in result.unsuitable.most_common()]
    return lines + result.error_lines

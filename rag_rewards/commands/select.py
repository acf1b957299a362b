"""`rag-rewards select`: questions to train on, or a training set, from rollouts in groups.

One reading. What every fitting question would become is kept aside on disk; the draw then says
which of it is written. Of a question some bytes are held.
"""

from __future__ import annotations

import contextlib
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import msgspec

from rag_rewards.datasets.card import sha256
from rag_rewards.datasets.gold import Problem, generator
from rag_rewards.datasets.notes import refuse_overwriting, write_card
from rag_rewards.datasets.selection import Likelihood, Rules, Step, draw, questions_in, windows
from rag_rewards.datasets.targets import Maker, Style, TrainingSet
from rag_rewards.datasets.trials import Faults, Question, Questions, check_right_at
from rag_rewards.definition import Recipe
from rag_rewards.errors import OptionError, UsageError
from rag_rewards.io.sinks import Output, Spool
from rag_rewards.io.sources import open_source
from rag_rewards.loading import RecipeSource
from rag_rewards.scorer import Scorer
from rag_rewards.settings import did_you_mean


@dataclass(frozen=True)
class Options:
    """The options of `select`. `passes` are windows as text, `make` is a training set."""

    source: str
    output: str
    recipe: RecipeSource | None = None
    passes: tuple[str, ...] = ()
    std_of: str = "S"
    min_std: float | None = None
    min_spread: float | None = None
    min_samples: int = 1
    right_at: float = 1.0
    unique: bool = False
    exclude: str | None = None
    sample: int | None = None
    seed: int = 0
    rollouts: bool = False
    make: str | None = None
    style: str = "direct"
    group_size: int | None = None
    sort: bool = False

    def __post_init__(self) -> None:
        for what, value, known in (
            ("likelihood", self.std_of, get_args(Likelihood)),
            ("training set", self.make or "sft", get_args(TrainingSet)),
            ("style", self.style, get_args(Style)),
        ):
            if value not in known:
                raise UsageError(
                    f"no {what} {value!r}{did_you_mean(value, known)}: there are {', '.join(known)}"
                )
        if self.rollouts and self.make:
            raise OptionError("{rollouts} keeps rows as they are and {make} makes others: use one")
        if self.sample is not None and self.sample < 1:
            raise OptionError("{sample} must be at least 1, found {value}", value=self.sample)
        check_right_at(self.right_at)
        given = [self.source, *([self.exclude] if self.exclude else [])]
        refuse_overwriting(self.output, (self.errors, f"{self.output}.card.md"), given)

    @property
    def errors(self) -> str:
        return f"{self.output}.errors.jsonl"

    @property
    def asked(self) -> dict[str, Any]:
        """What changes the selection, for its signature."""
        apart = ("source", "output", "recipe", "exclude")
        names = [name for name in self.__dataclass_fields__ if name not in apart]
        excluded = {"exclude": sha256(self.exclude)} if self.exclude else {}
        return {name: getattr(self, name) for name in names} | excluded

    def maker(self, recipe: Recipe | None) -> Maker | None:
        """Return what makes a training set with the prompt and the form of a recipe."""
        if self.make is None:
            return None
        kind: TrainingSet = msgspec.convert(self.make, TrainingSet)
        style: Style = msgspec.convert(self.style, Literal["direct", "reasoning"])
        return Maker(kind, style, recipe or "", self.seed)


@dataclass
class Selected:
    """What came of it. `steps` are those of the rules, then making, then the draw."""

    rows: int = 0
    read: int = 0
    written: int = 0
    broken: int = 0
    steps: list[tuple[str, int, int]] = field(default_factory=list)
    lacking: Counter[str] = field(default_factory=Counter)
    """Questions of which the training set cannot be made, by the reason."""
    windows: dict[str, int] = field(default_factory=dict)
    """Written questions by the window of their pass rate."""
    errors: str = ""
    first_error: str = ""


def select(options: Options) -> Selected:
    """Write the selection and its card. UsageError when nothing is left, or too little to draw."""
    rules = Rules(
        windows=windows(options.passes),
        min_samples=options.min_samples,
        std_of=msgspec.convert(options.std_of, Likelihood),
        min_std=options.min_std,
        min_spread=options.min_spread,
        unique=options.unique,
        excluded=questions_in(options.exclude) if options.exclude else frozenset(),
    )
    scorer = None if options.recipe is None else Scorer.load(options.recipe)
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(contextlib.closing(open_source(options.source)))
        output = Output(options.output)  # its lock also protects the errors file
        stack.callback(output.discard)
        faults = stack.enter_context(contextlib.closing(Faults(options.errors)))
        questions = Questions(
            *(source, faults, scorer, options.right_at, options.group_size, options.sort)
        )
        run = _Run(options, rules, questions, output)
        stack.enter_context(contextlib.closing(run.aside))
        run.survey()
        run.write()
    write_card(
        *("select", options.source, options.output),
        options.asked,
        _facts(run),
        _counted(run.done),
    )
    return run.done


def _facts(run: _Run) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "counts": {
            "rows": run.done.rows,
            "questions": run.done.read,
            "rows in error": run.done.broken,
            "steps": [dict(zip(("step", "before", "after"), s, strict=True)) for s in run.steps],
            "cannot be made": dict(run.done.lacking.most_common()),
            "by window": run.done.windows,
            "written": run.done.written,
        }
    }
    if run.questions.scorer is not None:
        facts["reward"] = run.questions.scorer.signature
    return facts


@dataclass
class _Run:
    """One selection: what every fitting question becomes, aside, until the draw."""

    options: Options
    rules: Rules
    questions: Questions
    output: Output
    done: Selected = field(default_factory=Selected)
    aside: Spool = field(default_factory=Spool)
    kinds: set[type] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.conditions: list[Step] = self.rules.steps()
        scorer = self.questions.scorer
        # A curriculum has several forms: the rows' own signatures name theirs.
        single = scorer is not None and len(scorer.recipes) == 1
        self.maker = self.options.maker(scorer.recipes[0] if scorer and single else None)
        self.found = [array("q") for _ in self.rules.windows or (None,)]
        self.steps: list[tuple[str, int, int]] = []

    def survey(self) -> None:
        """Put aside what is made of every question that passes all steps."""
        before = after = 0
        for number, question in enumerate(self.questions):
            self.done.read += 1
            if not all(step(question) for step in self.conditions):
                continue
            before += 1
            made = self.made(question)
            if isinstance(made, Problem):
                self.done.lacking[made.reason] += 1
                continue
            after += 1
            self.aside.add(number, made)
            self.found[self.rules.window_of(question) or 0].append(number)
        self.steps = [(step.name, step.before, step.after) for step in self.conditions]
        if self.options.make:
            self.steps.append((f"{self.options.make} can be made of it", before, after))
        faults = self.questions.faults
        self.done.rows, self.done.broken = self.questions.rows, faults.rows
        self.done.errors, self.done.first_error = faults.path, faults.first

    def made(self, question: Question) -> bytes | Problem:
        """The lines that are written for a question."""
        if self.options.rollouts and not question.samples:
            return Problem("no response in the row")
        if self.options.rollouts:
            return b"".join(sample.line.rstrip(b"\r\n") + b"\n" for sample in question.samples)
        if self.maker is None:
            row = question.row()
            if question.samples and question.pass_rate is not None:
                row |= {"pass_rate": question.pass_rate, "samples": len(question.samples)}
            return msgspec.json.encode(row) + b"\n"
        made = self.maker(question)
        if isinstance(made, Problem):
            return made
        self.refuse_mixed(made)
        return msgspec.json.encode(made) + b"\n"

    def refuse_mixed(self, made: dict[str, Any]) -> None:
        self.kinds.add(type(made["prompt"]))
        if len(self.kinds) > 1:
            raise UsageError(
                "some prompts are chats and some are text, and a trainer reads one kind: leave "
                "`prompt` out of the rows, and the recipe's own is used"
            )

    def write(self) -> None:
        """Write what the draw gives; the file gets its name when it is whole."""
        options = self.options
        left = sum(map(len, self.found))
        if not left:
            raise UsageError(self.nothing())
        rng = generator(options.seed, "questions")
        chosen = draw(self.found, self.rules.windows, options.sample, rng)
        if options.sample is not None or len(chosen) < left:
            self.steps.append((f"drawn with seed {options.seed}", left, len(chosen)))
        self.done.steps = self.steps
        if not chosen:
            raise UsageError(self.nothing())
        try:
            for line in self.aside.lines(frozenset(chosen)):
                self.output.write(line)
            self.questions.faults.close()
            self.output.commit()
        except OSError as error:
            raise UsageError(f"cannot write {options.output}: {error.strerror or error}") from None
        self.done.written = len(chosen)
        for window, numbers in zip(self.rules.windows, self.found, strict=False):
            held = frozenset(numbers)
            self.done.windows[str(window)] = sum(number in held for number in chosen)

    def nothing(self) -> str:
        """Why nothing is left."""
        if not self.done.rows:
            return f"{self.options.source} has no rows"
        if not self.done.read:
            return f"every row is in error, the first: {self.done.first_error}"
        said = "; ".join(f"{name}: {before:,} → {after:,}" for name, before, after in self.steps)
        reasons = "; ".join(f"{what}: {n:,}" for what, n in self.done.lacking.most_common(3))
        return "no question is left: " + "; ".join(filter(None, (said, reasons)))


def told(options: Options, done: Selected) -> list[str]:
    """The summary, a line each."""
    what = f"{done.written:,} of {done.read:,} questions ({done.rows:,} rows)"
    return [f"{what} → {options.output}", *_counted(done)]


def _counted(done: Selected) -> list[str]:
    lines = [f"{name}: {before:,} → {after:,}" for name, before, after in done.steps]
    lines += [f"pass rate in {name}: {n:,}" for name, n in done.windows.items()]
    lines += [f"not made: {reason}: {n:,}" for reason, n in done.lacking.most_common()]
    if done.broken:
        lines.append(f"{done.broken:,} rows in error, the first: {done.first_error}")
    return lines

"""`rag-rewards prepare`: a public data set's own file to a trainer's, with a recipe's prompt.

The file is read twice. The first reading finds the rows that the recipe can use, what is wrong
with the others, and documents for noise; the second writes the chosen ones. Of a row that is not
being worked on, its number and two digests are held, by which it is known when it comes again.
"""

from __future__ import annotations

import contextlib
import os
import random
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from rag_rewards.datasets import DataSet, data_set, read_gold
from rag_rewards.datasets.card import card, sha256
from rag_rewards.datasets.files import Records
from rag_rewards.datasets.fit import unfit
from rag_rewards.datasets.gold import Gold, Problem, generator, with_answers_found
from rag_rewards.datasets.noise import Pool, offer_corpus
from rag_rewards.datasets.shapes import Trainer, ms_swift, openrlhf, plain, trl, verl
from rag_rewards.datasets.sinks import JsonLines, Parquet, Sink
from rag_rewards.definition import Preset, RecipeDefinition
from rag_rewards.errors import UsageError
from rag_rewards.io.sinks import ErrorFile, Output, partial_of
from rag_rewards.recipes import RECIPES, definition_of, recipe
from rag_rewards.rollout import Document
from rag_rewards.settings import did_you_mean
from rag_rewards.signature import Signature

BROKEN = frozenset(("broken row", "not JSON"))
"""Reasons that are a fault of the file; the others are a choice."""
_STEP = 256


def presets() -> dict[str, Preset]:
    """Return the presets of all recipes by name."""
    return {
        name: preset
        for definition in RECIPES.values()
        for name, preset in definition.data.presets.items()
    }


@dataclass(frozen=True)
class Options:
    """What `prepare` was asked to do."""

    dataset: str
    source: str
    output: str
    recipe: str
    trainer: str
    split: str | None = None
    seed: int = 0
    order: Literal["kept", "shuffled"] = "kept"
    top: int | None = None
    noise: int | None = None
    noise_to: int | None = None
    noise_from: str | None = None
    find_answers: bool = False
    sample: int | None = None
    unanswerable: float | None = None
    preset: str | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if self.trainer not in get_args(Trainer):
            raise UsageError(_unknown("trainer", self.trainer, get_args(Trainer)))
        for name in ("top", "noise", "noise_to", "sample"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UsageError(f"--{name.replace('_', '-')} is 0 or more, found {value}")
        if self.noise and self.noise_to:
            raise UsageError("--noise adds so many documents, --noise-to fills up: give one")
        if self.noise_from and not (self.noise or self.noise_to):
            raise UsageError("--noise-from gives documents: say with --noise how many")
        if self.unanswerable is not None and not 0 <= self.unanswerable <= 1:
            raise UsageError(f"--unanswerable is a share from 0 to 1, found {self.unanswerable}")
        if self.preset and self.sample is not None:
            raise UsageError("--preset has its own size: leave --sample out")
        if self.unanswerable is not None and self.sample is None:
            raise UsageError("--unanswerable is a share of --sample: give its size")
        self._check_output()

    def _check_output(self) -> None:
        parquet = self.output.endswith(".parquet")
        if self.trainer == "verl" and not parquet:
            raise UsageError(f"verl reads Parquet: -o {Path(self.output).stem}.parquet")
        if self.trainer != "verl" and parquet:
            raise UsageError(f"{self.trainer} gets JSON lines: -o {Path(self.output).stem}.jsonl")
        if partial_of(self.output) is None:
            raise UsageError(f"{self.output} is no regular file; a data card stands beside it")
        made = (self.output, self.card, self.dropped, str(partial_of(self.output)))
        given = [path for path in (self.source, self.noise_from) if path and os.path.exists(path)]
        for path in given:
            if any(os.path.exists(each) and os.path.samefile(each, path) for each in made):
                raise UsageError(f"{path} would be overwritten: give another -o")

    @property
    def card(self) -> str:
        return f"{self.output}.card.md"

    @property
    def dropped(self) -> str:
        """Where the rows that were left out are named."""
        return f"{self.output}.dropped.jsonl"

    @property
    def chosen(self) -> Preset | None:
        """What to choose among the usable rows; None for all of them."""
        if self.preset is None:
            if self.sample is None:
                return None
            return Preset({self.dataset: self.sample}, "", self.unanswerable)
        known = presets()
        if self.preset not in known:
            raise UsageError(_unknown("preset", self.preset, known))
        preset = known[self.preset]
        if self.dataset not in preset.sizes:
            raise UsageError(f"{self.preset} is for {', '.join(preset.sizes)}")
        return preset

    @property
    def called(self) -> str:
        """What the rows say they are: train, validation, test."""
        chosen = self.chosen
        return self.split or (chosen.split if chosen else "") or "train"


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    return f"no {what} {name!r}{did_you_mean(name, known)}"


@dataclass
class Prepared:
    """What came of it."""

    read: int = 0
    written: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """The first row of every reason."""
    unsupported: Counter[str] = field(default_factory=Counter)
    """Rows that are kept without `supporting`, by the reason."""
    answerable: Counter[str] = field(default_factory=Counter)
    documents: Counter[int] = field(default_factory=Counter)
    """Rows by their number of documents."""
    supporting: Counter[int] = field(default_factory=Counter)

    @property
    def broken(self) -> int:
        return sum(self.dropped[reason] for reason in BROKEN)

    @property
    def unchosen(self) -> int:
        return self.read - self.written - self.dropped.total()

    def count(self, gold: Gold) -> None:
        """One row was written."""
        self.written += 1
        known = {True: "answerable", False: "unanswerable", None: "not known"}
        self.answerable[known[gold.answerable]] += 1
        self.documents[len(gold.documents)] += 1
        if gold.supporting is not None:
            self.supporting[len(gold.supporting)] += 1
        elif gold.unsupported:
            self.unsupported[gold.unsupported.reason] += 1


def prepare(options: Options) -> Prepared:
    """Make the trainer's file, its data card, and the list of what was left out.

    Raises UsageError for a file that is another data set's or not whole, and when no row is left.
    """
    wanted = data_set(options.dataset)
    with contextlib.ExitStack() as stack:
        records = stack.enter_context(Records(options.source))
        output = Output(options.output)  # its lock also protects the list of dropped rows
        stack.callback(output.discard)
        bar = stack.enter_context(_Bar(options, records))
        run = _Run(
            options, wanted, definition_of(options.recipe), options.chosen, records, output, bar
        )
        stack.callback(run.left_out.close)
        run.survey()
        run.write(run.choose())
    facts = _facts(options, wanted, run.done)
    Path(options.card).write_text(card(wanted, facts, _shown(options)), "utf-8")
    return run.done


@dataclass
class _Run:
    """One preparation: what the first reading found, for the second."""

    options: Options
    wanted: DataSet
    recipe: RecipeDefinition
    chosen: Preset | None
    records: Records
    output: Output
    bar: _Bar
    done: Prepared = field(default_factory=Prepared)
    answerable: array[int] = field(default_factory=lambda: array("q"))
    """Numbers of usable rows, but for those in `unanswerable`."""
    unanswerable: array[int] = field(default_factory=lambda: array("q"))
    present: set[str] = field(default_factory=set)
    """Fields that some row has."""
    supports: bool = False
    pool: Pool | None = None

    def __post_init__(self) -> None:
        self.left_out = ErrorFile(self.options.dropped)
        if self.options.noise or self.options.noise_to:
            self.pool = Pool(self.options.seed)
            if self.options.noise_from:
                offer_corpus(self.pool, self.options.noise_from)

    def questions(self) -> Iterator[tuple[int, Gold | Problem]]:
        for number, found in read_gold(self.wanted, self.records, self.options.top):
            if self.options.find_answers and isinstance(found, Gold):
                found = with_answers_found(found)
            yield number, found

    # --- the first reading ---------------------------------------------------------------------

    def survey(self) -> None:
        """Find the usable rows, and name the others."""
        seen: dict[bytes, int] = {}
        for number, found in self.questions():
            self.done.read += 1
            self.bar.at("reading", self.done.read)
            if isinstance(found, Problem):
                self.drop(number, found)
                continue
            if self.pool and not self.options.noise_from:
                self.pool.offer(found.documents)
            problem = unfit(found, self.recipe) or _seen_before(found, number, seen)
            if problem is not None:
                self.drop(number, problem, found.id)
            else:
                self.take(number, found)

    def take(self, number: int, gold: Gold) -> None:
        (self.unanswerable if gold.answerable is False else self.answerable).append(number)
        self.supports |= any(document.supports is not None for document in gold.documents)
        self.present.update(
            name
            for name in gold.__struct_fields__
            if name not in self.present and getattr(gold, name) is not None
        )

    def drop(self, number: int, problem: Problem, name: str | None = None) -> None:
        reason, detail = problem
        self.done.dropped[reason] += 1
        where = f"row {number}" + (f", {name}" if name else "")
        self.done.examples.setdefault(reason, f"{where}: {detail}" if detail else where)
        record = {"row": number, "id": name, "reason": reason, "detail": detail}
        self.left_out.write(msgspec.json.encode(record) + b"\n")

    # --- the rows to write ---------------------------------------------------------------------

    def choose(self) -> list[int]:
        """Their numbers, in the order of the file."""
        usable = sorted((*self.answerable, *self.unanswerable))
        if not usable:
            raise UsageError(self.nothing())
        if self.chosen is None:
            return usable
        size = self.chosen.sizes[self.options.dataset]
        rng = generator(self.options.seed, "rows")
        if self.chosen.unanswerable is None:
            return sorted(_drawn(rng, usable, size, "usable"))
        unanswerable = round(size * self.chosen.unanswerable)
        return sorted(
            _drawn(rng, self.answerable, size - unanswerable, "answerable")
            + _drawn(rng, self.unanswerable, unanswerable, "unanswerable")
        )

    def nothing(self) -> str:
        """Why no row is left."""
        if not self.done.read:
            return f"{self.options.source} has no rows"
        reasons = "; ".join(
            f"{reason}: {n:,} ({self.done.examples[reason]})"
            for reason, n in self.done.dropped.most_common(3)
        )
        return (
            f"no row of {self.options.source} is left for {self.options.recipe}: {reasons}; row "
            f"by row: {self.options.dropped}"
        )

    # --- the second reading --------------------------------------------------------------------

    def write(self, numbers: list[int]) -> None:
        """Write the rows of these numbers; the file gets its name when it is whole."""
        sink = self.sink()
        try:
            self.write_to(sink, iter(numbers))
            if not self.done.written:
                raise UsageError(self.nothing())
            self.left_out.close()
            sink.commit()
        except OSError as error:
            why = error.strerror or error
            raise UsageError(f"cannot write {self.options.output}: {why}") from None
        finally:
            sink.close()

    def sink(self) -> Sink:
        if self.options.trainer == "verl":
            return Parquet(self.output, self.present, self.supports)
        return JsonLines(self.output)

    def write_to(self, sink: Sink, numbers: Iterator[int]) -> None:
        following = next(numbers, None)
        for number, found in self.questions():
            self.bar.at("writing", self.done.written)
            if number != following or isinstance(found, Problem):
                continue
            following = next(numbers, None)
            arranged = self.arranged(found)
            if isinstance(arranged, Problem):
                self.drop(number, arranged, found.id)
                continue
            sink.write(self.row(arranged))
            self.done.count(arranged)

    def arranged(self, gold: Gold) -> Gold | Problem:
        """The documents in their order, with noise among them: the same for a seed and an id."""
        options = self.options
        rng = generator(options.seed, "row", gold.id)
        added: list[Document] | Problem = []
        if self.pool is not None:
            missing = options.noise or max(0, (options.noise_to or 0) - len(gold.documents))
            added = self.pool.noise(gold, missing, rng) if missing else []
        if isinstance(added, Problem):
            return added
        order = list(range(len(gold.documents) + len(added)))
        if options.order == "shuffled" or not gold.ranked:
            rng.shuffle(order)
        return gold.arranged(order, added)

    def row(self, gold: Gold) -> dict[str, Any]:
        """A row as the trainer reads it."""
        rollout = gold.rollout()
        chat = self.recipe.prompt.messages(rollout)
        known = gold.fields(self.supports)
        fields = {name: value for name, value in known.items() if name in self.present}
        match self.options.trainer:
            case "verl":
                source, split = self.options.dataset, self.options.called
                return verl(chat, fields, source, split, self.done.written)
            case "openrlhf":
                return openrlhf(chat, fields)
            case "ms-swift":
                return ms_swift(chat, fields)
            case "trl":
                return trl(chat, fields)
            case _:
                return plain(chat, fields)


def _seen_before(gold: Gold, number: int, seen: dict[bytes, int]) -> Problem | None:
    """The same question with the same documents and answers is one question; an id is one row's."""
    parts = [gold.question, *(document.text for document in gold.documents), repr(gold.answers)]
    first = seen.setdefault(_digest("\0".join(parts)), number)
    if first != number:
        return Problem("duplicate", f"of row {first}")
    first = seen.setdefault(_digest(f"id {gold.id}"), number)
    return None if first == number else Problem("the id of another row", f"of row {first}")


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


def _drawn(rng: random.Random, rows: list[int] | array[int], size: int, what: str) -> list[int]:
    if size > len(rows):
        raise UsageError(
            f"{size:,} rows are asked for and {len(rows):,} are {what}: give --sample a size that "
            "the file has"
        )
    return rng.sample(rows, size)


def _facts(options: Options, wanted: DataSet, done: Prepared) -> dict[str, Any]:
    """The data card's facts. Nothing of when and where: equal runs make equal cards."""
    unsaid = ("source", "output", "progress", "noise_from")
    asked = {name: value for name, value in asdict(options).items() if name not in unsaid}
    source = {"file": Path(options.source).name, "sha256": sha256(options.source)}
    if options.noise_from:
        asked["noise_from"] = sha256(options.noise_from)
    asked["input"] = source["sha256"]
    return {
        "dataset": wanted.title,
        "source": wanted.source,
        "licence": wanted.licence,
        "input": source,
        "output": {"file": Path(options.output).name, "sha256": sha256(options.output)},
        "trainer": options.trainer,
        "split": options.called,
        "recipe": options.recipe,
        "reward": recipe(options.recipe).signature,
        "seed": options.seed,
        "signature": str(Signature(recipe="prepare", settings=asked)),
        "counts": {
            "read": done.read,
            "written": done.written,
            "not chosen": done.unchosen,
            "dropped": dict(done.dropped.most_common()),
            "first of each": done.examples,
            "kept without supporting": dict(done.unsupported.most_common()),
            "answerable": dict(done.answerable),
            "rows by documents": dict(sorted(done.documents.items())),
            "rows by supporting documents": dict(sorted(done.supporting.items())),
        },
    }


def _shown(options: Options) -> str:
    """The prompt with its places open."""
    blank = Gold(question="{question}", documents=(), answers=(("",),), query_time="{query_time}")
    if options.dataset == "qampari":
        blank = msgspec.structs.replace(blank, answer_kind="list")
    if options.dataset != "crag":
        blank = msgspec.structs.replace(blank, query_time=None)
    return definition_of(options.recipe).prompt.message_for(blank.rollout())


class _Bar:
    """A progress bar on standard error, or nothing."""

    def __init__(self, options: Options, records: Records) -> None:
        self._records = records
        self._shown: Any = None
        if options.progress:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
            from rich.progress import TimeRemainingColumn as Remaining

            self._shown = Progress(
                BarColumn(bar_width=24),
                TaskProgressColumn(),
                Remaining(),
                TextColumn("{task.description}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._shown.add_task("reading", total=2 * records.size)
        self._calls = 0

    def __enter__(self) -> _Bar:
        if self._shown:
            self._shown.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._shown.stop()

    def at(self, what: str, rows: int) -> None:
        """A row was read; the file is read once for `reading` and once for `writing`."""
        self._calls += 1
        if self._shown and self._calls % _STEP == 0:
            before = self._records.size if what == "writing" else 0
            self._shown.update(
                self._task,
                completed=before + self._records.position(),
                description=f"{what} · {rows:,} rows",
            )


def told(options: Options, done: Prepared) -> list[str]:
    """The summary, a line each."""
    lines = [f"{done.written:,} of {done.read:,} rows of {options.dataset} → {options.output}"]
    if done.unchosen:
        lines.append(f"{done.unchosen:,} not chosen (seed {options.seed})")
    lines += [
        f"{n:,} left out: {reason} (first: {done.examples[reason]})"
        for reason, n in done.dropped.most_common()
    ]
    lines += [
        f"{n:,} kept without `supporting`: {reason}" for reason, n in done.unsupported.most_common()
    ]
    lines.append(f"data card: {options.card}")
    if done.dropped:
        lines.append(f"left out, row by row: {options.dropped}")
    return lines

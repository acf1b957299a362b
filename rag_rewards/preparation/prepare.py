"""Prepare a public data set for a trainer: rows with the prompt of a recipe and gold fields.

The file is read twice. The first pass finds the rows that the recipe can use, the problems of the
other rows, and noise documents. The second pass writes the rows. Memory holds the number and two
digests of each row, so that repeated rows are found.
"""

from __future__ import annotations

import contextlib
import random
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from rag_rewards.datasets.catalog import DataSet, data_set
from rag_rewards.datasets.document_pool import DocumentPool
from rag_rewards.datasets.gold import (
    Gold,
    Problem,
    generator,
    with_answers_found,
)
from rag_rewards.datasets.gold_rows import read_gold
from rag_rewards.datasets.read_options import ReadOptions
from rag_rewards.datasets.records import Records
from rag_rewards.definition import RecipeDefinition
from rag_rewards.errors import OptionError, UsageError, cannot_resume
from rag_rewards.files.output import ErrorFile, Output, write_whole
from rag_rewards.files.version import sha256
from rag_rewards.preparation.noise import NoisePool, offer_corpus
from rag_rewards.preparation.options import PrepareOptions
from rag_rewards.preparation.prompt import (
    prepared_definition,
    prepared_prompt,
    prepared_recipe,
)
from rag_rewards.preparation.result import PrepareResult, data_card, read_card
from rag_rewards.preparation.suitability import (
    GIVEN_FIELDS,
    GOLD_DOCUMENTS,
    answer_problem,
    given_fields,
    suitability_problem,
)
from rag_rewards.preparation.trainer_rows import TrainerFile, trainer_file, trainer_row
from rag_rewards.prompts import DEFAULT, Prompt
from rag_rewards.report.progress import TerminalBar
from rag_rewards.rollout import Document
from rag_rewards.signature import Signature

_STEP = 256
"""Rows between two updates of the progress bar."""


def prepare(options: PrepareOptions) -> PrepareResult:
    """Write a trainer's data file, its data card, and the list of the rows that were left out.

    Raises UsageError when the file belongs to another data set or is cut off, and when no row is
    left.
    """
    if options.resume and (complete := _complete_result(options)) is not None:
        return complete
    source, recipe = data_set(options.dataset), prepared_definition(options.recipe)
    prompt = prepared_prompt(options, recipe)
    with contextlib.ExitStack() as stack:
        records = stack.enter_context(Records(options.source))
        # The lock of the output also protects the list of dropped rows.
        output = stack.enter_context(Output(options.output))
        bar = stack.enter_context(TerminalBar(2 * records.size)) if options.progress else None
        pool_file = options.document_pool
        pool = stack.enter_context(DocumentPool(pool_file)) if pool_file else None
        reading = replace(options.reading, pool=pool, requires_documents=prompt.shows_documents)
        run = _Preparation(options, source, recipe, prompt, records, reading, output, bar)
        stack.callback(run.dropped.close)
        run.survey()
        run.write(run.choose())
    facts = _facts(options, source, run.result)
    card = data_card(source, facts, _card_prompt(options, prompt))
    write_whole(options.card, card.encode())
    return run.result


@dataclass
class _Preparation:
    """The state of a preparation: the first pass fills it, and the second pass reads it."""

    options: PrepareOptions
    source: DataSet
    recipe: RecipeDefinition
    prompt: Prompt
    records: Records
    reading: ReadOptions
    output: Output
    bar: TerminalBar | None
    result: PrepareResult = field(default_factory=PrepareResult)
    answerable: array[int] = field(default_factory=lambda: array("q"))
    """Numbers of the usable rows that are not in `unanswerable`."""
    unanswerable: array[int] = field(default_factory=lambda: array("q"))
    present: set[str] = field(default_factory=set)
    """Fields that at least one row has."""
    supports: bool = False
    """Whether a document states which answers it supports."""
    pool: NoisePool | None = None
    first_rows: dict[bytes, int] = field(default_factory=dict)
    """The first row of each id and of each content, by digest."""
    rows: int = 0
    """Number of rows that both passes have read."""

    def __post_init__(self) -> None:
        self.subset = self.options.subset
        self.dropped = ErrorFile(self.options.dropped)
        if self.options.noise or self.options.noise_to:
            self.pool = NoisePool(self.options.seed)
            if self.options.noise_from:
                offer_corpus(self.pool, self.options.noise_from)

    def questions(self) -> Iterator[tuple[int, Gold | Problem]]:
        for number, gold in read_gold(self.source, self.records, self.reading):
            if self.options.find_answers and isinstance(gold, Gold):
                gold = with_answers_found(gold)
            yield number, gold

    def show_progress(self, task: str, rows: int) -> None:
        """Count a row that was read. The tasks are `reading` and then `writing`."""
        self.rows += 1
        if self.bar and self.rows % _STEP == 0:
            before = self.records.size if task == "writing" else 0
            self.bar.show(before + self.records.position(), f"{task} · {rows:,} rows")

    # --- first pass ----------------------------------------------------------------------------

    def survey(self) -> None:
        """Find the usable rows, and record the problems of the others."""
        for number, gold in self.questions():
            self.result.read += 1
            self.show_progress("reading", self.result.read)
            if isinstance(gold, Problem):
                self.drop(number, gold)
                continue
            if self.pool and not self.options.noise_from:
                self.pool.offer(gold.documents)
            problem = suitability_problem(gold, self.recipe) if gold.documents else None
            if problem is None and self.options.answer_in_documents:
                problem = answer_problem(gold)
            problem = problem or self.repetition(gold, number)
            if problem is not None:
                self.drop(number, problem, gold.id)
            else:
                self.accept(number, gold)

    def repetition(self, gold: Gold, number: int) -> Problem | None:
        """Return the problem of a row that repeats an id, or question, documents and answers.

        Different responses to a question may have the same evidence, so that only the id counts.
        """
        parts = [gold.question, *(document.text for document in gold.documents), repr(gold.answers)]
        if self.options.documents_from is None:
            first = self.first_rows.setdefault(_digest("\0".join(parts)), number)
            if first != number:
                return Problem("duplicate", f"same as row {first}")
        first = self.first_rows.setdefault(_digest(f"id {gold.id}"), number)
        return None if first == number else Problem("duplicate id", f"same as row {first}")

    def accept(self, number: int, gold: Gold) -> None:
        (self.unanswerable if gold.answerable is False else self.answerable).append(number)
        gold = self.shown(gold)
        self.supports |= any(document.supports is not None for document in gold.documents)
        self.present.update(
            name
            for name in gold.__struct_fields__
            if name not in self.present and getattr(gold, name) not in (None, ())
        )

    def shown(self, gold: Gold) -> Gold:
        """Return what the row contains of the gold data."""
        unread = dict.fromkeys(set(GIVEN_FIELDS) - set(given_fields(self.recipe)))
        gold = msgspec.structs.replace(gold, **unread)
        if self.prompt.shows_documents:
            return gold
        gold = gold.without_documents()
        if GOLD_DOCUMENTS in self.recipe.fields:
            return gold
        return msgspec.structs.replace(gold, gold_documents=None)

    def drop(self, number: int, problem: Problem, name: str | None = None) -> None:
        reason, detail = problem
        self.result.dropped[reason] += 1
        where = f"row {number}" + (f", {name}" if name else "")
        self.result.examples.setdefault(reason, f"{where}: {detail}" if detail else where)
        record = {"row": number, "id": name, "reason": reason, "detail": detail}
        self.dropped.write(msgspec.json.encode(record) + b"\n")

    def choose(self) -> list[int]:
        """Return the numbers of the rows to write, in the order of the file."""
        usable = sorted((*self.answerable, *self.unanswerable))
        if not usable:
            raise UsageError(self.no_row_message())
        if self.subset is None:
            return usable
        size = self.subset.sizes[self.options.dataset]
        rng = generator(self.options.seed, "rows")
        if self.subset.unanswerable is None:
            return sorted(_sample(rng, usable, size, "usable"))
        unanswerable = round(size * self.subset.unanswerable)
        return sorted(
            _sample(rng, self.answerable, size - unanswerable, "answerable")
            + _sample(rng, self.unanswerable, unanswerable, "unanswerable")
        )

    def no_row_message(self) -> str:
        """Return the reasons why no row is left."""
        if not self.result.read:
            return f"{self.options.source} has no rows"
        reasons = "; ".join(
            f"{reason}: {n:,} ({self.result.examples[reason]})"
            for reason, n in self.result.dropped.most_common(3)
        )
        return (
            f"no row of {self.options.source} is left for {self.options.recipe}: {reasons}; all "
            f"rows are listed in {self.options.dropped}"
        )

    # --- second pass ---------------------------------------------------------------------------

    def write(self, numbers: list[int]) -> None:
        """Write the rows with these numbers. The file gets its name when it is complete."""
        file = trainer_file(self.options.trainer, self.output, self.present, self.supports)
        try:
            self.write_to(file, iter(numbers))
            if not self.result.written:
                raise UsageError(self.no_row_message())
            self.dropped.close()
            file.commit()
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(f"cannot write {self.options.output}: {reason}") from None
        finally:
            file.close()

    def write_to(self, file: TrainerFile, numbers: Iterator[int]) -> None:
        following = next(numbers, None)
        for number, gold in self.questions():
            self.show_progress("writing", self.result.written)
            if number != following or isinstance(gold, Problem):
                continue
            following = next(numbers, None)
            arranged = self.arranged(self.shown(gold))
            if isinstance(arranged, Problem):
                self.drop(number, arranged, gold.id)
                continue
            file.write(self.row(arranged))
            self.result.count(arranged)
            names = given_fields(self.recipe)
            self.result.missing.update(n for n in names if getattr(arranged, n) is None)

    def arranged(self, gold: Gold) -> Gold | Problem:
        """Return the row with noise and in its order, which depend on the seed and its id only."""
        options = self.options
        rng = generator(options.seed, "row", gold.id)
        added: list[Document] | Problem = []
        if self.pool is not None:
            missing = options.noise or max(0, (options.noise_to or 0) - len(gold.documents))
            added = self.pool.sample(gold, missing, rng) if missing else []
        if isinstance(added, Problem):
            return added
        order = list(range(len(gold.documents) + len(added)))
        if options.order == "shuffled" or not gold.ranked:
            rng.shuffle(order)
        return gold.arranged(order, added)

    def row(self, gold: Gold) -> dict[str, Any]:
        """Return a row in the form of the trainer."""
        chat = self.prompt.messages(gold.rollout())
        values = gold.fields(self.supports)
        fields = {name: value for name, value in values.items() if name in self.present}
        return trainer_row(
            self.options.trainer,
            chat,
            fields,
            source=self.options.dataset,
            split=self.options.split_name,
            index=self.result.written,
            has_tools=self.options.prompt == "tools",
        )


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


def _sample(rng: random.Random, rows: list[int] | array[int], size: int, kind: str) -> list[int]:
    if size > len(rows):
        raise OptionError(
            "{size:,} rows are requested, but only {count:,} are {kind}: set {sample} to a smaller "
            "number",
            size=size,
            count=len(rows),
            kind=kind,
        )
    return rng.sample(rows, size)


def _complete_result(options: PrepareOptions) -> PrepareResult | None:
    """Return the result of a complete run with the same output, from its data card.

    Raises UsageError if the run had other settings or another input.
    """
    facts = read_card(options.card)
    if facts is None or not Path(options.output).is_file():
        return None
    signature = _signature(options)
    if facts["signature"] != signature:
        raise cannot_resume(
            options.output,
            f"{options.card} has other settings or another input ({facts['signature']}) than this "
            f"run ({signature})",
        )
    if facts["output"]["sha256"] != sha256(options.output):
        return None
    return PrepareResult.from_counts(facts["counts"])


def _signature(options: PrepareOptions) -> str:
    """Return one line that identifies everything that affects the rows."""
    unsigned = {"source", "output", "progress", "resume", "noise_from"}
    unsigned |= {"document_pool", "reports"}
    settings = {name: value for name, value in asdict(options).items() if name not in unsigned}
    if options.prompt_template is not None:
        settings["prompt_template"] = sha256(options.prompt_template)
    if options.noise_from:
        settings["noise_from"] = sha256(options.noise_from)
    if options.document_pool:
        settings["document_pool"] = sha256(options.document_pool)
    for name in ("columns", "hardened"):
        if not settings[name]:
            del settings[name]  # as in the signatures of versions without this option
    settings["input"] = sha256(options.source)
    settings["prompt"] = options.prompt or DEFAULT
    return str(Signature(recipe="prepare", settings=settings))


def _facts(options: PrepareOptions, source: DataSet, result: PrepareResult) -> dict[str, Any]:
    """The facts of a data card. They contain neither time nor place: equal runs, equal cards."""
    template: dict[str, str] | None = None
    if options.prompt_template is not None:
        digest = sha256(options.prompt_template)
        template = {"file": Path(options.prompt_template).name, "sha256": digest}
    file = {"file": Path(options.source).name, "sha256": sha256(options.source)}
    return {
        "dataset": source.title,
        "source": source.source,
        "licence": source.licence,
        "input": file,
        "output": {"file": Path(options.output).name, "sha256": sha256(options.output)},
        "trainer": options.trainer,
        "split": options.split_name,
        "recipe": options.recipe,
        "prompt": options.prompt or DEFAULT,
        **({"prompt template": template} if template else {}),
        "reward": prepared_recipe(options).signature,
        "seed": options.seed,
        "signature": _signature(options),
        "counts": result.counts(with_evidence=bool(options.documents_from)),
    }


def _card_prompt(options: PrepareOptions, prompt: Prompt) -> str:
    """Return the prompt with placeholders for the question and the query time."""
    blank = Gold(question="{question}", documents=(), answers=(("",),), query_time="{query_time}")
    if options.dataset == "qampari":
        blank = msgspec.structs.replace(blank, answer_kind="list")
    if options.dataset != "crag":
        blank = msgspec.structs.replace(blank, query_time=None)
    return prompt.message_for(blank.rollout())

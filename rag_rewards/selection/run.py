"""A run of `probe` or `select`: its options, its files and models, its counts, and its card."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rag_rewards.errors import OptionError
from rag_rewards.files.grouped_lines import GroupOptions
from rag_rewards.files.output import Output, refuse_second_run, write_whole
from rag_rewards.files.sources import Source, open_source
from rag_rewards.files.storage import input_files
from rag_rewards.files.version import sha256
from rag_rewards.loading import RecipeSource
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.selection.models import Purpose, SelectionModels
from rag_rewards.selection.questions import ErrorLog, Question, Questions
from rag_rewards.selection.sampling import SamplingOptions
from rag_rewards.signature import Signature

K = TypeVar("K")


@dataclass(frozen=True, kw_only=True)
class CorrectnessOptions:
    """Which responses are correct."""

    right_at: float = 1.0
    """Count a response as correct if `correct` is at least this value."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(CorrectnessOptions, GroupOptions):
    """The files, the recipe and the models of a run. Raises OptionError for invalid values."""

    source: str = field(kw_only=False)
    output: str = field(kw_only=False)
    recipe: RecipeSource | None = field(default=None, kw_only=False)
    columns: str | None = None
    models: ModelOptions = ModelOptions()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.right_at <= 1:
            raise OptionError(
                "{right_at} must be above 0 and at most 1, found {value}", value=self.right_at
            )

    @property
    def errors(self) -> str:
        """Path of the rows in error."""
        return f"{self.output}.errors.jsonl"

    @property
    def samples(self) -> str:
        """Path of the texts that a policy writes."""
        return f"{self.output}.samples.jsonl"


@dataclass(kw_only=True)
class RunCounts:
    """The counts of a run that do not depend on the command."""

    rows_in_error: int = 0
    first_error: str = ""
    new_texts: int = 0
    """Texts that the policy wrote in this run."""
    stored_texts: int = 0
    """Texts of earlier runs that were used again."""

    @property
    def error_lines(self) -> list[str]:
        """The number of rows in error, as a line of the summary if there are any."""
        if not self.rows_in_error:
            return []
        return [f"{self.rows_in_error:,} rows in error, the first: {self.first_error}"]


@dataclass(frozen=True)
class Run:
    """The open files and models of a run."""

    options: RunOptions
    source: Source
    output: Output
    errors: ErrorLog
    models: SelectionModels

    def questions(self) -> Questions:
        """Return the questions of the file with their rollouts, which the models score."""
        options = self.options
        return Questions(
            *(self.source, self.errors, self.models.row_scorer, options.right_at),
            *(options.group_size, options.sort),
        )

    def with_texts(
        self, questions: Iterable[tuple[K, Question]], sampling: SamplingOptions
    ) -> Generator[tuple[K, Question], None, None]:
        """Yield the questions, with texts of the policy if there is one."""
        return self.models.with_texts(
            questions, self.options.samples, sampling, self.errors, self.options.right_at
        )

    def count(self, counts: RunCounts) -> None:
        """Record the rows in error and the texts of the policy."""
        counts.rows_in_error, counts.first_error = self.errors.rows, self.errors.first
        if (sampler := self.models.sampler) is not None:
            counts.new_texts = sampler.new_responses
            counts.stored_texts = sampler.stored_responses

    def commit(self) -> None:
        """Complete the errors file and the output, which gets its name."""
        self.errors.close()
        self.output.commit()


@contextlib.contextmanager
def open_run(
    options: RunOptions, recipe: RecipeSource | None, purpose: Purpose = ""
) -> Iterator[Run]:
    """Open the files and the models of a run. The lock of the output protects its other files."""
    refuse_second_run(options.output)
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(
            contextlib.closing(open_source(options.source, options.columns))
        )
        models = stack.enter_context(
            contextlib.closing(SelectionModels(recipe, options.models, purpose))
        )
        output = stack.enter_context(Output(options.output))
        errors = stack.enter_context(contextlib.closing(ErrorLog(options.errors)))
        yield Run(options, source, output, errors, models)


def summary(options: RunOptions, counts: RunCounts, lines: Iterable[str]) -> list[str]:
    """Return the lines of a command's summary, with the texts and the errors beside the output."""
    first, *others = lines
    result = [f"{first} → {options.output}", *others]
    if options.models.model:
        texts = f"{counts.new_texts:,} new, {counts.stored_texts:,} from earlier runs"
        result.append(f"texts of the policy: {texts}: {options.samples}")
    if counts.rows_in_error:
        result.append(f"rows in error: {options.errors}")
    return result


def write_card(
    command: str,
    options: RunOptions,
    settings: Mapping[str, Any],
    facts: Mapping[str, Any],
    lines: Iterable[str],
) -> str:
    """Write `OUTPUT.card.md` with the facts as YAML and the lines as a list, and return its path.

    The card contains no time and no folder, so that equal runs write equal cards.
    """
    import yaml

    shown = {name: value for name, value in settings.items() if value not in (None, False, (), [])}
    head = {
        "input": _input(options.source),
        "output": _file(options.output),
        "signature": str(Signature(recipe=command, settings=shown)),
        **facts,
    }
    facts_yaml = yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=100)
    body = "".join(f"- {line}\n" for line in lines)
    path = f"{options.output}.card.md"
    title = f"# {Path(options.output).name}, written by `rag-rewards {command}`"
    write_whole(path, f"---\n{facts_yaml}---\n\n{title}\n\n{body}".encode())
    return path


def _input(source: str) -> Any:
    """Return the file of the input, or the list of files of a folder or a pattern."""
    if source == "-":
        return source
    files = input_files(source)
    return _file(source) if files is None else [_file(path) for path in files]


def _file(path: str) -> dict[str, str]:
    return {"file": Path(path).name, "sha256": sha256(path)}

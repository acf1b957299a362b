"""The options of `prepare`. The command line generates its options from these classes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal

from rag_rewards.datasets.read_options import Pages, ReadOptions
from rag_rewards.definition import Preset
from rag_rewards.errors import OptionError, UsageError
from rag_rewards.files.output_check import refuse_overwriting_with_card
from rag_rewards.preparation.trainer_rows import FORMS
from rag_rewards.recipes import RECIPES
from rag_rewards.rows.column_map import ColumnMap
from rag_rewards.settings import check_choices, did_you_mean
from rag_rewards.trainers import TRAINERS


def presets() -> dict[str, Preset]:
    """Return the presets of all recipes by name."""
    return {
        name: preset
        for definition in RECIPES.values()
        for name, preset in definition.data.presets.items()
    }


@dataclass(frozen=True, kw_only=True)
class SubsetOptions:
    """Which of the usable rows to write. By default, all of them."""

    preset: str | None = None
    """Use the sample sizes of a paper. `rag-rewards recipes NAME` lists the presets of a recipe."""
    sample: int | None = None
    """Number of rows to sample. By default, all usable rows are written."""
    unanswerable: float | None = None
    """Share of unanswerable rows among the rows of --sample, from 0 to 1."""
    answer_in_documents: bool = False
    """Leave out questions whose documents do not contain the gold answer."""
    seed: int = 0
    """Random seed of the sampled rows, the order of documents and the noise."""


@dataclass(frozen=True, kw_only=True)
@check_choices
class DocumentOptions:
    """The documents of each row."""

    order: Literal["kept", "shuffled"] = "kept"
    """Order of the documents: as in the data set, with noise last (kept), or random (shuffled)."""
    top: int | None = None
    """Keep the first INT documents; 0 keeps all. The default is 5 for asqa, qampari, eli5,
    expertqa, nq, triviaqa and retrieved, 30 for ragqa, and 0 for other data sets."""
    pages: Pages = "snippet"
    """Text of a web page of crag: its snippet, or the text of the whole page (full)."""
    document_pool: str | None = None
    """Read the documents of ragqa from this file, documents_pool.json."""
    noise: int | None = None
    """Add this number of noise documents, which are unrelated to the question."""
    noise_to: int | None = None
    """Add noise documents until a row has this number of documents (30 in CTRL-RAG)."""
    noise_from: str | None = None
    """Take noise documents from this file. By default, they come from the other rows of IN."""
    documents_from: str | None = None
    """Replace the documents by this section of the response (such as extract), or by the whole
    response (response). Only for the data set rows."""
    find_answers: bool = False
    """If the data set marks no supporting documents, mark those that contain an answer."""


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """The prompt of each row. By default, it is the prompt of the recipe."""

    prompt: str | None = None
    """Use this prompt of the recipe: direct, closed-book (rows without documents), a dialect of a
    search agent (search-r1, r1-searcher, research or tools), or another one that
    `rag-rewards recipes NAME` lists."""
    prompt_template: str | None = None
    """Use the text of this file as the prompt, with the placeholders {documents}, {question} and,
    optionally, {instruction} and {query_time}."""
    document_form: str | None = None
    """Template of a document in the prompt, such as '{label}. {text}'."""
    document_separator: str | None = None
    """Text between two documents in the prompt."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """The prepared file."""

    split: str | None = None
    """Value of the field `split`. The default is the split of the preset. If there is no preset, it
    is `train`."""
    resume: bool = False
    """Do nothing if the output is complete, and start again if it is not. The input and the options
    must be those of the complete run."""


@dataclass(frozen=True)
@check_choices
class PrepareOptions(OutputOptions, SubsetOptions, DocumentOptions, PromptOptions):
    """The options of `prepare`: a data set, its file, the output, a recipe and a trainer.

    Raises UsageError when options contradict each other, and when an input would be overwritten.
    """

    dataset: str
    source: str
    output: str
    recipe: str
    trainer: str = "none"
    _: KW_ONLY
    progress: bool = False
    columns: str | None = None
    """Columns of fields that have another name, as in `ColumnMap`. Only for the data set rows."""
    hardened: bool = False
    """Prepare for the hardened profile of the recipe, whose prompts request the answer section."""
    reports: str | None = None
    """Path of the data card and of the list of dropped rows, without their suffixes. The default is
    `output`."""

    def __post_init__(self) -> None:
        if self.trainer not in FORMS:
            raise UsageError(_unknown("trainer", self.trainer, FORMS))
        for name in ("top", "noise", "noise_to", "sample"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise OptionError(f"{{{name}}} must be at least 0, found {{value}}", value=value)
        if self.noise and self.noise_to:
            raise OptionError("{noise} and {noise_to} both add documents: use one of them")
        if self.noise_from and not (self.noise or self.noise_to):
            raise OptionError("{noise_from} requires {noise} or {noise_to}")
        if self.unanswerable is not None and not 0 <= self.unanswerable <= 1:
            raise OptionError(
                "{unanswerable} must be a share from 0 to 1, found {value}",
                value=self.unanswerable,
            )
        if self.preset and self.sample is not None:
            raise OptionError("{preset} sets the number of rows: leave out {sample}")
        if self.unanswerable is not None and self.sample is None:
            raise OptionError("{unanswerable} requires {sample}")
        if self.document_pool and self.dataset != "ragqa":
            raise OptionError(
                "{document_pool} is for ragqa, not for {dataset}", dataset=self.dataset
            )
        if self.documents_from is not None:
            self._check_part(self.documents_from)
        if self.columns is not None and self.dataset != "rows":
            raise OptionError(
                "{columns} is for the data set rows: leave it out for {dataset}",
                dataset=self.dataset,
            )
        self._check_output()

    def _check_part(self, part: str) -> None:
        if self.dataset != "rows":
            raise OptionError(
                "{documents_from} reads responses, which {dataset} does not contain: use the data "
                "set rows",
                dataset=self.dataset,
            )
        if not re.fullmatch(r"[A-Za-z_]\w*", part):
            raise OptionError(
                "{documents_from} must be the name of a section, such as extract, or response; "
                "found {part!r}",
                part=part,
            )

    def _check_output(self) -> None:
        is_parquet = self.output.endswith(".parquet")
        trainer = TRAINERS.get(self.trainer)
        if (trainer is not None and trainer.suffix == "parquet") != is_parquet:
            form, suffix = ("JSON lines", "jsonl") if is_parquet else ("Parquet", "parquet")
            raise OptionError(
                "{trainer} {name} reads {form}: set {output} to {file}.{suffix}",
                name=self.trainer,
                form=form,
                file=Path(self.output).stem,
                suffix=suffix,
            )
        files = (self.source, self.noise_from, self.prompt_template, self.document_pool)
        refuse_overwriting_with_card({"output": self.output}, files)

    @property
    def reading(self) -> ReadOptions:
        """How the rows of the data set are read."""
        return ReadOptions(
            top=self.top,
            pages=self.pages,
            seed=self.seed,
            documents_from=self.documents_from,
            columns=None if self.columns is None else ColumnMap.of(self.columns),
        )

    @property
    def card(self) -> str:
        """Path of the data card."""
        return f"{self.reports or self.output}.card.md"

    @property
    def dropped(self) -> str:
        """Path of the list of the rows that were left out."""
        return f"{self.reports or self.output}.dropped.jsonl"

    @property
    def subset(self) -> Preset | None:
        """The number of rows to sample; None for all usable rows."""
        if self.preset is None:
            if self.sample is None:
                return None
            return Preset({self.dataset: self.sample}, "", self.unanswerable)
        available = presets()
        if self.preset not in available:
            raise UsageError(_unknown("preset", self.preset, available))
        preset = available[self.preset]
        if self.dataset not in preset.sizes:
            raise OptionError(
                "{preset} {name} is for {datasets}, not for {dataset}",
                name=self.preset,
                datasets=", ".join(preset.sizes),
                dataset=self.dataset,
            )
        return preset

    @property
    def split_name(self) -> str:
        """The field `split` of the rows, such as train or test."""
        subset = self.subset
        return self.split or (subset.split if subset else "") or "train"


def _unknown(kind: str, name: str, available: Iterable[str]) -> str:
    return f"unknown {kind} {name!r}{did_you_mean(name, available)}"

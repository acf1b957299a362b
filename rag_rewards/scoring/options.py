"""The options of scoring a file, the display of its progress, and the result."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from rag_rewards.errors import OptionError, RagRewardsError
from rag_rewards.files.grouped_lines import GroupOptions
from rag_rewards.files.output import partial_of
from rag_rewards.files.storage import base_name, join, with_suffix
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.rows import Totals
from rag_rewards.rows.column_map import ColumnMap
from rag_rewards.scoring.ray_cluster import Engine, RayOptions, check_engine
from rag_rewards.settings import check_choices

if TYPE_CHECKING:
    from rag_rewards.evidence.exchange import EvidenceUsage
    from rag_rewards.evidence.protocols import Judge

OnOutput = Callable[[bytes], None]
"""A function that receives scored rows as JSON lines."""

OnError = Literal["report", "stop"]
OutputFormat = Literal["file", "parts"]
"""The form of an output: one file, or a folder with a part file for each shard."""


class OutputError(RagRewardsError):
    """The output cannot be written any further."""


@dataclass(frozen=True, kw_only=True)
@check_choices
class RunOptions:
    """How the rows of a file are scored and written, with equal names on the command line."""

    output_format: OutputFormat = "file"
    """Write one file (file), or a folder with a file of rows for each shard and manifest.json
    (parts). With parts, --output is the folder."""
    keep_evidence: bool = False
    """Include the evidence (model outputs, such as log-probabilities) in the scored rows."""
    on_error: OnError = "report"
    """Write unscored rows to OUT.errors.jsonl and continue (report), or stop at the first (stop).
    OUT is the value of --output."""
    resume: bool = False
    """Continue an interrupted run: score only the rows that are not in the output yet. The input
    and the options must be those of that run. The record OUTPUT.run.json remains, so that the same
    command finds the complete output."""
    workers: int = 1
    """Number of processes that score rows."""
    engine: Engine = "local"
    """Score in processes of this machine (local), or on a Ray cluster (ray). With ray, --workers is
    the number of workers on the cluster, and each of them loads the models."""


@dataclass(frozen=True, kw_only=True)
@check_choices
class ScoreOptions(GroupOptions, RunOptions):
    """The options of scoring a file.

    source   input file; "-" is standard input
    output   output file; "-" is standard output; None writes no rows
    columns  columns of fields that have another name, as in `ColumnMap`
    models   models that provide evidence
    ray      the Ray cluster, and the resources of each worker
    """

    source: str = field(kw_only=False)
    output: str | None = field(default="-", kw_only=False)
    columns: str | None = None
    models: ModelOptions = ModelOptions()
    ray: RayOptions = RayOptions()

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise OptionError("{workers} must be at least 1, found {value}", value=self.workers)
        if self.columns is not None:
            ColumnMap.of(self.columns)  # raises for a field that does not exist
        check_engine(self.engine, self.ray)
        if self.workers > 1 and self.models.is_set and self.engine == "local":
            raise OptionError(
                "{workers} must be 1 when models are set: one process calls them. {engine} ray "
                "loads the models in each worker"
            )
        if self.engine == "ray" and (self.sort or not self.is_resumable):
            raise OptionError(
                "{engine} ray requires {output} with the name of a file, and no {sort}"
            )
        if self.output_format == "parts":
            self._check_parts()
        super().__post_init__()
        if self.resume and not self.is_resumable:
            raise OptionError("{resume} requires {output} with the name of a file")

    def _check_parts(self) -> None:
        output = self.output or "-"
        if output == "-" or base_name(output).endswith((".parquet", ".gz", ".zst")):
            raise OptionError(
                "{output_format} parts writes JSON lines to a folder: set {output} to the name "
                "of a folder, found {name}",
                name=output,
            )
        if self.sort:
            raise OptionError(
                "{output_format} parts writes the rows of a shard when they are scored, and {sort} "
                "restores their order at the end: use {output_format} file"
            )

    @property
    def is_resumable(self) -> bool:
        """Whether the output is a file or a folder, so that an interrupted run can continue."""
        if self.output_format == "parts":
            return True
        return self.output is not None and partial_of(self.output or "-") is not None

    @property
    def is_streamed(self) -> bool:
        """Whether rows are written as they are read, because nothing has to be kept or ordered."""
        return not self.is_resumable and self.workers == 1 and not self.sort

    @property
    def errors(self) -> str | None:
        """The file for rows in error, or the pattern of such files; None is standard error.

        A device or a pipe gets no file beside it.
        """
        if not self.is_resumable:
            return None
        if self.output_format == "parts":
            return join(str(self.output), "part-*.errors.jsonl")
        return with_suffix(str(self.output), ".errors.jsonl")


@dataclass(frozen=True, kw_only=True)
class Prices:
    """The prices of a judge. Raises OptionError for one that is negative or infinite."""

    price_in: float | None = None
    """Price of 1,000,000 prompt tokens of the judge."""
    price_out: float | None = None
    """Price of 1,000,000 completion tokens of the judge."""

    def __post_init__(self) -> None:
        for name in ("price_in", "price_out"):
            price = getattr(self, name)
            if price is not None and not (math.isfinite(price) and price >= 0):
                raise OptionError(f"{{{name}}} must be at least 0, found {{price}}", price=price)

    @property
    def is_set(self) -> bool:
        """Whether a price is set."""
        return self.price_in is not None or self.price_out is not None

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return the cost of tokens; None without prices.

        >>> Prices(price_in=2, price_out=8).cost(500_000, 125_000), Prices().cost(5, 5)
        (2.0, None)
        """
        cost = (self.price_in or 0) * prompt_tokens + (self.price_out or 0) * completion_tokens
        return cost / 1e6 if self.is_set else None


@dataclass(frozen=True, kw_only=True)
class EstimateOptions(Prices):
    """Whether `score` estimates its cost in place of scoring, and the prices.

    Raises OptionError for a price that is negative or infinite, or without `estimate`.
    """

    estimate: bool = False
    """Print the requests and tokens that the models would need, with a cost if there are prices.
    No model is called, and nothing is written."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("price_in", "price_out"):
            if getattr(self, name) is not None and not self.estimate:
                raise OptionError(f"{{{name}}} is for an estimate: set {{estimate}}")


class Progress(AbstractContextManager["Progress"], Protocol):
    """Shows the progress of a run. `position` is the number of bytes that were scored."""

    def update(self, totals: Totals, position: int, usage: EvidenceUsage | None = None) -> None: ...


@dataclass
class ScoringRun:
    """The result of scoring a file.

    stopped_by  the first row in error, if the run stopped there; "" otherwise
    partial     the file with the scored rows of a run that did not complete; "" otherwise
    was_complete  whether an earlier run had completed the output
    seconds     duration of the run
    """

    recipe: str
    equation: str
    signature: str
    totals: Totals = field(default_factory=Totals)
    usage: EvidenceUsage | None = None
    judge: Judge | None = None
    stopped_by: str = ""
    partial: str = ""
    was_complete: bool = False
    seconds: float = 0.0

"""Score a file of rows. Each input row becomes an output row, in input order."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rag_rewards.files.output import partial_of, refuse_second_run, temporary_file_error
from rag_rewards.files.output_check import refuse_overwriting
from rag_rewards.files.sources import chunks, open_source
from rag_rewards.loading import RecipeSource
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.options import (
    OnOutput,
    OutputError,
    Progress,
    ScoreOptions,
    ScoringRun,
)
from rag_rewards.scoring.run import score_to_output
from rag_rewards.scoring.stream import Sink, score_as_read

if TYPE_CHECKING:
    from rag_rewards.scoring.on_ray import RayWorkers


def score_file(
    recipe: RecipeSource,
    options: ScoreOptions,
    *,
    progress: Callable[[int | None], Progress] | None = None,
    on_output: OnOutput | None = None,
) -> ScoringRun:
    """Score a file. The output has a partial name until it is complete.

    `progress` returns a display for an input of this size in bytes. `on_output` receives the
    scored rows: those of a stream at once, those of a file or a folder when it is complete.

    Raises UsageError before any row is scored, OutputError when writing the output fails.
    """
    refuse_overwriting({"output": options.output}, [options.source])
    has_models = options.models.is_set and options.engine == "local"
    if has_models:
        refuse_second_run(options.output or "-")  # before models are loaded
    with Scorer.load(
        recipe,
        models=options.models if has_models else None,
        keep_evidence=options.keep_evidence,
        for_parquet=options.output is not None and options.output.endswith(".parquet"),
    ) as scorer:
        if options.engine == "local":
            return _score_source(scorer, options, progress, on_output)
        # The modules of the cluster take time to import.
        from rag_rewards.scoring.on_ray import ray_workers

        with ray_workers(scorer, options) as cluster:
            return _score_source(scorer, options, progress, on_output, cluster)


def _score_source(
    scorer: Scorer,
    options: ScoreOptions,
    progress: Callable[[int | None], Progress] | None,
    on_output: OnOutput | None,
    cluster: RayWorkers | None = None,
) -> ScoringRun:
    run = ScoringRun(scorer.reward.name, scorer.reward.equation, scorer.signature)
    run.usage = scorer.usage if scorer.has_models else None
    run.judge = scorer.models.judge
    start = time.perf_counter()
    try:
        if cluster is not None and options.models.is_set:
            run.signature = cluster.signature()
        if options.is_streamed:
            score_as_read(scorer, options, run, progress, on_output)
        elif not options.is_resumable:
            _score_through_file(scorer, options, run, progress, on_output)
        else:
            score_to_output(scorer, options, run, progress, cluster)
            if on_output is not None:
                _pass_rows(run.partial or str(options.output), on_output)
    except BrokenPipeError:
        raise
    except OSError as error:
        partial = partial_of(options.output or "-")
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "; resume the run when there is space" if is_full and options.is_resumable else ""
        if partial is not None and partial.exists():  # sorted rows are in the folder of the run
            hint = f"; the rows scored so far are in {partial}: resume the run"
        name = error.filename2 or error.filename or options.output
        name = "standard output" if name in (None, "-") else name
        raise OutputError(f"cannot write {name}: {error.strerror}{hint}") from None
    finally:
        run.seconds = time.perf_counter() - start
    return run


def _pass_rows(output: str, on_output: OnOutput) -> None:
    """Pass the scored rows of an output."""
    with contextlib.closing(open_source(output)) as source:
        for chunk in chunks(source.lines):
            on_output(b"".join(line.removesuffix(b"\n") + b"\n" for line in chunk.lines))


def _score_through_file(
    scorer: Scorer,
    options: ScoreOptions,
    run: ScoringRun,
    progress: Callable[[int | None], Progress] | None,
    on_output: OnOutput | None,
) -> None:
    """Score an input to a temporary file, and then write the rows to an output that is no file.

    Workers and sorted groups complete the rows in another order.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Sink(options, on_output)) as sink,
    ):
        through = replace(options, output=os.path.join(folder, "rows.jsonl"))
        try:
            score_to_output(scorer, through, run, progress)
        except OSError as error:
            raise temporary_file_error(error) from None
        rows, run.partial = Path(run.partial or str(through.output)), ""
        if rows.exists():  # a run that stops at its first row leaves no rows
            with rows.open("rb") as handle:
                while lines := handle.readlines(1 << 20):
                    sink.write(b"".join(lines))
        errors = Path(str(through.errors))
        if errors.exists():
            with errors.open("rb") as handle:
                for record in handle:
                    sink.write_error(record)
        if not run.stopped_by:
            sink.commit()

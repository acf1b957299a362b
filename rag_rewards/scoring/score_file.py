"""Score a file of rows. Each input row becomes an output row, in input order."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rag_rewards.files.output import partial_of, refuse_second_run
from rag_rewards.files.output_check import refuse_overwriting
from rag_rewards.files.progress import NoProgress, Progress
from rag_rewards.files.sources import Source, chunks, open_source
from rag_rewards.loading import RecipeSource
from rag_rewards.scorer import Scorer
from rag_rewards.scoring.run import score_to_file
from rag_rewards.scoring.score_options import OnOutput, OutputError, ScoreOptions, ScoringRun

if TYPE_CHECKING:
    from rag_rewards.scoring.on_ray import RayExecutor


def score_file(
    recipe: RecipeSource,
    options: ScoreOptions,
    *,
    progress: Callable[[Source], Progress] = NoProgress,
    on_output: OnOutput | None = None,
) -> ScoringRun:
    """Score a file. The output has a partial name until it is complete.

    Raises UsageError before any row is scored, OutputError when writing the output fails.
    """
    refuse_overwriting({"output": options.output}, [options.source])
    refuse_second_run(options.output or "-")
    with Scorer.load(
        recipe,
        models=options.models if options.engine == "local" else None,
        keep_evidence=options.keep_evidence,
        for_parquet=options.output is not None and options.output.endswith(".parquet"),
    ) as scorer:
        if options.engine == "local":
            return _score_source(scorer, options, progress, on_output)
        # The modules of the cluster take time to import.
        from rag_rewards.scoring.on_ray import ray_executor

        with ray_executor(scorer, options) as executor:
            return _score_source(scorer, options, progress, on_output, executor)


def _score_source(
    scorer: Scorer,
    options: ScoreOptions,
    progress: Callable[[Source], Progress],
    on_output: OnOutput | None,
    executor: RayExecutor | None = None,
) -> ScoringRun:
    source = open_source(options.source, options.columns)
    run = _run_of(scorer)
    start = time.perf_counter()
    try:
        if executor is not None and options.models.is_set:
            run.signature = executor.signature()
        if options.output_format == "parts":
            from rag_rewards.scoring.parts import score_to_parts

            score_to_parts(scorer, options, run, progress(source), on_output, executor)
        elif executor is not None:
            score_to_file(scorer, options, source, run, progress(source), on_output, executor)
        elif options.is_resumable:
            score_to_file(scorer, options, source, run, progress(source), on_output)
        else:
            from rag_rewards.scoring.stream import score_to_stream

            score_to_stream(scorer, options, source, run, progress(source), on_output)
        if run.was_complete and on_output is not None:
            _pass_rows(str(options.output), on_output)
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
        source.close()
        run.seconds = time.perf_counter() - start
    return run


def _pass_rows(output: str, on_output: OnOutput) -> None:
    """Pass the scored rows of a complete output."""
    with contextlib.closing(open_source(output)) as source:
        for chunk in chunks(source.lines):
            on_output(b"".join(line.removesuffix(b"\n") + b"\n" for line in chunk.lines))


def _run_of(scorer: Scorer) -> ScoringRun:
    run = ScoringRun(scorer.reward.name, scorer.reward.equation, scorer.signature)
    run.usage = scorer.usage if scorer.has_models else None
    run.judge = scorer.models.judge
    return run

"""`rag-rewards prepare`"""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from rag_rewards.cli.options import FILES, RECIPE, Output, Progress
from rag_rewards.cli.output import print_messages
from rag_rewards.commands.prepare import Options, told
from rag_rewards.commands.prepare import prepare as convert

SAMPLING = "Sampling"
DOCUMENTS = Group("Documents", sort_key=7)


def prepare(
    dataset: Annotated[str, Parameter(name="DATASET", group=FILES)],
    source: Annotated[str, Parameter(name="IN", group=FILES, allow_leading_hyphen=True)],
    /,
    *,
    output: Output,
    trainer: Annotated[str, Parameter(alias="-t", group=FILES)],
    split: Annotated[str | None, Parameter(group=FILES)] = None,
    progress: Progress = None,
    recipe: Annotated[str, Parameter(alias="-r", group=RECIPE)],
    preset: Annotated[str | None, Parameter(group=SAMPLING)] = None,
    sample: Annotated[int | None, Parameter(group=SAMPLING)] = None,
    unanswerable: Annotated[float | None, Parameter(group=SAMPLING)] = None,
    seed: Annotated[int, Parameter(group=SAMPLING)] = 0,
    order: Annotated[Literal["kept", "shuffled"], Parameter(group=DOCUMENTS)] = "kept",
    top: Annotated[int | None, Parameter(group=DOCUMENTS)] = None,
    noise: Annotated[int | None, Parameter(group=DOCUMENTS)] = None,
    noise_to: Annotated[int | None, Parameter(group=DOCUMENTS)] = None,
    noise_from: Annotated[str | None, Parameter(group=DOCUMENTS)] = None,
    find_answers: Annotated[bool, Parameter(group=DOCUMENTS)] = False,
) -> int:
    """Convert a public data set to a trainer's data file.

    The output contains the prompt and the gold fields of a recipe. A data card and a list of the
    rows that were left out are written beside it. The exit code is 3 when some rows are broken.

    Parameters
    ----------
    dataset
        Name of the data set: hotpotqa, 2wikimultihopqa, musique, asqa, qampari, eli5, crag, nq or
        triviaqa; rows for rows of this package.
    source
        Read the data set from this file: JSON, JSON lines (.gz, .bz2) or .parquet.
    output
        Write to this file: .parquet for verl, JSON lines for all other trainers.
    trainer
        Write for this trainer: verl, openrlhf, trl or ms-swift; none for rows of this package.
    split
        Set the field `split`. The default is train.
    progress
        Show a progress bar. The default is to show it on a terminal.
    recipe
        Use the prompt of this recipe. See `recipes`.
    preset
        Use the size of a paper: arena-train, arena-test, ground-grpo-stage1 or ground-grpo-stage2.
    sample
        Sample this number of the usable rows.
    unanswerable
        Share of unanswerable rows in --sample.
    seed
        Seed of all random choices: rows, order and noise.
    order
        Keep the order of the documents, with noise last, or shuffle them.
    top
        Keep this number of documents; 0 keeps all. The default for asqa, qampari, eli5, nq and
        triviaqa is 5.
    noise
        Add this number of documents that are not related to the question.
    noise_to
        Add noise documents until there are this number of documents (CTRL-RAG: 30).
    noise_from
        Take noise documents from this corpus. The default is the other rows of IN.
    find_answers
        Mark documents that contain an answer as supporting if the data set marks none.
    """
    options = Options(
        dataset=dataset,
        source=source,
        output=output,
        recipe=recipe,
        trainer=trainer,
        split=split,
        seed=seed,
        order=order,
        top=top,
        noise=noise,
        noise_to=noise_to,
        noise_from=noise_from,
        find_answers=find_answers,
        sample=sample,
        unanswerable=unanswerable,
        preset=preset,
        progress=sys.stderr.isatty() if progress is None else progress,
    )
    done = convert(options)
    print_messages(told(options, done))
    return 3 if done.broken else 0

"""rag-rewards prepare"""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated

import typer

from rag_rewards.cli import option
from rag_rewards.cli.output import tell


class Order(str, Enum):
    kept = "kept"
    shuffled = "shuffled"


def prepare(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET",
            help="hotpotqa, 2wikimultihopqa, musique, asqa, qampari, eli5, crag, nq, triviaqa; "
            "rows: this package's own.",
        ),
    ],
    source: Annotated[
        str, typer.Argument(metavar="IN", help="Its own file: JSON, JSONL (.gz, .bz2), .parquet.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", help="verl: .parquet; all others: JSON lines.")
    ],
    recipe: Annotated[
        str, typer.Option("--recipe", "-r", help="Which recipe; see `rag-rewards recipes`.")
    ],
    trainer: Annotated[
        str, typer.Option("--trainer", "-t", help="verl, openrlhf, trl, ms-swift, or none.")
    ],
    preset: Annotated[
        str | None,
        typer.Option(
            help="A paper's size: arena-train, arena-test, ground-grpo-stage1, ground-grpo-stage2."
        ),
    ] = None,
    sample: Annotated[int | None, typer.Option(help="Draw so many of the usable rows.")] = None,
    unanswerable: Annotated[
        float | None, typer.Option(help="Share of --sample whose documents do not answer.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all that is drawn: rows, order, noise.")] = 0,
    order: Annotated[
        Order, typer.Option(help="Documents as they come, noise last; or shuffled by the seed.")
    ] = Order.kept,
    top: Annotated[
        int | None,
        typer.Option(
            help="Keep the first N documents, 0 all; asqa, qampari, eli5, nq, triviaqa: 5."
        ),
    ] = None,
    noise: Annotated[
        int | None, typer.Option(help="Add N documents that have nothing to do with the question.")
    ] = None,
    noise_to: Annotated[
        int | None, typer.Option(help="Add as many as make N documents (CTRL-RAG: 30).")
    ] = None,
    noise_from: Annotated[
        str | None, typer.Option(help="A corpus for noise; default: other rows of IN.")
    ] = None,
    find_answers: Annotated[
        bool,
        typer.Option(
            "--find-answers", help="Unmarked documents support an answer that stands in them."
        ),
    ] = False,
    split: Annotated[
        str | None, typer.Option(help="What the rows call themselves; default: train.")
    ] = None,
    progress: option.Progress = None,
) -> None:
    """Turn a public data set's file into a trainer's, with a recipe's prompt and gold fields.

    Beside it stand a data card and the rows that were left out. Exit code 3 when some were broken.
    """
    from rag_rewards.commands.prepare import Options, told
    from rag_rewards.commands.prepare import prepare as run

    options = Options(
        dataset=dataset,
        source=source,
        output=output,
        recipe=recipe,
        trainer=trainer,
        split=split,
        seed=seed,
        order=order.value,
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
    done = run(options)
    tell(told(options, done))
    raise typer.Exit(3 if done.broken else 0)

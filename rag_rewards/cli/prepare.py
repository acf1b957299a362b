"""`rag-rewards prepare`: convert a public data set to a trainer's data file."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Group, Parameter

from rag_rewards.cli.options import FILES, RECIPE, Columns, Input, Output
from rag_rewards.cli.output import print_messages, shows_progress
from rag_rewards.cli.recipe_options import with_line_breaks
from rag_rewards.preparation.options import (
    DocumentOptions,
    OutputOptions,
    PrepareOptions,
    PromptOptions,
    SubsetOptions,
)
from rag_rewards.preparation.prepare import prepare as write_prepared_file
from rag_rewards.preparation.result import PrepareResult
from rag_rewards.trainers import TRAINERS

PROMPT = Group("Prompt", sort_key=6)
DOCUMENTS = Group("Documents", sort_key=7)
OUTPUT_DEFAULTS = OutputOptions()
SUBSET_DEFAULTS = SubsetOptions()
DOCUMENT_DEFAULTS = DocumentOptions()
PROMPT_DEFAULTS = PromptOptions()
COLUMNS = (
    "Read fields from columns of other names, as in `question=user_input,answers=reference`, or "
    "choose a preset: ragas, trl, verl, openrlhf, verifiers or search-r1. Only for the data set "
    "`rows`."
)
TRAINER = (
    f"Write for this trainer: {', '.join(TRAINERS)}. The default `none` writes rows of this "
    "package, to which any generator can add responses."
)


def prepare(
    dataset: Annotated[str, Parameter(name="DATASET", group=FILES)],
    source: Input,
    /,
    *,
    columns: Annotated[Columns, Parameter(help=COLUMNS)] = None,
    output: Output,
    trainer: Annotated[str, Parameter(alias="-t", group=FILES, help=TRAINER)] = "none",
    file: Annotated[OutputOptions, Parameter(name="*", group=FILES)] = OUTPUT_DEFAULTS,
    recipe: Annotated[str, Parameter(alias="-r", group=RECIPE)],
    hardened: Annotated[bool, Parameter(negative="", group=RECIPE)] = False,
    prompt: Annotated[PromptOptions, Parameter(name="*", group=PROMPT)] = PROMPT_DEFAULTS,
    subset: Annotated[SubsetOptions, Parameter(name="*", group="Sampling")] = SUBSET_DEFAULTS,
    documents: Annotated[DocumentOptions, Parameter(name="*", group=DOCUMENTS)] = DOCUMENT_DEFAULTS,
) -> int:
    """Convert a public data set to a trainer's data file.

    The output contains the prompt and the gold fields that a recipe needs. The command also writes
    a data card (OUT.card.md) and a list of the rows that it leaves out (OUT.dropped.jsonl). The
    exit code is 3 if some rows are invalid.

    Parameters
    ----------
    dataset
        Data set: hotpotqa, 2wikimultihopqa, musique, asqa, qampari, eli5, expertqa, crag, nq,
        triviaqa, ragqa (RAGQALeaderboard), prgb or pubmedqa. `retrieved` is the format of DPR for
        other questions, and `rows` is the format of this package.
    source
        Read the data set from this file: JSON, JSON lines (.gz, .bz2) or .parquet.
    output
        Write to this file: .parquet for verl, JSON lines for all other trainers.
    recipe
        Use the prompt of this recipe. See `rag-rewards recipes`.
    hardened
        Prepare for the hardened profile: check that the prompt requests the section or box with
        the answer, and record the profile in the data card.
    """
    options = PrepareOptions(
        dataset,
        source,
        output,
        recipe,
        trainer,
        progress=shows_progress(),
        columns=columns,
        hardened=hardened,
        **with_line_breaks(vars(prompt)),
        **vars(file),
        **vars(subset),
        **vars(documents),
    )
    result = write_prepared_file(options)
    print_messages(summary(options, result))
    return 3 if result.broken else 0


def summary(options: PrepareOptions, result: PrepareResult) -> list[str]:
    lines = [f"{result.written:,} of {result.read:,} rows of {options.source} → {options.output}"]
    if result.not_sampled:
        lines.append(f"{result.not_sampled:,} not sampled (seed {options.seed})")
    lines += [
        f"{n:,} left out: {reason} (first: {result.examples[reason]})"
        for reason, n in result.dropped.most_common()
    ]
    lines += [
        f"{n:,} written without `supporting`: {reason}"
        for reason, n in result.unsupported.most_common()
    ]
    lines += [
        f"{n:,} written without `{name}`, which {options.recipe} reads: add this field to rows of "
        "this package, and prepare them with the data set `rows`"
        for name, n in result.missing.items()
    ]
    if options.documents_from and result.without_evidence:
        lines.append(
            f"{result.without_evidence:,} with an empty document: the response has no "
            f"{options.documents_from}"
        )
        if result.without_evidence == result.written:
            lines.append(
                "warning: every document is empty; check the name of the section in "
                f"--documents-from {options.documents_from}, and the responses"
            )
    lines.append(f"data card: {options.card}")
    if result.dropped:
        lines.append(f"rows that were left out: {options.dropped}")
    return lines

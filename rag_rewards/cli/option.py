"""Options that several commands share, and the models that a command's options name."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rag_rewards.grading import ModelOptions


def _with_breaks(text: str | None) -> str | None:
    r"""Text as shells take it, with \n for a line break."""
    return None if text is None else text.replace("\\n", "\n")


Recipe = Annotated[
    str | None, typer.Option("--recipe", "-r", help="Which recipe; see `rag-rewards recipes`.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting, dotted and repeatable: --set accuracy.metric=f1"),
]
Config = Annotated[Path | None, typer.Option("--config", help="YAML file with the keys of --set.")]
Hardened = Annotated[
    bool, typer.Option("--hardened", help="The profile under which no known attack pays.")
]
GroupSize = Annotated[int | None, typer.Option("--group-size", help="Every N rows are a group.")]
Sort = Annotated[bool, typer.Option("--sort", help="Bring the rows of a group together first.")]
RightAt = Annotated[
    float, typer.Option("--right-at", help="`correct` from which a response is right.")
]
Progress = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", help="Default: on a terminal.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="As data.")]

Model = Annotated[
    str | None,
    typer.Option("--model", help="Policy for likelihoods: a folder, or a server's URL."),
]
Backend = Annotated[str, typer.Option("--backend", help="transformers, vllm or sglang.")]
Dtype = Annotated[str, typer.Option("--dtype", help="float32, bfloat16, float16.")]
Device = Annotated[
    str | None, typer.Option("--device", help="cpu, cuda, …; default: a GPU if there is one.")
]
Adapter = Annotated[
    str | None, typer.Option("--adapter", help="Folder of a LoRA adapter for --model.")
]
Tokenizer = Annotated[
    str | None, typer.Option("--tokenizer", help="Folder of a server's tokenizer.")
]
TokenBudget = Annotated[
    int | None, typer.Option("--token-budget", help="Tokens in memory at a time.")
]
Truncate = Annotated[
    bool,
    typer.Option("--truncate", help="Too long: leave out documents that do not support."),
]
DocumentForm = Annotated[
    str | None,
    typer.Option(
        "--document-form",
        callback=_with_breaks,
        help="How a document stands in rows' prompts: '{label}. {text}'; \\n is a line break.",
    ),
]
DocumentSeparator = Annotated[
    str | None,
    typer.Option(
        "--document-separator", callback=_with_breaks, help="What stands between two documents."
    ),
]
Nli = Annotated[str | None, typer.Option("--nli", help="Entailment model for citations: a folder.")]
Similarity = Annotated[
    str | None, typer.Option("--similarity", help="Sentence encoder for refusals: a folder.")
]
Judge = Annotated[
    str | None, typer.Option("--judge", help="URL of an OpenAI-compatible API, to /v1.")
]
JudgeModel = Annotated[str | None, typer.Option("--judge-model", help="The judge's name there.")]
JudgeCache = Annotated[str | None, typer.Option("--judge-cache", help="File that keeps verdicts.")]
JudgeRetries = Annotated[
    int, typer.Option("--judge-retries", help="Further attempts of a request that failed.")
]


def models_of(context: typer.Context) -> ModelOptions:
    """The models that the options of a running command name; UsageError when they do not fit.

    A command lists those of the options above that it takes, each as a parameter with the name of
    its field in `ModelOptions`; a field without an option keeps its default.
    """
    from rag_rewards.grading import ModelOptions

    given = context.params
    names = [field.name for field in fields(ModelOptions) if field.name in given]
    return ModelOptions(**{name: given[name] for name in names})

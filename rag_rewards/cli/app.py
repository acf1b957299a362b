"""All commands in one application, in the order of its help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from rag_rewards.cli.audit import audit
from rag_rewards.cli.doctor import doctor
from rag_rewards.cli.evaluate import evaluate
from rag_rewards.cli.explain import explain
from rag_rewards.cli.init import init
from rag_rewards.cli.prepare import prepare
from rag_rewards.cli.probe import probe
from rag_rewards.cli.recipes import recipes
from rag_rewards.cli.replay import replay
from rag_rewards.cli.report import report
from rag_rewards.cli.score import score
from rag_rewards.cli.select import select
from rag_rewards.cli.serve import serve
from rag_rewards.version import __version__

app = typer.Typer(
    name="rag-rewards",
    help="Reward functions for reinforcement learning of retrieval-augmented generators.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

EXAMPLES: dict[Callable[..., None], str | None] = {
    score: "score examples/arena.jsonl -o scored.jsonl --recipe arena",
    recipes: "recipes arena",
    replay: "replay examples/ctrl-rag.jsonl -r ctrl-rag --set threshold=null",
    audit: "audit --recipe arena --hardened",
    evaluate: "evaluate examples/arena.jsonl --metrics em,f1,relevance",
    explain: "explain examples/ctrl-rag.jsonl --id kinshasa-right -r ctrl-rag",
    report: "report scored.jsonl -o report.html",
    serve: "serve --recipe arena --port 8000",
    init: "init verl --recipe arena --policy path/to/model",
    doctor: None,
    prepare: "prepare hotpotqa hotpot_train_v1.1.json -o train.parquet "
    "-r arena --trainer verl --preset arena-train",
    probe: "probe questions.jsonl -o labelled.jsonl -r truthrl "
    "--set verifier=exact --model path/to/model",
    select: "select scored.jsonl -o train.jsonl --pass 0.1:0.875=0.9 --pass 1:1=0.1 --sample 10000",
}
"""Each command, and the example below its help."""

for command, example in EXAMPLES.items():
    app.command(epilog=example and f"Example: rag-rewards {example}")(command)


def _version(value: bool) -> None:
    if value:
        print(f"rag-rewards {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Version, then end.")
    ] = False,
) -> None:
    """Reward functions for reinforcement learning of retrieval-augmented generators."""

"""Score responses to ten real questions with CTRL-RAG, and ten real searches with igpo.

PYTHONPATH=benchmarks python -m language_model.demo

A language model of 135 million weights provides the log-probabilities; model.py makes its folder.
The program runs `rag-rewards score` and `rag-rewards explain` as a user does, prints each command,
and writes a picture of two figures: the evidential contribution E of each response, and the
information gain of each turn.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from language_model import model
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from rag_rewards.errors import UsageError
from rag_rewards.report.terminal import svg, titled_table

HERE = Path(__file__).resolve().parent
KINDS = ("supported", "memory", "wrong", "copied")
"""The responses to each question: right and from the documents, right without them, wrong, and a
copy of a supporting document."""
IN_NATS = ("--set", "gain.kind=log")
"""The gain of igpo in nats, as in the authors' train.sh, and not as a probability."""
FULL = {"ctrl-rag": 25.0, "igpo": 5.0}
"""Nats of a full bar."""
BAR_WIDTH = 6
Rows = list[dict[str, Any]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="Use the model in this folder.")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("build/language-model"),
        help="Write the scored rows and the picture to this folder.",
    )
    options = parser.parse_args()
    try:
        folder = options.model or model.folder()
        demo(folder, options.output, "" if options.model else model.NOTE)
    except UsageError as error:
        Console(stderr=True).print(Text(f"error: {error}"), soft_wrap=True)
        return 2
    return 0


def demo(folder: Path, output: Path, note: str = "") -> Path:
    """Score and explain the rows with the model in a folder, and return the file of the picture."""
    output.mkdir(parents=True, exist_ok=True)
    console = Console()
    responses = score("ctrl-rag", folder, output)
    parts: list[RenderableType] = ["", contribution_table(responses), of_contributions(responses)]
    console.print(*parts, sep="\n", highlight=False)
    explain("ctrl-rag", responses[0]["id"], folder, output)
    rollouts = score("igpo", folder, output, *IN_NATS)
    gains: list[RenderableType] = ["", gain_table(rollouts), of_gains(rollouts)]
    console.print(*gains, sep="\n", highlight=False)
    explain("igpo", rollouts[0]["id"], folder, output, *IN_NATS)
    picture = output / "language-model.svg"
    title = "CTRL-RAG and igpo with a language model"
    parts += [*gains, "", Text(note, style="dim")]
    picture.write_text(svg(*parts[1:], title=title, description=note), "utf-8")
    console.print(Text(f"picture: {picture}"), soft_wrap=True)
    return picture


def score(recipe: str, folder: Path, output: Path, *options: str) -> Rows:
    """Score the rows of a recipe, and return the scored rows."""
    scored = output / f"{recipe}.jsonl"
    rows = os.path.relpath(HERE / scored.name)
    run("score", rows, "-r", recipe, *options, "--model", folder, "--keep-evidence", "-o", scored)
    return [json.loads(line) for line in scored.read_text("utf-8").splitlines()]


def explain(recipe: str, name: str, folder: Path, output: Path, *options: str) -> None:
    """Explain a scored row, which contains the log-probabilities: only the tokenizer is loaded."""
    tokenizer = f"models.tokenizer={folder}"
    rows = output / f"{recipe}.jsonl"
    run("explain", rows, "--id", name, "-r", recipe, *options, "--set", tokenizer)


def run(*arguments: object) -> None:
    """Print and run a command. Raises UsageError if it fails."""
    words = [str(each) for each in arguments]
    print(f"\n$ rag-rewards {shlex.join(words)}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "rag_rewards", *words],
        check=False,
        env=os.environ | {"TRANSFORMERS_VERBOSITY": "error"},
    )
    if done.returncode:
        raise UsageError(f"rag-rewards {words[0]} ended with the exit code {done.returncode}")


def contribution_table(rows: Rows) -> Table:
    """Return the contribution of each response: one line per question, one column per kind."""
    title = "Evidential contribution E of each response, in nats (CTRL-RAG)"
    table = titled_table(title, ["question", *KINDS])
    for group, responses in contributions(rows).items():
        table.add_row(group, *(bar(responses[kind], FULL["ctrl-rag"]) for kind in KINDS))
    return table


def contributions(rows: Rows) -> dict[str, dict[str, float]]:
    """Return the contribution of each kind of response, by question."""
    groups: dict[str, dict[str, float]] = {}
    for row in rows:
        value = row["components"]["evidential_contribution"]
        groups.setdefault(row["group"], {})[row["kind"]] = value
    return groups


def of_contributions(rows: Rows) -> Text:
    """Return what the contributions show, in sentences."""
    groups = contributions(rows).values()
    means = ", ".join(f"{statistics.fmean(g[kind] for g in groups):.1f} {kind}" for kind in KINDS)

    def wins(one: str, other: str) -> str:
        return f"{sum(g[one] > g[other] for g in groups)} of {len(groups)}"

    rewards = {kind: [row["reward"] for row in rows if row["kind"] == kind] for kind in KINDS}
    earned = ", ".join(f"{statistics.fmean(rewards[kind]):.2f} {kind}" for kind in KINDS)
    return Text(
        "E is the log-probability of a response with all documents, minus the lowest one without a "
        f"supporting document. Means: {means}. A supported response has a greater E than one from "
        f"memory for {wins('supported', 'memory')} questions, and than a wrong one for "
        f"{wins('supported', 'wrong')}. A copy of a document has a greater E than the supported "
        f"response for {wins('copied', 'supported')}: copying is a known loophole of the recipe. "
        f"The mean rewards are {earned}. A full bar is {FULL['ctrl-rag']:g} nats or more."
    )


def gain_table(rows: Rows) -> Table:
    """Return the information gain of each turn with a search."""
    searches = max(len(gains_of(row)) for row in rows)
    heads = [f"search {i}" for i in range(1, searches + 1)]
    title = "Information gain of each search, in nats (igpo)"
    table = titled_table(title, ["rollout", "answer", *heads, "sum"])
    for row in rows:
        gains = gains_of(row)
        bars = [bar(gain, FULL["igpo"]) for gain in gains]
        answer = Text("right", "green") if row["correct"] == 1 else Text("wrong", "red")
        blanks = [""] * (searches - len(gains))
        table.add_row(row["id"], answer, *bars, *blanks, f"{sum(gains):+.1f}")
    return table


def gains_of(row: Mapping[str, Any]) -> list[float]:
    """Return the gains of the turns with a search. The last turn is the answer."""
    return [turn["info_gain"] for turn in row["details"]["turns"] if turn["queries"]]


def of_gains(rows: Rows) -> Text:
    """Return what the gains show, in sentences."""

    def positive(selected: Sequence[Mapping[str, Any]]) -> str:
        return f"{sum(sum(gains_of(row)) > 0 for row in selected)} of {len(selected)}"

    right = [row for row in rows if row["correct"] == 1]
    wrong = [row for row in rows if row["correct"] != 1]
    means = [statistics.fmean(sum(gains_of(row)) for row in part) for part in (right, wrong)]
    return Text(
        "The gain of a search is the rise of the log-probability of the gold answer, per token. "
        f"The sum of a rollout is positive for {positive(right)} rollouts with a right answer, and "
        f"for {positive(wrong)} with a wrong one; the means are {means[0]:+.1f} and "
        f"{means[1]:+.1f}. A full bar is {FULL['igpo']:g} nats or more."
    )


def bar(value: float, full: float) -> Text:
    """Return a colored bar of the size of a number, and the number."""
    length = min(BAR_WIDTH, round(abs(value) / full * BAR_WIDTH))
    color = "green" if value > 0 else "red"
    rest = ("·" * (BAR_WIDTH - length), "dim")
    return Text.assemble(("█" * length, color), rest, f" {value:+.1f}", no_wrap=True)


if __name__ == "__main__":
    sys.exit(main())

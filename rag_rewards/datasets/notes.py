"""The card of a selection: its input, the counts of each step, and how to reproduce it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rag_rewards.datasets.card import sha256
from rag_rewards.errors import UsageError
from rag_rewards.io.sinks import partial_of
from rag_rewards.signature import Signature


def refuse_overwriting(output: str, made: Iterable[str], given: Iterable[str]) -> None:
    """Raise UsageError unless the output is a regular file and no input would be overwritten.

    `made` are the other files that the command writes, and `given` are its inputs.
    """
    partial = partial_of(output)
    if partial is None or Path(output).is_dir():
        raise UsageError(
            f"{output} is not a regular file: choose one, because a card is written beside it"
        )
    outputs = [Path(path) for path in (output, str(partial), *made)]
    for path in map(Path, given):
        if path.exists() and any(other.exists() and other.samefile(path) for other in outputs):
            raise UsageError(f"{path} would be overwritten: choose another -o")


def write_card(
    command: str,
    source: str,
    output: str,
    options: Mapping[str, Any],
    facts: Mapping[str, Any],
    lines: Iterable[str],
) -> str:
    """Write `OUTPUT.card.md`, the facts as YAML and the counts as a list, and return its path.

    The card contains neither time nor place, so that equal runs write equal cards.
    """
    import yaml

    origin = {"file": Path(source).name, "sha256": sha256(source)} if source != "-" else "-"
    settings = {
        name: value for name, value in options.items() if value not in (None, False, (), [])
    }
    head = {
        "input": origin,
        "output": {"file": Path(output).name, "sha256": sha256(output)},
        "signature": str(Signature(recipe=command, settings=settings)),
        **facts,
    }
    facts_yaml = yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=100)
    body = "".join(f"- {line}\n" for line in lines)
    path = f"{output}.card.md"
    title = f"# {Path(output).name}, written by `rag-rewards {command}`"
    Path(path).write_text(f"---\n{facts_yaml}---\n\n{title}\n\n{body}", "utf-8")
    return path

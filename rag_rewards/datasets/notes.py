"""The card beside a selection: what went in, what each step left, how to make it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rag_rewards.datasets.card import sha256
from rag_rewards.errors import UsageError
from rag_rewards.version import __version__
from rag_rewards.writing import partial_of


def refuse_overwriting(output: str, made: Iterable[str], given: Iterable[str]) -> None:
    """UsageError unless the output is a regular file, and no input among those that are made."""
    partial = partial_of(output)
    if partial is None or Path(output).is_dir():
        raise UsageError(f"{output} is no regular file; a card stands beside it")
    paths = [Path(path) for path in (output, str(partial), *made)]
    for path in map(Path, given):
        if path.exists() and any(each.exists() and each.samefile(path) for each in paths):
            raise UsageError(f"{path} would be overwritten: give another -o")


def write_card(
    command: str,
    source: str,
    output: str,
    options: Mapping[str, Any],
    facts: Mapping[str, Any],
    lines: Iterable[str],
) -> str:
    """Write `OUTPUT.card.md`: the facts as YAML, and what was counted.

    Nothing of when and where: equal runs make equal cards.
    """
    import yaml

    given = {"file": Path(source).name, "sha256": sha256(source)} if source != "-" else "-"
    asked = {name: value for name, value in options.items() if value not in (None, False, (), [])}
    signature = msgspec.json.encode(asked).decode()
    head = {
        "input": given,
        "output": {"file": Path(output).name, "sha256": sha256(output)},
        "signature": f"rag-rewards {__version__} {command} {signature}",
        **facts,
    }
    said = yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=100)
    body = "".join(f"- {line}\n" for line in lines)
    path = f"{output}.card.md"
    title = f"# {Path(output).name}, made by `rag-rewards {command}`"
    Path(path).write_text(f"---\n{said}---\n\n{title}\n\n{body}", "utf-8")
    return path

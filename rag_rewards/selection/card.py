"""The card that `probe` and `select` write: the input, the counts, and how to reproduce them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rag_rewards.files.output import write_whole
from rag_rewards.files.storage import input_files
from rag_rewards.files.version import sha256
from rag_rewards.signature import Signature


def write_card(
    command: str,
    source: str,
    output: str,
    options: Mapping[str, Any],
    facts: Mapping[str, Any],
    lines: Iterable[str],
) -> str:
    """Write `OUTPUT.card.md` with the facts as YAML and the lines as a list, and return its path.

    The card contains no time and no folder, so that equal runs write equal cards.
    """
    import yaml

    settings = {
        name: value for name, value in options.items() if value not in (None, False, (), [])
    }
    head = {
        "input": _input(source),
        "output": _file(output),
        "signature": str(Signature(recipe=command, settings=settings)),
        **facts,
    }
    facts_yaml = yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=100)
    body = "".join(f"- {line}\n" for line in lines)
    path = f"{output}.card.md"
    title = f"# {Path(output).name}, written by `rag-rewards {command}`"
    write_whole(path, f"---\n{facts_yaml}---\n\n{title}\n\n{body}".encode())
    return path


def _input(source: str) -> Any:
    """Return the file of the input, or the list of files of a folder or a pattern."""
    if source == "-":
        return source
    files = input_files(source)
    return _file(source) if files is None else [_file(path) for path in files]


def _file(path: str) -> dict[str, str]:
    return {"file": Path(path).name, "sha256": sha256(path)}

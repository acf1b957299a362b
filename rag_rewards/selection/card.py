"""The card that `probe` and `select` write: the input, the counts, and how to reproduce them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rag_rewards.io.digest import sha256
from rag_rewards.io.output import write_whole
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
    write_whole(path, f"---\n{facts_yaml}---\n\n{title}\n\n{body}".encode())
    return path

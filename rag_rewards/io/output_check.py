"""Check the output of a command that writes a card beside it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rag_rewards.errors import OptionError
from rag_rewards.io.output import partial_of


def refuse_overwriting(output: str, others: Iterable[str], inputs: Iterable[str]) -> None:
    """Raise OptionError unless the output is a regular file and no input would be overwritten.

    `others` are the further files that the command writes.
    """
    partial = partial_of(output)
    if partial is None or Path(output).is_dir():
        raise OptionError(
            "{output} {path} is not a regular file: choose one, because a card is written beside "
            "it",
            path=output,
        )
    outputs = [Path(path) for path in (output, str(partial), *others)]
    for path in map(Path, inputs):
        if path.exists() and any(other.exists() and other.samefile(path) for other in outputs):
            raise OptionError("{path} would be overwritten: choose another {output}", path=path)

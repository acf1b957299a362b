"""verifiers: the rows of a data file as the data of tasks. It imports verifiers.

`rag-rewards prepare -t verifiers` writes such a file: one JSON object per line, with `prompt` and
the fields of a row. `rag-rewards init verifiers` writes a taskset that reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf
from pydantic import ConfigDict

from rag_rewards.errors import DataError


class RagData(vf.TaskData):  # type: ignore[misc]
    """The data of a task: a prompt, and the fields of a row (`answers`, `documents`, …)."""

    model_config = ConfigDict(frozen=True, extra="allow")


def read_data(path: Path | str) -> Iterator[RagData]:
    """Yield the data of each row of a JSONL file. Raises DataError for a row without a prompt."""
    with Path(path).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(f"line {number} of {path}: {error}") from None
            if not isinstance(row, dict) or not row.get("prompt"):
                raise DataError(
                    f"line {number} of {path}: missing: write the file with "
                    "`rag-rewards prepare -t verifiers`",
                    "prompt",
                )
            fields = {name: value for name, value in row.items() if value is not None}
            if "id" in fields:
                fields["id"] = str(fields["id"])
            yield RagData(**fields)

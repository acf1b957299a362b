"""The first row in error of a chunk, at which a run can stop."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from rag_rewards.rows.chunks import ScoredChunk, Totals
from rag_rewards.rows.encoding import ErrorRecord


def rows_before_error(chunk: ScoredChunk) -> ScoredChunk:
    """Return the scored rows before the first row in error. Their totals are only their number.

    Without rows if the rows are not in the order of their lines.
    """
    first = min(chunk.error_numbers)
    rows = bisect_left(chunk.numbers, first) if chunk.numbers == sorted(chunk.numbers) else 0
    numbers, ends = chunk.numbers[:rows], chunk.ends[:rows]
    output = chunk.output[: max(ends, default=0)]
    return ScoredChunk(output=output, numbers=numbers, ends=ends, totals=Totals(rows=rows))


def describe_first_error(chunk: ScoredChunk) -> str:
    """Return the first error of a chunk as one line of text."""
    record = msgspec.json.decode(chunk.errors[0], type=ErrorRecord)
    error = record.error
    path = f"{error['path']}: " if error["path"] else ""
    name = f" (id {record.id})" if record.id and record.id != str(record.line) else ""
    return f"line {record.line}{name}: {error['type']}: {path}{error['message']}"

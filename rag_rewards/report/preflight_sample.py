"""A sample of the prompts of a file, each with all of its rollouts."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from rag_rewards.rows import Chunk, Line, ScoredRow, decode_line, line_key
from rag_rewards.rows.line_groups import NO_KEY, key_digest

_ROW = msgspec.json.Decoder(ScoredRow)
GROUP_ROWS = 64
"""Rows of a group that a sample contains."""


@dataclass
class SampledGroup:
    """The rows of a prompt.

    key         its group or question, "" for a row with neither
    rows        number of its rows in the file, of which `lines` are the first ones
    last        position of its last row
    is_divided  whether rows of other groups are between its rows
    """

    key: str
    lines: list[Line] = field(default_factory=list)
    rows: int = 0
    last: int = 0
    is_divided: bool = False

    def add(self, line: Line, position: int) -> None:
        """Add the row at a position of the file."""
        self.is_divided |= bool(self.rows) and position != self.last + 1
        self.last = position
        self.rows += 1
        if len(self.lines) < GROUP_ROWS:
            self.lines.append(line)

    @property
    def decoded(self) -> Iterator[ScoredRow]:
        """The rows that can be decoded."""
        rows = (decode_line(line, _ROW) for _, line in self.lines)
        return (row for row in rows if isinstance(row, ScoredRow))


@dataclass
class Sample:
    """Groups in the order of the file. `rows` is the number of rows of the whole file."""

    groups: list[SampledGroup]
    rows: int

    @property
    def decoded(self) -> Iterator[ScoredRow]:
        """The rows that can be decoded."""
        return (row for group in self.groups for row in group.decoded)


def chunk_of(groups: Sequence[SampledGroup], *, compares: bool) -> Chunk:
    """Return groups as a chunk. If the recipe `compares` rows, rows without a key are in error."""
    lines = [line for group in groups for line in group.lines]
    return Chunk(
        lines=[line for _, line in lines],
        numbers=[number for number, _ in lines],
        sizes=[len(group.lines) for group in groups],
        problems=[NO_KEY if compares and not group.key else "" for group in groups],
    )


def sample_groups(lines: Iterable[Line], limit: int, size: int | None = None) -> Sample:
    """Return at most `limit` groups of a file, chosen at random, with all of their rows.

    Rows with equal keys form a group, wherever they are; with `size`, every `size` rows do. The
    groups with the smallest digests of their keys are chosen, so that equal files give equal
    samples, and memory does not depend on the length of the file.

    >>> rows = [(i, b'{"group": "%d"}' % (i % 9)) for i in range(1, 19)]
    >>> sample = sample_groups(rows, 2)
    >>> sample.rows, [group.rows for group in sample.groups]
    (18, [2, 2])
    """
    groups: dict[int, SampledGroup] = {}
    largest: list[int] = []
    rows = 0
    for rows, line in enumerate(lines, start=1):
        key = line_key(line[1]) if size is None else str((rows - 1) // size)
        digest = int.from_bytes(key_digest(f"\0{rows}" if key is None else key), "big")
        if digest not in groups:
            if len(groups) >= limit:
                if digest > -largest[0]:
                    continue
                del groups[-heapq.heappop(largest)]
            heapq.heappush(largest, -digest)
            groups[digest] = SampledGroup(key or "")
        groups[digest].add(line, rows)
    return Sample(sorted(groups.values(), key=lambda group: group.lines[0][0]), rows)

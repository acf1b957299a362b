"""The order of the lines of an input, for rows that were scored group after group."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec


class _Error(msgspec.Struct):
    line: int


_ERROR = msgspec.json.Decoder(_Error)


def write_in_order(
    sources: tuple[Path, Path], numbers: Path, targets: tuple[IO[bytes], IO[bytes]]
) -> None:
    """Write scored rows and error records in the order of their lines.

    sources  files of the rows and of the errors
    numbers  file with the line number of each row of the input, as 8 bytes
    targets  where the rows and the errors are written

    Memory holds a few bytes for each row.
    """
    with (
        sources[0].open("rb") as rows,
        sources[1].open("rb") as errors,
        numbers.open("rb") as handle,
    ):
        of_errors = array("q", (_ERROR.decode(line).line for line in errors))
        of_all = array("q")
        of_all.frombytes(handle.read())
        is_error = bytearray(max(of_all, default=0) + 1)
        for number in of_errors:
            is_error[number] = 1
        of_rows = array("q", (number for number in of_all if not is_error[number]))
        targets[0].writelines(_in_order(rows, of_rows))
        targets[1].writelines(_in_order(errors, of_errors))


def _in_order(handle: IO[bytes], numbers: Sequence[int]) -> Iterator[bytes]:
    """Yield the lines of a file in the order of their numbers."""
    handle.seek(0)
    starts, position = array("q"), 0
    for line in handle:
        starts.append(position)
        position += len(line)
    for i in sorted(range(len(starts)), key=numbers.__getitem__):
        handle.seek(starts[i])
        yield handle.readline()

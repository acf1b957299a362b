"""Copies of inputs that only one reader can read, as JSON lines that shards can divide.

Standard input, compressed files and files whose groups are sorted have no rows at known positions.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rag_rewards.errors import UsageError
from rag_rewards.files.grouped_lines import sort_groups
from rag_rewards.files.lines import with_blank_lines
from rag_rewards.files.sources import Source
from rag_rewards.rows import Line
from rag_rewards.scoring.input_files import InputFile

Fingerprint = tuple[int, int]
"""The number of rows of an input, and the sum of their checksums, by which standard input is
compared. It does not depend on the order of the rows."""
NO_ROWS = (0, 0)


class Spool(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of an input.

    file         the copy
    numbers      file with the line number of each row in 8 bytes; None if the lines of the copy
                 have the numbers of the input
    fingerprint  the fingerprint of the input
    error        the error that ended the input before its end
    """

    file: InputFile
    numbers: str | None
    fingerprint: Fingerprint
    error: UsageError | None


def spool(source: Source, folder: Path, *, sort: bool) -> Spool:
    """Copy the rows of a source to a file in a folder. With `sort`, group after group.

    Without `sort`, blank lines keep the numbers of the lines, and an error of the source becomes
    that of the copy.
    """
    fingerprint, error, numbers = NO_ROWS, None, array("q")

    def copied_lines() -> Iterator[Line]:
        nonlocal fingerprint
        for number, line in sort_groups(source) if sort else source.lines:
            fingerprint = _added(fingerprint, number, line)
            if sort:
                numbers.append(number)
            yield len(numbers) if sort else number, line

    with open(folder / "input.jsonl", "wb") as handle:
        try:
            handle.writelines(with_blank_lines(copied_lines()))
        except UsageError as fault:
            if sort:
                raise
            error = fault
    if sort:
        with open(folder / "input.numbers", "wb") as handle:
            numbers.tofile(handle)
    return Spool(
        file=InputFile.of(str(folder / "input.jsonl")),
        numbers=str(folder / "input.numbers") if sort else None,
        fingerprint=fingerprint,
        error=error,
    )


def fingerprint_of(lines: Iterator[Line]) -> Fingerprint:
    """Read all rows, and return their fingerprint."""
    fingerprint = NO_ROWS
    for number, line in lines:
        fingerprint = _added(fingerprint, number, line)
    return fingerprint


def _added(fingerprint: Fingerprint, number: int, line: bytes) -> Fingerprint:
    rows, checksum = fingerprint
    return rows + 1, (checksum + zlib.crc32(line, number & 0xFFFFFFFF)) & 0xFFFFFFFF

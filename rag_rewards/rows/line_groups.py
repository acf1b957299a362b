"""Groups of the lines of a file: by their keys, or by their number."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from rag_rewards.errors import UsageError, shorten
from rag_rewards.rows.decoding import Line, is_object, line_key

if TYPE_CHECKING:
    import sqlite3

MAX_GROUP_ROWS, MAX_GROUP_BYTES = 4096, 1 << 24
"""The greatest group that is kept together for a reward that scores single rollouts."""
NO_KEY = "the row has neither `group` nor `question`: add one of them, or set the group size"


@dataclass
class LineGroup:
    """The lines of a group, and the reason why it cannot be scored, or ""."""

    lines: list[Line]
    problem: str = ""


def line_groups_by_key(
    lines: Iterable[Line], keys: set[bytes] | None = None, earlier: Container[bytes] = ()
) -> Iterator[LineGroup]:
    """Yield the groups of adjacent lines with one key.

    A group has a problem if its key also occurs in an earlier group, and if it is next to a line
    whose key cannot be read, because this line can belong to it. `earlier` are the digests of the
    keys of groups before the first line. The digests of all other keys are added to `keys`.
    """
    digests = KeyDigests() if keys is None else keys
    group = LineGroup([])
    key: str | None = None
    uncertainty = ""
    for number, line in lines:
        own = line_key(line)
        if own is None and is_object(line):
            if group.lines:
                yield group
            yield LineGroup([(number, line)], NO_KEY)
            group, key, uncertainty = LineGroup([]), None, ""
            continue
        if own is None:
            uncertainty = f"line {number} cannot be decoded and may belong to this group"
            if group.lines:
                group.lines.append((number, line))
            else:
                yield LineGroup([(number, line)], uncertainty)
            continue
        if not group.lines or own != key:
            if group.lines:
                yield group
            group, key = LineGroup([], uncertainty), own
            digest = key_digest(own)
            if digest in digests or digest in earlier:
                group.problem = (
                    f"the rows of group {shorten(own, 60)!r} are not adjacent: sort the file by "
                    "group, or use the option `sort`"
                )
            else:
                digests.add(digest)
        uncertainty = ""
        group.lines.append((number, line))
    if group.lines:
        yield group


def is_group_start(previous: bytes, line: bytes) -> bool:
    """Return whether a group starts at a line, whichever lines are before the `previous` one.

    Division of a file before such a line does not change its groups by key.

    >>> is_group_start(b'{"group": "a"}', b'{"group": "b"}'), is_group_start(b"{", b"{")
    (True, False)
    """
    before, own = line_key(previous), line_key(line)
    if before is None:
        return is_object(previous)
    return is_object(line) if own is None else own != before


def line_groups_by_size(lines: Iterable[Line], size: int) -> Iterator[LineGroup]:
    """Yield groups of `size` lines.

    A group has a problem if its keys differ, or if it is incomplete.
    """
    group: list[Line] = []
    for line in lines:
        group.append(line)
        if len(group) == size:
            yield LineGroup(group, _key_conflict(group))
            group = []
    if group:
        yield LineGroup(group, f"the last group is incomplete: {len(group)} of {size} rollouts")


class KeyDigests:
    """A set of key digests, whose memory does not depend on their number.

    The last digests, at most `IN_MEMORY`, are in memory. All earlier ones are in a temporary file,
    which the operating system removes with the process. Raises UsageError if the file cannot be
    written.
    """

    IN_MEMORY = 1 << 16

    def __init__(self, digests: Iterable[bytes] = ()) -> None:
        self._recent: set[bytes] = set()
        self._base: sqlite3.Connection | None = None
        self.update(digests)

    def __contains__(self, digest: object) -> bool:
        if digest in self._recent or self._base is None:
            return digest in self._recent
        row = self._base.execute("SELECT 1 FROM digests WHERE digest = ?", (digest,)).fetchone()
        return row is not None

    def add(self, digest: bytes) -> None:
        self._recent.add(digest)
        if len(self._recent) >= self.IN_MEMORY:
            self._store()

    def update(self, digests: Iterable[bytes]) -> None:
        for digest in digests:
            self.add(digest)

    def _store(self) -> None:
        """Move the digests to the file. Sorted insertions touch few pages."""
        import sqlite3  # most runs have fewer groups

        try:
            if self._base is None:
                # A database without a name is a temporary file.
                self._base = sqlite3.connect("", isolation_level=None, check_same_thread=False)
                weakref.finalize(self, self._base.close)
                self._base.execute("PRAGMA journal_mode = OFF")
                self._base.execute("PRAGMA cache_size = -8192")  # KiB
                self._base.execute("CREATE TABLE digests (digest BLOB PRIMARY KEY) WITHOUT ROWID")
                self._base.execute("BEGIN")
            insert = "INSERT OR IGNORE INTO digests VALUES (?)"
            self._base.executemany(insert, ((digest,) for digest in sorted(self._recent)))
        except sqlite3.Error as error:
            raise UsageError(
                f"cannot write the keys of the groups to a temporary file in "
                f"{tempfile.gettempdir()} ({error}): set TMPDIR to a folder with more space"
            ) from None
        self._recent.clear()


def key_digest(key: str) -> bytes:
    """Return a short digest of a key, so that many keys need little memory."""
    return blake2b(key.encode("utf-8", "replace"), digest_size=8).digest()


def _key_conflict(lines: list[Line]) -> str:
    keys = {key for _, line in lines if (key := line_key(line)) is not None}
    if len(keys) < 2:
        return ""
    first, second = (shorten(key, 60) for key in sorted(keys)[:2])
    return f"the rows of the group have different keys: {first!r} and {second!r}"

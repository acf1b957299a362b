"""Groups: the rollouts of one prompt, which are compared with each other.

A group of a batch is a sequence of positions, and a group of a file is a sequence of lines. If a
reward compares rollouts, an error of one member is an error of all members (`fail_groups`). For
every reward, the failure of a model or server is an error of all members (`fail_groups_of_models`):
the rollouts that need no model would otherwise be compared without the others.
"""

from __future__ import annotations

import tempfile
import weakref
from collections import Counter
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

from rag_rewards.errors import BackendError, GroupError, RolloutError, UsageError, shorten
from rag_rewards.rollout import Rollout, with_row_id
from rag_rewards.rows import Line, is_object, line_key

if TYPE_CHECKING:
    import sqlite3

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

Groups = Sequence[Sequence[int]]
"""The positions of the members of each group."""


def positions_by_key(keys: Iterable[K]) -> dict[K, list[int]]:
    """Return the positions of each key, in order of first appearance.

    >>> positions_by_key("aba")
    {'a': [0, 2], 'b': [1]}
    """
    positions: dict[K, list[int]] = {}
    for position, key in enumerate(keys):
        positions.setdefault(key, []).append(position)
    return positions


def group_by_key(rows: Iterable[Rollout | RolloutError]) -> list[list[int]]:
    """Return the groups of a batch: rollouts with equal keys, in order of first appearance.

    A rollout without a key, or a row that cannot be decoded, forms a group by itself.

    >>> rows = [Rollout(response="a", group="g"), Rollout(response="b"),
    ...         Rollout(response="c", group="g")]
    >>> group_by_key(rows)
    [[0, 2], [1]]
    """
    keys: Iterable[str | int] = (
        position if isinstance(row, RolloutError) or row.key is None else row.key
        for position, row in enumerate(rows)
    )
    return list(positions_by_key(keys).values())


def group_by_position(count: int, size: int) -> list[range]:
    """Return groups of `size` consecutive positions.

    Raises GroupError if `count` is not a multiple of `size`.

    >>> group_by_position(4, 2)
    [range(0, 2), range(2, 4)]
    """
    if count % size:
        raise GroupError(
            f"the number of rollouts ({count}) is not a multiple of the group size ({size}): "
            "complete the groups, or set another group size"
        )
    return [range(start, start + size) for start in range(0, count, size)]


def singletons(count: int) -> list[range]:
    """Return one group for each position, for a reward that compares no rollouts."""
    return [range(position, position + 1) for position in range(count)]


def check_groups(groups: Groups, count: int) -> None:
    """Raise UsageError unless each position of a batch of `count` rollouts is in one group.

    >>> check_groups([[0, 2], [1]], 3)
    """
    places: Counter[int] = Counter(position for group in groups for position in group)
    expected = dict.fromkeys(range(count))
    if places.total() == count and places.keys() == expected.keys():
        return
    outside = [position for position in places if position not in expected]
    repeated = [position for position, times in places.items() if times > 1]
    if outside:
        fault = f"position {outside[0]!r} is not in the batch of {count} rollouts"
    elif repeated:
        fault = f"position {repeated[0]} is in a group more than once, or in several groups"
    else:
        fault = f"position {next(i for i in expected if i not in places)} is in no group"
    raise UsageError(f"groups: {fault}: put each position from 0 to {count - 1} into one group")


def renumber(groups: Groups, positions: Iterable[int]) -> list[list[int]]:
    """Return the groups after a selection of the rollouts at some positions.

    Members outside the selection are removed, and so are groups without other members.

    >>> renumber([[0, 1], [2]], [1, 2])
    [[0], [1]]
    """
    new = {old: position for position, old in enumerate(positions)}
    renumbered = ([new[i] for i in group if i in new] for group in groups)
    return [group for group in renumbered if group]


def group_error(cause: RolloutError) -> GroupError:
    """Return the error of a rollout whose group contains a row in error.

    >>> str(group_error(RolloutError("missing", "answers")))
    'the group contains a row in error (answers: missing)'
    """
    return GroupError(f"the group contains a row in error ({cause})")


def fail_groups(
    results: Sequence[T | RolloutError], groups: Groups, rollouts: Sequence[Any] = ()
) -> list[T | RolloutError]:
    """Return the results, with a GroupError for each member of a group that contains an error.

    A member with an error of its own keeps it. The new errors contain the ids of `rollouts`.
    """
    failed = list(results)
    for group in groups:
        cause = first_error(results[i] for i in group)
        if cause is None:
            continue
        for i in group:
            if not isinstance(results[i], RolloutError):
                error = group_error(cause)
                failed[i] = with_row_id(error, rollouts[i]) if rollouts else error
    return failed


def fail_groups_of_models(
    results: Sequence[T | RolloutError], groups: Groups | None, rollouts: Sequence[Any]
) -> list[T | RolloutError]:
    """Return the results, with a GroupError for each member of a group with a BackendError.

    Other errors concern only their own rollout. Without `groups`, rollouts with equal keys form a
    group.

    >>> down = BackendError("no connection", "verdicts.outcome")
    >>> print(fail_groups_of_models([down, 1.0], [[0, 1]], [Rollout(response="")] * 2)[1])
    a model or server failed on the group (verdicts.outcome: no connection)
    """
    failed = list(results)
    if not any(isinstance(result, BackendError) for result in results):
        return failed
    for group in group_by_key(rollouts) if groups is None else groups:
        causes = (result for i in group if isinstance(result := results[i], BackendError))
        if (cause := next(causes, None)) is None:
            continue
        for i in group:
            if not isinstance(results[i], RolloutError):
                error = GroupError(f"a model or server failed on the group ({cause})")
                failed[i] = with_row_id(error, rollouts[i])
    return failed


def first_error(results: Iterable[object]) -> RolloutError | None:
    """Return the first error among the results of a group, or None."""
    return next((result for result in results if isinstance(result, RolloutError)), None)


def raise_errors(results: Iterable[T | RolloutError]) -> list[T]:
    """Return the results. Raises the first error among them."""
    values: list[Any] = list(results)
    if any(issubclass(kind, RolloutError) for kind in set(map(type, values))):
        raise next(value for value in values if isinstance(value, RolloutError))
    return values


# --- groups of lines ---------------------------------------------------------------------------

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
    _BITS = 1 << 26
    """Size of a bitmap, in which a digest without its bit is not in the file."""

    def __init__(self, digests: Iterable[bytes] = ()) -> None:
        self._recent: set[bytes] = set()
        self._base: sqlite3.Connection | None = None
        self._bitmap = bytearray()
        self.update(digests)

    def __contains__(self, digest: object) -> bool:
        if digest in self._recent or self._base is None or not isinstance(digest, bytes):
            return digest in self._recent
        bit = int.from_bytes(digest, "big") % self._BITS
        if not self._bitmap[bit >> 3] & 1 << (bit & 7):
            return False
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
                self._bitmap = bytearray(self._BITS // 8)
            insert = "INSERT OR IGNORE INTO digests VALUES (?)"
            self._base.executemany(insert, ((digest,) for digest in sorted(self._recent)))
        except sqlite3.Error as error:
            raise UsageError(
                f"cannot write the keys of the groups to a temporary file in "
                f"{tempfile.gettempdir()} ({error}): set TMPDIR to a folder with more space"
            ) from None
        for digest in self._recent:
            bit = int.from_bytes(digest, "big") % self._BITS
            self._bitmap[bit >> 3] |= 1 << (bit & 7)
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

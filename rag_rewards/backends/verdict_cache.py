"""Verdicts on disk, so that no verdict is paid for twice.

Plain SQLite: one file, read in batches, shared by any number of processes on one machine, whole
after a kill at any moment (write-ahead log). An entry is a small JSON object, decoded by type.
diskcache was considered: it looks entries up one by one, and where a row of the file says so, its
JSON store too goes through `pickle.load` (the code of whoever can write the file).

Keep the file on a local disk: network file systems do not support the log. A fault of the cache
costs a repeated question, never a verdict.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import msgspec

from rag_rewards.errors import UsageError

_T = TypeVar("_T")
_BUSY_S = 1.0
"""Seconds to wait for another process's write, which takes under a millisecond."""
_BATCH = 500  # keys in one statement; SQLite before 3.32 takes 999
_TEXT = 2000
_TABLE = """
CREATE TABLE IF NOT EXISTS verdicts (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, entry BLOB NOT NULL
)
"""


class Entry(msgspec.Struct, frozen=True):
    """A verdict, the tokens it cost, and the (beginning of the) output that it was read from."""

    verdict: Literal[0, 1]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    text: str = ""


def cache_key(**content: Any) -> bytes:
    """16 bytes that stand for everything that decides a verdict: any JSON values, by name.

    >>> cache_key(model="m", vote=0) == cache_key(vote=0, model="m") != cache_key(vote=1, model="m")
    True
    """
    canonical = msgspec.json.encode(content, order="sorted")
    return blake2b(canonical, digest_size=16, person=b"rag-rewards").digest()


@dataclass(frozen=True)
class VerdictCache:
    """A file of verdicts. Nothing is open between uses, so it may be shared, copied and forked.

    `max_entries`: the oldest go when there are more; None keeps all. An entry takes about 0.4 kB.
    Raises UsageError where the file cannot be opened or is no SQLite file.
    """

    path: str | Path
    max_entries: int | None = 1_000_000

    def __post_init__(self) -> None:
        if self.max_entries is not None and self.max_entries < 1:
            raise UsageError(f"max_entries is 1 or more, not {self.max_entries}")
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            self.open().close()
        except (sqlite3.Error, OSError) as error:
            if "locked" in str(error):  # by another process, for now
                return
            raise UsageError(f"{self.path} cannot hold verdicts: {error}") from error

    def open(self) -> Verdicts:
        """A connection, for the thread that opens it. Raises sqlite3.Error."""
        return Verdicts(str(self.path), self.max_entries)


class Verdicts:
    """An open cache; a context manager. Its methods raise sqlite3.Error."""

    def __init__(self, path: str, max_entries: int | None) -> None:
        self.damaged = 0
        """Entries read so far that do not decode. They count as missing, and can be replaced."""
        self._max_entries = max_entries
        # Autocommit: transactions are begun explicitly.
        self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        try:
            self._connection.text_factory = bytes  # broken UTF-8 is one broken entry, no more
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute(_TABLE)
        except BaseException:
            self._connection.close()
            raise

    def get(self, keys: Iterable[bytes]) -> Iterator[tuple[bytes, Entry]]:
        """Yield the keys that the file has, with their entries."""
        distinct = list(dict.fromkeys(keys))
        for start in range(0, len(distinct), _BATCH):
            for key, value in self._rows(distinct[start : start + _BATCH]):
                entry = _decode(value)
                if entry is None:
                    self.damaged += 1
                else:
                    yield key, entry

    def _rows(self, keys: list[bytes]) -> list[tuple[bytes, object]]:
        marks = ",".join("?" * len(keys))
        query = f"SELECT key, entry FROM verdicts WHERE key IN ({marks})"  # noqa: S608 (marks alone)
        return self._connection.execute(query, keys).fetchall()

    def put(self, entries: Mapping[bytes, Entry]) -> None:
        """Write entries in one transaction; other processes see them at once."""
        rows = [(key, _encode(entry)) for key, entry in entries.items()]
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany(
                "INSERT OR REPLACE INTO verdicts (key, entry) VALUES (?, ?)", rows
            )
            self._prune()
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    def _prune(self) -> None:
        """Ids only grow, so the newest n entries are within the last n ids."""
        if self._max_entries is not None:
            self._connection.execute(
                "DELETE FROM verdicts WHERE id <= (SELECT max(id) FROM verdicts) - ?",
                (self._max_entries,),
            )

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()

    def __enter__(self) -> Verdicts:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@dataclass
class Faults:
    """Verdicts that a cache could not provide or keep, and why."""

    unread: int = 0
    unwritten: int = 0
    damaged: int = 0
    reason: str = ""

    @property
    def total(self) -> int:
        return self.unread + self.unwritten + self.damaged


class BackgroundCache:
    """A cache behind a thread of its own: an event loop never waits for the file.

    Nothing that goes wrong with the file is raised. A verdict that cannot be read is missing, and
    one that cannot be written is tried again with the next one and at the end; `faults` counts
    both. Reading, and the end, take a few seconds at most while another process locks the file.
    """

    def __init__(self, cache: VerdictCache) -> None:
        self.faults = Faults()
        self._cache = cache
        self._thread = ThreadPoolExecutor(1, "verdict-cache")
        self._store: Verdicts | None = None  # used by the thread alone
        self._lock = threading.Lock()  # guards the two below
        self._unwritten: dict[bytes, Entry] = {}
        self._scheduled = False

    async def get(self, keys: Iterable[bytes]) -> dict[bytes, Entry]:
        """Return the entries that can be read."""
        return await self._in_thread(lambda: self._get(list(dict.fromkeys(keys))))

    def put(self, key: bytes, entry: Entry) -> None:
        """Write an entry soon, without waiting for it."""
        with self._lock:
            self._unwritten[key] = entry
            if not self._scheduled:
                self._scheduled = True
                self._thread.submit(self._write)

    async def close(self) -> None:
        """Write what is not written yet and close the file."""
        try:
            await self._in_thread(self._close)
        finally:
            self._thread.shutdown(wait=False)

    def _in_thread(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> Verdicts:
        if self._store is None:
            self._store = self._cache.open()
        return self._store

    def _get(self, keys: list[bytes]) -> dict[bytes, Entry]:
        entries: dict[bytes, Entry] = {}
        try:
            for key, entry in self._open().get(keys):
                entries[key] = entry
        except sqlite3.Error as error:
            self.faults.unread += len(keys) - len(entries)
            self.faults.reason = str(error)
        return entries

    def _write(self) -> None:
        with self._lock:
            self._scheduled = False
            entries = dict(self._unwritten)
        if not entries:
            return
        try:
            self._open().put(entries)
        except sqlite3.Error as error:
            self.faults.reason = str(error)
            return
        with self._lock:
            for key in entries:
                self._unwritten.pop(key, None)

    def _close(self) -> None:
        self._write()
        self.faults.unwritten += len(self._unwritten)
        if self._store is not None:
            self.faults.damaged += self._store.damaged
            self._store.close()


_decoder = msgspec.json.Decoder(Entry)


def _encode(entry: Entry) -> bytes:
    if len(entry.text) > _TEXT:
        entry = msgspec.structs.replace(entry, text=entry.text[:_TEXT])
    return msgspec.json.encode(entry)


def _decode(value: object) -> Entry | None:
    try:
        return _decoder.decode(value) if isinstance(value, bytes) else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None

"""A cache of verdicts on disk, so that no request is paid for twice.

The cache is an SQLite file. It is read in batches, several processes on one machine can share it,
and its write-ahead log keeps it consistent when a process is killed. An entry is a small JSON
object. diskcache is not used, because it reads entries one by one, and because even its JSON store
can call `pickle.load`, which executes code from the file.

The file must be on a local disk: network file systems do not support the log. A fault of the cache
causes a repeated request, but never a wrong or missing verdict.
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
from typing import Annotated, Any, TypeVar

import msgspec

from rag_rewards.errors import UsageError

_T = TypeVar("_T")
_BUSY_S = 1.0
"""Seconds to wait for a write of another process, which takes less than a millisecond."""
_BATCH = 500
"""Number of keys in one statement. SQLite before 3.32 accepts 999."""
_MAX_TEXT = 2000
"""Number of characters of an output that an entry stores."""
_TABLE = """
CREATE TABLE IF NOT EXISTS verdicts (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, entry BLOB NOT NULL
)
"""


_Bit = Annotated[int, msgspec.Meta(ge=0, le=1)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A verdict, its number of tokens, and the (beginning of the) output that contains it.

    The entry of a question for names has `entities` and no verdict.
    """

    verdict: _Bit | _Share | tuple[_Share, ...] | None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    text: str = ""
    entities: dict[str, str | None] | None = None


def cache_key(**content: Any) -> bytes:
    """Return 16 bytes that identify everything that affects a verdict: JSON values, by name.

    >>> cache_key(model="m", vote=0) == cache_key(vote=0, model="m") != cache_key(vote=1, model="m")
    True
    """
    canonical = msgspec.json.encode(content, order="sorted")
    return blake2b(canonical, digest_size=16, person=b"rag-rewards").digest()


def check_cache(path: str | Path) -> str:
    """Create the file of a cache if it does not exist, and return its path.

    Raises UsageError if the file cannot be opened or is not an SQLite file.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Verdicts(str(path)).close()
    except (sqlite3.Error, OSError) as error:
        if "locked" not in str(error):  # by another process that uses the file
            raise UsageError(f"{path} cannot hold verdicts: {error}") from error
    return str(path)


class Verdicts:
    """An open file of verdicts, for the current thread only. Its methods raise sqlite3.Error.

    An entry takes about 0.4 kB.
    """

    def __init__(self, path: str) -> None:
        self.damaged = 0
        """Number of entries that could not be decoded. They are missing and can be replaced."""
        # Autocommit mode: transactions begin explicitly.
        self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        try:
            self._connection.text_factory = bytes  # invalid UTF-8 must damage one entry only
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute(_TABLE)
        except BaseException:
            self._connection.close()
            raise

    def get(self, keys: Iterable[bytes]) -> Iterator[tuple[bytes, Entry]]:
        """Yield the keys in the file, with their entries."""
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
        query = f"SELECT key, entry FROM verdicts WHERE key IN ({marks})"  # noqa: S608 (question marks only)
        return self._connection.execute(query, keys).fetchall()

    def put(self, entries: Mapping[bytes, Entry]) -> None:
        """Write entries in one transaction."""
        rows = [(key, _encode(entry)) for key, entry in entries.items()]
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany(
                "INSERT OR REPLACE INTO verdicts (key, entry) VALUES (?, ?)", rows
            )
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()


@dataclass
class CacheFaults:
    """The numbers of verdicts that a cache could not read or write, and the last reason."""

    unread: int = 0
    unwritten: int = 0
    damaged: int = 0
    reason: str = ""

    @property
    def total(self) -> int:
        return self.unread + self.unwritten + self.damaged


class BackgroundCache:
    """A cache with a thread for its file, so that the event loop never waits for it.

    Faults of the file are counted in `faults` and never raised. A verdict that cannot be read is
    missing. Verdicts that cannot be written, for example because the disk is full, are written
    again when their number has doubled, and by `close`. While another process locks the file,
    `get` and `close` take a few seconds at most.
    """

    def __init__(self, path: str) -> None:
        self.faults = CacheFaults()
        self._path = path
        self._thread = ThreadPoolExecutor(1, "verdict-cache")
        self._store: Verdicts | None = None  # for the thread only
        self._lock = threading.Lock()  # guards the next three attributes
        self._unwritten: dict[bytes, Entry] = {}
        self._scheduled = False
        self._least = 1  # number of unwritten entries from which they are written

    async def get(self, keys: Iterable[bytes]) -> dict[bytes, Entry]:
        """Return the entries that can be read."""
        return await self._in_thread(lambda: self._get(list(dict.fromkeys(keys))))

    def put(self, key: bytes, entry: Entry) -> None:
        """Schedule an entry for writing."""
        with self._lock:
            self._unwritten[key] = entry
            if not self._scheduled and len(self._unwritten) >= self._least:
                self._scheduled = True
                self._thread.submit(self._write)

    async def close(self) -> None:
        """Write the remaining entries and close the file."""
        try:
            await self._in_thread(self._close)
        finally:
            self._thread.shutdown(wait=False)

    def _in_thread(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> Verdicts:
        if self._store is None:
            self._store = Verdicts(self._path)
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
            with self._lock:
                self._least = 2 * len(entries)
            return
        with self._lock:
            self._least = 1
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
    if len(entry.text) > _MAX_TEXT:
        entry = msgspec.structs.replace(entry, text=entry.text[:_MAX_TEXT])
    return msgspec.json.encode(entry)


def _decode(value: object) -> Entry | None:
    try:
        return _decoder.decode(value) if isinstance(value, bytes) else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None

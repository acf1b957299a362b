"""Verdicts on disk, so that no verdict is paid for twice.

Plain SQLite: one file, read in batches, shared by any number of processes on one machine, whole
after a kill at any moment (write-ahead log). An entry is a small JSON object, decoded by type.
diskcache was considered: it looks entries up one by one, and where a row of the file says so, its
JSON store too goes through `pickle.load` (the code of whoever can write the file).

Keep the file on a local disk: network file systems do not support the log. What goes wrong with
the cache costs a warning and a repeated question, never a verdict.
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec

from rag_rewards.errors import UsageError

_BUSY_S = 30.0
"""How long to wait for another process's write, which takes under a millisecond."""
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
            raise UsageError(f"{self.path} cannot hold verdicts: {error}") from error

    def open(self) -> Verdicts:
        """A connection, for the thread that opens it. Raises sqlite3.Error."""
        return Verdicts(str(self.path), self.max_entries)


class Verdicts:
    """An open cache; a context manager."""

    def __init__(self, path: str, max_entries: int | None) -> None:
        self._max_entries = max_entries
        # Autocommit: every write is its own transaction.
        self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        try:
            self._connection.text_factory = bytes  # broken UTF-8 is one broken entry, no more
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute(_TABLE)
        except BaseException:
            self._connection.close()
            raise

    def get(self, keys: Iterable[bytes]) -> dict[bytes, Entry]:
        """The entries that there are. A broken one counts as missing, with a RuntimeWarning."""
        wanted = list(dict.fromkeys(keys))
        found: dict[bytes, Entry] = {}
        broken = 0
        for i in range(0, len(wanted), _BATCH):
            for key, value in self._rows(wanted[i : i + _BATCH]):
                entry = _decode(value)
                if entry is None:
                    broken += 1
                else:
                    found[key] = entry
        if broken:
            _warn(f"{broken} broken entries count as missing")
        return found

    def _rows(self, keys: list[bytes]) -> list[tuple[bytes, object]]:
        marks = ",".join("?" * len(keys))
        query = f"SELECT key, entry FROM verdicts WHERE key IN ({marks})"  # noqa: S608 (marks alone)
        try:
            return self._connection.execute(query, keys).fetchall()
        except sqlite3.Error as error:
            _warn(f"cannot be read: {error}")
            return []

    def put(self, key: bytes, entry: Entry) -> None:
        """Write, at once and for other processes too. Where that fails: a RuntimeWarning."""
        if len(entry.text) > _TEXT:
            entry = msgspec.structs.replace(entry, text=entry.text[:_TEXT])
        try:
            self._connection.execute(
                "INSERT OR REPLACE INTO verdicts (key, entry) VALUES (?, ?)", (key, _encode(entry))
            )
            self._prune()
        except sqlite3.Error as error:
            _warn(f"cannot be written: {error}")

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


_decoder = msgspec.json.Decoder(Entry)


def _encode(entry: Entry) -> bytes:
    return msgspec.json.encode(entry)


def _decode(value: object) -> Entry | None:
    try:
        return _decoder.decode(value) if isinstance(value, bytes) else None
    except msgspec.MsgspecError:
        return None


def _warn(what: str) -> None:
    warnings.warn(f"cache of verdicts: {what}", RuntimeWarning, stacklevel=2)

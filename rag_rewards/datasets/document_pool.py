"""The documents of a data set in a file of their own, by their ids."""

from __future__ import annotations

import sqlite3
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rag_rewards.datasets.json_array import CutOffError, read_entries
from rag_rewards.errors import UsageError
from rag_rewards.files.compression import DamagedError, content_of, peek


class DocumentPool:
    """A file with one JSON object, whose names are ids and whose values are texts.

    The texts are kept in a temporary file, so that memory does not depend on their number. Raises
    UsageError for a file that cannot be read or has another form.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._folder = tempfile.TemporaryDirectory(prefix="rag-rewards-")
        self._base = sqlite3.connect(f"{self._folder.name}/documents.db", isolation_level=None)
        try:
            self._fill()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> DocumentPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete the temporary file."""
        self._base.close()
        self._folder.cleanup()

    def text(self, name: str) -> str | None:
        """Return the text of the document with an id, or None if there is none."""
        row = self._base.execute("SELECT text FROM documents WHERE id = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _fill(self) -> None:
        self._base.execute("PRAGMA journal_mode = OFF")
        self._base.execute("PRAGMA synchronous = OFF")
        self._base.execute("CREATE TABLE documents (id TEXT PRIMARY KEY, text TEXT) WITHOUT ROWID")
        self._base.execute("BEGIN")
        statement = "INSERT OR REPLACE INTO documents VALUES (?, ?)"
        self._base.executemany(statement, self._texts())
        self._base.execute("COMMIT")

    def _texts(self) -> Iterator[tuple[str, str]]:
        try:
            with Path(self.path).open("rb") as file:
                start = peek(content_of(file)).removeprefix(BOM_UTF8)
                if not start.lstrip().startswith(b"{"):
                    raise UsageError(
                        f"{self.path} is not a JSON object: choose the file that contains the text "
                        "of each document by its id"
                    )
                yield from _checked(read_entries(lambda: content_of(file), self.path), self.path)
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{self.path} is not UTF-8 text ({error.reason}): convert it to UTF-8"
            ) from None
        except CutOffError as error:
            raise UsageError(
                f"{self.path} is incomplete: it ends after {error.count:,} complete documents. "
                "Download it again"
            ) from None
        except DamagedError as error:
            raise UsageError(f"{self.path} {error}; download it again") from None
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}") from None


def _checked(entries: Iterable[tuple[str, Any]], path: str) -> Iterator[tuple[str, str]]:
    for name, text in entries:
        if not isinstance(text, str):
            raise UsageError(
                f"{path}: document {name[:80]!r} must be text, found {type(text).__name__}: choose "
                "the file that contains the text of each document by its id"
            )
        yield name, text

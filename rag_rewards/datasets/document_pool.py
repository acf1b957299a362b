"""The documents of a data set in a file of their own, by their ids."""

from __future__ import annotations

import contextlib
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from rag_rewards.datasets.json_array import CutOffError, read_entries
from rag_rewards.errors import UsageError
from rag_rewards.files.compression import DamagedError, content_of, peek
from rag_rewards.files.output import temporary_file_error


class DocumentPool:
    """A file with one JSON object, whose names are ids and whose values are texts.

    The texts are in a temporary file, and the ids in memory. Raises UsageError for a file that
    cannot be read or has another form, and for a temporary file that cannot be written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._places: dict[str, tuple[int, int]] = {}
        """The start and the number of bytes of each text in the temporary file."""
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        except OSError as error:
            raise temporary_file_error(error) from None
        try:
            for name, text in self._texts():
                self._add(name, text.encode())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> DocumentPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete the temporary file. An error of writing was raised before."""
        with contextlib.suppress(OSError):
            self._file.close()

    def text(self, name: str) -> str | None:
        """Return the text of the document with an id, or None if there is none."""
        if name not in self._places:
            return None
        start, size = self._places[name]
        try:
            self._file.seek(start)  # writes what is in the buffer
            return self._file.read(size).decode()
        except OSError as error:
            raise temporary_file_error(error) from None

    def _add(self, name: str, text: bytes) -> None:
        try:
            self._places[name] = self._file.tell(), len(text)
            self._file.write(text)
        except OSError as error:
            raise temporary_file_error(error) from None

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

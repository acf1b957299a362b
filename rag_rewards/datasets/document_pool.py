"""The documents of a data set in a file of their own, by their ids."""

from __future__ import annotations

from codecs import BOM_UTF8
from pathlib import Path
from typing import IO

from rag_rewards.datasets.json_array import CutOffError, decoded, read_entries
from rag_rewards.errors import UsageError
from rag_rewards.files.compression import DamagedError, content_of, peek


class DocumentPool:
    """A file with one JSON object, whose names are ids and whose values are texts.

    The texts stay in the file, which is mapped to memory. Raises UsageError for a file that cannot
    be read or has another form.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with Path(path).open("rb") as file:
                self._entries = self._read(file)
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{path} is not UTF-8 text ({error.reason}): convert it to UTF-8"
            ) from None
        except CutOffError:
            raise UsageError(
                f"{path} is incomplete: it ends inside its documents. Download it again"
            ) from None
        except DamagedError as error:
            raise UsageError(f"{path} {error}; download it again") from None
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None

    def _read(self, file: IO[bytes]) -> dict[str, object]:
        start = peek(content_of(file)).removeprefix(BOM_UTF8)
        if not start.lstrip().startswith(b"{"):
            raise UsageError(
                f"{self.path} is not a JSON object: choose the file that contains the text of each "
                "document by its id"
            )
        return read_entries(file, self.path)

    def text(self, name: str) -> str | None:
        """Return the text of the document with an id, or None if there is none.

        Raises UsageError if it is not text in UTF-8.
        """
        if name not in self._entries:
            return None
        try:
            text = decoded(self._entries[name])
        except ValueError as error:
            raise UsageError(f"{self.path}: document {name[:80]!r}: {error}") from None
        if not isinstance(text, str):
            raise UsageError(
                f"{self.path}: document {name[:80]!r} must be text, found {type(text).__name__}: "
                "choose the file that contains the text of each document by its id"
            )
        return text

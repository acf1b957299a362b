"""What commands write: outputs, which only one run may write, errors, and temporary lines."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from array import array
from collections.abc import Container, Iterator
from pathlib import Path
from typing import IO

from rag_rewards.errors import UsageError
from rag_rewards.files.atomic import new_file, sync_folder, upload
from rag_rewards.files.compression import ZSTANDARD, compress, compression_of, zstandard
from rag_rewards.files.lock import lock, open_locked
from rag_rewards.files.storage import base_name, check_name, is_remote, local_path, staging_folder

_WINDOWS = sys.platform == "win32"  # which neither renames nor removes an open file
_UNSUPPORTED = (".bz2", ".xz", ".lz4", ".zip")


class Output:
    """Write bytes to `path`. A regular file is written as `path.partial`; `commit` renames it.

    A file whose name ends in `.gz` or `.zst` is compressed by `commit`, so that equal rows give
    equal bytes, and the partial file contains rows that can be read. `commit` returns when the file
    and its name are on the disk.

    The partial file is locked until it has been renamed, removed or closed, and so are the other
    files of the run (`path.errors.jsonl`), as far as they are opened after this object. Devices,
    pipes and "-" (standard output) are written directly and are not locked.

    The files of a URL of an object store are in a local folder until `commit` uploads the complete
    output; the object appears when the upload is complete.

    With `resume`, the rows of an earlier partial file remain until `truncate` is called.

    Raises UsageError when `path` cannot be written, when its name is that of a compression that is
    not supported, and when another run is writing it.
    """

    def __init__(self, path: str, *, resume: bool = False) -> None:
        refuse_suffix(check_name(path))
        self._compression = compression_of(path)
        self.path = path
        self.partial: Path | None = None
        self.target: Path | None = None
        if path == "-":
            self.handle: IO[bytes] = sys.stdout.buffer
            return
        try:
            self.partial = partial_of(path)
            if self.partial is None:
                if os.path.isdir(path):
                    raise UsageError(f"{path} is a folder, not a file to write to")
                if self._compression:
                    raise UsageError(
                        f"{path} is not a regular file: write rows without compression, and "
                        "compress them with another program"
                    )
                self.handle = open(path, "wb")  # noqa: SIM115 (lives as long as the output)
                return
            self.target = local_target(path)
            self.handle = open_locked(self.partial, truncate=not resume)
            if self.target.exists():
                shutil.copymode(self.target, self.partial)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the partial file of an output that is not committed."""
        self.discard()

    def write(self, data: bytes) -> None:
        try:
            self.handle.write(data)
        except OSError as error:
            raise self._named(error) from None

    def truncate(self, size: int) -> None:
        """Remove what follows the first `size` bytes, and continue to write there."""
        self.handle.seek(size)
        self.handle.truncate()

    def commit(self) -> None:
        """Give the complete output its name. After a power failure, its rows are on the disk."""
        try:
            self.handle.flush()
            if self.partial:
                os.fsync(self.handle.fileno())
            if _WINDOWS and self.partial:
                self.handle.close()
            if self.partial and self.target:
                self._publish(self.partial, self.target)
                sync_folder(self.target.parent)
                self.partial = None
                self.upload()
            self.close()
        except OSError as error:
            raise self._named(error) from None

    def _named(self, error: OSError) -> OSError:
        """Return an error of writing with the name of the output."""
        if self.path != "-":
            error.filename = error.filename or self.path
        return error

    def upload(self) -> None:
        """Upload the complete output if its path is a URL and this has not been done."""
        if is_remote(self.path) and self.target and self.target.exists():
            upload(self.target, self.path)
            self.target.unlink()

    def _publish(self, partial: Path, target: Path) -> None:
        """Replace the target by the partial file, which is still locked, or by its conversion."""
        if not self._is_converted:
            partial.replace(target)
            return
        with new_file(target, temporary=target.with_name(target.name + ".made")) as handle:
            self._convert(partial, handle)
        partial.unlink()

    @property
    def _is_converted(self) -> bool:
        """Whether the output differs from the partial file."""
        return self._compression is not None

    def _convert(self, partial: Path, handle: IO[bytes]) -> None:
        """Write the output to `handle` from the complete partial file."""
        compress(partial, handle, str(self._compression))

    def close(self) -> None:
        """Flush and release the lock. Without `commit` the rows remain in the partial file."""
        if self.path == "-":
            self.handle.flush()
        elif self.partial and not self.handle.closed and self._is_empty():
            self.discard()
        else:
            self.handle.close()

    def _is_empty(self) -> bool:
        return self.handle.tell() == 0 and os.fstat(self.handle.fileno()).st_size == 0

    def discard(self) -> None:
        """Close and remove the partial file. Does nothing after `commit`."""
        if self.partial and not self.handle.closed:
            self.partial.unlink(missing_ok=True)  # before the lock is released
            self.partial = None
        with contextlib.suppress(OSError):  # the content is not needed
            self.close()


def write_whole(path: str, data: bytes) -> None:
    """Write a file, which gets its name when it is complete. An error leaves nothing behind."""
    with Output(path) as output:
        output.write(data)
        output.commit()


def check_output(path: str | None) -> None:
    """Raise UsageError when an output cannot be written; for callers that compute it first.

    Devices and pipes are not checked.
    """
    if path is None or (partial_of(path) is None and not os.path.isdir(path)):
        return
    Output(path).discard()


def refuse_suffix(path: str) -> None:
    """Raise UsageError for a compression that is not supported or whose library is missing."""
    if path.endswith(_UNSUPPORTED):
        raise UsageError(
            f"{path} would not be compressed: choose a name that ends in .gz or .zst, or compress "
            "the file afterwards"
        )
    compression = compression_of(path)
    if compression is None:
        return
    if path.endswith(".parquet" + compression):
        name = path.removesuffix(compression)
        raise UsageError(f"{path}: Parquet compresses its columns itself: write {name}")
    if compression == ZSTANDARD:
        zstandard()  # the error, if its library is not installed


def refuse_second_run(path: str) -> None:
    """Raise UsageError when another run is writing `path`; for callers that load models first."""
    partial = partial_of(path)
    if partial is None or not partial.is_file():
        return
    with contextlib.suppress(OSError), partial.open("rb") as handle:
        lock(handle, partial)


def partial_of(path: str) -> Path | None:
    """Return where the rows of an output are until it is complete.

    None for an output that is written directly: a device, a pipe, or standard output.
    """
    if path == "-" or (os.path.exists(path) and not os.path.isfile(path)):
        return None
    target = local_target(path)
    return target.with_name(target.name + ".partial")


def local_target(path: str) -> Path:
    """Return the local file of an output: that of a URL is in its staging folder."""
    if is_remote(path):
        return staging_folder(path) / base_name(path)
    return Path(os.path.realpath(local_path(path)))


# --- other files of a command --------------------------------------------------------------------

_CONTROLS = re.compile("[\x7f-\x9f]")


def _escaped(match: re.Match[str]) -> str:
    """Escape a control character that JSON permits and that a terminal would execute."""
    return f"\\u{ord(match[0]):04x}"


class ErrorFile:
    """Write the records of rows in error to `path`, or to standard error without a path.

    The file is created for the first record. A file of an earlier run is removed.
    """

    def __init__(self, path: str | None) -> None:
        self.path = Path(path) if path else None
        self._handle: IO[bytes] | None = None
        if self.path and (self.path.is_file() or _is_broken_link(self.path)):
            self.path.unlink()

    def write(self, record: bytes) -> None:
        if self._handle is None:
            self._handle = self.path.open("wb") if self.path else sys.stderr.buffer
        if self.path is None:
            record = _CONTROLS.sub(_escaped, record.decode()).encode()
        self._handle.write(record)
        if self.path is None:
            self._handle.flush()

    def close(self) -> None:
        if self._handle is not None and self.path:
            self._handle.close()


def _is_broken_link(path: Path) -> bool:
    """Return whether a path is a symbolic link to no file, through which one would be created."""
    return path.is_symlink() and not path.exists()


def temporary_file_error(error: OSError) -> UsageError:
    """Return the error for a temporary file that cannot be written."""
    return UsageError(
        f"cannot write a temporary file in {tempfile.gettempdir()} ({error.strerror}): set TMPDIR "
        "to a folder with more space"
    )


class Spool:
    """A temporary file of numbered lines, which are added in any order and read in order."""

    def __init__(self) -> None:
        self._numbers, self._ends = array("q"), array("q", [0])
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as this)

    def add(self, number: int, line: bytes) -> None:
        try:
            self._file.write(line)
        except OSError as error:
            raise temporary_file_error(error) from None
        self._numbers.append(number)
        self._ends.append(self._ends[-1] + len(line))

    def lines(self, numbers: Container[int]) -> Iterator[bytes]:
        """Yield the lines with these numbers in their order."""
        for i in sorted(range(len(self._numbers)), key=self._numbers.__getitem__):
            if self._numbers[i] not in numbers:
                continue
            start, end = self._ends[i : i + 2]
            try:
                self._file.seek(start)  # writes what is in the buffer
                line = self._file.read(end - start)
            except OSError as error:
                raise temporary_file_error(error) from None
            yield line

    def close(self) -> None:
        """Close the file. An error of writing was raised before, where the lines matter."""
        with contextlib.suppress(OSError):
            self._file.close()

"""Compressed files of rows, as streams: gzip, Zstandard, and bzip2, which is only read."""

from __future__ import annotations

import contextlib
import sys
import zlib
from bz2 import BZ2File
from gzip import GzipFile
from importlib import import_module
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, Any, cast

from rag_rewards.errors import needs_extra

GZIP, BZIP2, ZSTANDARD = ".gz", ".bz2", ".zst"
MAGIC = {b"\x1f\x8b": GZIP, b"BZh": BZIP2, b"\x28\xb5\x2f\xfd": ZSTANDARD}
"""The first bytes of compressed files, and the suffix of their names."""
_ZSTANDARD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
_START = 256
"""Number of bytes by which the format of a file is recognized."""
_LONGEST_MAGIC = max(map(len, MAGIC))
_BLOCK = 1 << 20
_GZIP_LEVEL, _ZSTANDARD_LEVEL = 6, 3
"""The levels that the programs gzip and zstd use by default."""
_LARGEST_WINDOW = 27
"""Binary logarithm of the memory for a Zstandard file, as the program zstd limits it: 128 MiB."""


class DamagedError(OSError):
    """A compressed file is cut off or damaged."""


def compression_of(path: str) -> str | None:
    """Return the suffix of a compressed file's name, or None for other names.

    >>> compression_of("rows.jsonl.gz"), compression_of("rows.jsonl")
    ('.gz', None)
    """
    return next((suffix for suffix in MAGIC.values() if path.endswith(suffix)), None)


# --- reading -------------------------------------------------------------------------------------


def compression_in(handle: IO[bytes]) -> str | None:
    """Return the suffix of a compressed file by its first bytes, or None for other files."""
    start = peek(handle)
    return next((suffix for magic, suffix in MAGIC.items() if start.startswith(magic)), None)


def peek(handle: IO[bytes]) -> bytes:
    """Return the next bytes of a file without reading them; b"" if this is not possible."""
    with contextlib.suppress(OSError):
        return handle.peek(_START) if isinstance(handle, BufferedReader) else b""
    return b""


def with_complete_start(handle: IO[bytes]) -> IO[bytes]:
    """Return a pipe so that `peek` sees its first bytes, also when they arrive one by one."""
    if not isinstance(handle, BufferedReader) or len(peek(handle)) >= _LONGEST_MAGIC:
        return handle
    try:
        return BufferedReader(_JoinedFile(handle.read(_LONGEST_MAGIC), handle), _BLOCK)
    except OSError:
        return handle  # the first line raises it again


class _JoinedFile(RawIOBase):
    """The bytes that were read from a file, and then the rest of the file."""

    def __init__(self, start: bytes, rest: BufferedReader) -> None:
        self._start, self._rest = start, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._start or self._rest.read1(len(buffer))
        self._start = b""
        buffer[: len(data)] = data
        return len(data)


def content_of(file: IO[bytes]) -> IO[bytes]:
    """Return the content of an open file from its start, decompressed if it is compressed.

    Raises OSError if the start cannot be read.
    """
    file.seek(0)
    compression = compression_in(file)
    content = file if compression is None else decompressed(file, compression)
    if not peek(content):
        content.read(1)  # the error that `peek` leaves out
    return content


def decompressed(handle: IO[bytes], compression: str) -> BufferedReader:
    """Return the content of a compressed file, of all its members (gzip) or frames (Zstandard).

    Closing it does not close `handle`. Reading raises DamagedError.
    """
    return BufferedReader(_DecompressedFile(handle, compression), _BLOCK)


class _PipeReader:
    """Reads what a pipe has delivered, and does not wait until a block is complete."""

    def __init__(self, handle: IO[bytes]) -> None:
        self.read = handle.read1 if isinstance(handle, BufferedReader) else handle.read


class _DecompressedFile(RawIOBase):
    """The decompressed content of a file."""

    def __init__(self, handle: IO[bytes], compression: str) -> None:
        self._damage = ""
        source = cast("IO[bytes]", _PipeReader(handle))
        self._errors: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error)
        self._file: Any
        if compression == GZIP:
            self._file = GzipFile(fileobj=source, mode="rb")
        elif compression == BZIP2:
            self._file = BZ2File(source)
        else:
            zstd = zstandard()
            limit = {zstd.DecompressionParameter.window_log_max: _LARGEST_WINDOW}
            self._file = zstd.ZstdFile(source, "rb", options=limit)
            self._errors += (zstd.ZstdError,)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._damage:  # the library would go on behind the damage
            raise DamagedError(self._damage)
        try:
            data = self._file.read1(len(buffer))
        except self._errors as error:
            if isinstance(error, OSError) and error.errno is not None:  # not of the library
                raise
            what = "is cut off" if isinstance(error, EOFError) else "is damaged"
            self._damage = f"{what}: {error}"
            raise DamagedError(self._damage) from None
        buffer[: len(data)] = data
        return len(data)


# --- writing -------------------------------------------------------------------------------------


def _compressor(handle: IO[bytes], compression: str) -> IO[bytes]:
    """Return a file that compresses what is written to it, without a time and a name inside.

    Closing it completes the content and leaves `handle` open.
    """
    if compression == GZIP:
        return cast("IO[bytes]", GzipFile("", "wb", _GZIP_LEVEL, handle, mtime=0))
    zstd = zstandard()
    parameter = zstd.CompressionParameter
    options = {parameter.compression_level: _ZSTANDARD_LEVEL, parameter.checksum_flag: 1}
    return cast("IO[bytes]", zstd.ZstdFile(handle, "wb", options=options))


def compress(source: Path, target: IO[bytes], compression: str) -> None:
    """Write a compressed copy of a file. Equal content gives equal bytes.

    The compressor receives blocks of one size, because its output may depend on where the content
    is divided.
    """
    with source.open("rb") as plain, _compressor(target, compression) as compressor:
        compressor.write(b"")  # so that a file without rows is complete as well
        while block := plain.read(_BLOCK):
            compressor.write(block)


def zstandard() -> Any:
    """Import the Zstandard library: Python's own since 3.14, and its backport before."""
    with needs_extra("zstd", "backports.zstd"):
        return import_module(_ZSTANDARD)

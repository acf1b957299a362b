"""File systems of pyarrow, by the URL of a file.

They read credentials and endpoints from the environment (for example AWS_ACCESS_KEY_ID and
AWS_ENDPOINT_URL) or from the role of the machine. A URL that contains credentials is refused, so
that every message can print its URL.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import RawIOBase
from typing import Any

from rag_rewards.errors import UsageError, needs_extra

_PARAMETERS = frozenset({"endpoint_override", "region", "scheme"})


def location(url: str) -> tuple[str, str]:
    """Return the URL of a file system (scheme, bucket and parameters) and the path in it.

    Raises UsageError for a URL with credentials, and for unknown parameters.
    """
    scheme, _, rest = url.partition("://")
    rest, mark, query = rest.partition("?")
    bucket, _, key = rest.partition("/")
    user, _, host = bucket.rpartition("@")
    port = host.partition(":")[2]
    names = {pair.partition("=")[0] for pair in query.split("&") if pair}
    if ":" in user or (port and not port.isdigit()) or not names <= _PARAMETERS:
        allowed_names = ", ".join(sorted(_PARAMETERS))
        raise UsageError(
            f"the {scheme}:// URL contains credentials or other parameters than {allowed_names}: "
            "provide credentials by the environment, such as AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or by the role of the machine"
        )
    if not bucket:
        raise UsageError(f"{url} has no bucket: write {scheme}://BUCKET/PATH")
    return f"{scheme.lower()}://{bucket}/{mark}{query}", key


def file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it."""
    root, key = location(url)
    with needs_extra("parquet", "pyarrow"):
        import pyarrow
        from pyarrow.fs import FileSystem
    try:
        files, prefix = FileSystem.from_uri(root)
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"cannot open {url}: {_reason(error)}") from None
    prefix = prefix.rstrip("/")
    return files, f"{prefix}/{key}" if prefix or root.startswith("hdfs") else key


@contextmanager
def remote_errors(path: str) -> Iterator[None]:
    """Give the errors of pyarrow a short reason and the path, as those of local files."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno or errno.EIO, _reason(error), path) from None


def _reason(error: BaseException) -> str:
    """Return the reason of an error on one line."""
    if isinstance(error, FileNotFoundError):
        return "no such file or folder"
    reason = " ".join(str(error).split())
    return reason.partition(" (Request ID")[0][:300]


class RemoteFile(RawIOBase):
    """A file of pyarrow as a file of Python, whose errors name the path."""

    def __init__(self, file: Any, path: str) -> None:
        self._file = file
        self.name = path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with remote_errors(self.name):
            return int(self._file.readinto(buffer))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with remote_errors(self.name):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

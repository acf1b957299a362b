"""Files that get their name when they are complete. A process that is killed leaves no half of one.

A local file is renamed. An object in an object store appears when its upload is complete.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

from rag_rewards.files.remote_files import file_system, remote_errors
from rag_rewards.files.storage import REMOTE_BLOCK, is_remote, local_path


@contextmanager
def new_file(
    path: str | Path,
    *,
    sync: bool = True,
    keep_empty: bool = True,
    temporary: Path | None = None,
) -> Iterator[IO[bytes]]:
    """Open a file that gets its name, or replaces the file of this name, at the end of the block.

    sync        whether the file and its name are on the disk afterwards, also after a power failure
    keep_empty  whether a file without content gets its name
    temporary   the name until then; a random one by default, so that several processes can write
                the same file

    The file has the permissions of the one that it replaces. After an error in the block, the
    temporary file is removed. Raises OSError with a reason in `strerror`.
    """
    if is_remote(str(path)):
        with _new_object(str(path), keep_empty) as handle:
            yield handle
        return
    target = Path(local_path(str(path)))
    if temporary is None:
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    else:
        temporary.unlink(missing_ok=True)  # of a run that was killed
    try:
        with temporary.open("xb") as local:
            if target.exists():
                shutil.copymode(target, temporary)
            yield local
            has_name = local.tell() > 0 or keep_empty
            if sync:
                local.flush()
                os.fsync(local.fileno())
        if has_name:
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    if sync:
        sync_folder(target.parent)


@contextmanager
def _new_object(url: str, keep_empty: bool) -> Iterator[IO[bytes]]:
    """Open a temporary file that is uploaded at the end of the block."""
    with tempfile.NamedTemporaryFile() as handle:
        yield cast("IO[bytes]", handle)
        handle.flush()
        if handle.tell() or keep_empty:
            upload(Path(handle.name), url)


def write_file(path: str | Path, data: bytes) -> None:
    """Write a small file, and the folder that contains it. Replaces the file of this name."""
    if not is_remote(str(path)):
        Path(local_path(str(path))).parent.mkdir(parents=True, exist_ok=True)
    with new_file(path) as handle:
        handle.write(data)


def upload(source: Path, path: str) -> None:
    """Copy a complete local file to a path or URL. The target appears when the copy is complete.

    Raises OSError with a reason in `strerror`. A failed upload leaves no object.
    """
    if not is_remote(path):
        with source.open("rb") as handle, new_file(path) as copy:
            shutil.copyfileobj(handle, copy, REMOTE_BLOCK)
        return
    files, key = file_system(path)
    with source.open("rb") as handle, remote_errors(path):
        stream = files.open_output_stream(key, compression=None)
        try:
            shutil.copyfileobj(handle, stream, REMOTE_BLOCK)
        except BaseException:
            # pyarrow cannot abort an upload: closing publishes what was written so far.
            with suppress(OSError):
                stream.close()
            with suppress(OSError):
                files.delete_file(key)
            raise
        stream.close()


def sync_folder(folder: Path) -> None:
    """Write the names of files in a folder to the disk, where the system permits."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

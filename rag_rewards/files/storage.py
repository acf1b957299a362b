"""Files in local folders and in object stores, by path or URL.

Paths without a scheme and `file://` are local. `s3://`, `gs://`, `abfs://` and `hdfs://` use the
file systems of `remote_files`.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from glob import glob
from hashlib import sha256
from io import BufferedReader
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from rag_rewards.errors import UsageError
from rag_rewards.files.remote_files import RemoteFile, file_system, location, remote_errors

REMOTE_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs")
LOCAL_BLOCK = 1 << 20
"""Larger than a chunk of lines, because lines longer than the buffer are slow."""
REMOTE_BLOCK = 8 << 20
"""Size of one request for a range of bytes. Smaller blocks take more requests."""
ROW_FILES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
"""Suffixes of the files that are read when the input is a folder."""
_OTHER_FILES = (".errors.jsonl",)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


def is_remote(path: str) -> bool:
    """Return whether a path is the URL of an object store or of another remote file system.

    >>> is_remote("s3://bucket/rows.jsonl"), is_remote("rows.jsonl"), is_remote("file:///rows.jsonl")
    (True, False, False)
    """
    match = _SCHEME.match(path)
    return match is not None and match[1].lower() in REMOTE_SCHEMES


def local_path(path: str) -> str:
    """Return the path of a `file://` URL, and every other path unchanged.

    >>> local_path("file:///data/my%20rows.jsonl"), local_path("rows.jsonl")
    ('/data/my rows.jsonl', 'rows.jsonl')
    """
    if not path.lower().startswith("file://"):
        return path
    parts = urlsplit(path)
    if parts.netloc not in ("", "localhost"):
        raise UsageError(f"{path} names another machine: write file:///PATH for a local file")
    return unquote(parts.path)


def join(folder: str, name: str) -> str:
    """Return the path of a file in a folder.

    >>> join("s3://bucket/scored?region=eu-west-1", "part-00000.jsonl")
    's3://bucket/scored/part-00000.jsonl?region=eu-west-1'
    """
    if not is_remote(folder):
        return os.path.join(local_path(folder), name)
    base, mark, query = folder.partition("?")
    return f"{base.rstrip('/')}/{name}{mark}{query}"


# --- reading -----------------------------------------------------------------------------------


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Raise UsageError with the name of the file if it cannot be read."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def open_file(path: str) -> IO[bytes]:
    """Open a file for reading, with `seek`. Raises OSError with a reason in `strerror`.

    A remote file is read in ranges of `REMOTE_BLOCK` bytes.
    """
    if not is_remote(path):
        return Path(local_path(path)).open("rb", buffering=LOCAL_BLOCK)
    files, key = file_system(path)
    with remote_errors(path):
        return BufferedReader(RemoteFile(files.open_input_file(key), path), REMOTE_BLOCK)


def read_file(path: str) -> bytes:
    """Return the content of a small file."""
    with open_file(path) as handle:
        return handle.read()


def input_files(path: str) -> list[str] | None:
    """Return the files of a folder or of a pattern, in the order of their names; None for a file.

    A folder contributes its files whose names end in one of `ROW_FILES`, without hidden files (`.`
    and `_`) and without the errors of earlier runs; it is not searched recursively. Raises
    UsageError if no file matches.
    """
    if not path:
        raise UsageError("the name of the input is empty: name a file, a folder or a URL")
    check_name(path)
    if is_remote(path):
        return _remote_files(path)
    path = local_path(path)
    if os.path.isdir(path):
        return _rows_of_folder(path, os.listdir(path))
    if os.path.exists(path) or not any(character in path for character in "*?["):
        return None
    if not (paths := sorted(glob(path))):
        raise UsageError(f"no file matches {path}")
    return list(map(check_name, paths))


def check_name(name: str) -> str:
    r"""Return a name that is UTF-8. Raises UsageError for other bytes, which no file can contain.

    >>> check_name("rows\udcff.jsonl")
    Traceback (most recent call last):
    rag_rewards.errors.UsageError: the name rows\udcff.jsonl is not UTF-8: rename the file
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = name.encode(errors="backslashreplace").decode()
        mode = "" if _reads_utf8() else ", or set PYTHONUTF8=1"
        raise UsageError(f"the name {shown} is not UTF-8: rename the file{mode}") from None
    return name


def _reads_utf8() -> bool:
    return sys.getfilesystemencoding().lower().replace("-", "") == "utf8"


def _rows_of_folder(folder: str, names: list[str]) -> list[str]:
    """Return the files with rows in a folder."""
    rows = sorted(name for name in names if _has_rows(name))
    if not rows:
        suffixes = " or ".join(ROW_FILES)
        raise UsageError(f"the folder {folder} has no file with a name that ends in {suffixes}")
    return [join(folder, check_name(name)) for name in rows]


def _has_rows(name: str) -> bool:
    hidden = name.startswith((".", "_"))
    return name.endswith(ROW_FILES) and not name.endswith(_OTHER_FILES) and not hidden


def _remote_files(path: str) -> list[str] | None:
    base, mark, query = path.partition("?")
    files, key = file_system(path)
    if any(character in base for character in "*["):
        root = key[: min(key.find(character) for character in "*[" if character in key)]
        root = root.rpartition("/")[0]
        names = _listing(files, root, path, recursive=True)
        matches = [name for name in names if _matches(name, key)]
        if not matches:
            raise UsageError(f"no file matches {path}")
        prefix = base[: len(base) - len(key)]
        return [f"{prefix}{name}{mark}{query}" for name in matches]
    with reading(path), remote_errors(path):
        is_file = files.get_file_info(key).is_file
    if is_file:
        return None
    names = names_in(path)
    if not names:
        raise UsageError(f"cannot read {path}: no such file, folder or bucket")
    return _rows_of_folder(path, names)


def names_in(folder: str) -> list[str]:
    """Return the names of the files in a folder, sorted; none if it does not exist.

    A local folder also contributes the names of its subfolders.
    """
    if not is_remote(folder):
        path = local_path(folder)
        return sorted(os.listdir(path)) if os.path.isdir(path) else []
    files, key = file_system(folder)
    keys = _listing(files, key.rstrip("/"), folder, recursive=False)
    return [name.rpartition("/")[2] for name in keys]


def _listing(files: Any, folder: str, path: str, *, recursive: bool) -> list[str]:
    """Return the keys of the files in a folder, sorted, also of its subfolders if `recursive`."""
    from pyarrow.fs import FileSelector

    selector = FileSelector(folder, recursive=recursive, allow_not_found=True)
    with reading(path), remote_errors(path):
        infos = files.get_file_info(selector)
    return sorted(info.path for info in infos if info.is_file)


def _matches(name: str, pattern: str) -> bool:
    """Return whether a key matches a pattern whose wildcards do not match a slash."""
    parts, patterns = name.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


# --- writing -----------------------------------------------------------------------------------


def staging_folder(url: str) -> Path:
    """Return the local folder with the files that are written before they are uploaded to a URL.

    The folder depends on the URL alone, so that two runs on one machine that write the same object
    use the same lock. Raises UsageError if the folder belongs to another user.
    """
    location(url)
    user = os.getuid() if hasattr(os, "getuid") else 0
    root = Path(tempfile.gettempdir()) / f"rag-rewards-{user}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.is_symlink() or (hasattr(os, "getuid") and root.stat().st_uid != user):
        raise UsageError(f"{root} belongs to another user: set TMPDIR to a folder of your own")
    folder = root / sha256(url.encode()).hexdigest()[:16]
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def base_name(path: str) -> str:
    """Return the last part of a path or URL.

    >>> base_name("s3://bucket/scored/rows.jsonl?region=eu-west-1")
    'rows.jsonl'
    """
    if is_remote(path):
        path = path.partition("?")[0].rstrip("/")
    return path.rpartition("/")[2] if is_remote(path) else os.path.basename(local_path(path))


def remove_file(path: str) -> None:
    """Remove a file if it exists."""
    if not is_remote(path):
        Path(local_path(path)).unlink(missing_ok=True)
        return
    files, key = file_system(path)
    with remote_errors(path), suppress(FileNotFoundError):
        files.delete_file(key)


def remove_folder(path: str) -> None:
    """Remove a remote folder with its files if it exists. Local folders are not removed."""
    if is_remote(path):
        files, key = file_system(path)
        with suppress(OSError):
            files.delete_dir(key)


def with_suffix(path: str, suffix: str) -> str:
    """Return a path or URL with another text at the end of its name.

    >>> with_suffix("s3://bucket/rows.jsonl?region=eu-west-1", ".errors.jsonl")
    's3://bucket/rows.jsonl.errors.jsonl?region=eu-west-1'
    """
    if not is_remote(path):
        return path + suffix
    base, mark, query = path.partition("?")
    return f"{base}{suffix}{mark}{query}"

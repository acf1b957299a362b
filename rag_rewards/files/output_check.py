"""Check that a command overwrites none of the files that it reads."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.files.output import local_target, partial_of
from rag_rewards.files.storage import input_files, is_remote, local_path, with_suffix

SIDE_FILES = (
    *(".partial", ".made", ".errors.jsonl", ".run.json"),
    *(".card.md", ".dropped.jsonl", ".samples.jsonl"),
    *("-wal", "-shm", "-journal"),
)
"""The ends of the names of files that commands write beside an output."""
FOLDER_FILES = ("part-", "manifest.json")
"""The beginnings of the names of files that commands write to a folder."""
RUN_FOLDER = ".run"
"""The end of the name of the folder of an interrupted run."""

_FileKey = tuple[int, int] | str
"""Device and inode of a regular file, or the real path of a file that does not exist."""


def refuse_overwriting(outputs: Mapping[str, str | None], inputs: Iterable[str]) -> None:
    """Raise OptionError if an output, or a file beside it, is an input or another output.

    outputs  the paths by the name of their option
    inputs   files, folders and patterns; "-" is standard input

    Files are compared by their real path, and by device and inode, so that links of both kinds do
    not hide a file. Devices and pipes hold no rows and are left out.
    """
    written: dict[_FileKey, str] = {}
    folders: dict[str, str] = {}
    for option, path in outputs.items():
        if not path:
            continue
        own: dict[_FileKey, str] = {}
        for name in _written_names(path):
            if (key := _key_of(name, sys.stdout)) is not None:
                own[key] = option
        for key in own.keys() & written.keys():
            if "-" in (path, outputs[written[key]]):  # rows can follow messages
                continue
            raise OptionError(
                f"{{{written[key]}}} and {{{option}}} write the same file, {{path}}: choose "
                "different files",
                path=path,
            )
        written |= own
        if path != "-" and not is_remote(path):
            folders[os.path.realpath(local_path(path)) + RUN_FOLDER + os.sep] = option
    if not written:
        return
    for path in inputs:
        for file in _files_of(path):
            key = _key_of(file, sys.stdin)
            writer = None if key is None else written.get(key)
            writer = writer or _folder_of(file, folders)
            if writer is not None:
                raise _overwritten(writer, outputs[writer], file)


def refuse_overwriting_with_card(
    outputs: Mapping[str, str | None], inputs: Iterable[str | None]
) -> None:
    """Call `refuse_overwriting`. Raise OptionError unless `output` is a regular file as well."""
    output = outputs["output"] or ""
    if partial_of(output) is None or Path(output).is_dir():
        raise OptionError(
            "{output} {path} is not a regular file: choose one, because a card is written beside "
            "it",
            path=output,
        )
    refuse_overwriting(outputs, filter(None, inputs))


def _overwritten(option: str, output: str | None, file: str) -> OptionError:
    name = "standard input" if file == "-" else file
    if output == "-":
        return OptionError(
            "standard output would overwrite {name}, which is read: choose another file", name=name
        )
    return OptionError(
        f"{{{option}}} {{path}} would overwrite {{name}}, which is read: choose another file",
        path=output,
        name=name,
    )


def _written_names(path: str) -> Iterator[str]:
    """Yield the names of the files that may be written for an output."""
    yield path
    if path == "-":
        return
    if os.path.isdir(local_path(path)):
        files = os.scandir(local_path(path))
        yield from (file.path for file in files if file.name.startswith(FOLDER_FILES))
        return
    bases = [path]
    if not is_remote(path) and partial_of(path) is not None:
        bases.append(str(local_target(path)))  # partial files are beside the target of a link
    yield from (with_suffix(base, suffix) for base in bases for suffix in SIDE_FILES)


def _files_of(path: str) -> list[str]:
    """Return the files of an input. An input that cannot be read has its error later."""
    if path == "-" or is_remote(path):
        return [path]
    with contextlib.suppress(UsageError):
        files = input_files(path)
        return [path] if files is None else files
    return [path]


def _key_of(path: str, stream: IO[str]) -> _FileKey | None:
    """Return what identifies a file by any of its names; None for a folder, device or pipe.

    `stream` is the file of the path "-".
    """
    if is_remote(path):
        return path.partition("?")[0].rstrip("/")
    try:
        status = os.fstat(stream.fileno()) if path == "-" else os.stat(local_path(path))
    except (OSError, ValueError, AttributeError):  # a stream may be closed or replaced
        return None if path == "-" else os.path.realpath(local_path(path))
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _folder_of(file: str, folders: Mapping[str, str]) -> str | None:
    """Return the option of an output whose folder of an interrupted run contains a file."""
    if file == "-" or is_remote(file):
        return None
    real = os.path.realpath(local_path(file))
    return next((option for folder, option in folders.items() if real.startswith(folder)), None)

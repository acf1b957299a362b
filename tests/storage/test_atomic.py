"""Files that get their name when they are complete, and locks of files."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rag_rewards.files.atomic import new_file, write_file
from rag_rewards.files.lock import try_lock


def names(folder):
    return sorted(os.listdir(folder))


def test_a_file_has_no_name_before_it_is_complete(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"before")
    with new_file(path) as handle:
        handle.write(b"after")
        handle.flush()
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert names(tmp_path) == ["rows.jsonl"]


def test_the_permissions_of_the_file_that_is_replaced(tmp_path):
    path = tmp_path / "key"
    path.touch(0o600)
    with new_file(path) as handle:
        assert os.fstat(handle.fileno()).st_mode & 0o777 == 0o600
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("keep_empty", [True, False])
def test_an_empty_file(tmp_path, keep_empty):
    with new_file(tmp_path / "errors.jsonl", keep_empty=keep_empty):
        pass
    assert names(tmp_path) == ["errors.jsonl"] * keep_empty


def test_the_temporary_file_of_a_killed_run_is_replaced(tmp_path):
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    temporary = tmp_path / "rows.made"
    temporary.symlink_to(precious)
    with new_file(tmp_path / "rows", temporary=temporary) as handle:
        handle.write(b"rows")
    assert precious.read_bytes() == b"precious"
    assert names(tmp_path) == ["precious", "rows"]


def test_several_writers_of_one_file(tmp_path):
    path = tmp_path / "record.json"
    with new_file(path) as first, new_file(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first"  # the last one to be complete
    assert names(tmp_path) == ["record.json"]


def test_a_folder_is_not_created_for_a_late_writer(tmp_path):
    """A worker of an earlier run must not create the folder again that the next run removed."""
    with pytest.raises(FileNotFoundError), new_file(tmp_path / "removed" / "part.jsonl"):
        pass
    write_file(tmp_path / "new" / "settings.json", b"{}")
    assert names(tmp_path) == ["new"]


def test_a_killed_writer_leaves_the_earlier_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"before")
    code = (
        "import os, sys\nfrom rag_rewards.files.atomic import new_file\n"
        "with new_file(sys.argv[1]) as handle:\n"
        "    handle.write(b'after')\n    handle.flush()\n    os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == 9
    assert path.read_bytes() == b"before"


def test_a_second_lock(tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "lock"
    with path.open("wb") as first, path.open("wb") as second:
        assert try_lock(first)
        assert not try_lock(second.fileno())
        first.close()
        assert try_lock(second)

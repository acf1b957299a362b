"""Full disks, unreadable files and closed pipes: exit codes, messages, and what remains."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys

import pytest
from processes import WAIT_SECONDS

from rag_rewards.scoring import file_store


@pytest.fixture
def disk(tmp_path):
    """Mount a disk of 64 KiB that is almost full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(["mount", *options], capture_output=True, check=False).returncode
    )
    if not mounted:
        pytest.skip("needs the right to mount a small file system")
    (folder / "other").write_bytes(bytes(60_000))
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def rows(write, arena):
    return write([arena(id=str(i), group=f"g{i}", human=i % 2, part=i / 300) for i in range(300)])


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.parquet"])
@pytest.mark.parametrize("options", [[], ["--sort"]])
def test_score(cli, rows, disk, name, options):
    message = cli("score", rows, "-r", "arena", "-o", disk / name, *options, code=2).err
    assert f"cannot write {disk / name}: No space left on device" in message
    assert not (disk / name).exists()


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "; resume the run when there is space"),
        (errno.EDQUOT, "; resume the run when there is space"),
        (errno.EIO, ""),
        (errno.EACCES, ""),
    ],
)
def test_hint_about_space(cli, rows, tmp_path, monkeypatch, number, hint):
    reason, out = os.strerror(number), tmp_path / "out.jsonl"

    def refuse(*arguments, **options):
        raise OSError(number, reason, str(out))

    monkeypatch.setattr(file_store, "open_output", refuse)
    message = cli("score", rows, "-r", "arena", "-o", out, code=2).err
    assert message.endswith(f"cannot write {out}: {reason}{hint}\n")


@pytest.mark.parametrize(
    "command",
    [
        "evaluate {rows} -m em,f1 -o {out}",
        "calibrate {rows} -l human -c part -o {out}",
        "select {rows} -r arena -o {out}",
        "prepare hotpotqa {questions} -r arena -o {out}",
    ],
)
def test_other_commands(cli, rows, write, disk, command):
    context = [["Paris", ["Paris lies on the Seine. " * 8]], ["Rome", ["Rome lies on the Tiber."]]]
    question = {
        "question": "Which river?",
        "answer": "Seine",
        "type": "bridge",
        "level": "easy",
        "supporting_facts": [["Paris", 0]],
        "context": context,
    }
    questions = [
        question | {"_id": str(i), "question": f"Which river is number {i}?"} for i in range(100)
    ]
    names = {"rows": rows, "questions": write(questions, "questions.jsonl")}
    with contextlib.suppress(OSError), open(disk / "other", "ab", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    out = disk / "out.json"
    words = command.format(**names, out=out).split()
    message = cli(*words, code=2).err
    assert f"{out}: No space left on device" in message
    assert "standard output" not in message
    assert [path.name for path in disk.iterdir()] == ["other"]


@pytest.mark.parametrize("command", ["score - -r ctrl-rag --sort", "select - -r arena -o {out}"])
def test_temporary_files(cli, rows, disk, tmp_path, monkeypatch, command):
    monkeypatch.setattr("tempfile.tempdir", str(disk))
    words = command.format(out=tmp_path / "out.jsonl").split()
    message = cli(*words, stdin=rows.read_bytes(), code=2).err
    assert f"cannot write a temporary file in {disk} (No space left on device)" in message
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_device(cli, rows):
    message = cli("evaluate", rows, "-m", "em", "-o", "/dev/full", code=2).err
    assert "/dev/full: No space left on device" in message


MEMORY = "/proc/self/mem"


@pytest.mark.skipif(not os.path.exists(MEMORY), reason="no file that cannot be read")
@pytest.mark.parametrize(
    "command",
    [
        f"score {MEMORY} -r arena -o {{out}}",
        f"score {MEMORY} -r arena -o {{out}} --workers 2",
        f"evaluate {MEMORY} -m em -o {{out}}",
        f"prepare hotpotqa {MEMORY} -r arena -o {{out}}",
        f"select {MEMORY} -r arena -o {{out}}",
        f"calibrate {MEMORY} -l human -c part -o {{out}}",
        f"audit {MEMORY} -r arena",
    ],
)
def test_a_file_that_cannot_be_read(cli, tmp_path, command):
    message = cli(*command.format(out=tmp_path / "out.json").split(), code=2).err
    assert f"cannot read {MEMORY}: Input/output error" in message
    assert not list(tmp_path.glob("out.json"))


@pytest.mark.parametrize(
    "command",
    ["evaluate {rows} -m em", "calibrate {rows} -l human -c part", "score {rows} -r arena --table"],
)
def test_a_closed_pipe(rows, command):
    read, write = os.pipe()
    os.close(read)
    words = command.format(rows=rows).split()
    done = subprocess.run(
        [sys.executable, "-m", "rag_rewards", *words],
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=WAIT_SECONDS,
        check=False,
    )
    os.close(write)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"Broken pipe" not in done.stderr

"""Input and output files: missing, invalid, full, closed, or the same file."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from command_line import COMMAND
from processes import WAIT_SECONDS

from rag_rewards.errors import UsageError
from rag_rewards.files import lines
from rag_rewards.files.atomic import write_file
from rag_rewards.scoring.options import ScoreOptions
from rag_rewards.scoring.score_file import score_file


def ids(path):
    return [json.loads(line)["id"] for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nope.jsonl", "cannot read nope.jsonl: No such file or directory"),
        ("nope.parquet", "cannot read nope.parquet: No such file or directory"),
        ("docs", "the folder docs has no file with a name that ends in .jsonl"),
        ("", "the name of the input is empty"),
    ],
)
def test_invalid_inputs(cli, tmp_path, source, message):
    out = tmp_path / "out.jsonl"
    assert message in cli("score", source, "-r", "arena", "-o", out, code=2).err
    assert not list(tmp_path.iterdir())


def test_invalid_outputs(cli, write, arena, tmp_path):
    source = write([arena()])
    for output, message in (
        (tmp_path, "is a folder, not a file to write to"),
        (tmp_path / "nope" / "out.jsonl", "No such file or directory"),
        (tmp_path / "nope" / "out.parquet", "No such file or directory"),
        (source / "out.jsonl", "Not a directory"),
    ):
        assert message in cli("score", source, "-r", "arena", "-o", output, code=2).err
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize(
    ("convert", "message"),
    [
        (lzma.compress, "is compressed with xz: decompress it first"),
        (lambda data: gzip.compress(gzip.compress(data)), "is compressed twice"),
        (lambda data: gzip.compress(b"PAR1" + data), "is a Parquet file"),
        (lambda data: data.decode().encode("utf-16"), "is UTF-16: convert it to UTF-8"),
        (lambda data: b"\xfe\xff" + data.decode().encode("utf-16-be"), "is UTF-16"),
        (lambda data: b"PAR1" + data, "is a Parquet file"),
    ],
)
@pytest.mark.parametrize("stdin", [False, True])
def test_files_of_other_formats_are_one_error(cli, write, arena, tmp_path, convert, message, stdin):
    source, out = write([arena()] * 1000), tmp_path / "out.jsonl"
    source.write_bytes(convert(source.read_bytes()))
    data = source.read_bytes() if stdin else b""
    result = cli("score", "-" if stdin else source, "-r", "arena", "-o", out, stdin=data, code=2)
    assert f"{'standard input' if stdin else source} {message}" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize("suffix", [".bz2", ".xz"])
def test_an_output_is_not_compressed(cli, write, arena, tmp_path, suffix):
    out = tmp_path / f"out.jsonl{suffix}"
    assert (
        "would not be compressed"
        in cli("score", write([arena()]), "-r", "arena", "-o", out, code=2).err
    )
    assert not out.exists()


@pytest.mark.parametrize("data", [b"", b"\n", b"\n \n\t\r\n"])
@pytest.mark.parametrize("options", [[], ["--sort"], ["--workers", "2"]])
def test_a_file_without_rows(cli, tmp_path, data, options):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(data)
    result = cli("score", source, "-r", "ctrl-rag", "-o", out, *options, code=0)
    assert out.read_bytes() == b""
    assert "0 scored, 0 in error" in result.err
    assert cli("score", source, "-r", "ctrl-rag", code=0).out == ""
    assert "ctrl-rag" in cli("score", source, "-r", "ctrl-rag", "--table", code=0).out
    assert "0 rollouts" in cli("replay", source, "-r", "ctrl-rag", code=0).out


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("options", [[], ["--sort"]])
@pytest.mark.parametrize("stdin", [False, True])
def test_line_endings_and_byte_order_marks(
    cli, write, arena, tmp_path, ending, mark, options, stdin
):
    path, out = write([arena(), "", arena(id="b")], ending=ending), tmp_path / "out.jsonl"
    path.write_bytes(mark + path.read_bytes().rstrip())  # no final newline either
    source, data = ("-", path.read_bytes()) if stdin else (path, b"")
    cli("score", source, "-r", "arena", "-o", out, *options, stdin=data, code=0)
    assert ids(out) == ["a", "b"]
    assert out.read_bytes().startswith(b'{"id": "a"')
    assert out.read_bytes().endswith(b"}\n")
    assert b"\r" not in out.read_bytes()


def test_a_file_with_only_a_byte_order_mark(cli, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\xef\xbb\xbf")
    cli("score", path, "-r", "arena", code=0)


def test_line_numbers_count_empty_lines(cli, write, arena):
    result = cli("score", write(["", "{", "", arena(id=None)]), "-r", "arena", code=3)
    assert result.rows[0]["id"] == "4"
    assert '"line":2' in result.err


def test_standard_streams(cli, write, arena):
    data = write([arena()]).read_bytes()
    for options in ([], ["-o", "-"], ["-o", "-", "--jsonl"], ["-o", ""]):
        result = cli("score", "-", "-r", "arena", *options, stdin=data, code=0)
        assert result.rows[0]["reward"] == 13.0
        assert "1 scored" in result.err


def test_the_output_keeps_its_permissions(cli, write, arena, tmp_path):
    path, out = write([arena(), arena(id="b")]), tmp_path / "out.jsonl"
    out.touch(0o600)
    cli("score", path, "-r", "arena", "-o", out, code=0)
    assert ids(out) == ["a", "b"]
    assert out.stat().st_mode & 0o777 == 0o600


def test_an_existing_output_is_replaced_when_the_new_one_is_complete(cli, write, arena, tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("precious")
    cli("score", write(["{"]), "-r", "arena", "-o", out, "--on-error", "stop", code=2)
    assert out.read_text() == "precious"
    cli("score", write([arena()]), "-r", "arena", "-o", out, code=0)
    assert ids(out) == ["a"]


def test_a_symbolic_link_is_not_replaced(cli, write, arena, tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "real.jsonl", tmp_path / "link.jsonl"
    for _ in range(2):  # dangling, then not
        if not link.is_symlink():
            link.symlink_to(target)
        cli("score", write([arena()]), "-r", "arena", "-o", link, code=0)
        assert link.is_symlink()
        assert ids(target) == ["a"]


@pytest.mark.parametrize("name", ["out.jsonl.partial", "out.jsonl.errors.jsonl"])
def test_an_input_is_not_overwritten_by_the_files_of_the_run(cli, write, arena, tmp_path, name):
    source = write([arena()], name)
    before = source.read_bytes()
    out = tmp_path / "out.jsonl"
    message = cli("score", source, "-r", "arena", "-o", out, code=2).err
    assert f"would overwrite {source}" in message
    assert source.read_bytes() == before
    cli("score", source, "-r", "arena", "-o", tmp_path / "other.jsonl", code=0)


def test_an_error_file_that_cannot_be_written(cli, write, arena, tmp_path):
    (tmp_path / "out.jsonl.errors.jsonl").mkdir()
    out = tmp_path / "out.jsonl"
    message = cli("score", write([arena(), "{"]), "-r", "arena", "-o", out, code=2).err
    assert "out.jsonl.errors.jsonl: Is a directory" in message
    assert ids(tmp_path / "out.jsonl.partial") == ["a"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_device(shell, write, arena):
    source = write([arena(id=str(i)) for i in range(3000)])
    message = shell("score", source, "-r", "arena", "-o", "/dev/full", code=2).err
    assert message == "rag-rewards: cannot write /dev/full: No space left on device\n"
    with open("/dev/full", "wb") as full:
        message = shell(
            "score",
            source,
            "-r",
            "arena",
            code=2,
            capture_output=False,
            stdout=full,
            stderr=subprocess.PIPE,
        ).err
        assert message == "rag-rewards: cannot write standard output: No space left on device\n"
        message = shell(
            "recipes", code=2, capture_output=False, stdout=full, stderr=subprocess.PIPE
        ).err
        assert message == "rag-rewards: standard output: No space left on device\n"


def test_a_device_is_written_directly(cli, write, arena):
    cli("score", write([arena()]), "-r", "arena", "-o", "/dev/null", code=0)
    assert Path("/dev/null").is_char_device()


def test_standard_output_by_the_name_of_its_device(shell, write, arena):
    result = shell("score", write([arena()]), "-r", "arena", "-o", "/dev/stdout", code=0)
    assert result.rows[0]["reward"] == 13.0


@pytest.mark.parametrize(
    ("closed", "arguments", "code", "message"),
    [
        (">&-", "score {0} -r arena -o {1}", 0, "1 scored"),
        (">&-", "score {0} -r arena", 2, "cannot write standard output: Bad file descriptor"),
        (">&-", "recipes", 2, "standard output: Bad file descriptor"),
        ("2>&-", "score {0} -r arena -o {1}", 0, ""),
        ("2>&-", "score {0} -r arena --workers 2", 0, ""),
        ("<&-", "score - -r arena -o {1}", 2, "cannot read standard input: Bad file descriptor"),
    ],
)
def test_closed_standard_streams(write, arena, tmp_path, closed, arguments, code, message):
    import sys

    words = arguments.format(write([arena()]), tmp_path / "out.jsonl")
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m rag_rewards {words} {closed}"],
        capture_output=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == code
    assert message in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_a_small_disk(shell, write, arena, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk],
            capture_output=True,
            check=False,
        )
        if os.geteuid() == 0
        else None
    )
    if mounted is None or mounted.returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        rows = write([arena(id=str(i)) for i in range(2000)])
        for options in ([], ["--sort"], ["--workers", "2"]):
            out = disk / "out.jsonl"
            message = shell("score", rows, "-r", "arena", "-o", out, *options, code=2).err
            assert "No space left on device; " in message
            assert "resume the run" in message
            assert not out.exists()
            partial = disk / "out.jsonl.partial"
            rows_kept = partial.read_bytes().split(b"\n")
            assert [json.loads(row)["id"] for row in rows_kept[:-1]] == [
                str(i) for i in range(len(rows_kept) - 1)
            ]
            assert len(rows_kept) > 50
            partial.unlink()
            shutil.rmtree(disk / "out.jsonl.run", ignore_errors=True)
    finally:
        subprocess.run(["umount", disk], check=True)


def test_messages_name_options_of_the_command(cli, write, arena, tmp_path):
    path, out = write([arena()]), tmp_path / "out.jsonl"
    cli("score", path, "-r", "arena", "-o", out, "--resume", code=0)
    message = cli(
        "score", path, "-r", "arena", "-o", out, "--resume", "--group-size", "1", code=2
    ).err
    assert message.endswith(
        f"cannot resume {out}: --group-size was 'None' and is '1': use the settings of the earlier "
        "run, or start again without --resume\n"
    )
    out.write_text("changed")
    message = cli("score", path, "-r", "arena", "-o", out, "--resume", code=2).err
    assert message.endswith(
        f"cannot resume {out}: it has changed since the run ended: start again without --resume\n"
    )


def test_a_device_gets_no_file_of_errors(cli, write, arena, tmp_path):
    device = tmp_path / "device"
    device.symlink_to(os.devnull)
    source = write([arena(), "{"])
    before = set(tmp_path.iterdir())
    for sort in ([], ["--sort"]):
        result = cli("score", source, "-r", "arena", "-o", device, *sort, code=3)
        assert '"error":' in result.err
        assert "rows in error:" not in result.err
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("options", [[], ["--sort"], ["--output-format", "parts"]])
@pytest.mark.parametrize("source", ["file", "-", "parquet"])
def test_a_line_that_is_too_long(cli, write, arena, tmp_path, monkeypatch, source, options):
    if source == "-" and "parts" in options:
        pytest.skip("standard input has no parts")
    monkeypatch.setattr(lines, "LINE_BYTES", 1 << 16)
    long = arena(id="b", note="x" * (1 << 18))
    rows = write([arena(), "", long, arena(id="c")])
    name, data, line = str(rows), b"", 3
    if source == "-":
        name, data = "-", rows.read_bytes()
    elif source == "parquet":
        pq = pytest.importorskip("pyarrow.parquet")
        table = pytest.importorskip("pyarrow").Table.from_pylist(
            [arena(note=""), long, arena(id="c")]
        )
        name, line = str(tmp_path / "in.parquet"), 2
        pq.write_table(table, name)
    out = tmp_path / "out"
    message = cli("score", name, "-r", "arena", "-o", out, *options, stdin=data, code=2).err
    shown = "standard input" if name == "-" else name
    assert message == (
        f"rag-rewards: line {line} of {shown} has more than 0 MiB, which is the limit of a row: "
        "remove or shorten it\n"
    )


def test_memory_is_bounded_for_a_long_line(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LINE_BYTES", 1 << 20)
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"x" * (1 << 26))
    tracemalloc.start()
    with pytest.raises(UsageError, match=r"line 1 of .* has more than 1 MiB"):
        score_file("arena", ScoreOptions(str(path), str(tmp_path / "out.jsonl")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 24


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_umask_of_the_process_is_not_changed(tmp_path, monkeypatch, mask):
    """Another thread could create a file while the mask is 0."""
    previous = os.umask(mask)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", None)
            write_file(str(tmp_path / "file"), b"data")
    finally:
        os.umask(previous)
    assert (tmp_path / "file").read_bytes() == b"data"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask
    assert len(list(tmp_path.iterdir())) == 1


BAD_NAME = "rows\udcff.jsonl"
"""A name whose last byte before the suffix is 0xFF, as Python decodes it."""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ("score", BAD_NAME, "-r", "arena"),
        ("score", "in.jsonl", "-r", "arena", "-o", BAD_NAME),
        ("score", "in.jsonl", "-r", f"{BAD_NAME}.py:reward"),
        ("report", BAD_NAME, "-o", "report.html"),
        ("evaluate", "in.jsonl", "-m", "em", "-o", BAD_NAME),
        ("init", "trl", "--data", BAD_NAME, "-r", "arena"),
        ("prepare", "rows", BAD_NAME, "-r", "arena", "-o", "train.jsonl"),
    ],
)
def test_names_that_are_not_utf8(cli, write, arena, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    write([arena()])
    before = names(tmp_path)
    message = cli(*arguments, code=2).err
    assert r"rows\udcff.jsonl" in message
    assert "is not UTF-8: rename the file" in message
    assert names(tmp_path) == before


@pytest.mark.parametrize("source", ["in", "in/*"])
def test_names_in_a_folder_that_are_not_utf8(cli, arena, tmp_path, source):
    (tmp_path / "in").mkdir()
    try:
        (tmp_path / "in" / BAD_NAME).write_text(json.dumps(arena()))
    except (OSError, UnicodeError):
        pytest.skip("the file system accepts only UTF-8")
    out = tmp_path / "out.jsonl"
    for command in (("score", "-r", "arena"), ("evaluate", "-m", "em"), ("report",)):
        name, *options = command
        message = cli(name, tmp_path / source, "-o", out, *options, code=2).err
        assert r"rows\udcff.jsonl is not UTF-8: rename the file" in message
    assert names(tmp_path) == ["in"]


@pytest.mark.skipif(sys.platform == "win32", reason="names on Windows are Unicode")
@pytest.mark.parametrize("mode", ["0", "1"])
def test_a_name_in_utf8_in_the_locale_c(write, arena, mode):
    """Without its UTF-8 mode, Python cannot decode the name, and the message names this mode."""
    path = write([arena()]).rename(write([arena()]).with_name("größe.jsonl"))
    environment = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": mode}
    result = subprocess.run(
        [*COMMAND, "score", path, "-r", "arena"],
        env=os.environ | environment,
        capture_output=True,
        check=False,
    )
    assert result.returncode == (0 if mode == "1" else 2), result.stderr
    assert (b"or set PYTHONUTF8=1" in result.stderr) == (mode == "0")

"""Compressed input and output: gzip and Zstandard."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from processes import finish

from rag_rewards.files import lines

zstd = (
    pytest.importorskip("compression.zstd")
    if sys.version_info >= (3, 14)
    else pytest.importorskip("backports.zstd")
)

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd.compress}
DECOMPRESS = {".gz": gzip.decompress, ".zst": zstd.decompress}
both = pytest.mark.parametrize("suffix", [".gz", ".zst"])
inputs = pytest.mark.parametrize("suffix", COMPRESS)


@pytest.fixture
def rows(write, arena):
    """Write 700 rows, which are more than one chunk, with an invalid one among them."""
    return write(
        [*(arena(id=str(i)) for i in range(350)), "{", *(arena(id=str(i)) for i in range(350, 699))]
    )


@pytest.fixture
def scored(cli, rows, tmp_path):
    """Return the scored rows of the file that is not compressed."""
    out = tmp_path / "plain.jsonl"
    cli("score", rows, "-r", "arena", "-o", out, code=3)
    return out.read_bytes()


# --- input ---------------------------------------------------------------------------------------


@inputs
@pytest.mark.parametrize(("name", "members"), [("in.txt", 1), ("in.jsonl", 3)])
@pytest.mark.parametrize("options", [[], ["--sort"], ["--workers", "2"]])
def test_compressed_rows_are_read_as_others(
    cli, rows, scored, tmp_path, suffix, members, options, name
):
    data = rows.read_bytes()
    ends = [len(data) * i // members for i in range(members + 1)]
    packed = b"".join(COMPRESS[suffix](data[a:b]) for a, b in pairwise(ends))
    source, out = tmp_path / (name + suffix), tmp_path / "out.jsonl"
    source.write_bytes(packed)
    cli("score", source, "-r", "arena", "-o", out, *options, code=3)
    assert out.read_bytes() == scored
    assert json.loads((tmp_path / "out.jsonl.errors.jsonl").read_bytes())["line"] == 351


@inputs
def test_compressed_standard_input(cli, rows, scored, suffix):
    result = cli("score", "-", "-r", "arena", stdin=COMPRESS[suffix](rows.read_bytes()), code=3)
    assert result.out.encode() == scored


@inputs
def test_first_bytes_that_arrive_one_by_one(write, arena, suffix):
    data = COMPRESS[suffix](write([arena()]).read_bytes())
    process = subprocess.Popen(
        [sys.executable, "-m", "rag_rewards", "score", "-", "-r", "arena"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    for byte in data[:6]:
        process.stdin.write(bytes([byte]))
        process.stdin.flush()
        time.sleep(0.01)
    out, _ = finish(process, data[6:])
    assert json.loads(out)["reward"] == 13.0
    assert process.returncode == 0


@both
def test_every_command_reads_compressed_rows(cli, rows, tmp_path, suffix):
    valid = b"".join(line for line in rows.read_bytes().splitlines(True) if line != b"{\n")
    source = tmp_path / f"rows.jsonl{suffix}"
    source.write_bytes(COMPRESS[suffix](valid))
    assert "699 rows" in cli("evaluate", source, "-m", "em", code=0).out
    two = tmp_path / f"two.jsonl{suffix}"
    two.write_bytes(COMPRESS[suffix](b"".join(valid.splitlines(True)[:2])))
    assert "2 rows, evidence" in cli("audit", two, "-r", "arena").out
    assert "699 rollouts" in cli("replay", source, "-r", "arena", code=0).out
    assert "13" in cli("explain", source, "--id", "5", "-r", "arena", code=0).out
    out = tmp_path / f"out.jsonl{suffix}"
    cli("select", source, "-r", "arena", "-o", out, code=0)
    assert json.loads(DECOMPRESS[suffix](out.read_bytes()))["samples"] == 699


@both
def test_a_file_that_is_cut_off(cli, rows, scored, tmp_path, monkeypatch, suffix):
    """The error names the last complete line. The rows of complete shards are kept."""
    monkeypatch.setattr("rag_rewards.scoring.run.shard_bytes", lambda files, workers: 10_000)
    data = COMPRESS[suffix](rows.read_bytes())
    source, out = tmp_path / f"cut.jsonl{suffix}", tmp_path / "out.jsonl"
    for end in (1, 5, 11, len(data) // 2, len(data) - 20, len(data) - 1):
        source.write_bytes(data[:end])
        if end == 1:  # no longer recognizable by its first bytes: one row that is not JSON
            assert "0 scored, 1 in error" in cli("score", source, "-r", "arena", code=3).err
            continue
        message = cli("score", source, "-r", "arena", "-o", out, code=2).err
        assert f"{source} after line " in message
        assert "the file is cut off" in message
        line = int(message.split("after line ")[1].split(":")[0])
        assert not out.exists()
        partial = tmp_path / "out.jsonl.partial"
        kept = partial.read_bytes() if partial.exists() else b""
        assert scored.startswith(kept)
        assert kept.count(b"\n") <= line <= 700
        assert kept or line < 100


@pytest.mark.parametrize("end", [b"garbage", b"\x1f\x8bgarbage, which is no member"])
def test_a_damaged_file(cli, rows, tmp_path, end):
    source = tmp_path / "in.jsonl.gz"
    source.write_bytes(gzip.compress(rows.read_bytes()) + end)
    message = cli("score", source, "-r", "arena", "-o", tmp_path / "out", code=2).err
    assert f"{source} after line 700: the file is damaged" in message
    changed = bytearray(gzip.compress(rows.read_bytes()))
    changed[-6] ^= 1  # a checksum
    source.write_bytes(changed)
    assert (
        "the file is damaged: CRC check failed" in cli("score", source, "-r", "arena", code=2).err
    )


@both
def test_an_empty_file_with_the_name_of_a_compressed_one(cli, tmp_path, suffix):
    source = tmp_path / f"in.jsonl{suffix}"
    source.write_bytes(b"")
    assert (
        "is empty, which no compressed file is" in cli("score", source, "-r", "arena", code=2).err
    )
    source.write_bytes(COMPRESS[suffix](b""))
    assert "0 scored, 0 in error" in cli("score", source, "-r", "arena", code=0).err


@both
def test_rows_that_are_not_compressed_in_spite_of_their_name(cli, write, arena, suffix):
    source = write([arena()], f"in.jsonl{suffix}")
    assert cli("score", source, "-r", "arena", code=0).rows[0]["reward"] == 13.0


@both
def test_a_line_that_decompresses_to_gigabytes(cli, write, arena, tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(lines, "LINE_BYTES", 1 << 21)
    row = write([arena()]).read_bytes()
    source, out = tmp_path / f"bomb.jsonl{suffix}", tmp_path / "out.jsonl"
    source.write_bytes(COMPRESS[suffix](row + bytes(1 << 26)))
    message = cli("score", source, "-r", "arena", "-o", out, code=2).err
    assert f"line 2 of {source} has more than 2 MiB, which is the limit of a row" in message


def test_a_zstandard_file_that_needs_gigabytes_of_memory(cli, tmp_path):
    source = tmp_path / "in.jsonl.zst"
    window = (31 - 10) << 3  # a window of 2 GiB, and one empty block
    source.write_bytes(b"\x28\xb5\x2f\xfd\x00" + bytes([window]) + b"\x01\x00\x00")
    message = cli("score", source, "-r", "arena", code=2).err
    assert "too much memory" in message


# --- output --------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("options", [[], ["--sort"], ["--workers", "2"]])
def test_a_compressed_output(cli, rows, scored, tmp_path, suffix, options):
    written = []
    for name in ("out", "other"):
        out = tmp_path / f"{name}.jsonl{suffix}"
        cli("score", rows, "-r", "arena", "-o", out, *options, code=3)
        assert DECOMPRESS[suffix](out.read_bytes()) == scored
        assert not (tmp_path / f"{name}.jsonl{suffix}.partial").exists()
        written.append(out.read_bytes())
    assert written[0] == written[1]
    if suffix == ".gz":  # no file name (flags) and no time, neither of which is content
        assert written[0][3:8] == bytes(5)


@both
def test_rows_before_an_error_are_kept_as_json_lines(cli, rows, scored, tmp_path, suffix):
    out = tmp_path / f"out.jsonl{suffix}"
    cli("score", rows, "-r", "arena", "-o", out, "--on-error", "stop", code=2)
    assert not out.exists()
    kept = (tmp_path / f"out.jsonl{suffix}.partial").read_bytes()
    assert kept == b"".join(scored.splitlines(True)[:350])


@both
def test_a_compressed_output_keeps_its_permissions(cli, rows, tmp_path, suffix):
    out = tmp_path / f"out.jsonl{suffix}"
    out.write_bytes(b"")
    out.chmod(0o600)
    cli("score", rows, "-r", "arena", "-o", out, code=3)
    assert out.stat().st_mode & 0o777 == 0o600


@both
def test_a_compressed_output_without_rows(cli, tmp_path, write, suffix):
    out = tmp_path / f"out.jsonl{suffix}"
    cli("score", write([]), "-r", "arena", "-o", out, code=0)
    assert DECOMPRESS[suffix](out.read_bytes()) == b""


@both
def test_other_outputs_of_commands(cli, rows, tmp_path, suffix):
    plain, packed = tmp_path / "result.json", tmp_path / f"result.json{suffix}"
    for out in (plain, packed):
        cli("evaluate", rows, "-m", "em", "-o", out, code=3)
    assert DECOMPRESS[suffix](packed.read_bytes()) == plain.read_bytes()


@both
def test_a_compressed_parquet_file_is_refused(cli, write, arena, tmp_path, suffix):
    out = tmp_path / f"out.parquet{suffix}"
    message = cli("score", write([arena()]), "-r", "arena", "-o", out, code=2).err
    assert f"Parquet compresses its columns itself: write {tmp_path}/out.parquet" in message


def test_a_compressed_device_is_refused(cli, write, arena, tmp_path):
    pipe = tmp_path / "pipe.gz"
    os.mkfifo(pipe)
    message = cli("score", write([arena()]), "-r", "arena", "-o", pipe, code=2).err
    assert f"{pipe} is not a regular file: write rows without compression" in message


def test_zstandard_without_its_library(cli, write, arena, tmp_path, monkeypatch):
    source = tmp_path / "in.jsonl.zst"
    source.write_bytes(zstd.compress(write([arena()]).read_bytes()))
    monkeypatch.setitem(sys.modules, zstd.__name__, None)
    message = 'backports.zstd is not installed: pip install "rag-rewards[zstd]"'
    assert message in cli("score", source, "-r", "arena", code=2).err
    out = tmp_path / "out.jsonl.zst"
    assert message in cli("score", write([arena()]), "-r", "arena", "-o", out, code=2).err
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("out")]

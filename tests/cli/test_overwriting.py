"""No command overwrites a file that it reads, whichever name or link is given."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import COMMAND, Cli
from processes import WAIT_SECONDS

from rag_rewards.cli.app import COMMANDS, OUTPUTS, make_app
from rag_rewards.errors import OptionError
from rag_rewards.files import output_check
from rag_rewards.files.output_check import refuse_overwriting
from rag_rewards.metrics.evaluation import EvaluateOptions

RECIPE = ("--recipe", "--config")
MODELS = ("--set",)
READ: dict[str, tuple[str, ...]] = {
    "score": ("IN", *RECIPE, *MODELS),
    "preflight": ("IN", *RECIPE, *MODELS),
    "recipes": ("NAME",),
    "replay": ("IN", *RECIPE),
    "audit": ("IN", "--attack", *RECIPE, *MODELS),
    "evaluate": ("IN", "--config", "--questions"),
    "calibrate": ("IN", *RECIPE, *MODELS),
    "explain": ("IN", *RECIPE, *MODELS),
    "report": ("IN", *RECIPE),
    "serve": ("--token-file", *RECIPE, *MODELS),
    "init": ("--data", "--validation", *RECIPE, *MODELS),
    "doctor": (),
    "prepare": ("IN", "--document-pool", "--noise-from", "--prompt-template"),
    "probe": ("IN", *RECIPE, *MODELS),
    "select": ("IN", "--exclude", *RECIPE, *MODELS),
}
"""The arguments of each command that name a file to read."""
WRITTEN: dict[str, tuple[str, ...]] = {
    "score": ("--output", "--judge-cache"),
    "preflight": ("--judge-cache",),
    "recipes": (),
    "replay": (),
    "audit": ("--judge-cache",),
    "evaluate": ("--output", "--judge-cache"),
    "calibrate": ("--output", "--threshold-file", "--judge-cache"),
    "explain": ("--output", "--svg", "--judge-cache"),
    "report": ("--output",),
    "serve": ("--judge-cache", "--dump"),
    "init": ("--output", "--judge-cache", "--dump"),
    "doctor": (),
    "prepare": ("--output",),
    "probe": ("--output", "--keep-rollouts", "--judge-cache"),
    "select": ("--output", "--judge-cache"),
}
"""The options of each command that name a file to write."""
TEXT = (
    *("--columns", "--base", "--model", "--backend", "--device", "--nli"),
    *("--similarity", "--judge", "--judge-model", "--document-form", "--document-separator"),
    *(
        "--ray-address",
        "--format",
        "--start",
        "--metrics",
        "--by",
        "--label",
        "--label-range",
        "--column",
    ),
    *("--score", "--id", "--title", "--host", "TRAINER", "--policy"),
    *("--components", "DATASET", "--trainer", "--split", "--prompt", "--preset"),
    *("--documents-from", "--stop", "--pass", "--std-of", "--make", "--style", "--sections"),
)
"""Arguments with a text, a folder of a model or a URL. `prepare` takes only names of recipes."""
WRITERS = [name for name, options in WRITTEN.items() if options and name != "init"]
LINKS: dict[str, Callable[[Path], str]] = {
    "same": str,
    "relative": lambda path: os.path.relpath(path),
    "dot": lambda path: f"{path.parent}/./{path.name}",
    "parent": lambda path: f"{path.parent}/../{path.parent.name}/{path.name}",
    "file URL": lambda path: path.as_uri(),
    "symbolic link": lambda path: _linked(path, os.symlink),
    "hard link": lambda path: _linked(path, os.link),
    "linked folder": lambda path: f"{_linked(path.parent, os.symlink)}/{path.name}",
}


def _linked(path: Path, link: Callable[[Path, Path], None]) -> str:
    name = path.with_name(f"link-to-{path.name}")
    if not name.exists():
        link(path, name)
    return str(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "file.py"
    path.parent.mkdir()
    path.write_text("precious\n")
    return path


def options(command: str, kinds: tuple[str, ...] = ("str", "Path")) -> set[str]:
    arguments = make_app()[command].assemble_argument_collection()
    return {each.name for each in arguments if any(kind in str(each.hint) for kind in kinds)}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_is_in_the_tables(command: str) -> None:
    read, written = set(READ[command]), set(WRITTEN[command])
    own = options(command)
    texts = {*TEXT, "--recipe", "--set"}
    assert own - texts == (read | written) - texts
    assert written == own & set(OUTPUTS)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("command", WRITERS)
def test_an_input_is_refused_as_output(cli: Cli, file: Path, command: str, link: str) -> None:
    name = LINKS[link](file)
    for written in WRITTEN[command]:
        for read in READ[command]:
            values = {"--set": f"models.prompt_template={file}"}
            values |= dict.fromkeys(("--recipe", "--attack"), f"{file}:reward")
            value = values.get(read, file)
            reading = [value] if read == "IN" else [read, value]
            first = ["rows"] if command == "prepare" else []
            message = cli(command, *first, *reading, written, name, code=2).err
            assert f"{written} {name} would overwrite {file}, which is read" in message, read
            assert file.read_text() == "precious\n"
    assert {path.name.removeprefix("link-to-") for path in file.parent.iterdir()} == {"file.py"}


@pytest.mark.parametrize("reference", ["file:reward", "./file.py:reward"])
def test_a_module_of_a_recipe_is_refused_as_output(
    cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    """The recipe is an option, or a key of the configuration."""
    monkeypatch.chdir(file.parent)
    config = file.parent.parent / "config.yaml"
    for text in (f"recipe: '{reference}'", f"stages: [{{recipe: '{reference}'}}]"):
        config.write_text(text)
        message = cli("score", "rows.jsonl", "--config", config, "-o", file, code=2).err
        assert f"--output {file} would overwrite" in message
    message = cli("score", "rows.jsonl", "-r", reference, "-o", file, code=2).err
    assert f"--output {file} would overwrite" in message
    assert file.read_text() == "precious\n"


@pytest.mark.parametrize("suffix", output_check.SIDE_FILES)
@pytest.mark.parametrize("command", WRITERS)
def test_an_input_is_refused_as_file_beside_an_output(
    cli: Cli, file: Path, command: str, suffix: str
) -> None:
    beside = file.with_name(f"out{suffix}")
    file.rename(beside)
    for written in WRITTEN[command]:
        read = READ[command][0]
        reading = [beside] if read == "IN" else [read, beside]
        first = ["rows"] if command == "prepare" else []
        message = cli(command, *first, *reading, written, file.with_name("out"), code=2).err
        assert "would overwrite" in message
    assert beside.read_text() == "precious\n"
    assert list(file.parent.iterdir()) == [beside]


@pytest.mark.parametrize("source", ["{folder}", "{folder}/*.jsonl", "{folder}/r?ws.jsonl"])
@pytest.mark.parametrize("command", [name for name in WRITERS if "IN" in READ[name]])
def test_files_of_a_folder_and_of_a_pattern(
    cli: Cli, file: Path, command: str, source: str
) -> None:
    rows = file.rename(file.with_name("rows.jsonl"))
    (file.parent / "more.jsonl").write_text("precious\n")
    first = ["rows"] if command == "prepare" else []
    for written in WRITTEN[command]:
        reading = source.format(folder=file.parent)
        message = cli(command, *first, reading, written, rows, code=2).err
        assert f"would overwrite {rows}" in message
    assert rows.read_text() == "precious\n"


def test_rows_that_all_fail_remain(cli: Cli, write, arena) -> None:
    rows = write([{"response": "x"}, "{"])
    before = rows.read_bytes()
    assert "would overwrite" in cli("score", rows, "-r", "arena", "-o", rows, code=2).err
    assert rows.read_bytes() == before
    assert list(rows.parent.iterdir()) == [rows]


@pytest.mark.parametrize("command", ["score", "evaluate", "calibrate"])
def test_standard_input_and_output(shell: Cli, write, arena, command: str) -> None:
    rows = write([arena(correct=1)])
    before = rows.read_bytes()
    arguments = {
        "score": ["-r", "arena"],
        "evaluate": ["-m", "em"],
        "calibrate": ["-l", "correct", "-m", "em"],
    }[command]
    pipes = {"capture_output": False, "stderr": subprocess.PIPE}
    with rows.open("rb") as handle:
        ran = subprocess.run(
            [*COMMAND, command, "-", *arguments, "-o", str(rows)],
            stdin=handle,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
    assert ran.returncode == 2
    assert f"--output {rows} would overwrite standard input" in ran.stderr
    with rows.open("ab") as handle:
        message = shell(command, rows, *arguments, code=2, stdout=handle, **pipes).err
    assert f"standard output would overwrite {rows}" in message
    assert rows.read_bytes() == before


def test_a_folder_of_parts_and_its_run(cli: Cli, write, arena, tmp_path: Path) -> None:
    rows = write([arena()])
    out = tmp_path / "parts"
    out.mkdir()
    part = rows.rename(out / "part-00000.jsonl")
    parts = ("-r", "arena", "--output-format", "parts")
    assert "would overwrite" in cli("score", part, *parts, "-o", out, code=2).err
    assert "would overwrite" in cli("score", out, *parts, "-o", out, code=2).err
    assert list(out.iterdir()) == [part]
    (tmp_path / "out.run").mkdir()
    rows = part.rename(tmp_path / "out.run" / "errors.jsonl")
    message = cli("score", rows, "-r", "arena", "-o", tmp_path / "out", code=2).err
    assert f"would overwrite {rows}" in message
    assert rows.exists()


@pytest.mark.parametrize("place", ["--set", "--config"])
def test_a_cache_of_verdicts_is_an_output(
    cli: Cli, write, arena, tmp_path: Path, place: str, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows, cache = write([arena(correct=1)]), tmp_path / "v.db"
    config = tmp_path / "config.yaml"
    config.write_text(f"models: {{judge_cache: {cache}, device: cpu, judge_model: name}}\n")
    value = config if place == "--config" else f"models.judge_cache={cache}"
    arguments = ("score", rows, "-r", "arena", place, value)
    message = cli(*arguments, "-o", cache, code=2).err
    assert f"--judge-cache and --output write the same file, {cache}" in message
    message = cli("score", cache, "-r", "arena", place, value, "-o", "out", code=2).err
    assert f"--judge-cache {cache} would overwrite" in message
    cache.touch()
    for output in ("out", "cpu", "name", "cpu", "name"):  # twice: device and model are no files
        cli(*arguments, "--judge-cache", cache, "-o", output, code=0)


def test_two_outputs_of_one_file(cli: Cli, write, arena, tmp_path: Path) -> None:
    out, rows = tmp_path / "out", write([arena(correct=1)])
    arguments = ("-l", "correct", "-m", "em", "-o", out, "--threshold-file", out)
    message = cli("calibrate", rows, *arguments, code=2).err
    assert "--output and --threshold-file write the same file" in message
    assert not out.exists()


def test_devices_and_urls(write, arena) -> None:
    refuse_overwriting({"output": os.devnull}, [os.devnull])
    refuse_overwriting({"output": "s3://bucket/out.jsonl"}, ["s3://bucket/in.jsonl"])
    with pytest.raises(OptionError, match=r"would overwrite s3://bucket/in\.jsonl"):
        refuse_overwriting({"output": "s3://bucket/in.jsonl?region=x"}, ["s3://bucket/in.jsonl"])


def test_other_outputs_beside_the_input_are_written(cli: Cli, write, arena, tmp_path: Path) -> None:
    """The folder of the output can contain the input and the configuration."""
    rows = write([arena(), "{"])
    config = tmp_path / "config.yaml"
    config.write_text("recipe: arena\n")
    out = tmp_path / "out.jsonl"
    cli("score", rows, "--config", config, "-o", out, code=3)
    cli("evaluate", rows, "-m", "em", "-o", tmp_path / "out.json", code=3)
    known = {*map(str, (rows, config)), *output_check._written_names(str(out))}
    known |= {str(tmp_path / "out.json")}
    assert {str(path) for path in tmp_path.iterdir()} <= known
    assert json.loads(out.read_text())["id"] == "a"


def test_a_configuration_from_a_pipe_is_read_once(shell: Cli, write, arena) -> None:
    rows = write([arena(correct=1)])
    config = b"recipe: arena\nbonus.value: 3\n"
    scored = shell("score", rows, "--config", "/dev/stdin", stdin=config).out
    assert '"bonus.value":3' in json.loads(scored)["signature"]


def test_the_title_can_be_the_name_of_the_page(cli: Cli, write, arena, tmp_path: Path) -> None:
    rows, page = write([arena()]), tmp_path / "page.html"
    for _ in range(2):
        cli("report", rows, "-r", "arena", "-o", page, "--title", page)


def test_an_output_with_the_name_of_an_option_value(
    cli: Cli, write, arena, tmp_path: Path, monkeypatch
) -> None:
    """The values of these options are no files, also if an earlier output has their name."""
    monkeypatch.chdir(tmp_path)
    rows = write([arena(em=1)])
    for command in (
        ("score", rows, "-r", "arena", "-o", "arena"),
        ("score", rows, "-r", "arena", "--engine", "local", "-o", "local"),
        ("score", rows, "-r", "arena", "--columns", "ragas", "-o", "ragas"),
        ("evaluate", rows, "-m", "em", "-o", "em"),
    ):
        for _ in range(2):
            cli(*command, code=0)
    (tmp_path / "arena.py").write_text("precious")
    assert "would overwrite" in cli("score", rows, "-r", "arena.py:f", "-o", "arena.py", code=2).err


def test_options_in_python(write, arena) -> None:
    rows = str(write([arena()]))
    with pytest.raises(OptionError, match=r"output .* would overwrite"):
        EvaluateOptions([rows], ["em"], output=rows)

"""`--track` with the real packages, offline: what each tracker contains after a command."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_rewards.tracking.step_means import StepMeans

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the three packages
RIGHT, WRONG = "<answer>Seine</answer>", "<answer>Rhine</answer>"


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write five rows of two steps, one of them in error, and change to their folder."""
    monkeypatch.chdir(tmp_path)
    answers = [(1, RIGHT), (1, WRONG), (2, RIGHT), (2, RIGHT)]
    data = [
        {"id": i, "question": f"{i}?", "answers": ["Seine"], "step": step, "response": response}
        for i, (step, response) in enumerate(answers)
    ]
    data.append({"id": "bad", "response": RIGHT})
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in data))
    return path


SCORE = ("-r", "naive-grpo", "--set", "accuracy.metric=f1")
SIGNATURE = 'naive-grpo {"settings":{"accuracy.metric":"f1"}}'


def tensorboard_values(folder: Path) -> tuple[dict[str, list[tuple[int, float]]], str]:
    """Return the series of an event file, and its settings."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    tags = events.Tags()
    series = {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in tags["scalars"]
    }
    [settings] = events.Tensors(tags["tensors"][0])
    return series, settings.tensor_proto.string_val[0].decode()


def test_tensorboard(cli: Any, rows: Path) -> None:
    result = cli("score", rows, "-o", "scored.jsonl", *SCORE, "--track", "tensorboard", code=3)
    [folder] = Path("runs").iterdir()
    assert f"tensorboard: {folder}" in result.err
    series, settings = tensorboard_values(folder)
    assert series["correct"] == [(0, 0.75)]
    assert series["accuracy"] == [(0, 0.75)]
    assert series["steps/correct"] == [(1, 0.5), (2, 1.0)]
    assert series["rows"] == [(0, 4.0)]
    assert series["errors/DataError"] == [(0, 1.0)]
    assert SIGNATURE in settings
    assert "| settings.accuracy.metric | `f1` |" in settings
    assert "Seine" not in settings


def test_a_complete_output_is_tracked(cli: Any, rows: Path) -> None:
    command = ("score", rows, "-o", "scored.jsonl", *SCORE, "--track", "tensorboard")
    for _ in range(2):
        cli(*command, "--resume", code=3)
    first, second = Path("runs").iterdir()
    assert tensorboard_values(first) == tensorboard_values(second)
    assert "steps/correct" in tensorboard_values(second)[0]


def test_a_second_run_has_its_own_folder(cli: Any, rows: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "logs")
    monkeypatch.setattr("time.strftime", lambda form: "now")
    for _ in range(3):
        cli("score", rows, "-o", "scored.jsonl", *SCORE, "--track", "tensorboard", code=3)
    names = sorted(path.name for path in Path("logs").iterdir())
    assert names == [f"now-score-rows.jsonl{end}" for end in ("", "~2", "~3")]


def test_mlflow(cli: Any, rows: Path, tmp_path: Path, monkeypatch: Any) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file:{tmp_path / 'store'}")
    cli("score", rows, "-o", "scored.jsonl", *SCORE, "--track", "mlflow", code=3)
    cli("evaluate", "scored.jsonl", "-m", "f1>=0.5,correct", "--track", "mlflow", code=0)
    client = mlflow.MlflowClient()
    runs = client.search_runs([client.get_experiment_by_name("Default").experiment_id])
    evaluated, scored = sorted(runs, key=lambda run: run.info.run_name)
    assert scored.info.status == "FINISHED"
    assert scored.data.metrics["correct"] == 0.75
    assert SIGNATURE in scored.data.params["signature"]
    steps = client.get_metric_history(scored.info.run_id, "steps/correct")
    assert [(each.step, each.value) for each in steps] == [(1, 0.5), (2, 1.0)]
    assert evaluated.data.metrics["f1_0.5"] == 0.75
    assert evaluated.data.metrics["correct_low"] <= 0.75


def test_mlflow_that_refuses_a_run(cli: Any, rows: Path, tmp_path: Path, monkeypatch: Any) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    mlflow.set_tracking_uri(f"file:{tmp_path / 'other'}")
    error = cli("score", rows, "-o", "scored.jsonl", *SCORE, "--track", "mlflow", code=2).err
    assert "MLFLOW_ALLOW_FILE_STORE" in error
    assert not Path("scored.jsonl").exists()


def wandb_records(path: Path) -> Iterator[bytes]:
    """Yield the records of an offline run: a log of LevelDB, in blocks of 32 KiB."""
    data, at, record = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (rest := -at % 32768) < 7 and rest:
            at += rest
        _, length, part = struct.unpack_from("<IHB", data, at)
        if not part:
            return
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if part in (1, 4):  # a whole record, or its last part
            yield record
            record = b""


def wandb_run(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any], bool]:
    """Return the summary, the history and the settings of a run, and whether it has output."""
    from wandb.proto import wandb_internal_pb2

    [path] = folder.glob("wandb/offline-run-*/*.wandb")
    summary: dict[str, Any] = {}
    history: list[dict[str, Any]] = []
    settings: dict[str, Any] = {}
    has_output = False
    for data in wandb_records(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "summary":
            summary |= values_of(record.summary.update)
        elif kind == "history":
            history.append(values_of(record.history.item))
        elif kind in ("run", "config"):
            config = record.run.config if kind == "run" else record.config
            settings |= values_of(config.update)
        has_output |= kind in ("output", "output_raw")
    return summary, history, settings, has_output


def values_of(items: Any) -> dict[str, Any]:
    """Return items of wandb as a mapping."""
    return {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in items}


def test_wandb(cli: Any, rows: Path, tmp_path: Path, monkeypatch: Any) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    cli("score", rows, *SCORE, "--jsonl", "--track", "wandb", code=3)
    # The service of wandb writes the file after the end of the run, at the latest when it stops.
    wandb.teardown()
    summary, history, settings, has_output = wandb_run(tmp_path)
    assert summary["correct"] == 0.75
    assert summary["rows_in_error"] == 1
    steps = [(each["step"], each["steps/correct"]) for each in history]
    assert steps == [(1, 0.5), (2, 1.0)]
    assert SIGNATURE in settings["signature"]
    assert not has_output  # rows on standard output stay on this machine


def test_files_are_runs_with_differences(cli: Any, rows: Path) -> None:
    cli("score", rows, "-o", "a.jsonl", "-r", "naive-grpo", code=3)
    lines = [json.loads(line) for line in Path("a.jsonl").read_text().splitlines()]
    lines[1] |= {"correct": 1.0}
    Path("b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    options = ("-m", "correct", "--by", "step", "--track", "tensorboard")
    cli("evaluate", "a.jsonl", "b.jsonl", *options, code=0)
    first, second = sorted(Path("runs").iterdir(), key=lambda path: path.name[-7:])
    a, b = tensorboard_values(first)[0], tensorboard_values(second)[0]
    assert a["correct"] == [(0, 0.75)]
    assert a["steps/correct"] == [(1, 0.5), (2, 1.0)]
    assert "difference/correct" not in a
    assert b["difference/correct"] == [(0, 0.25)]
    assert b["difference/correct_low"][0][1] <= 0.25


@pytest.mark.parametrize(
    ("kind", "package"),
    [("wandb", "wandb"), ("mlflow", "mlflow-skinny"), ("tensorboard", "tensorboard")],
)
@pytest.mark.parametrize("command", ["score", "evaluate"])
def test_a_missing_package_ends_the_command_before_it_reads_rows(
    cli: Any, rows: Path, monkeypatch: Any, command: str, kind: str, package: str
) -> None:
    monkeypatch.delitem(sys.modules, f"rag_rewards.tracking.{kind}_tracker", raising=False)
    for name in [kind, *(name for name in sys.modules if name.startswith(f"{kind}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    options = SCORE if command == "score" else ("-m", "em")
    error = cli(command, rows, *options, "--track", kind, code=2).err
    assert f"{kind} is not installed: pip install {package}" in error


def test_an_unknown_tracker(cli: Any, rows: Path) -> None:
    assert "wandb" in cli("score", rows, *SCORE, "--track", "comet", code=2).err


def test_means_of_steps() -> None:
    means = StepMeans()
    means.add_lines(b'{"step": 2, "reward": 1, "components": {"a": null}}\n{"reward": 5}\n')
    means.add_lines(b'{"step": 2, "reward": null, "components": {"a": 3}}\n{"step": 1}\n')
    assert list(means.means()) == [(1, {}), (2, {"reward": 1.0, "a": 3.0})]

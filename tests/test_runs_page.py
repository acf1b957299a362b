"""The page about what was run: what the marks of tests promise, and what counts as a training."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from rag_rewards.trainers import TRAINERS

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))
build_runs = importlib.import_module("build_runs")

PAGE = """# GRPO with a model

Versions: torch {torch}, trl 1.16.0,
Python 3.11.7; one thread per run. Each training took 32 to 101 s.

- base, seed 0: accuracy 0.4
- binary, seed 0: accuracy 0.6
- binary, seed 1: accuracy 0.6
"""


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(build_runs, "RESULTS", tmp_path)
    monkeypatch.setattr(build_runs, "trainings", build_runs.trainings.__wrapped__)
    return tmp_path


def test_trainings_of_a_page_without_stored_runs(results: Path) -> None:
    (results / "a.md").write_text(PAGE.format(torch="2.13.0+cpu"), "utf-8")
    (results / "speed.md").write_text("# Speed\n\n- base, seed 0: 1\n", "utf-8")
    [each] = build_runs.trainings()
    assert (each.title, each.count, each.hours) == ("GRPO with a model", 2, "32 to 101 s each")
    assert each.versions == {"torch": "2.13.0+cpu", "trl": "1.16.0", "Python": "3.11.7"}
    rows = {name: build_runs.row_of(name, trainer) for name, trainer in TRAINERS.items()}
    assert rows["trl"][3:] == ("2 trainings", "never")
    assert {row[3:] for name, row in rows.items() if name != "trl"} == {("no", "never")}


@pytest.mark.parametrize("form", ["runs", "units"])
def test_trainings_of_a_file_of_runs(results: Path, form: str) -> None:
    machine = {"machine": "CPU X, 2 cores"}
    gpus = {"runs": 2, "units": 0}[form]
    runs = {
        "runs": {
            "kind": {
                "a": [
                    {
                        "steps": 9,
                        "seconds": 1800,
                        "device": "cuda:0",
                        "points": [[0, {"seconds": 5}]],
                    }
                ]
                * 2
            },
            "base": [{"steps": 0, "seconds": 99}],
        },
        "units": {"a": machine | {"training seconds": 3600}, "before": {"measuring seconds": 9}},
    }[form]
    (results / "a.md").write_text(PAGE.format(torch="2.13.0"), "utf-8")
    versions = {"torch": "2.13.0", "trl": "1.16.0"}
    kinds = {"a": versions, "b": versions | {"torch": "2.13.0+cpu"}}
    stored = {"versions": kinds if form == "runs" else versions, form: runs}
    (results / "a.json").write_text(json.dumps(stored), "utf-8")
    [each] = build_runs.trainings()
    assert each.hours == "1.0"
    assert (each.count, each.machines) == {
        "runs": (2, ()),
        "units": (1, ("CPU X, 2 cores",)),
    }[form]
    assert each.gpus == gpus
    in_row = build_runs.row_of("trl", TRAINERS["trl"])[4]
    assert in_row == ("2 trainings" if gpus else "never")  # torch of both can have GPUs
    (results / "a.json").write_text(json.dumps({form: runs}), "utf-8")
    with pytest.raises(ValueError, match=r"a\.json: add the version of torch"):
        build_runs.trainings()


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ({}, False),
        ({"machine": "Intel Xeon, 2 cores"}, False),
        ({"machine": "NVIDIA H100"}, True),
        ({"machine": "NVIDIA H100", "device": "cpu"}, False),
        ({"device": "cuda:0"}, True),
        ({"device": "mps"}, True),
    ],
)
def test_a_training_ran_on_a_gpu_if_its_stored_device_or_machine_is_one(run, expected) -> None:
    assert build_runs.on_gpu(run) is expected


def test_the_hours_of_the_search_agents_are_those_of_their_page() -> None:
    [each] = [each for each in build_runs.trainings() if each.file.name == "search_agents.md"]
    text = " ".join(each.file.read_text("utf-8").split())
    written = [list(map(int, m)) for m in re.findall(r"all (\d+) trainings (\d+) minutes", text)]
    minutes = sum(map(build_runs.seconds_of, runs_of(each.file))) / 60
    assert each.count == sum(count for count, _ in written)
    assert minutes == pytest.approx(sum(minutes for _, minutes in written), abs=len(written) / 2)


def runs_of(page: Path) -> list[dict[str, float]]:
    return [*build_runs.runs_of(json.loads(page.with_suffix(".json").read_text("utf-8")))]


def test_a_trainer_without_an_environment_has_no_tests_in_its_package() -> None:
    for name, trainer in TRAINERS.items():
        assert bool(build_runs.tests_of(name)) == bool(trainer.environment), name


def test_marks_of_tests() -> None:
    assert build_runs.step_of("trl") == "yes"
    assert build_runs.step_of("verl").startswith("no: the loop runs with doubles of the engine")
    assert build_runs.step_of("skyrl") == "no"


def test_a_mark_without_a_step_fails() -> None:
    torch = pytest.importorskip("torch")
    file = ROOT / "tests" / "trainers" / "conftest.py"
    spec = importlib.util.spec_from_file_location("conftest_of_trainers", file)
    assert spec is not None
    assert spec.loader is not None
    marks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(marks)
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with pytest.raises(AssertionError, match="changed weights"), marks.weights_change():
        optimizer.step()  # without a gradient
    weight.sum().backward()
    with marks.weights_change():
        optimizer.step()
    with pytest.raises(AssertionError, match="changed weights"), marks.weights_change():
        pass

"""Write the tables of docs/what-was-run.md: what ran in each trainer, and each stored training.

The tables follow from the records of the trainers, from the tests in tests/trainers, and from the
versions, machines and seconds in benchmarks/results. A test with the mark `optimizer_step` fails if
no optimizer changes weights in it (tests/trainers/conftest.py), and one with `training_loop` names
the parts of the trainer that doubles replace.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from inserts import filled_by_name, table

from rag_rewards.trainers import TRAINERS, Trainer

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).with_name("what-was-run.md")
RESULTS = ROOT / "benchmarks" / "results"
_VERSIONS = re.compile(r"Versions: (.*?Python [\d.]+)")
_TIMES = re.compile(r"[Ee]ach training took (\d+) to (\d+) s")
_GPU = re.compile(r"\b(?:NVIDIA|GPU|CUDA)\b", re.IGNORECASE)
_RUN = re.compile(r"^- (?!base,).*, seed \d+: ", re.MULTILINE)


@dataclass(frozen=True)
class Trainings:
    """The trainings of a file of results.

    versions  the packages, such as `{"torch": "2.13.0+cpu"}`
    hours     their time, as text
    machines  the machines, where the file names them
    gpus      how many trainings have a stored device or machine that is a GPU
    """

    file: Path
    title: str
    count: int
    hours: str
    versions: dict[str, str]
    machines: tuple[str, ...] = ()
    gpus: int = 0


@cache
def trainings() -> tuple[Trainings, ...]:
    """Return the trainings of all pages of results that name the versions."""
    pages = sorted(RESULTS.rglob("*.md"), key=lambda path: path.relative_to(RESULTS).as_posix())
    return tuple(each for path in pages if (each := _trainings(path)) is not None)


def _trainings(page: Path) -> Trainings | None:
    """Return the trainings of a page; those of its JSON file if it has one.

    ValueError if the file of trainings does not name the version of torch.
    """
    text = page.read_text("utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    stored = page.with_suffix(".json")
    if stored.exists():
        content = json.loads(stored.read_text("utf-8"))
        runs = list(runs_of(content))
        hours = f"{sum(map(seconds_of, runs)) / 3600:.1f}"
        machines = tuple(sorted({run["machine"] for run in runs if "machine" in run}))
        versions = versions_of(content)
        if runs and "torch" not in versions:
            raise ValueError(f"{stored.name}: add the version of torch to 'versions'")
        gpus = sum(map(on_gpu, runs))
        trainings = Trainings(page, title, len(runs), hours, versions, machines, gpus)
    elif match := _VERSIONS.search(" ".join(text.split())):
        versions = dict(part.rsplit(" ", 1) for part in match[1].split(", "))
        times = _TIMES.search(text)
        hours = f"{times[1]} to {times[2]} s each" if times else "not stored"
        trainings = Trainings(page, title, len(_RUN.findall(text)), hours, versions)
    else:
        return None
    return trainings if trainings.count else None


def versions_of(content: dict[str, Any]) -> dict[str, str]:
    """Return the versions of a file, which can also have those of each kind of run by its name."""
    stored = content.get("versions", {})
    versions: dict[str, list[str]] = {}
    for each in [part for part in stored.values() if isinstance(part, dict)] or [stored]:
        for name, version in each.items():
            if version not in versions.setdefault(name, []):
                versions[name].append(version)
    return {name: " and ".join(each) for name, each in versions.items()}


def runs_of(content: Any) -> Iterator[dict[str, Any]]:
    """Yield each training in the content of a file: a mapping with seconds of a training."""
    if isinstance(content, dict):
        if "training seconds" in content or (content.get("steps") and "seconds" in content):
            yield content
            return
        content = list(content.values())
    if isinstance(content, list):
        for each in content:
            yield from runs_of(each)


def on_gpu(run: dict[str, Any]) -> bool:
    """Return whether the stored device of a training, or else its machine, is a GPU.

    >>> on_gpu({"device": "cuda:0"}), on_gpu({"device": "cpu"}), on_gpu({"machine": "NVIDIA H100"})
    (True, False, True)
    """
    if "device" in run:
        return not str(run["device"]).startswith("cpu")
    return _GPU.search(str(run.get("machine", ""))) is not None


def seconds_of(run: dict[str, Any]) -> float:
    return float(run["training seconds"] if "training seconds" in run else run["seconds"])


def tests_of(name: str) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return the tests that run inside a trainer: the name of the file, and the function."""
    folder = ROOT / "tests" / "trainers" / name.replace("-", "_")
    return [
        (path.name, node)
        for path in sorted(folder.glob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]


def marks_of(name: str, mark: str) -> list[tuple[str, list[str]]]:
    """Return the files of the tests of a trainer with a mark, and the texts of the mark."""
    return [
        (file, [arg.value for arg in decorator.args if isinstance(arg, ast.Constant)])
        for file, node in tests_of(name)
        for call in node.decorator_list
        if isinstance(decorator := _call(call), ast.Call)
        and ast.unparse(decorator.func) == f"pytest.mark.{mark}"
    ]


def _call(node: ast.expr) -> ast.Call:
    """Return a decorator as a call."""
    return node if isinstance(node, ast.Call) else ast.Call(node, [], [])


def row_of(name: str, trainer: Trainer) -> tuple[object, ...]:
    """Return the row of a trainer."""
    done = [each for each in trainings() if trainer.package in each.versions]
    count = len(tests_of(name))
    tests = f"{count} tests in {trainer.versioned.rpartition(' ')[2]}"
    full = f"{sum(each.count for each in done)} trainings" if done else "no"
    gpus = sum(each.gpus for each in done)
    return (
        f"[{trainer.title}]({name}.md)",
        tests if count and trainer.environment else "no: tests with stand-ins",
        step_of(name),
        full,
        f"{gpus} trainings" if gpus else "never",
    )


def combination_of(name: str, trainer: Trainer) -> tuple[object, ...]:
    """Return the row of the versions with which a trainer is tested."""
    pins = [line.split("==") for line in trainer.combination if "==" in line]
    others = ", ".join(f"{name} {version}" for name, version in pins if name != trainer.package)
    head = (f"[{trainer.title}]({name}.md)", trainer.since, trainer.tested, f"`{trainer.python}`")
    return (*head, (others or "the newest") if trainer.environment else "no environment")


def step_of(name: str) -> str:
    """Return whether a test of a trainer changes weights, or runs the loop of the trainer."""
    if marks_of(name, "optimizer_step"):
        return "yes"
    loops = marks_of(name, "training_loop")
    return f"no: the loop runs with doubles of {loops[0][1][0]}" if loops else "no"


def page() -> str:
    """Return the page."""
    head = ("trainer", "inside the real package", "step on a CPU", "full training", "GPU")
    done = trainings()
    texts = {
        "trainers": table(head, [row_of(*item) for item in TRAINERS.items()]),
        "versions": table(
            ("trainer", "first version", "tested version", "its Python", "tested with"),
            [combination_of(*item) for item in TRAINERS.items()],
        ),
        "gpu": gpu(sum(each.gpus for each in done), sum(each.count for each in done)),
        "trainings": table(
            ("results", "trainings", "hours", "machine", "versions"),
            [
                (
                    f"{each.title}: `{each.file.relative_to(ROOT).as_posix()}`",
                    each.count,
                    each.hours,
                    "; ".join(each.machines) or "not stored",
                    ", ".join(f"{name} {version}" for name, version in each.versions.items()),
                )
                for each in done
            ],
        ),
    }
    return filled_by_name(PAGE, texts)


def gpu(gpus: int, total: int) -> str:
    """Return the sentence about GPUs."""
    if not gpus:
        return f"No stored device or machine of the {total} trainings is a GPU."
    return f"The stored device or machine of {gpus} of {total} trainings is a GPU."


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

"""Train SmolLM2-135M with GRPO and five rewards, on real questions with real passages.

python benchmarks/language_model/train.py --shared ../shared

The command runs the missing units of the plan (`plan.py`) one after the other. It can be stopped at
any time: the same command goes on at the last checkpoint. After each unit it writes the results and
the page. Run it with the environment of TRL (`make demo` creates build/trainers/trl).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("benchmarks", "adapters", "")]

from language_model import page, plan  # noqa: E402
from language_model.run import Unit, Workplace, identity, run, units  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "language_model_training.json"
SECONDS = {"step": 30.0, "measuring": 300.0, "warm-up": 1650.0}
"""Processor seconds of one thread in a pilot, for estimates before there are results."""


def main() -> int:
    """Run the command."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    options.add_argument(
        "--build",
        type=Path,
        default=ROOT / "build" / "language-model",
        help="folder of checkpoints and finished units",
    )
    options.add_argument("--threads", type=int, default=os.cpu_count())
    options.add_argument(
        "--only", nargs="+", help="names of units to run, as --estimate lists them"
    )
    options.add_argument("--estimate", action="store_true", help="list missing units with hours")
    options.add_argument("--page", action="store_true", help="write the page without runs")
    arguments = options.parse_args()
    names = [unit.name for unit in units()]
    if unknown := [name for name in arguments.only or () if name not in names]:
        options.error(f"--only: unknown units {unknown}; the units are: {'; '.join(names)}")
    place = Workplace(arguments.shared, arguments.build)
    stored = collect(place)
    missing = [unit for unit in units() if unit.name not in stored["units"]]
    if arguments.estimate:
        print(estimate(missing, stored["units"]))
    elif arguments.page:
        page.write(stored, RESULTS)
    else:
        for unit in missing:
            if not arguments.only or unit.name in arguments.only:
                run_and_store(unit, place, arguments.threads)
    return 0


def run_and_store(unit: Unit, place: Workplace, threads: int) -> None:
    """Run a unit, store its result in the build folder, and write results and page."""
    import torch

    torch.set_num_threads(threads)
    print(f"{unit.name}: {unit.file_name}", flush=True)
    versions = {name: version(name) for name in ("torch", "transformers", "trl")}
    result = run(unit, place) | {"machine": machine(threads), "versions": versions}
    file = place.result(unit)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(result) + "\n", "utf-8")
    part.replace(file)
    for optimizer in file.with_suffix("").glob("checkpoint-*/optimizer.pt"):
        optimizer.unlink()  # 1 GB; the weights stay for further measures
    stored = collect(place) | {"questions": counts(place)}
    lines = (f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in stored["units"].items())
    head = (
        f" {json.dumps(name)}: {json.dumps(stored[name])}" for name in ("questions", "versions")
    )
    text = ",\n".join([*head, ' "units": {\n' + ",\n".join(lines) + "\n }"])
    RESULTS.write_text(f"{{\n{text}\n}}\n", "utf-8")
    page.write(stored, RESULTS)


def counts(place: Workplace) -> dict[str, dict[str, int]]:
    """Return the numbers of training and held-out questions."""
    return {
        name: {
            "all": len(part),
            "answerable": sum(q.is_answerable for q in part),
            "withheld": sum(q.is_withheld for q in part),
        }
        for name, part in zip(("training", "held-out"), place.split, strict=True)
    }


def collect(place: Workplace) -> dict[str, Any]:
    """Return the results that are stored, with those of the build folder, in the plan's order.

    A result of another plan counts as missing.
    """
    stored: dict[str, Any] = {"units": {}}
    if RESULTS.exists():
        stored = json.loads(RESULTS.read_text("utf-8"))
    before, stored["units"] = stored["units"], {}
    for unit in units():
        file = place.result(unit)
        result = json.loads(file.read_text("utf-8")) if file.exists() else before.get(unit.name)
        if result and result["plan"] == identity(unit):
            stored["units"][unit.name] = result
    if stored["units"]:
        stored.setdefault("questions", counts(place))
        pairs = {pair for each in stored["units"].values() for pair in each["versions"].items()}
        names = sorted({name for name, _ in pairs})
        stored["versions"] = {
            name: " and ".join(sorted(number for own, number in pairs if own == name))
            for name in names
        }
    return stored


def estimate(missing: list[Unit], finished: dict[str, Any]) -> str:
    """Return the missing units with their hours, from the measured seconds of the finished ones."""
    step, measuring, warm_up = (
        median(values) if values else SECONDS[name]
        for name, values in {
            "step": [
                r["training seconds"] / plan.STEPS for r in finished.values() if "points" in r
            ],
            "measuring": [r["measuring seconds"] for r in finished.values()],
            "warm-up": [r["warm-up"]["seconds"] for r in finished.values() if "warm-up" in r],
        }.items()
    )
    hours = {}
    for unit in missing:
        # A curve has as many measurements with one response as there are intervals in a training.
        points = (plan.STEPS - 1) // plan.CURVE_INTERVAL / (plan.SAMPLES + 1)
        own = plan.STEPS * step + points * measuring if unit.arm else 0.0
        own += warm_up if unit.kind == "before" else 0.0
        hours[unit.name] = (own + measuring) / 3600
    lines = [f"{value:5.1f} h  {name}" for name, value in hours.items()]
    total = f"{sum(hours.values()):5.1f} h in total for {len(missing)} of {len(units())} units"
    return "\n".join([*lines, f"{total}; {step:.0f} s per step"])


def machine(threads: int) -> str:
    """Return the model of the processor, its cores and the threads in use."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'processor'}, {os.cpu_count()} cores, {threads} threads"


if __name__ == "__main__":
    sys.exit(main())

"""Run the fuzz tests with inputs that reach new code, found by atheris (libFuzzer).

    python tests/fuzz/coverage_guided.py                     all targets, 60 seconds each
    python tests/fuzz/coverage_guided.py --seconds 3600 text.decisions
    python tests/fuzz/coverage_guided.py --replay FILE text.decisions

A target is a property test of this folder. Its inputs are the bytes from which Hypothesis draws the
values of the test. The inputs that reached new code are kept in build/fuzz/corpus/TARGET, and those
of failures in build/fuzz/failures/TARGET. The exit code is 1 if a target fails.
"""

from __future__ import annotations

import argparse
import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORK = HERE.parents[1] / "build" / "fuzz"
_PROPERTY = re.compile(r"^@given\(.*?^def (test_\w+)\(", re.MULTILINE | re.DOTALL)
_RUNS = re.compile(r"^(?:#|stat::number_of_executed_units:\s+)(\d+)", re.MULTILINE)
LONGEST = 8192
"""Bytes of an input. Hypothesis draws the rest of a longer one as zeros."""
SLOWEST = 60
"""Seconds of one input that are a failure."""


def targets() -> dict[str, str]:
    """Return the module of each property test of this folder."""
    found: dict[str, str] = {}
    for path in sorted(HERE.glob("test_fuzz_*.py")):
        for name in _PROPERTY.findall(path.read_text("utf-8")):
            found[f"{path.stem.removeprefix('test_fuzz_')}.{name.removeprefix('test_')}"] = name
    return found


def fuzz_function(target: str, *, instrumented: bool) -> Callable[[bytes], object]:
    """Import a target and return its function of bytes."""
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    if instrumented:
        import atheris

        imports = atheris.instrument_imports(include=["rag_rewards", "rag_rewards_adapters"])
    else:
        imports = nullcontext()
    with imports:
        module = importlib.import_module("test_fuzz_" + target.partition(".")[0])
    from hypothesis import settings

    settings.load_profile("fuzz")
    test = getattr(module, targets()[target])
    return test.hypothesis.fuzz_one_input


def fuzz(target: str, seconds: int) -> None:
    """Fuzz a target in this process, which ends with the exit code of libFuzzer."""
    import atheris

    function = fuzz_function(target, instrumented=True)
    corpus, failures = WORK / "corpus" / target, WORK / "failures" / target
    for folder in (corpus, failures):
        folder.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST}",
        f"-timeout={SLOWEST}",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
        f"-artifact_prefix={failures}/",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], lambda data: function(data) and None)
    atheris.Fuzz()


def fuzz_all(chosen: Sequence[str], seconds: int) -> bool:
    """Fuzz targets one after the other, each in its own process. Return whether none failed."""
    has_passed = True
    for target in chosen:
        command = [sys.executable, __file__, "--one", "--seconds", str(seconds), target]
        process = subprocess.run(command, capture_output=True, text=True, errors="replace")
        output = process.stdout + process.stderr
        runs = max(map(int, _RUNS.findall(output)), default=0)
        failed = process.returncode != 0
        print(f"{target:60} {runs:>10,} runs  {'FAILED' if failed else 'passed'}", flush=True)
        if failed:
            has_passed = False
            print("\n".join(output.splitlines()[-60:]), flush=True)
    return has_passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", help="fuzz these targets, by default all of them")
    parser.add_argument("--seconds", type=int, default=60, help="fuzz each target for this time")
    parser.add_argument("--list", action="store_true", help="print the names of the targets")
    parser.add_argument("--replay", type=Path, help="run one target with the bytes of this file")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    known = targets()
    unknown = [name for name in options.targets if name not in known]
    if unknown:
        parser.error(f"unknown target {unknown[0]}; --list prints the names")
    chosen = options.targets or list(known)
    if options.list:
        print("\n".join(known))
        return 0
    if options.replay:
        fuzz_function(chosen[0], instrumented=False)(options.replay.read_bytes())
        return 0
    if options.one:
        fuzz(chosen[0], options.seconds)
    return 0 if fuzz_all(chosen, options.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())

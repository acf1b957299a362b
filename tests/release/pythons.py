"""Test the built package with each version of Python on this machine: make test-pythons.

    python tests/release/pythons.py FOLDER

The script builds the source distribution and from it the wheel, installs the wheel in an empty
environment for each version of Python, scores the examples, and compares the bytes of all output
files between the versions. It also runs TESTS against the installed package. A version without an
interpreter is skipped, with a message.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from interpreters import VERSIONS, interpreter, version_of

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("pytest", "hypothesis")
TESTS = (
    "tests/determinism/test_unicode.py",
    "tests/cli/test_rows.py",
    "tests/cli/test_options.py",
    "tests/cli/test_table.py",
    "tests/rewards/test_answer.py",
    "tests/text/test_statements.py",
    "tests/test_settings.py",
)
"""Fast tests of the core, which need no extra. One folder alone has a module conftest."""


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    wheel = built_wheel(folder / "dist")
    interpreters = {version: interpreter(version) for version in VERSIONS}
    current = version_of(sys.executable)
    if current not in interpreters:
        raise SystemExit(f"Python {current} is not one of {', '.join(VERSIONS)}")
    outputs = {}
    for version, python in interpreters.items():
        if python is None:
            print(f"Python {version}: skipped, because the machine has no interpreter of it")
            continue
        begun = time.monotonic()
        outputs[version] = check(folder / version, python, wheel)
        seconds = time.monotonic() - begun
        print(f"Python {version}: {len(outputs[version])} files, {seconds:.0f} s", flush=True)
    different = differences(outputs, str(current))
    if different:
        raise SystemExit("the output depends on the version of Python:\n" + "\n".join(different))
    print(f"equal bytes: Python {', '.join(outputs)}")


def built_wheel(folder: Path) -> Path:
    """Build both distributions, check that they agree, and return the wheel of the source one."""
    for old in folder.glob("*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, quiet=True)
    (wheel,) = folder.glob("*.whl")
    (source,) = folder.glob("*.tar.gz")
    from_tree = folder / "tree"
    run(sys.executable, "-m", "build", "--wheel", "--outdir", from_tree, ROOT, quiet=True)
    (other,) = from_tree.glob("*.whl")
    if contents(wheel) != contents(other):
        raise SystemExit(f"{source.name} builds another wheel than the repository")
    other.unlink()
    from_tree.rmdir()
    return wheel


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check(folder: Path, python: str, wheel: Path) -> dict[str, bytes]:
    """Install the wheel and test it. Return the output files by name."""
    environment, out = folder / "environment", folder / "out"
    run(python, "-m", "venv", "--clear", "--without-pip", environment)
    install(environment, wheel)
    run(environment / "bin" / "rag-rewards", "--version", quiet=True)
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    installed = environment / "bin" / "python"
    run(installed, ROOT / "tests" / "determinism" / "results.py", out, quiet=True)
    install(environment, *TOOLS)
    (environment / ".installed").touch()  # a missing library is an error of a test, not a skip
    # Not `python -m pytest`, which would import the package from this folder.
    run(environment / "bin" / "pytest", "-p", "no:cacheprovider", *TESTS)
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def install(environment: Path, *requirements: object) -> None:
    pip = (sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "install")
    run(*pip, "--quiet", "--disable-pip-version-check", *requirements)


def differences(outputs: dict[str, dict[str, bytes]], current: str) -> list[str]:
    """Return the version and the name of each file that differs from that of this version."""
    expected = outputs[current]
    return [
        f"{version}: {name}"
        for version, files in outputs.items()
        for name in sorted(files.keys() | expected.keys())
        if files.get(name) != expected.get(name)
    ]


def run(*command: object, quiet: bool = False) -> None:
    """Run a command, without a package of this repository on the path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    texts = [str(part) for part in command]
    done = subprocess.run(texts, cwd=ROOT, env=environment, capture_output=quiet, check=False)
    if done.returncode:
        output = (done.stdout or b"") + (done.stderr or b"")
        raise SystemExit(f"failed: {' '.join(texts)}\n{output.decode(errors='replace')}")


if __name__ == "__main__":
    main()

"""Measure the time that rewards add to a training step of TRL and to the reward loop of verl.

    python benchmarks/trainers.py [trl|verl]     # about ten minutes

Each benchmark runs in the environment of its trainer and writes results/trainers-trl.md or
results/trainers-verl.md.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parent / "build" / "trainers"
RUNS = {"verl": "verl_rewards.py", "trl": "trl_steps.py"}


def main(names: list[str]) -> int:
    for trainer in names or RUNS:
        python = ENVIRONMENTS / trainer / "bin" / "python"
        if not python.exists():
            print(f"{python} does not exist: run `make test-trainers` first", file=sys.stderr)
            return 2
        subprocess.run([python, HERE / "trainers" / RUNS[trainer]], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What rewards add inside real trainers: TRL's step, and verl's reward loop.

    python benchmarks/trainers.py [trl|verl]     # some ten minutes

Each runs in its trainer's environment and writes its table: results/trainers-trl.md and
results/trainers-verl.md.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parent / "build" / "trainers"
RUNS = {"verl": "verl_rewards.py", "trl": "trl_steps.py"}


def main(chosen: list[str]) -> int:
    for trainer in chosen or RUNS:
        python = ENVIRONMENTS / trainer / "bin" / "python"
        if not python.exists():
            print(f"no {python}: run `make test-trainers` first", file=sys.stderr)
            return 2
        subprocess.run([python, HERE / "trainers" / RUNS[trainer]], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The search world and the pre-training, which are part of the benchmarks."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

"""Load the exact-match rule of verl from its released wheel, without importing verl."""

import contextlib
import hashlib
import importlib.util
import io
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

VERSION = "0.9.1"
WHEEL = f"verl-{VERSION}-py3-none-any.whl"
SHA256 = "db6e6f2a8d9d5808d9ec32d357a42319fdc6967df688ff9d9810050f49bfdd14"
MODULE = "verl/utils/reward_score/search_r1_like_qa_em.py"

Rule = Callable[[str, dict[str, list[str]]], float]


def wheel(cache: Path) -> Path:
    """Return the wheel in the cache folder. Download it if it is missing, and check its hash."""
    path = cache / WHEEL
    if not path.exists():
        pip = [sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, f"verl=={VERSION}", "-d", str(cache)], check=True, timeout=300)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"{path} is not the released wheel (sha256 {digest}): delete it")
    return path


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compute_score(cache: Path) -> Rule:
    """Return the released function `search_r1_like_qa_em.compute_score`."""
    cache.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel(cache)) as archive:
        extracted = Path(archive.extract(MODULE, cache / f"verl-{VERSION}"))
    rule: Rule = load(extracted).compute_score
    return rule


def score_all(rule: Rule, rows: list[tuple[str, dict[str, list[str]]]]) -> list[float]:
    """Score all rows. The rule prints one of 64 rows; writing to memory costs little time."""
    with contextlib.redirect_stdout(io.StringIO()):
        return [rule(response, truth) for response, truth in rows]

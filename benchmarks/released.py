"""verl's own exact-match rule, one file out of its released wheel, without importing verl."""

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
    """The wheel in the cache folder, downloaded once, and known by its hash."""
    path = cache / WHEEL
    if not path.exists():
        pip = [sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, f"verl=={VERSION}", "-d", str(cache)], check=True, timeout=300)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        raise SystemExit(f"{path.name} is not the released wheel: sha256 {found}")
    return path


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compute_score(cache: Path) -> Rule:
    """`search_r1_like_qa_em.compute_score`, as released."""
    cache.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel(cache)) as archive:
        extracted = Path(archive.extract(MODULE, cache / f"verl-{VERSION}"))
    rule: Rule = load(extracted).compute_score
    return rule


def score_all(rule: Rule, rows: list[tuple[str, dict[str, list[str]]]]) -> list[float]:
    """Score every row. The rule prints one row in 64: it prints into memory, to be fair to it."""
    with contextlib.redirect_stdout(io.StringIO()):
        return [rule(response, truth) for response, truth in rows]

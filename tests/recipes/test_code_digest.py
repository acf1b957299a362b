"""Digests of functions and objects: equal for equal code, and equal in every process."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rag_rewards as rr
from rag_rewards.recipes.code_digest import code_digest

MODULE = """
import functools, re
from dataclasses import dataclass
import rag_rewards as rr
from rag_rewards.rewards import AnswerMatch

WORDS = {"b", "a", "cc", "ddd"}
LIMIT = 3

def helper(text): return len(text) > LIMIT and text not in WORDS

def plain(rollout, *, share=.5): return share * helper(rollout.response)

def factory(limit, names=frozenset(("x", "y", "zz"))):
    def inner(rollout): return float(limit) if rollout.response in names else 0.0
    return inner

@dataclass(frozen=True)
class Scale:
    factor: float
    table: tuple = ()
    def method(self, rollout): return self.factor
    @property
    def twice(self): return self.factor * 2

class Own:
    name, scope = "own", "rollout"
    def __init__(self, level): self.level, self.pattern = level, re.compile("a+")
    def needs(self, rollout): return []
    def __call__(self, rollouts): return [rr.Score(self.level) for _ in rollouts]

class Batch:
    def __init__(self, level): self.level = level
    def __call__(self, rollouts): return [rr.Score(self.level) for _ in rollouts]

def fact(rollout, n=3): return 1 if n == 0 else n * fact(rollout, n - 1)

VALUES = {
    "plain": plain,
    "closure": factory(2),
    "lambda": lambda rollout: 1.5,
    "method": Scale(2.0, (1, "a")).method,
    "partial": functools.partial(plain, share=0.25),
    "object": Own(1.0),
    "batch": Batch(1.0),
    "recursive": fact,
}
def of(name): return rr.custom(name, rr.weighted((1, VALUES[name]), (2, AnswerMatch())))
REWARDS = {name: of(name) for name in VALUES}
"""
PRINT = "import mine; print({name: r.signature for name, r in mine.REWARDS.items()})"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODULE, encoding="utf-8")
    return tmp_path


def signatures(folder: Path, seed: str, code: str = PRINT) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_the_digest_is_the_same_in_every_process(module: Path) -> None:
    first = signatures(module, "1")
    assert first == signatures(module, "2")
    assert len(set(re.findall(r'"code_digest":"(\w{16})"', first))) == 8
    assert "0x" not in first
    by_path = (
        "from rag_rewards.loading import import_object as load\n"
        "print({name: r.signature for name, r in load('mine.py:REWARDS').items()})"
    )
    assert first == signatures(module, "3", by_path)


CHANGES = {
    "def plain(rollout, *, share=.5)": ("def plain(rollout, *, share=.6)", {"plain", "partial"}),
    "return share * helper": ("return share + helper", {"plain", "partial"}),
    "LIMIT = 3": ("LIMIT = 4", {"plain", "partial"}),
    '"ddd"}': ('"dd"}', {"plain", "partial"}),
    "return len(text)": ("return 1 + len(text)", {"plain", "partial"}),
    "factory(2)": ("factory(3)", {"closure"}),
    '"zz"': ('"z"', {"closure"}),
    "rollout: 1.5": ("rollout: 2.5", {"lambda"}),
    "Scale(2.0, (1": ("Scale(2.0, (2", {"method"}),
    "rollout): return self.factor\n": ("rollout): return -self.factor\n", {"method"}),
    "self.factor * 2": ("self.factor * 3", {"method"}),
    "share=0.25": ("share=0.35", {"partial"}),
    "Own(1.0)": ("Own(2.0)", {"object"}),
    '"a+"': ('"b+"', {"object"}),
    "def needs(self, rollout): return []": ("def needs(self, rollout): return list()", {"object"}),
    "Batch(1.0)": ("Batch(2.0)", {"batch"}),
    "n * fact": ("n + fact", {"recursive"}),
}


@pytest.mark.parametrize("with_source", [True, False])
@pytest.mark.parametrize("text", CHANGES)
def test_a_change_of_code_or_values_changes_the_digest(
    text: str, with_source: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, names = CHANGES[text]
    assert MODULE.count(text) == 1

    def digests(source: str, file: str) -> dict[str, str]:
        (tmp_path / file).write_text(source, encoding="utf-8")
        module = ModuleType("mine")
        monkeypatch.setitem(sys.modules, "mine", module)
        name = str(tmp_path / file) if with_source else "<text>"
        exec(compile(source, name, "exec"), module.__dict__)  # noqa: S102
        return {name: code_digest(value) for name, value in module.VALUES.items()}

    before, after = digests(MODULE, "a.py"), digests(MODULE.replace(text, new), "b.py")
    assert {name for name in before if before[name] != after[name]} == names


def test_functions_of_one_name_differ() -> None:
    def make(kind: str) -> Any:
        if kind == "a":

            def reward(rollout: rr.Rollout) -> float:
                return 1.0
        else:

            def reward(rollout: rr.Rollout) -> float:
                return 2.0

        return reward

    first, second = (rr.custom("own", make(kind)).signature for kind in "ab")
    assert first != second
    assert first == rr.custom("own", make("a")).signature
    pair = (lambda rollout: 1.0), (lambda rollout: 2.0)
    assert code_digest(pair[0]) != code_digest(pair[1])
    labels = (rr.Mean((pair[0],), label="x"), rr.Clip(rr.Mean((pair[0],), label="x"), 0, 1))
    assert rr.custom("own", labels[0]).signature != rr.custom("own", labels[1]).signature


def test_equal_code_has_one_digest_wherever_it_is_defined() -> None:
    def one(rollout: rr.Rollout) -> float:
        return 1.0

    first = one
    if first:

        def one(rollout: rr.Rollout) -> float:
            return 1.0

    assert code_digest(first) == code_digest(one)


def test_a_value_without_identity_is_refused_with_the_fix() -> None:
    lock = threading.Lock()

    def locked(rollout: rr.Rollout) -> float:
        with lock:
            return 1.0

    with pytest.raises(rr.UsageError) as error:
        rr.custom("own", locked).signature  # noqa: B018
    assert re.match(r".*\block \(_thread\.lock\) has no stable identity", str(error.value))
    assert "give the function or the object that contains it an attribute `signature`" in str(
        error.value
    )
    assert rr.custom("own", locked)([rr.Rollout(response="")])[0].value == 1.0
    locked.signature = "model 7"  # type: ignore[attr-defined]
    first = rr.custom("own", locked).signature
    locked.signature = "model 8"  # type: ignore[attr-defined]
    assert rr.custom("own", locked).signature != first


@dataclass
class Cached:
    """A callable with state that grows while it scores."""

    size: int

    @functools.cached_property
    def table(self) -> list[int]:
        return list(range(self.size))

    def __call__(self, rollouts: list[rr.Rollout]) -> list[rr.Score]:
        return [rr.Score(float(len(self.table))) for _ in rollouts]


class CachedObject(Cached):
    def __init__(self, size: int) -> None:
        self.size = size


@pytest.mark.parametrize("kind", [Cached, CachedObject])
def test_scoring_does_not_change_the_digest(kind: Any) -> None:
    reward = kind(3)
    before = rr.custom("own", reward).signature
    assert rr.custom("own", reward)([rr.Rollout(response="")])[0].value == 3.0
    assert rr.custom("own", reward).signature == before
    assert rr.custom("own", kind(4)).signature != before


class Scaled:
    """A decorator with a setting, as `functools.wraps` recommends it."""

    def __init__(self, function: Any, factor: float) -> None:
        functools.update_wrapper(self, function)
        self.function, self.factor = function, factor

    def __call__(self, rollout: rr.Rollout) -> float:
        return float(self.factor * self.function(rollout))


def test_the_state_of_a_decorator_changes_the_digest() -> None:
    def one(rollout: rr.Rollout) -> float:
        return 1.0

    assert code_digest(Scaled(one, 2)) == code_digest(Scaled(one, 2))
    assert code_digest(Scaled(one, 2)) != code_digest(Scaled(one, 3))
    assert code_digest(functools.lru_cache(one)) != code_digest(functools.lru_cache(_with_lock))


def test_attributes_of_functions_and_globals_without_identity() -> None:
    assert code_digest(_with_lock) == code_digest(_with_lock)
    before = code_digest(_with_lock)
    _with_lock.share = 2  # type: ignore[attr-defined]
    assert code_digest(_with_lock) != before
    del _with_lock.share  # type: ignore[attr-defined]


_LOCK = threading.Lock()


def _with_lock(rollout: rr.Rollout) -> float:
    with _LOCK:
        return 1.0

"""Answers that address the judge, and judges with one weakness each, as the benchmark has them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from judge_server import JudgeServer

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
DOUBLES = (
    "obeys every text of the set",
    "obeys demands after a forged end of a text",
    "quotes the text after its verdict",
    "accepts a text that is the last one",
    "accepts texts without content",
    "accepts criteria that the response repeats",
    "reads tags of responses without their code",
)


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("judge_injection")


def some_of_each_family(benchmark: Any) -> list[Any]:
    texts = benchmark.injections()
    families = dict.fromkeys(each.family for each in texts)
    return [t for name in families for t in [t for t in texts if t.family == name][:2]]


def invented(benchmark: Any, double: str, setting: str) -> int:
    """Return how many attacked questions get the verdict 1."""
    texts = some_of_each_family(benchmark)
    judge = benchmark.doubles(texts)[double]
    with JudgeServer(benchmark.behaviour(judge)) as server:
        marked, plain = (
            benchmark.OpenAIJudge("m", base_url=server.url, marked=is_marked, retries=0)
            for is_marked in (True, False)
        )
        attacked = benchmark.attacked_questions(texts)
        checked = benchmark.SETTINGS[setting](plain, marked)
        return int(benchmark.measure(checked, marked, attacked).invented)


@pytest.mark.parametrize("double", DOUBLES)
def test_no_wrong_answer_is_accepted_with_all_checks(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, double: str
) -> None:
    monkeypatch.setattr(benchmark, "plain_questions", list)  # questions without an attack
    assert invented(benchmark, double, "default") > 0
    assert invented(benchmark, double, "all canaries") == 0


def test_a_reliable_judge_loses_no_verdict(benchmark: Any) -> None:
    attacked = benchmark.attacked_questions(some_of_each_family(benchmark))
    with JudgeServer(benchmark.behaviour(benchmark.reliable)) as server:
        marked = benchmark.OpenAIJudge("m", base_url=server.url, marked=True)
        judge = benchmark.CheckedJudge(marked, canaries="all")
        figures = benchmark.measure(judge, marked, attacked)
    assert (figures.invented, figures.unscored, figures.lost) == (0, 0, 0)
    assert figures.right == figures.plain


@pytest.mark.parametrize("is_marked", [False, True])
def test_no_injection_reaches_the_outside_of_its_fence(benchmark: Any, is_marked: bool) -> None:
    attacked = benchmark.attacked_questions(benchmark.injections())
    assert len(attacked) > 200
    assert benchmark.outside_of_fences(attacked, marked=is_marked) == 0


def test_the_page_has_the_current_texts(benchmark: Any) -> None:
    page = benchmark.RESULTS.read_text("utf-8")
    texts = benchmark.injections()
    assert f"{len(texts)} texts of" in page
    assert f"{len(benchmark.attacked_questions(texts))} questions." in page

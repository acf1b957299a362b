"""Results about real answers: the version that wrote them, and the recipes that they measure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import rag_rewards as rr

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
import agreement
import hardening
import matchers
import old_version

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
REPEAT = "run benchmarks/{0}.py with the files of EVOUNA, and then `make pages`"


@pytest.mark.parametrize("name", ["agreement", "hardening", "matchers", "repeated"])
def test_this_version_wrote_the_page(name: str) -> None:
    text = (RESULTS / f"{name}.md").read_text("utf-8")
    assert agreement.introduction(f"{name}.py") in text, REPEAT.format(name)


def test_this_version_wrote_the_speeds_of_rules() -> None:
    text = (RESULTS / "rules.md").read_text("utf-8")
    assert f"rag-rewards {rr.__version__}, " in text, "run `make bench` on a quiet machine"


def test_a_clone_without_version_0_1_0_gets_a_message(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(old_version, "COMMIT", "0" * 40)
    with pytest.raises(SystemExit, match=r"version 0\.1\.0: git cannot check out .*: get the"):
        old_version.checkout(tmp_path)


@pytest.mark.parametrize(
    ("hardened", "expected"),
    [(False, [True, True, True, False]), (True, [True, True, False, False])],
)
@pytest.mark.parametrize(
    ("name", "settings"), [("truthrl", {"verifier": "substring"}), ("rag-total", {})]
)
def test_an_answer_is_scored_as_a_user_scores_it(name, settings, hardened, expected) -> None:
    """In the form of the recipe: under the hardened profile, an undecided answer earns nothing."""
    texts = ("Paris", "It is Paris.", "It is Paris. The city has many bridges.", "Rome")
    recipe = rr.recipe(name, settings, hardened=hardened)
    assert [agreement.is_correct(recipe, row) for row in labelled(texts)] == expected


@pytest.mark.parametrize("hardened", [False, True])
def test_each_sentence_of_ground_grpo_cites_a_document_that_says_the_same(hardened) -> None:
    texts = ("It is Paris. The city has many bridges.", "The city is old. It is Rome.")
    recipe = rr.recipe("ground-grpo", agreement.CITED, hardened=hardened)
    assert [agreement.is_correct(recipe, row) for row in labelled(texts)] == [True, False]


def test_the_other_matchers() -> None:
    texts = ("Paris", "In Paris, it is said, by most people.", "It was Paris", "Rome")
    verdicts = {
        name: [matches(row) for row in labelled(texts)]
        for name, matches in matchers.own_matchers().items()
    }
    assert verdicts == {
        "exact match": [True, False, False, False],
        "substring match": [True, True, True, False],
        "token F1 ≥ 0.5": [True, False, True, False],
        "decided right": [True, False, True, False],
        "lenient match": [True, True, True, False],
    }


def labelled(texts) -> list[agreement.Labelled]:
    return [agreement.Labelled("Which city?", ("Paris",), text, True, "test") for text in texts]


REPEATED = {("naive-grpo", "short"): "arena", ("rag-total", "long"): "ctrl-rag"}
"""Recipes and answers whose figures are those of another recipe with the same code."""
MEASURED = [
    (name, settings, form, systems)
    for name, settings, form, systems in hardening.RECIPES
    if (name, hardening.length_of(systems)) not in REPEATED
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings", "form", "systems"), MEASURED)
def test_the_figures_of_the_cost_are_those_of_the_recipes(
    shared, name, settings, form, systems
) -> None:
    folder = shared / "data" / "evouna"
    files = [folder / f"{data}_half.jsonl" for data in ("nq", "tq")]
    rows = [row for file in files for row in agreement.read(file, systems)]
    written = (RESULTS / "hardening.md").read_text("utf-8").splitlines()
    for line in hardening.lines_of(name, settings, form, hardening.length_of(systems), rows):
        assert line in written, REPEAT.format("hardening")


@pytest.mark.parametrize(("name", "answers"), REPEATED)
def test_a_line_of_the_cost_repeats_the_line_of_another_recipe(name, answers) -> None:
    lines = (RESULTS / "hardening.md").read_text("utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]

    def figures(recipe: str) -> list[list[str]]:
        return [row[1:] for row in rows if row[0] == recipe and row[2] == answers]

    assert figures(name) == figures(REPEATED[name, answers])
    assert len(figures(name)) == 2, REPEAT.format("hardening")


@pytest.mark.slow
@pytest.mark.parametrize("hardened", [False, True])
def test_the_figures_of_the_agreement_are_those_of_the_recipes(shared, hardened) -> None:
    rows = agreement.read(shared / "data" / "evouna" / "nq_half.jsonl")
    line = agreement.line("rag-total", {}, rows, "NQ, long", hardened=hardened)
    assert line in (RESULTS / "agreement.md").read_text("utf-8"), REPEAT.format("agreement")

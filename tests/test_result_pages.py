"""Results about real answers: the version that wrote them, and the recipes that they measure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import rag_rewards as rr

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
import agreement
import hardening
import old_version

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
REPEAT = "run benchmarks/{0}.py with the files of EVOUNA, and then `make pages`"


@pytest.mark.parametrize("name", ["agreement", "hardening", "repeated"])
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


def test_an_answer_is_scored_as_a_user_scores_it() -> None:
    """With the limits of a recipe: a passage of more than 60 words asserts nothing."""
    answers = ("It is Paris.", "It is Paris." + " The city has many old bridges." * 10, "Rome.")
    rows = [agreement.Labelled("Which city?", ("Paris",), text, True, "test") for text in answers]
    for settings, hardened, expected in (
        ({"verifier": "substring"}, False, [True, True, False]),
        ({"verifier": "substring"}, True, [True, False, False]),
    ):
        recipe = rr.recipe("truthrl", settings, hardened=hardened)
        assert [agreement.is_correct(recipe, row) for row in rows] == expected


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings", "systems"), hardening.RECIPES)
def test_the_figures_of_the_cost_are_those_of_the_recipes(shared, name, settings, systems) -> None:
    folder = shared / "data" / "evouna"
    files = [folder / f"{data}_half.jsonl" for data in ("nq", "tq")]
    rows = [row for file in files for row in agreement.read(file, systems)]
    written = (RESULTS / "hardening.md").read_text("utf-8").splitlines()
    for line in hardening.lines_of(name, settings, rows):
        assert line in written, REPEAT.format("hardening")


@pytest.mark.slow
@pytest.mark.parametrize("hardened", [False, True])
def test_the_figures_of_the_agreement_are_those_of_the_recipes(shared, hardened) -> None:
    rows = agreement.read(shared / "data" / "evouna" / "nq_half.jsonl")
    line = agreement.line("rag-total", {}, rows, "NQ", hardened=hardened)
    assert line in (RESULTS / "agreement.md").read_text("utf-8"), REPEAT.format("agreement")

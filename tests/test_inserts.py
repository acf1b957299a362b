"""Lists, counts and versions on hand-written pages agree with the code and with the results."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import rag_rewards as rr
from rag_rewards.cli.app import make_app
from rag_rewards.recipes import RECIPES
from rag_rewards.scripts import BASELINES, SCRIPTS
from rag_rewards.trainers import TRAINERS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))
build_inserts = importlib.import_module("build_inserts")
inserts = importlib.import_module("inserts")
README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("path", build_inserts.PAGES, ids=lambda path: path.name)
def test_the_inserts_are_up_to_date(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "<!-- insert " in text
    assert not re.findall(r"(?m)^<!-- insert .* -->.", text), "this mark splits a paragraph"
    assert text == build_inserts.page(path), "run: make pages"


NAMES = "code-blocks hardened hardening-cost languages papers recipes/index what-was-run"
WITH_A_PROGRAM = {DOCS / f"{name}.md" for name in NAMES.split()}
"""Pages whose texts are written by a program of their own."""


def test_every_page_with_an_insert_is_listed() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    marked = {path for path in pages if "<!-- insert" in path.read_text("utf-8")}
    assert marked == {*build_inserts.PAGES} | WITH_A_PROGRAM


def test_a_wrong_count_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("A.\n\n<!-- insert hardened -->all of them<!-- /insert -->\n")
    attacks, _, prevented, *_ = build_inserts.total()
    assert f"{prevented} of {attacks} attacks" in build_inserts.page(page)
    assert "all of them" not in build_inserts.page(page)
    with pytest.raises(ValueError, match="unknown insert 'nothing'"):
        build_inserts.insert("nothing")


@pytest.mark.parametrize("texts", [{}, {"hardened": "a", "nothing": "b"}])
def test_a_place_without_text_and_a_text_without_place(tmp_path: Path, texts: Any) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- insert hardened -->all of them<!-- /insert -->\n")
    with pytest.raises(ValueError, match=r"page\.md: unknown insert"):
        inserts.filled_by_name(page, texts)


def test_no_page_claims_that_every_attack_fails() -> None:
    texts = [README, *(path.read_text("utf-8") for path in DOCS.rglob("*.md"))]
    texts += [path.read_text("utf-8") for path in (ROOT / "rag_rewards").rglob("*.py")]
    assert not [text for text in texts if re.search(r"no\s+known\s+attack", text, re.IGNORECASE)]


# --- tables of the README ------------------------------------------------------------------------


def first_cells(heading: str) -> list[str]:
    """Return the first cells of the first table of a section of the README."""
    section = README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    table = re.search(r"^\|.*?(?=\n\n)", section, re.MULTILINE | re.DOTALL)
    assert table is not None
    return [line.split("|")[1].strip() for line in table[0].splitlines()[2:]]


def test_the_table_of_recipes() -> None:
    assert sorted(first_cells("Recipes")) == sorted(f"`{name}`" for name in RECIPES)


def test_the_table_of_commands() -> None:
    app = make_app()
    commands = {name for name in app if not name.startswith("-")}
    assert {cell.strip("`") for cell in first_cells("Commands")} == commands


def test_the_table_of_trainers() -> None:
    listed = re.sub(r"\W", "", " ".join(first_cells("Trainers")).lower())
    words = [re.sub(r"\W", "", name.lower()) for name in build_inserts.trainers()]
    assert [word for word in words if word not in listed] == []


def test_versions_of_the_readme() -> None:
    requires = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert requires is not None
    assert f"Python {requires[1]} or later" in README
    assert set(re.findall(r"rag-rewards (\d+\.\d+\.\d+)", README)) == {rr.__version__}


@pytest.mark.parametrize("name", sorted({*SCRIPTS} - {*BASELINES}))
def test_a_page_names_each_trainer_with_a_start_script(name: str) -> None:
    assert re.search(rf"\b{name}\b", (DOCS / "start-training.md").read_text("utf-8"))


# --- versions of trainers ------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRAINERS)
def test_the_version_of_a_trainer_is_the_tested_one(name: str) -> None:
    trainer = TRAINERS[name]
    pins = " ".join(trainer.environment)
    has_pin = trainer.environment and name != "tinker"  # tests use the newest tinker-cookbook
    assert re.findall(rf"(?:^|\s){trainer.package}==(\S+)", pins) == [trainer.tested] * bool(
        has_pin
    )
    # The page of the trainer, and the tables and sentences that name its version.
    title, _, version = trainer.versioned.rpartition(" ")
    text = (DOCS / f"{name}.md").read_text("utf-8")
    described = re.findall(rf"(?:describes|inside|is tested with) {title} (\d+\.\d+)", text)
    for page in ("trainers.md", "start-training.md"):
        rows = re.findall(rf"(?m)^\| \[?{title} (\d+\.\d+)", (DOCS / page).read_text("utf-8"))
        assert {*described, *rows} <= {version}

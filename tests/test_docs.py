"""Doctests, and the code and the commands in the documentation."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest

import rag_rewards
from rag_rewards.cli import main

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
TEXT = README.read_text("utf-8") if README.exists() else ""

MODULES = [
    "rag_rewards",
    *(
        module.name
        for module in pkgutil.walk_packages(rag_rewards.__path__, "rag_rewards.")
        if not module.name.endswith("__main__")
    ),
]


PAGES = sorted((ROOT / "docs").glob("*.md"))


def blocks(*languages: str, text: str = TEXT) -> list[str]:
    result = re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [code for language, code in result if language in languages]


def commands(text: str = TEXT) -> list[str]:
    """Return the commands `rag-rewards …` without prompt and comment, each on one line."""
    lines = "\n".join(blocks("sh", "console", "bash", text=text)).replace("\\\n", " ").splitlines()
    bare = [line.removeprefix("$ ").strip() for line in lines]
    return [line for line in bare if line.startswith("rag-rewards ")]


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_there_are_doctests():
    finder = doctest.DocTestFinder()
    examples = [
        example
        for name in MODULES
        for result in finder.find(importlib.import_module(name))
        for example in result.examples
    ]
    assert len(examples) > 20


@pytest.mark.skipif(not TEXT, reason="no README")
def test_the_readme_shows_code_and_commands():
    assert blocks("python")
    assert commands()


@pytest.mark.parametrize("code", blocks("python"))
def test_readme_code(code, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})  # noqa: S102


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_of_the_pages(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    for code in blocks("python", text=page.read_text("utf-8")):
        exec(compile(code, page.name, "exec"), {"__name__": "page"})  # noqa: S102


@pytest.mark.parametrize("line", commands())
def test_readme_commands(line, monkeypatch, tmp_path, capsys):
    """The commands run in the root of the repository and write to a temporary folder."""
    monkeypatch.chdir(ROOT)
    words = shlex.split(line, comments=True)[1:]
    for i, word in enumerate(words):
        if i and words[i - 1] in ("-o", "--output", "--svg") and word != "-":
            words[i] = str(tmp_path / Path(word).name)
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code, capsys.readouterr().err


def test_commands_of_the_page_about_search_agents(monkeypatch, tmp_path, capsys):
    """The commands run one after the other. Their files are in a temporary folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    lines = commands((ROOT / "docs" / "search-agents.md").read_text("utf-8"))
    assert len(lines) >= 7
    for line in lines:
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line)[1:])
        assert not ended.value.code, (line, capsys.readouterr().err)
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert (tmp_path / "turns.jsonl").read_text("utf-8").count("turn_rewards") == 5

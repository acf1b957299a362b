"""Doctests, and the code and the commands in the documentation."""

from __future__ import annotations

import doctest
import importlib
import re
import sys
from pathlib import Path

import pytest

import rag_rewards as rr

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
TEXT = README.read_text("utf-8") if README.exists() else ""

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "rag_rewards").rglob("*.py"))
    if re.search(r"^\s*>>> ", path.read_text("utf-8"), re.M)
]
"""The modules with examples in docstrings."""

sys.path.insert(0, str(ROOT / "docs"))
build_marked_blocks = importlib.import_module("build_marked_blocks")
code_blocks = importlib.import_module("code_blocks")
SKILL = ROOT / build_marked_blocks.SKILL
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "AGENTS.md", SKILL]
ALL_PAGES = build_marked_blocks.pages()


def code(language: str, text: str = TEXT) -> list[str]:
    """Return the code of the blocks without a mark."""
    found = code_blocks.blocks(text)
    return [block.code for block in found if block.language == language and not block.marks]


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
def test_every_block_has_a_language_and_valid_syntax(page):
    """The tests run a block, or it has a mark. CONTRIBUTING.md describes the marks."""
    text = page.read_text("utf-8")
    indented = [f"{page.name}:{number}: {line}" for number, line in code_blocks.indented_code(text)]
    assert not indented, "write a fence with a language instead of indented code"
    for block in code_blocks.blocks(text):
        error = code_blocks.block_error(block)
        assert not error, f"{page.name}:{block.line}: {error}"


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
def test_a_block_of_a_trainer_runs_inside_this_trainer(page):
    marks = {mark for block in code_blocks.blocks(page.read_text("utf-8")) for mark in block.marks}
    for trainer in marks & code_blocks.TRAINERS:
        folder = ROOT / "tests" / "trainers"
        readers = [folder / "walkthrough.py"] if page.name == "start-training.md" else []
        readers += (folder / trainer.replace("-", "_")).glob("*.py")
        assert any(page.name in reader.read_text("utf-8") for reader in readers), (
            f"no test in {folder / trainer} reads {page.name}"
        )


@pytest.mark.parametrize(
    ("fence", "error"),
    [
        ("```\nx\n```", "language ''"),
        ("```sh gpus\nx\n```", "mark 'gpus': use one of gpu, cluster, network, "),
        ("```sh gpu\nfor x in 1; do\n```", "syntax error"),
        ("```sh\nrag-rewards score --recipes x\n```", "no option '--recipes'"),
        ("```sh gpu\nrag-rewards scores\n```", "no command 'scores'"),
        ("```python gpu\nf(a=1, …)\n```", "line 1: invalid character"),
        ("```json\n{\n```", "Expecting property name"),
        ("```json\n{}\n[1\n```", "Extra data"),
        ("```yaml\na: [\n```", "while parsing"),
        ("```flags\n--x\n```", "add the name of the trainer"),
        ("```flags verl\n'\n```", "No closing quotation"),
        ("```text\npip install x\n```", "'pip install x' is code"),
        ("```text\nfrom a import b\n```", "is code"),
    ],
)
def test_an_invalid_block_is_refused(fence, error):
    [block] = code_blocks.blocks(fence)
    assert error in code_blocks.block_error(block)


def test_blocks_and_indented_code():
    page = "# A\n\n```sh gpu\n# no heading\na \\\n  b # c\n```\n\n"
    page += "- x\n\n  ```json\n  {}\n  {}\n  ```\n"
    shell, data = code_blocks.blocks(page)
    assert (shell.heading, shell.marks, shell.line, shell.is_run) == ("A", ("gpu",), 3, False)
    assert shell.commands == ["a    b # c"]
    assert (data.code, data.is_run, code_blocks.block_error(data)) == ("{}\n{}\n", True, "")
    assert not list(code_blocks.indented_code(page + "\n  more text\n\n    of the item\n"))
    assert list(code_blocks.indented_code("a\n\n    b\n    c\n")) == [(3, "    b")]
    assert list(code_blocks.indented_code("- a\n\n      b\n")) == [(3, "      b")]


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name):
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted
    assert not failed


@pytest.mark.skipif(not TEXT, reason="no README")
def test_the_readme_shows_code_and_commands():
    assert code("python")
    assert code("sh")


@pytest.mark.parametrize("source", code("python"))
def test_readme_code(source, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    exec(compile(source, "README.md", "exec"), {"__name__": "readme"})  # noqa: S102


def test_the_own_reward_of_the_readme_reads_the_answer(capsys):
    section = TEXT.split("### Write your own reward", 1)[1].split("\n## ", 1)[0]
    [source] = code("python", section)
    names = {"__name__": "readme"}
    exec(compile(source, "README.md", "exec"), names)  # noqa: S102
    comments = re.findall(r"# (.+)$", source, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == comments
    right, wrong = names["mine"](
        [
            rr.Rollout(response=f"<think>a</think><answer>{text}</answer>", answers=gold)
            for text, gold in [("Walls and Bridges", "Walls and Bridges"), ("Rhône", "Seine")]
        ]
    )
    assert (right.value, right.correct) == (1.2, 1.0)
    assert (wrong.value, wrong.correct) == (0.2, 0.0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_of_the_pages(page, monkeypatch, tmp_path):
    for name in ("examples", "rag_rewards"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    for source in code("python", page.read_text("utf-8")):
        exec(compile(source, page.name, "exec"), {"__name__": "page"})  # noqa: S102

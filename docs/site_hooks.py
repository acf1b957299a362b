"""Hooks of mkdocs: the navigation, pages of measured figures, marked code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from build_inserts import trainers
from code_blocks import MARKS
from mkdocs.structure.files import File, Files, InclusionLevel

from rag_rewards.recipes import RECIPES
from rag_rewards.trainers import TRAINERS

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_CONTENT = re.compile(r"(?<=<code>)[^<]+")
_SEPARATOR = re.compile(r"::|[/_.:]")
SECURITY = Path(__file__).resolve().parents[1] / "SECURITY.md"
NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "scores.ipynb"
_FENCE = re.compile(r"^( *```\w+) ([a-z_ -]+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)?benchmarks/results/([\w.-]+\.md)(#[\w-]+)?\)")


def on_config(config: Any) -> Any:
    """Add the pages of recipes to the section Recipes, and those of trainers to Trainers."""
    recipes = [{name: f"recipes/{name}.md"} for name in RECIPES]
    pages = [{title: f"{name}.md"} for name, title in zip(TRAINERS, trainers(), strict=True)]
    added = {"Recipes": recipes, "Trainers": pages}
    for entry in config["nav"]:
        for name, section in entry.items():
            if isinstance(section, list):
                section[1:1] = added.get(name, [])
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add SECURITY.md, the example notebook, and every file of figures with its pictures."""
    files.append(File.generated(config, "examples/scores.ipynb", abs_src_path=str(NOTEBOOK)))
    files.append(File.generated(config, "SECURITY.md", abs_src_path=str(SECURITY)))
    for path in sorted([*RESULTS.glob("*.md"), *RESULTS.glob("*.svg")]):
        files.append(
            File.generated(
                config,
                f"benchmarks/{path.name}",
                abs_src_path=str(path),
                inclusion=InclusionLevel.NOT_IN_NAV,
            )
        )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Adapt a page that is written for GitHub: links to files, bars in tables, marks of code.

    A link to figures that have not been measured becomes plain text.
    """
    markdown = markdown.replace("](../../docs/", "](../")  # from a page of figures
    markdown = markdown.replace("](../examples/scores.ipynb)", "](examples/scores.ipynb)")
    markdown = markdown.replace("](../SECURITY.md)", "](SECURITY.md)").replace("](docs/", "](")
    return _FENCE.sub(_labelled, _LINK.sub(_within, _ROW.sub(_unescaped, markdown)))


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Let the long references on the page of the papers break at their separators."""
    if page.file.src_uri != "papers.md":
        return html
    return _CONTENT.sub(lambda code: _SEPARATOR.sub(r"\g<0><wbr>", code[0]), html)


def _within(link: re.Match[str]) -> str:
    label, name, anchor = link.groups(default="")
    return f"[{label}](benchmarks/{name}{anchor})" if (RESULTS / name).exists() else f"`{label}`"


def _labelled(fence: re.Match[str]) -> str:
    """Show the marks of a block that the tests do not run (docs/code_blocks.py) above the block."""
    reasons = [mark for mark in fence[2].split() if mark in MARKS]
    return f'{fence[1]} title="not run by the tests: {", ".join(reasons)}"' if reasons else fence[1]


def _unescaped(row: re.Match[str]) -> str:
    """Remove the backslash before a bar in code, which GitHub needs and mkdocs would show."""
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0])

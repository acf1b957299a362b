"""Write docs/code-blocks.md: the code blocks that the tests do not run, and the reasons.

tests/test_docs.py checks that the page is up to date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from code_blocks import MARKS, ROOT, Block, blocks

DOCS = Path(__file__).parent
PAGE = DOCS / "code-blocks.md"
OUTSIDE = ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "benchmarks/teaches/README.md")
"""Pages that are not part of the site."""
INTRO = """# Code blocks that the tests do not run

The tests run the commands and the code of this documentation, in the root of the repository or in a
folder with small files of the same names. Blocks for a trainer run inside this trainer
(`make test-trainers`, `make test-more-trainers`). This page lists the other blocks. The tests check
their syntax, and that the commands of `rag-rewards` and their options exist.

A block that is not run has a mark, which the site shows above it:

{marks}
`python docs/build_marked_blocks.py` writes this page.

{table}"""
_LINK_TEXT = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_NOT_IN_ANCHOR = re.compile(r"[^\w -]")


def pages() -> list[Path]:
    """Return the pages with code blocks, those of the site first."""
    return [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in OUTSIDE)]


def page() -> str:
    """Return the whole page."""
    marks = [f"| `{name}` | The block {reason}. |" for name, reason in MARKS.items()]
    rows = [
        f"| {_place(path, block)} | {', '.join(f'`{mark}`' for mark in block.marks)} "
        f"| {_first_line(block)} |"
        for path, block in _marked()
    ]
    return INTRO.replace("{marks}", _table("mark", "meaning", rows=marks)).replace(
        "{table}", _table("page", "mark", "first line", rows=rows)
    )


def _marked() -> Iterator[tuple[Path, Block]]:
    for path in pages():
        for block in blocks(path.read_text("utf-8")):
            if not block.is_run:
                yield path, block


def _table(*columns: str, rows: list[str]) -> str:
    head = f"| {' | '.join(columns)} |"
    return "\n".join([head, "| --- " * len(columns) + "|", *rows]) + "\n"


def _place(path: Path, block: Block) -> str:
    """Return the heading of the block, as a link if its page is part of the site."""
    heading = _LINK_TEXT.sub(r"\1", block.heading)
    if not path.is_relative_to(DOCS):
        return f"{path.relative_to(ROOT)}: {heading}"
    name = path.relative_to(DOCS).as_posix()
    anchor = _NOT_IN_ANCHOR.sub("", heading.lower()).strip().replace(" ", "-")
    return f"[{name.removesuffix('.md')}: {heading}]({name}#{anchor})"


def _first_line(block: Block) -> str:
    line = next(line for line in block.code.splitlines() if line.strip()).replace("|", "\\|")
    return f"`{line}`" if len(line) <= 60 else f"`{line[:60].rstrip()}…`"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

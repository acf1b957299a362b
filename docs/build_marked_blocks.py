"""Write the tables of docs/code-blocks.md: code blocks that the tests do not run, with reasons.

tests/test_docs.py checks that the page is up to date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from code_blocks import MARKS, ROOT, Block, blocks
from inserts import filled_by_name, table

DOCS = Path(__file__).parent
PAGE = DOCS / "code-blocks.md"
SKILL = "examples/skills/choose-reward/SKILL.md"
OUTSIDE = (
    *("README.md", "AGENTS.md", "CONTRIBUTING.md", SKILL),
    *("benchmarks/README.md", "benchmarks/teaches/README.md"),
)
"""Pages that are not part of the site."""
_LINK_TEXT = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_NOT_IN_ANCHOR = re.compile(r"[^\w -]")


def pages() -> list[Path]:
    """Return the pages with code blocks, those of the site first."""
    return [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in OUTSIDE)]


def page() -> str:
    """Return the whole page."""
    marks = [(f"`{name}`", f"The block {reason}.") for name, reason in MARKS.items()]
    rows = [
        (_place(path, block), ", ".join(f"`{mark}`" for mark in block.marks), _first_line(block))
        for path, block in _marked()
    ]
    texts = {
        "marks": table(("mark", "meaning"), marks),
        "blocks": table(("page", "mark", "first line"), rows),
    }
    return filled_by_name(PAGE, texts)


def _marked() -> Iterator[tuple[Path, Block]]:
    for path in pages():
        for block in blocks(path.read_text("utf-8")):
            if not block.is_run:
                yield path, block


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

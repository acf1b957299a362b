"""Marks on hand-written pages, between which programs write lists, counts and tables.

`<!-- insert NAME -->…<!-- /insert -->` is the place of a text. A mark at the beginning of a line
begins a paragraph of its own on the site.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

_PLACE = re.compile(r"(<!-- insert ([\w-]+) -->)(.*?)(<!-- /insert -->)", re.DOTALL)


def filled(page: Path, text_of: Callable[[str], str]) -> str:
    """Return a page with the text of each place by name. A text of several lines is a block."""

    def place(match: re.Match[str]) -> str:
        text = text_of(match[2])
        return match[1] + (f"\n\n{text.strip()}\n\n" if "\n" in text else text) + match[4]

    return _PLACE.sub(place, page.read_text("utf-8"))


def filled_by_name(page: Path, texts: Mapping[str, str]) -> str:
    """Return a page with these texts. ValueError if the names are not those of its places."""
    places = {name for _, name, *_ in _PLACE.findall(page.read_text("utf-8"))}
    if unknown := places ^ texts.keys():
        raise ValueError(
            f"{page.name}: unknown insert {min(unknown)!r}: each place needs a text, and each text "
            "a place"
        )
    return filled(page, texts.__getitem__)


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Return a table in Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)

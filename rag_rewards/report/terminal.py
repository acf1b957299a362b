"""Tables for a terminal, and everything that a terminal shows as HTML and as an SVG picture."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape, unescape

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from rag_rewards.errors import plain

PICTURE_WIDTH = 100
"""Columns of a picture."""
_HTML_WIDTH = 120
MAX_ROWS = 50
"""Rows of a table in a notebook."""
_ANSI = [(72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34)]
_ANSI += [(88, 166, 255), (188, 140, 255), (57, 197, 207), (240, 246, 252)]
_DARK = TerminalTheme((13, 17, 23), (230, 237, 243), _ANSI)
_FONT = "ui-monospace, Menlo, Consolas, monospace"
# These formats replace those of rich, which load fonts from the internet.
_HTML = (
    f'<pre style="font:13px/1.45 {_FONT};color:{{foreground}};background:{{background}};'
    'padding:.8em 1em;border-radius:.4em;overflow-x:auto;margin:.25em 0">{code}</pre>'
)
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"
  height="{height}" role="img">
<title>TITLE</title>
<desc>DESCRIPTION</desc>
<style>text {{ font: 20px FONT }} {styles}</style>
<defs>{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="BACKGROUND"/>
<g transform="translate({terminal_x} 22)">{backgrounds}{matrix}</g>
</svg>
"""
_WORDS = re.compile(r'textLength="([^"]*)"([^>]*)>([^<]*?)((?:&#160;)*)<')
"""A text of a picture, which ends with spaces. A line of a terminal limits its length."""
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that are not permitted in XML."""


def titled_table(title: str, columns: Iterable[str], numbers: Collection[str] = ()) -> Table:
    """Return a table without rows. The columns named in `numbers` are aligned on the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in columns:
        justify: JustifyMethod = "right" if name in numbers else "left"
        table.add_column(Text(plain(name)), justify=justify, overflow="fold")
    return table


def number_text(value: float | None, digits: int = 4) -> str:
    """Return a number, or a dash for None.

    >>> number_text(0.5), number_text(None)
    ('0.5', '–')
    """
    return "–" if value is None else f"{value:.{digits}g}"


def escaped(text: str) -> str:
    """Return a text for an HTML or SVG element, without control characters.

    >>> escaped("<b>\\x1b")
    '&lt;b&gt;␛'
    """
    return escape(plain(text))


def html(*parts: RenderableType) -> str:
    """Return what a terminal shows as an HTML element, for notebooks.

    The element loads nothing, contains no script, and has a dark background of its own, so that it
    is legible in every notebook. All texts are escaped.
    """
    text = _recorded(parts, _HTML_WIDTH).export_html(
        theme=_DARK, code_format=_HTML, inline_styles=True
    )
    return _FORBIDDEN.sub("\ufffd", text)


def svg(
    *parts: RenderableType, title: str, description: str = "", width: int = PICTURE_WIDTH
) -> str:
    """Return what a terminal of `width` columns shows as SVG text.

    Equal parts give equal texts. The picture loads nothing and has a dark background of its own.
    Screen readers read `title` and `description`.
    """
    code_format = _SVG.replace("BACKGROUND", _DARK.background_color.hex).replace("FONT", _FONT)
    picture = _recorded(parts, width).export_svg(theme=_DARK, title="", code_format=code_format)
    picture = _WORDS.sub(_with_width, picture)
    for place, text in (("TITLE", title), ("DESCRIPTION", description)):
        picture = picture.replace(f">{place}<", f">{escaped(text)}<", 1)
    return _FORBIDDEN.sub("\ufffd", picture)


def _with_width(match: re.Match[str]) -> str:
    """Return a text without spaces at its end, with the width of its columns.

    rich counts characters in place of columns, but some characters fill two columns.
    """
    length, attributes, words, padding = match.groups()
    cell = float(length) / (len(unescape(words)) + len(unescape(padding)))
    return f'textLength="{cell * cell_len(unescape(words)):g}"{attributes}>{words}<'


def _recorded(parts: Iterable[RenderableType], width: int) -> Console:
    console = Console(
        file=io.StringIO(),
        width=width,
        record=True,
        color_system="truecolor",
        legacy_windows=False,
        force_jupyter=False,
    )
    console.print(*parts, sep="\n", highlight=False, crop=False)
    return console


def scores_table(
    rows: Sequence[tuple[float | None, Mapping[str, float | None], float | None, str]],
    names: Sequence[str] = (),
) -> Table:
    """Return a table with the reward, the components, `correct` and the error of each row.

    An error can be empty. `names` are the names of the rows. MAX_ROWS rows are shown.
    """
    shown = rows[:MAX_ROWS]
    components = list(dict.fromkeys(name for row in shown for name in row[1]))
    has_correct = any(row[2] is not None for row in shown)
    has_error = any(row[3] for row in shown)
    numbers = ["reward", *components, *["correct"] * has_correct]
    columns = [*[""] * bool(names), *numbers, *["error"] * has_error]
    table = titled_table("", columns, numbers)
    for position, (reward, values, correct, error) in enumerate(shown):
        cells = [reward, *map(values.get, components), *[correct] * has_correct]
        texts = [plain(names[position])] if names else []
        texts += [*map(number_text, cells), *[plain(error)] * has_error]
        table.add_row(*map(Text, texts))
    return with_hidden(table, len(rows) - len(shown), "rows")


def with_hidden(table: Table, count: int, name: str) -> Table:
    """Return a table with a caption that states how many rows it does not contain."""
    if count > 0:
        table.caption, table.caption_justify = f"… {count:,} more {name}", "left"
    return table

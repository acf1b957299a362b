"""An explanation as a picture: what a terminal shows of it, as SVG, with nothing to load."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from html import escape

from rich.cells import cell_len
from rich.color import blend_rgb
from rich.console import Console, Group
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme

from rag_rewards.report.explanation import Explanation
from rag_rewards.report.plain import plain
from rag_rewards.report.shaded import explanation

WIDTH = 100
"""Columns."""
_CELL, _LINE, _EDGE = 8.4, 20, 16
"""Pixels: a column, a line, the margin."""
_ANSI = [(72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34)]
_ANSI += [(88, 166, 255), (188, 140, 255), (57, 197, 207), (240, 246, 252)]
_DARK = TerminalTheme((13, 17, 23), (230, 237, 243), _ANSI)
_WORDS = re.compile(r"\S+(?: \S+)*")
"""Words with single spaces between them: of more than one, pictures keep only one."""
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML may hold."""


def picture(found: Explanation, width: int = WIDTH) -> str:
    """The explanation as one SVG. Equal explanations give equal bytes.

    The picture brings its own dark background, so it reads the same on a white page and on a dark
    one. The signature stands in its description.
    """
    console = Console(
        width=width, file=io.StringIO(), color_system="truecolor", legacy_windows=False
    )
    lines = console.render_lines(Group(*explanation(found)), pad=False)
    wide, high = round(width * _CELL) + 2 * _EDGE, len(lines) * _LINE + 2 * _EDGE
    drawn = [part for row, line in enumerate(lines) for part in _drawn(row, line)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" '
            f'height="{high}" role="img" font-size="14" '
            'font-family="ui-monospace, Menlo, Consolas, monospace">',
            f"<title>{_escaped(found.id)}</title>",
            f"<desc>{_escaped(found.signature)}</desc>",
            f'<rect width="{wide}" height="{high}" rx="8" fill="{_DARK.background_color.hex}"/>',
            f'<g transform="translate({_EDGE} {_EDGE})">',
            *drawn,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _drawn(row: int, line: Sequence[Segment]) -> Iterator[str]:
    """The backgrounds and words of a line, each where a terminal has it."""
    column, top = 0, row * _LINE
    for text, style, _ in line:
        style, wide = style or Style(), cell_len(text)
        if style.bgcolor is not None and not style.bgcolor.is_default:
            fill = style.bgcolor.get_truecolor(_DARK, foreground=False).hex
            at = _across(column, wide, "width")
            yield f'<rect y="{top}" {at} height="{_LINE - 2}" fill="{fill}"/>'
        for words in _WORDS.finditer(text):
            before = cell_len(text[: words.start()])
            at = _across(column + before, cell_len(words[0]), "textLength")
            yield f'<text y="{top + 14}" {at} {_look(style)}>{_escaped(words[0])}</text>'
        column += wide


def _across(column: int, wide: int, length: str) -> str:
    return f'x="{column * _CELL:g}" {length}="{wide * _CELL:g}"'


def _look(style: Style) -> str:
    """How words are written, as attributes."""
    colour = style.color.get_truecolor(_DARK) if style.color else _DARK.foreground_color
    if style.dim:
        behind = style.bgcolor.get_truecolor(_DARK) if style.bgcolor else _DARK.background_color
        colour = blend_rgb(colour, behind, 0.4)
    bold = ' font-weight="bold"' if style.bold else ""
    line = ' text-decoration="underline"' if style.underline else ""
    return f'fill="{colour.hex}"{bold}{line}'


def _escaped(text: str) -> str:
    return escape(_FORBIDDEN.sub("\ufffd", plain(text)))

"""An explanation as an SVG picture, which looks like the terminal output."""

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

from rag_rewards.errors import plain
from rag_rewards.report.explanation import Explanation
from rag_rewards.report.explanation_terminal import explanation_parts

WIDTH = 100
"""Columns of text."""
_CELL, _LINE, _EDGE = 8.4, 20, 16
"""Width of a column, height of a line, and margin, in pixels."""
_ANSI = [(72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34)]
_ANSI += [(88, 166, 255), (188, 140, 255), (57, 197, 207), (240, 246, 252)]
_DARK = TerminalTheme((13, 17, 23), (230, 237, 243), _ANSI)
_WORDS = re.compile(r"\S+(?: \S+)*")
"""Words with single spaces between them. SVG merges several spaces into one."""
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that are not permitted in XML."""


def explanation_svg(explanation: Explanation, width: int = WIDTH) -> str:
    """Return an explanation as SVG text. Equal explanations give equal texts.

    The picture has a dark background of its own, so that it is legible on every page. Its
    description contains the signature.
    """
    console = Console(
        width=width, file=io.StringIO(), color_system="truecolor", legacy_windows=False
    )
    lines = console.render_lines(Group(*explanation_parts(explanation)), pad=False)
    picture_width = round(width * _CELL) + 2 * _EDGE
    picture_height = len(lines) * _LINE + 2 * _EDGE
    elements = [element for row, line in enumerate(lines) for element in _elements(row, line)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {picture_width} '
            f'{picture_height}" width="{picture_width}" height="{picture_height}" role="img" '
            'font-size="14" font-family="ui-monospace, Menlo, Consolas, monospace">',
            f"<title>{_escape(explanation.id)}</title>",
            f"<desc>{_escape(explanation.signature)}</desc>",
            f'<rect width="{picture_width}" height="{picture_height}" rx="8" '
            f'fill="{_DARK.background_color.hex}"/>',
            f'<g transform="translate({_EDGE} {_EDGE})">',
            *elements,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _elements(row: int, line: Sequence[Segment]) -> Iterator[str]:
    """Yield the backgrounds and words of a line at their positions on the terminal."""
    column, top = 0, row * _LINE
    for text, style, _ in line:
        style, columns = style or Style(), cell_len(text)
        if style.bgcolor is not None and not style.bgcolor.is_default:
            fill = style.bgcolor.get_truecolor(_DARK, foreground=False).hex
            extent = _extent(column, columns, "width")
            yield f'<rect y="{top}" {extent} height="{_LINE - 2}" fill="{fill}"/>'
        for words in _WORDS.finditer(text):
            before = cell_len(text[: words.start()])
            extent = _extent(column + before, cell_len(words[0]), "textLength")
            yield f'<text y="{top + 14}" {extent} {_font(style)}>{_escape(words[0])}</text>'
        column += columns


def _extent(column: int, columns: int, attribute: str) -> str:
    return f'x="{column * _CELL:g}" {attribute}="{columns * _CELL:g}"'


def _font(style: Style) -> str:
    """Return color, weight and decoration of a text as attributes."""
    color = style.color.get_truecolor(_DARK) if style.color else _DARK.foreground_color
    if style.dim:
        background = style.bgcolor.get_truecolor(_DARK) if style.bgcolor else _DARK.background_color
        color = blend_rgb(color, background, 0.4)
    bold = ' font-weight="bold"' if style.bold else ""
    line = ' text-decoration="underline"' if style.underline else ""
    return f'fill="{color.hex}"{bold}{line}'


def _escape(text: str) -> str:
    return escape(_FORBIDDEN.sub("\ufffd", plain(text)))

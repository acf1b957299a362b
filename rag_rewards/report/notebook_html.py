"""HTML of objects in notebooks.

Notebooks show the result of `_repr_html_`. The HTML contains no script, loads nothing, and has the
colors of the notebook, so that it is legible on a light and on a dark background. All texts are
escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from rag_rewards.errors import plain

MAX_ROWS = 50
"""Rows of a table that are shown."""
LINE = "rgba(127,127,127,.35)"
_BOX = "max-width:64rem;line-height:1.45;text-align:left;overflow-wrap:anywhere"
_CELL = f"text-align:left;vertical-align:top;padding:.15em .6em;border-bottom:1px solid {LINE}"
_NUMBER = f"{_CELL};text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap"
_SOFT = "opacity:.7;font-size:.9em"


def html_text(text: str) -> str:
    """Return a text for an HTML element or attribute, without control characters.

    >>> html_text("<b>\\x1b")
    '&lt;b&gt;␛'
    """
    return escape(plain(text))


def html_number(value: float | None, digits: int = 4) -> str:
    """Return a number, or a dash for None.

    >>> html_number(0.5), html_number(None)
    ('0.5', '–')
    """
    return "–" if value is None else f"{value:.{digits}g}".replace("-", "−")


def box(parts: Iterable[str]) -> str:
    """Return the parts, one below the other."""
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def line(html: str, *, soft: bool = False, preformatted: bool = False) -> str:
    """Return HTML as a line: `soft` is for remarks, `preformatted` keeps line breaks."""
    style = "margin:.25em 0;unicode-bidi:isolate"
    style += f";{_SOFT}" if soft else ""
    style += ";white-space:pre-wrap" if preformatted else ""
    return f'<div style="{style}">{html}</div>'


def folded(title: str, html: str) -> str:
    """Return HTML that is visible after a click on its title."""
    style = "cursor:pointer;unicode-bidi:isolate"
    return (
        f'<details style="margin:.25em 0"><summary style="{style}">{title}</summary>'
        f"{html}</details>"
    )


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str]) -> str:
    """Return a table. `head` and `numbers`, the columns of numbers, are texts, cells are HTML."""
    styles = [_NUMBER if name in numbers else _CELL for name in head]
    titles = "".join(
        f'<th scope="col" style="{style};font-weight:600">{html_text(name)}</th>'
        for name, style in zip(head, styles, strict=True)
    )
    lines = "".join(f"<tr>{_cells(row, styles)}</tr>" for row in rows)
    table = "border-collapse:collapse;border:0;font-size:inherit;overflow-wrap:break-word"
    return (
        f'<div style="overflow-x:auto"><table style="{table}"><thead><tr>{titles}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _cells(row: Sequence[str], styles: Sequence[str]) -> str:
    return "".join(
        f'<td style="{style}">{cell}</td>' for cell, style in zip(row, styles, strict=True)
    )


def scores_table(
    rows: Sequence[tuple[float | None, Mapping[str, float | None], float | None, str]],
    names: Sequence[str] = (),
) -> str:
    """Return a table with the reward, the components, `correct` and the error of each row.

    An error can be empty. `names` are the names of the rows. MAX_ROWS rows are shown.
    """
    shown = rows[:MAX_ROWS]
    components = list(dict.fromkeys(name for row in shown for name in row[1]))
    has_correct = any(row[2] is not None for row in shown)
    has_text = any(row[3] for row in shown)
    head = [""] * bool(names) + ["reward", *components]
    head += ["correct"] * has_correct + ["error"] * has_text
    cells = []
    for position, (reward, values, correct, text) in enumerate(shown):
        row = [html_text(names[position])] if names else []
        row += [f"<b>{html_number(reward)}</b>"]
        row += [html_number(values.get(name)) for name in components]
        row += [html_number(correct)] * has_correct + [html_text(text)] * has_text
        cells.append(row)
    table = html_table(head, cells, ["reward", *components, "correct"])
    hidden = len(rows) - len(shown)
    return table + (line(f"… {hidden:,} more", soft=True) if hidden else "")

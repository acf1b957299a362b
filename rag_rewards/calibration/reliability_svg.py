"""The reliability curves of a calibration as an SVG picture."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from rag_rewards.calibration.report import Bin, Calibration, ScoreReport
from rag_rewards.errors import UsageError, plain

_SIDE, _MARGIN, _HEAD, _BARS = 240, 48, 34, 44
"""Side of a panel, margin, height of its title, and height of the numbers of rows, in pixels."""
_WIDTH, _HEIGHT = _SIDE + 2 * _MARGIN, _HEAD + _SIDE + _BARS + _MARGIN


def reliability_svg(calibration: Calibration) -> str:
    """Return the reliability curves as SVG text: one panel per score and label.

    A panel shows the share of labels yes against the mean score of each bin, and the number of rows
    of each bin. Equal calibrations give equal texts. Raises UsageError if no score has a curve.
    """
    reports = [report for report in calibration.scores if report.reliability.bins]
    if not reports:
        raise UsageError(
            "no score has a reliability curve: "
            + "; ".join(f"{r.score}: {r.reliability.reason}" for r in calibration.scores)
        )
    width = _WIDTH * len(reports)
    elements = [
        element
        for at, report in enumerate(reports)
        for element in (
            f'<g transform="translate({at * _WIDTH + _MARGIN} {_HEAD})">',
            *_panel(report),
            "</g>",
        )
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT}" '
            f'width="{width}" height="{_HEIGHT}" role="img" font-size="11" '
            'font-family="ui-sans-serif, Helvetica, Arial, sans-serif">',
            "<title>Reliability curves</title>",
            f"<desc>{_text(calibration.signature)}</desc>",
            f'<rect width="{width}" height="{_HEIGHT}" fill="#ffffff"/>',
            *elements,
            "</svg>",
            "",
        ]
    )


def _panel(report: ScoreReport) -> Iterator[str]:
    bins = report.reliability.bins
    title = f"{report.score}, {report.label}: error {report.reliability.error:.3f}"
    yield f'<text y="-14" font-size="12" fill="#24292f">{_text(title)}</text>'
    yield f'<rect width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#8c959f"/>'
    for tick in (0.0, 0.5, 1.0):
        x, y = _place(tick, tick)
        yield f'<text x="-8" y="{y + 4:g}" text-anchor="end" fill="#57606a">{tick:g}</text>'
        yield (
            f'<text x="{x:g}" y="{_SIDE + _BARS + 16}" text-anchor="middle" fill="#57606a">'
            f"{tick:g}</text>"
        )
    yield (f'<path d="M0 {_SIDE}L{_SIDE} 0" stroke="#8c959f" stroke-dasharray="4 4" fill="none"/>')
    points = [_place(each.mean_score, each.yes_share) for each in bins]
    line = "L".join(f"{x:g} {y:g}" for x, y in points)
    yield f'<path d="M{line}" stroke="#0969da" stroke-width="2" fill="none"/>'
    for x, y in points:
        yield f'<circle cx="{x:g}" cy="{y:g}" r="3" fill="#0969da"/>'
    yield from _bars(bins)
    yield (
        f'<text x="{_SIDE / 2:g}" y="{_SIDE + _BARS + 32}" text-anchor="middle" fill="#24292f">'
        "score (line: share of yes; bars: rows)</text>"
    )


def _bars(bins: list[Bin]) -> Iterator[str]:
    """Yield a bar for the number of rows of each bin."""
    most = max(each.rows for each in bins)
    for each in bins:
        height = round((_BARS - 6) * each.rows / most, 2)
        left, width = round(each.low * _SIDE, 2), round((each.high - each.low) * _SIDE - 2, 2)
        yield (
            f'<rect x="{left:g}" y="{_SIDE + _BARS - height:g}" width="{width:g}" '
            f'height="{height:g}" fill="#afb8c1"><title>{each.rows:,} rows</title></rect>'
        )


def _place(x: float, y: float) -> tuple[float, float]:
    return round(x * _SIDE, 2), round((1 - y) * _SIDE, 2)


def _text(text: str) -> str:
    return escape(plain(text))

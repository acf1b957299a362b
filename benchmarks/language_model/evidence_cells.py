"""Figures about the evidence of a language model as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from language_model.evidence_figures import Figure


def cell(figure: Figure | None) -> str:
    """Return a value with its interval.

    >>> cell({"value": 0.812, "low": 0.7, "high": 0.9}), cell(None)
    ('.81 (.70 to .90)', '–')
    """
    if not figure or figure["value"] is None:
        return "–"
    if figure["low"] is None:
        return short(figure["value"])
    return f"{short(figure['value'])} ({short(figure['low'])} to {short(figure['high'])})"


def short(value: float) -> str:
    """Return a number with two digits, without a leading zero.

    >>> short(0.5), short(1.0), short(-0.25), short(0.994)
    ('.50', '1.00', '-.25', '.99')
    """
    text = f"{value:.2f}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0") else text


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def span(figures: Sequence[Figure]) -> str:
    """Return the least and the greatest value.

    >>> span([{"value": 0.5}, {"value": 0.75}]), span([{"value": 0.5}])
    ('.50 to .75', '.50')
    """
    values = [figure["value"] for figure in figures]
    return " to ".join(dict.fromkeys(map(short, (min(values), max(values)))))


def in_words(figures: Sequence[Figure], chance: float = 0.5) -> str:
    """Return in how many settings the interval is above, around and below chance.

    >>> in_words([{"low": 0.6, "high": 0.8}, {"low": 0.4, "high": 0.7}])
    'The interval is above .5 in 1 of 2 settings, and contains it in 1.'
    """
    above = sum(figure["low"] > chance for figure in figures)
    below = sum(figure["high"] < chance for figure in figures)
    around = len(figures) - above - below
    parts = [f"above {f'{chance:g}'.removeprefix('0') or 0} in {above} of {len(figures)} settings"]
    parts += [f"below it in {below}"] * bool(below) + [f"contains it in {around}"] * bool(around)
    return "The interval is " + ", and ".join(parts) + "."

"""Explanations as SVG pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from rag_rewards import __version__
from rag_rewards.report.explain_score import explain_score
from rag_rewards.report.explanation import Explanation, Variant
from rag_rewards.rows import ScoredRow

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "explain.svg"
SVG = "{http://www.w3.org/2000/svg}"
CELL = 12.2
ROW: dict[str, Any] = {
    "id": "1",
    "question": "Where?",
    "documents": [{"text": "Paris lies on the Seine."}, {"text": "Rome."}],
    "supporting": [1],
    "answers": [["Paris"]],
    "response": "It is Paris [1].",
    "signature": "rag-rewards 0.8.0 ctrl-rag",
    "logprobs": {
        "full": [-1.0] * 7,
        "without": {"1": [-1.0, -1.0, -3.0, -0.5, -1.0, -1.0, -1.0]},
    },
}


def explanation(**fields: Any) -> Explanation:
    return explain_score(msgspec.json.decode(msgspec.json.encode(ROW | fields), type=ScoredRow))


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314 (written by the code under test)


def texts(svg: ElementTree.Element) -> dict[str, ElementTree.Element]:
    return {(each.text or "").replace("\xa0", " "): each for each in svg.iter(f"{SVG}text")}


def test_the_picture_of_the_pages_is_from_this_version() -> None:
    """docs/look.md contains the command that writes it."""
    signature = parsed(PICTURE.read_text("utf-8")).findtext(f"{SVG}desc") or ""
    assert signature.startswith(f"rag-rewards {__version__} ctrl-rag ")


def test_the_picture_shows_the_row_with_colored_words() -> None:
    svg = parsed(explanation().svg())
    places = texts(svg)
    assert {"Where?", "Paris", "response", "Paris lies on the Seine.", "+1.50"} <= {*places}
    assert svg.findtext(f"{SVG}title") == "1"
    assert svg.findtext(f"{SVG}desc") == ROW["signature"]
    shades = [each.get("fill") for each in svg.findall(f"{SVG}g/{SVG}rect")]
    assert shades[:2] == ["#008228", "#370014"]  # the others are those of the legend
    first, second = (each.get("x") for each in svg.findall(f"{SVG}g/{SVG}rect")[:2])
    assert first == places["Paris"].get("x") == f"{6 * CELL:g}"  # `It is ` has six columns
    assert second == places["["].get("x")
    style = svg.findtext(f"{SVG}style") or ""
    [rule] = re.findall(rf"\.{places['['].get('class')} {{(.*)}}", style)
    assert "font-weight: bold;text-decoration: underline" in rule


def test_equal_explanations_give_equal_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    first = explanation().svg()
    for name, value in {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "40"}.items():
        monkeypatch.setenv(name, value)
    assert explanation().svg() == first
    assert explanation(response="It is Paris [2].").svg() != first


def test_loads_no_resources() -> None:
    text = explanation(response="See https://example.com/font.woff2 and url(x)").svg()
    markup = re.sub(r">[^<]*</text>", "></text>", text)
    assert re.findall(r"\w+://[^\s\"<]*", markup) == ["http://www.w3.org/2000/svg"]
    for resource in ("href", "@import", "@font-face", "<script", "<image"):
        assert resource not in markup
    assert set(re.findall(r"url\(.", markup)) == {"url(#"}


def test_text_of_a_row_is_never_markup() -> None:
    hostile = "</text><script>alert(1)</script>&amp; ]]> TITLE {width} \ufffe \x1b[31m \u202e"
    row = explanation(id=hostile, response=hostile, logprobs=None, signature=hostile)
    svg = parsed(row.svg())
    names = ("svg", "title", "desc", "style", "defs", "clipPath", "rect", "g", "text")
    assert {each.tag for each in svg.iter()} == {f"{SVG}{name}" for name in names}
    shown = "</text><script>alert(1)</script>&amp; ]]> TITLE {width} \ufffd \u241b[31m \ufffd"
    assert svg.findtext(f"{SVG}title") == svg.findtext(f"{SVG}desc") == shown


@pytest.mark.parametrize(("question", "columns"), [("塞纳河 x", 8), ("a   b", 5), ("a  ", 1)])
def test_a_text_takes_its_columns_on_a_terminal(question: str, columns: int) -> None:
    place = texts(parsed(explanation(question=question).svg()))[question.rstrip()]
    assert float(place.get("textLength") or 0) == pytest.approx(columns * CELL)


@pytest.mark.parametrize("width", [40, 100])
def test_texts_are_inside_the_picture(width: int) -> None:
    row = explanation(response="word " * 200, logprobs=None)
    row.variants = [Variant("with another answer", 1.0, "x")]
    svg = parsed(row.svg(width))
    picture_width, height = (float(svg.get(name) or 0) for name in ("width", "height"))
    assert width * CELL < picture_width < width * CELL + 30
    for each in svg.iter(f"{SVG}text"):
        right = float(each.get("x") or 0) + float(each.get("textLength") or 0)
        assert right <= width * CELL + 0.1
        assert float(each.get("y") or 0) < height - 32

"""Explanations as SVG pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from rag_rewards import __version__
from rag_rewards.report.explanation import Variant, explain
from rag_rewards.report.explanation_svg import explanation_svg
from rag_rewards.rows import ScoredRow

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "explain.svg"
SVG = "{http://www.w3.org/2000/svg}"
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


def test_the_picture_of_the_pages_is_from_this_version() -> None:
    """docs/look.md contains the command that writes it."""
    picture = parsed(PICTURE.read_text("utf-8"))
    signature = picture.findtext(f"{SVG}desc") or ""
    assert signature.startswith(f"rag-rewards {__version__} ctrl-rag ")


def svg_of(width: int = 100, **fields: Any) -> ElementTree.Element:
    return parsed(explanation_svg(explain(row(**fields)), width))


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314 (written by the code under test)


def row(**fields: Any) -> ScoredRow:
    return msgspec.json.decode(msgspec.json.encode(ROW | fields), type=ScoredRow)


def words(svg: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in svg.iter(f"{SVG}text")]


def test_contains_the_texts_of_the_row() -> None:
    svg = svg_of()
    shown = words(svg)
    for expected in (
        "Where?",
        "Paris",
        "response",
        "documents",
        "Paris lies on the Seine.",
        "+1.50",
    ):
        assert expected in shown
    assert svg.findtext(f"{SVG}title") == "1"
    assert svg.findtext(f"{SVG}desc") == ROW["signature"]


def test_words_have_a_colored_background_at_their_position() -> None:
    svg = svg_of()
    shades = {(each.get("x"), each.get("y")): each.get("fill") for each in svg.iter(f"{SVG}rect")}
    places = {each.text: each for each in svg.iter(f"{SVG}text")}
    paris, bracket, it = places["Paris"], places["["], places["It is"]
    # `It is ` has six columns. The baseline of a word is 14 pixels below the top of its line.
    assert paris.get("x") == f"{6 * 8.4:g}"
    above = str(int(paris.get("y") or 0) - 14)
    assert shades[paris.get("x"), above] == "#008228"
    assert shades[bracket.get("x"), above] == "#370014"
    assert (it.get("x"), above) not in shades
    assert (bracket.get("font-weight"), bracket.get("text-decoration")) == ("bold", "underline")


def test_equal_explanations_give_equal_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    first = explanation_svg(explain(row()))
    for name, value in {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "40"}.items():
        monkeypatch.setenv(name, value)
    assert explanation_svg(explain(row())) == first
    assert explanation_svg(explain(row())) != explanation_svg(
        explain(row(response="It is Paris [2]."))
    )


def test_loads_no_resources() -> None:
    text = explanation_svg(explain(row(response="See https://example.com/font.woff2 and url(x)")))
    markup = re.sub(r">[^<]*<", "><", text)
    assert re.findall(r"\w+://[^\s\"<]*", markup) == ["http://www.w3.org/2000/svg"]
    for resource in ("url(", "href", "@import", "@font-face", "<style", "<script", "<image"):
        assert resource not in markup


def test_text_of_a_row_is_never_markup() -> None:
    hostile = "</text><script>alert(1)</script>&amp; ]]> \ufffe \x1b[31m \u202e"
    explanation = explain(row(id=hostile, response=hostile, logprobs=None, signature=hostile))
    svg = parsed(explanation_svg(explanation))
    assert {each.tag for each in svg.iter()} == {
        f"{SVG}{tag}" for tag in ("svg", "title", "desc", "rect", "g", "text")
    }
    assert svg.findtext(f"{SVG}title") == (
        "</text><script>alert(1)</script>&amp; ]]> \ufffd \u241b[31m \ufffd"
    )


def test_wide_characters_take_two_columns() -> None:
    places = {each.text: each for each in svg_of(question="塞纳河 x").iter(f"{SVG}text")}
    assert float(places["塞纳河 x"].get("textLength") or 0) == pytest.approx(8 * 8.4)


def test_several_spaces_keep_their_width() -> None:
    places = {each.text: each for each in svg_of(question="a   b").iter(f"{SVG}text")}
    distance = float(places["b"].get("x") or 0) - float(places["a"].get("x") or 0)
    assert distance == pytest.approx(4 * 8.4)


@pytest.mark.parametrize("width", [40, 100])
def test_width_and_height_of_the_picture(width: int) -> None:
    explanation = explain(row(response="word " * 200, logprobs=None))
    explanation.variants = [Variant("with another answer", 1.0, "x")]
    svg = parsed(explanation_svg(explanation, width))
    picture_width, height = float(svg.get("width") or 0), float(svg.get("height") or 0)
    assert picture_width == round(width * 8.4) + 32
    assert svg.get("viewBox") == f"0 0 {picture_width:g} {height:g}"
    for each in svg.iter(f"{SVG}text"):
        right = float(each.get("x") or 0) + float(each.get("textLength") or 0)
        assert right <= width * 8.4 + 0.1
        assert float(each.get("y") or 0) < height - 32

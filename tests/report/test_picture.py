"""A picture of an explanation: what the terminal shows, in one file that loads nothing."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from rag_rewards.report.explanation import Variant, explain
from rag_rewards.report.picture import picture
from rag_rewards.rows import ScoredRow

SVG = "{http://www.w3.org/2000/svg}"
ROW: dict[str, Any] = {
    "id": "1",
    "question": "Where?",
    "documents": [{"text": "Paris lies on the Seine."}, {"text": "Rome."}],
    "supporting": [1],
    "answers": [["Paris"]],
    "response": "It is Paris [1].",
    "signature": "rag-rewards 0.1.0 ctrl-rag {}",
    "logprobs": {
        "full": [-1.0] * 7,
        "without": {"1": [-1.0, -1.0, -3.0, -0.5, -1.0, -1.0, -1.0]},
    },
}


def drawn(width: int = 100, **fields: Any) -> ElementTree.Element:
    return parsed(picture(explain(row(**fields)), width))


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314 (written by the code under test)


def row(**fields: Any) -> ScoredRow:
    return msgspec.json.decode(msgspec.json.encode(ROW | fields), type=ScoredRow)


def words(svg: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in svg.iter(f"{SVG}text")]


def test_the_words_of_the_row_stand_in_it() -> None:
    svg = drawn()
    said = words(svg)
    for wanted in ("Where?", "Paris", "response", "documents", "Paris lies on the Seine.", "+1.50"):
        assert wanted in said
    assert svg.findtext(f"{SVG}title") == "1"
    assert svg.findtext(f"{SVG}desc") == ROW["signature"]


def test_words_are_shaded_where_they_stand() -> None:
    svg = drawn()
    shades = {(each.get("x"), each.get("y")): each.get("fill") for each in svg.iter(f"{SVG}rect")}
    places = {each.text: each for each in svg.iter(f"{SVG}text")}
    paris, bracket, it = places["Paris"], places["["], places["It is"]
    # Six columns behind `It is `, on the line whose words have their feet 14 pixels down.
    assert paris.get("x") == f"{6 * 8.4:g}"
    above = str(int(paris.get("y") or 0) - 14)
    assert shades[paris.get("x"), above] == "#008228"
    assert shades[bracket.get("x"), above] == "#370014"
    assert (it.get("x"), above) not in shades
    assert (bracket.get("font-weight"), bracket.get("text-decoration")) == ("bold", "underline")


def test_equal_explanations_give_equal_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    first = picture(explain(row()))
    for name, value in {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "40"}.items():
        monkeypatch.setenv(name, value)
    assert picture(explain(row())) == first
    assert picture(explain(row())) != picture(explain(row(response="It is Paris [2].")))


def test_nothing_is_loaded() -> None:
    text = picture(explain(row(response="See https://example.com/font.woff2 and url(x)")))
    markup = re.sub(r">[^<]*<", "><", text)
    assert re.findall(r"\w+://[^\s\"<]*", markup) == ["http://www.w3.org/2000/svg"]
    for loads in ("url(", "href", "@import", "@font-face", "<style", "<script", "<image"):
        assert loads not in markup


def test_what_a_model_wrote_is_never_markup() -> None:
    hostile = "</text><script>alert(1)</script>&amp; ]]> \ufffe \x1b[31m \u202e"
    found = explain(row(id=hostile, response=hostile, logprobs=None, signature=hostile))
    svg = parsed(picture(found))
    assert {each.tag for each in svg.iter()} == {
        f"{SVG}{tag}" for tag in ("svg", "title", "desc", "rect", "g", "text")
    }
    assert svg.findtext(f"{SVG}title") == (
        "</text><script>alert(1)</script>&amp; ]]> \ufffd \u241b[31m \ufffd"
    )


def test_wide_letters_take_two_columns() -> None:
    places = {each.text: each for each in drawn(question="塞纳河 x").iter(f"{SVG}text")}
    assert float(places["塞纳河 x"].get("textLength") or 0) == pytest.approx(8 * 8.4)


def test_spaces_that_a_picture_would_drop_are_kept_by_position() -> None:
    places = {each.text: each for each in drawn(question="a   b").iter(f"{SVG}text")}
    apart = float(places["b"].get("x") or 0) - float(places["a"].get("x") or 0)
    assert apart == pytest.approx(4 * 8.4)


@pytest.mark.parametrize("width", [40, 100])
def test_it_is_as_wide_as_asked_and_as_high_as_its_lines(width: int) -> None:
    found = explain(row(response="word " * 200, logprobs=None))
    found.changes = [Variant("with another answer", 1.0, "x")]
    svg = parsed(picture(found, width))
    wide, high = float(svg.get("width") or 0), float(svg.get("height") or 0)
    assert wide == round(width * 8.4) + 32
    assert svg.get("viewBox") == f"0 0 {wide:g} {high:g}"
    for each in svg.iter(f"{SVG}text"):
        right = float(each.get("x") or 0) + float(each.get("textLength") or 0)
        assert right <= width * 8.4 + 0.1
        assert float(each.get("y") or 0) < high - 32

"""Patterns that are tried only at their openings match like patterns that are tried everywhere."""

from hypothesis import given
from hypothesis import strategies as st

from rag_rewards.text import citations, thinking

MARKER_PIECES = (
    "[",
    "]",
    "［",
    "］",
    "【",
    "】",
    "(",
    "（",
    ")",
    "1",
    "12",
    "3-5",
    ", ",
    "and ",
    "†a",
)
MARKER_WORDS = ("see ", "doc ", "Document ", "citation:", "^", "#", " ", "word", "\n")
TAG_PIECES = ("<", "</", ">", "[", "[/", "]", "◁", "▷", "|", "<|", "|>", " ", "/", "_", "\n")
TAG_WORDS = ("think", "Thinking", "ant", "answer", "my_", "cot", "reason", "_end", ' a="b"', "=")
CHANNELS = (
    "<|channel|>analysis",
    "<|channel|> final <|message|>",
    "<|end|>",
    "<think>",
    "</think>",
)


def texts(*pieces: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(pieces), max_size=30).map("".join)


@given(text=texts(*MARKER_PIECES, *MARKER_WORDS))
def test_markers_are_those_of_a_search_at_every_character(text: str) -> None:
    compiled = citations.compiled()
    spans = [(marker.start, marker.end) for marker in citations.markers(text, compiled)]
    assert spans == [match.span() for match in compiled.finditer(text)]


@given(text=texts(*TAG_PIECES, *TAG_WORDS, *CHANNELS))
def test_thinking_tags_are_those_of_a_search_at_every_character(text: str) -> None:
    expected = [
        (thinking._name_of(match), match.start(), match.end())
        for match in thinking._TAG.finditer(text)
    ]
    assert thinking._tags(text) == expected


@given(text=texts(*TAG_PIECES, "t", "T", "r", "S", "x"))
def test_square_tags_are_found_by_their_first_letters(text: str) -> None:
    openings = ("[t", "[T", "[r", "[R", "[s", "[S", "[/", "◁")
    assert thinking.may_have_square_tags(text) == any(opening in text for opening in openings)

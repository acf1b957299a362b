"""Lengths of texts against slow implementations."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.text.lengths import (
    _MAY_BE_UNSPACED,
    _unspaced_letter,
    auto_length,
    auto_words,
    characters,
    first_words,
    separated_length,
    words,
)

quick = budget(150)
UNSPACED = (
    *("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO"),
    *("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"),
)
"""First words of the Unicode names of letters in scripts without spaces."""

TEXTS = (
    st.text(st.sampled_from(" \t\n\x1c\x85\xa0\u2009\u3000\u200b" + "abé巴パのกำ。，한"))
    | st.text(st.characters(max_codepoint=127))
    | st.text()
)


def is_unspaced(char):
    is_letter = unicodedata.category(char)[0] in "LN"
    return is_letter and unicodedata.name(char, "").split()[:1] in [[name] for name in UNSPACED]


def naive_words(text):
    result, word, has_letter = [], "", False
    for char in text:
        if has_letter and unicodedata.category(char)[0] == "M":
            result[-1] += char
            continue
        has_letter = is_unspaced(char)
        if has_letter or char.isspace():
            result += [word] if word else []
            result += [char] if has_letter else []
            word = ""
        else:
            word += char
    return result + ([word] if word else [])


@quick
@given(TEXTS)
def test_words_are_counted_at_white_space(text):
    assert words(text) == len(text.split())


@quick
@given(TEXTS)
def test_characters_are_counted_without_white_space(text):
    assert characters(text) == sum(not char.isspace() for char in text)


@quick
@given(st.text(st.sampled_from(" \n\u3000abé巴パー々กำິ。，한၁ཀ\u0301")))
def test_scripts_without_spaces_are_counted_by_character(text):
    assert auto_words(text) == naive_words(text)
    assert auto_length(text) == len(naive_words(text))


@quick
@given(
    st.text(st.sampled_from(" \nabé巴パ。，한\u0301") | st.sampled_from(" ab")), st.integers(0, 9)
)
def test_the_beginning_of_a_text_has_the_first_words(text, count):
    beginning = first_words(text, count)
    assert text.startswith(beginning)
    assert auto_words(beginning) == auto_words(text)[:count]


@quick
@given(st.text(st.characters(max_codepoint=0x24F) | st.sampled_from(" \nЖяעبग한")))
def test_scripts_with_spaces_are_counted_by_word(text):
    assert auto_length(text) == len(text.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("巴黎是法国的首都。", 9),
        ("パリはフランスのラーメン", 12),
        ("ปารีส", 4),  # five code points, one of them a mark
        ("서울은 대한민국의 수도", 3),
        ("Paris 是 the city", 4),
        ("", 0),
    ],
)
def test_lengths_of_words(text, expected):
    assert auto_length(text) == expected


DOCUMENT = "The city lies on the Seine. It has two million people, and ships of the river stop."
WORDS = DOCUMENT.split()


@pytest.mark.parametrize(
    "text",
    [
        "_".join(WORDS),
        "-".join(WORDS),
        "".join(WORDS),
        ".".join(WORDS),
        ",".join(WORDS),
        "'".join(WORDS),
        "·".join(WORDS),
        "/".join(WORDS),
        "|".join(WORDS),
        ":".join(WORDS),
        "—".join(WORDS),
        "\u200b".join(WORDS),
        "".join(word.capitalize() for word in WORDS),
        "".join(filter(str.isalnum, DOCUMENT)).lower(),
        " ".join("_".join(WORDS[at : at + 2]) for at in range(0, len(WORDS), 2)),
        " ".join("".join(WORDS[at : at + 2]) for at in range(0, len(WORDS), 2)),
        " ".join("".join(WORDS[at : at + 3]) for at in range(0, len(WORDS), 3)),
        " ".join("-".join(WORDS[at : at + 4]) for at in range(0, len(WORDS), 4)),
        " ".join("7".join(WORDS[at : at + 2]) for at in range(0, len(WORDS), 2)),
        " ".join("x".join(WORDS[at : at + 2]) for at in range(0, len(WORDS), 2)),
        "qq".join(WORDS),
    ],
)
def test_words_without_spaces_are_counted(text: str) -> None:
    assert separated_length(text, [DOCUMENT], len(WORDS)) >= len(WORDS)


@pytest.mark.parametrize(
    "text",
    [
        "The city lies on the Seine.",
        "Ships of the river stop.",
        "a well-known port",
        "It's the people's city.",
        "In 1,000 years, 3.5 million ships",
        "the U.S. ships",
        "polyethylene glycol",
        "(the city)",
        "“the” ‘city’",
        "",
        "...",
        "法国的首都",
        "in 法国",
        "Düsseldorf und Köln",
        "the 2nd ship",
        "another citywide steamship",
    ],
)
def test_words_with_spaces_are_counted_once(text: str) -> None:
    assert separated_length(text, [DOCUMENT], len(WORDS)) == auto_length(text)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("灯塔位于爱尔兰", 7),
        ("dēngtǎ wèiyú àiěrlán", 2 + 2 + 3),  # three letters are as long as a character
        ("the lighthouse", 1 + 4),
        ("1969年", 2),
    ],
)
def test_another_script_does_not_shorten_an_extract(text, length):
    documents = ["灯塔位于爱尔兰南部海岸，它建于1969年。"]
    assert separated_length(text, documents, auto_length(documents[0])) == length


def test_the_fast_pattern_finds_every_letter_of_a_script_without_spaces() -> None:
    for code in range(0x110000):
        if _unspaced_letter().match(chr(code)):
            assert _MAY_BE_UNSPACED.match(chr(code)), hex(code)

"""Text that a reader of the rendered response does not see."""

from __future__ import annotations

import pytest
from growth import assert_linear, sizes
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.text.hidden import is_unreadable, shown

HIDDEN = (
    "~~Osaka~~",
    "<s>Osaka</s>",
    "<DEL>Osaka</DEL>",
    "<strike>Osaka</strike>",
    "<!-- Osaka -->",
    "<![CDATA[Osaka]]>",
    '<span style="display:none">Osaka</span>',
    "<span style='visibility: hidden'>Osaka</span>",
    '<p style="font-size:0">Osaka</p>',
    "<span hidden>Osaka</span>",
    '<font color="white">Osaka</font>',
    '<b style="color:#fff">Osaka</b>',
    "<details><summary>Osaka</summary>Osaka</details>",
    "<template>Osaka</template>",
    "![Osaka](picture.png)",
    '<img alt="Osaka">',
    '<input type="hidden" value="Osaka">',
    r"\phantom{Osaka}",
    r"\hphantom{a {Osaka} b}",
    r"\sout{Osaka}",
    r"\cancel{Osaka}",
    r"\textcolor{white}{Osaka}",
    r"\label{Osaka}",
    r"\iffalse Osaka \fi",
    r"\begin{comment}Osaka\end{comment}",
    "||Osaka||",
    ">!Osaka!<",
    "/* Osaka */",
    "{# Osaka #}",
    "<% Osaka %>",
    "\x1b[8mOsaka\x1b[0m",
)


@pytest.mark.parametrize("text", HIDDEN)
def test_hidden_text_is_removed(text: str) -> None:
    for answer in (f"{text} Kyoto", f"Kyoto {text}.", f"It is {text} Kyoto."):
        assert "Osaka" not in shown(answer)
        assert "Kyoto" in shown(answer)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[Kyoto](https://example.org/Osaka)", "Kyoto"),
        ('[Kyoto](https://example.org "Osaka")', "Kyoto"),
        ("<a title='Osaka'>Kyoto</a>", "<a>Kyoto</a>"),
        (r"\textbf{Kyoto} % Osaka", r"\textbf{Kyoto}"),
        ("Kyoto\n% Osaka", "Kyoto"),
        ("Kyoto has a share in % of all.", "Kyoto has a share in % of all."),
        ("<s> Kyoto", "Kyoto"),
        ("<s>Osaka</s> Kyoto", "Kyoto"),
        ("Kyoto\n[//]: # (Osaka)", "Kyoto"),
        ("Kyoto\n\n[^1]: Osaka", "Kyoto"),
        ("- [ ] Osaka\n- [x] Kyoto", "- [x] Kyoto"),
        ("Kyoto <!-- Osaka", "Kyoto"),
        ("Kyoto <s>Osaka", "Kyoto"),
        (r"Kyoto \phantom{Osaka", "Kyoto"),
    ],
)
def test_what_remains(text: str, expected: str) -> None:
    assert shown(text).strip() == expected


@pytest.mark.parametrize(
    "text",
    [
        "It is Kyoto [1].",
        "<think>x</think><answer>Kyoto</answer>",
        "<b>Kyoto</b> and <i>Nara</i>",
        "50% of the people, 100 % in all, and (5%)",
        "a < b and c > d || e",
        "C:\\users and \\frac{1}{2}",
        "5 ~ 6 and ~7",
        "| city | fair |\n| --- | --- |",
        "Kyoto (Japan) [see below] (1990)",
        "AC/DC and 1/2",
        "> quoted\n> lines",
        "{Kyoto}",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert shown(text) == text


def test_a_linked_citation_stays_a_citation() -> None:
    assert shown("Kyoto [1](https://example.org).") == "Kyoto [1]."


MARKS = ["<", ">", "<!--", "-->", "<s>", "</s>", "~~", "[", "](", ")", "\\phantom{", "}", "%", "x"]


@given(st.lists(st.sampled_from([*MARKS, " ", "\n", "||", "Paris"]), max_size=20).map("".join))
@budget(250)
def test_the_shown_words_are_words_of_the_text(text: str) -> None:
    assert shown(text).count("Paris") <= text.count("Paris")
    assert len(shown(text)) <= len(text) + 2 * text.count("<")


@pytest.mark.parametrize(
    "unit",
    ["<!--", "<s>", "~~", "[](", "[a](", "\\phantom{", "||", "%a ", "<a b", "![", "\n[a]:", "{#",
     "<span hidden>", "- [ ]", "\\color{white}{", ">!", "<% "],
)  # fmt: skip
@sizes(500_000)
def test_the_time_is_linear(largest: int, unit: str) -> None:
    assert_linear(lambda size: shown(unit * (size // len(unit))), largest)


@pytest.mark.parametrize(
    "char",
    ["\b", "\x1b", "\x7f", "\r", "\ue000", "\u0336", "\u20e0", "\u20e3", "\u202e", "\u2067",
     "\ufff9", "\uffff", "\U000e006e\U000e006f", "\ufe00\ufe01", "\U000e0100"],
)  # fmt: skip
def test_characters_that_nobody_reads_alike(char):
    assert is_unreadable(f"Paris {char}")


@pytest.mark.parametrize(
    "text",
    [
        "Paris\t\r\n\f",
        "می\u200cخواهم",
        "1\ufe0f\u20e3 #\u20e3 Paris",
        "Sa\u0303o",
        "Hà Nội",
        "हिन्दी",
        "ශ්\u200dරී",
        "❤\ufe0f 👩🏽\u200d🚀",
        "葛\U000e0100城",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "زار \u2068Paris\u2069 أمس",
        "\u200fירושלים\u200e",
        "\ufeffPa\u200bris",
    ],
)
def test_marks_of_honest_texts_are_readable(text):
    assert not is_unreadable(text)

"""Sentences without lost text, and statements with their citations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.text.citations import cited_labels, compiled, strip_markers
from rag_rewards.text.statements import Statement, sentences, statements

DEFAULT = compiled()
PIECES = [
    *("[1]", "[2]", "[1, 3]", "[0]", " ", "\n", "\n\n", "\r\n", "\n\r\n", "\t", ". ", "! ", "? "),
    *(
        "Dr. Lee",
        "A won.",
        "他走了。",
        "「是！」",
        "”",
        "“",
        "'",
        '"',
        "(",
        ")",
        "...",
        "e.g.",
        "3.14",
    ),
    *("- item\n", "1. item\n", "x", ",", "，", "、", "。", "\ud800", "«", "`"),
]
SOUP = st.lists(st.sampled_from(PIECES), max_size=20).map("".join) | st.text(max_size=40)
# Long enough for several windows of the splitter.
LONG = st.builds(
    lambda pieces, n: "".join(pieces) * n,
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=20),
    st.sampled_from([50, 300]),
)


@given(SOUP | LONG)
@budget(300)
def test_sentences_are_lossless(text):
    result = sentences(text)
    assert "".join(result) == text
    assert all(result)


@given(SOUP, st.booleans())
@budget(250)
def test_statements_lose_no_word_and_no_label(text, items):
    result = statements(text, DEFAULT, items=items)
    response = [char for s in result for char in s.text if char.isalnum()]
    assert response == [char for char in strip_markers(text, DEFAULT) if char.isalnum()]
    assert all(any(map(str.isalnum, s.text)) for s in result)
    cited = set(cited_labels(text, DEFAULT))
    assert all(cited.issuperset(s.cited) and len(set(s.cited)) == len(s.cited) for s in result)
    if result:
        assert cited == {label for s in result for label in s.cited}


# --- texts that are built from sentences, which must be recovered ----- ------------------------

SENTENCES = ["A won the race", "Dr. Lee met Mr. Smith", "It cost 3.14 dollars", "B lost, too"]
LABELS = st.lists(st.sampled_from(["1", "2", "3", "12"]), max_size=3, unique=True)
WAYS = [
    "{text} {marks}{stop}",
    "{text}{marks}{stop}",
    "{text}{stop} {marks}",
    "{text}{stop}{marks}",
]


@given(
    st.lists(
        st.tuples(st.sampled_from(SENTENCES), LABELS, st.sampled_from(WAYS), st.sampled_from(".!")),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
@budget(300)
def test_markers_belong_to_their_sentence(parts, together):
    written, expected = [], []
    for text, labels, way, stop in parts:
        marks = f"[{', '.join(labels)}]" if together else "".join(f"[{n}]" for n in labels)
        written.append(
            (way if labels else "{text}{stop}").format(text=text, marks=marks, stop=stop)
        )
        expected.append(Statement(text + stop, tuple(labels)))
    assert statements(" ".join(written), DEFAULT) == expected


@given(st.lists(st.tuples(st.sampled_from(["甲胜了", "他走了", "是吗"]), LABELS), min_size=1))
def test_chinese_markers_before_and_after_the_full_stop(parts):
    before = "".join(f"{text}{''.join(f'[{n}]' for n in labels)}。" for text, labels in parts)
    after = "".join(f"{text}。{''.join(f'[{n}]' for n in labels)}" for text, labels in parts)
    expected = [Statement(text + "。", tuple(labels)) for text, labels in parts]
    assert statements(before, DEFAULT) == expected
    assert statements(after, DEFAULT) == expected


@given(st.lists(st.tuples(st.sampled_from(["Rome", "New York", "巴黎"]), LABELS), min_size=1))
def test_list_items_and_their_markers(parts):
    text = ", ".join(
        name + (" " if labels else "") + "".join(f"[{n}]" for n in labels) for name, labels in parts
    )
    expected = [Statement(name, tuple(labels)) for name, labels in parts]
    assert statements(text + ".", DEFAULT, items=True) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A won. [1] B lost. [2]", [("A won.", "1"), ("B lost.", "2")]),
        ("A won.[1]B lost.[2]", [("A won.", "1"), ("B lost.", "2")]),
        ("A won [1][1, 2].", [("A won.", "12")]),
        ("A won.\n[1]", [("A won.", "1")]),
        ("[1] A won.", [("A won.", "1")]),
        ("- Rome [1]\n- Bonn [2]", [("- Rome", "1"), ("- Bonn", "2")]),
        ("1. Rome [1]\n2. A won. [2]", [("1. Rome", "1"), ("2. A won.", "2")]),
        ("1969. [1]", [("1969.", "1")]),
        ("5.", [("5.", "")]),
        ("甲胜了。[1]乙败了。[2]", [("甲胜了。", "1"), ("乙败了。", "2")]),
        ("甲说：「是。」乙走了！", [("甲说：「是。」", ""), ("乙走了！", "")]),
        ("[1][2]", []),
        ("... [1]", []),
        ("A won. ... [1]", [("A won.", "1")]),
        ("... [1] A won. [2]", [("A won.", "12")]),
        ("", []),
        ("A won [a].", [("A won [a].", "")]),
    ],
)
def test_statements(text, expected):
    assert [(s.text, "".join(s.cited)) for s in statements(text, DEFAULT)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dr. Lee came. He left.", ["Dr. Lee came. ", "He left."]),
        ("It is 3.14. Yes!", ["It is 3.14. ", "Yes!"]),
        ("他走了。她来了。", ["他走了。", "她来了。"]),
        ("Yes. 他走了。No.", ["Yes. ", "他走了。", "No."]),
        ("a\n\nb", ["a\n", "\nb"]),
    ],
)
def test_sentences(text, expected):
    assert sentences(text) == expected


# White space (Unicode's White_Space) that is not ASCII.
WIDE_SPACES = "\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
WIDE_SPACES += "\u2028\u2029\u202f\u205f\u3000"


@pytest.mark.parametrize("space", WIDE_SPACES, ids=ascii)
def test_white_space_between_an_initial_and_a_full_stop(space):
    # sentencex 1.0.32 panics on each of these.
    text = f"It is vitamin A{space}. [1] It is plan B{space}{space}. [2]"
    assert "".join(sentences(text)) == text
    assert [s.cited for s in statements(text, DEFAULT)] == [("1",), ("2",)]


@given(
    st.lists(
        st.sampled_from([*WIDE_SPACES, " ", "A", "É", "Ж", ".", "!", "Dr", "x", "\u200b", "\u0301"])
        | st.characters(categories=["Zs", "Zl", "Zp", "Cc", "Cf", "Lu", "Lt", "Po"]),
        max_size=8,
    ).map("".join)
)
@budget(250)
def test_no_white_space_breaks_the_splitter(text):
    spaced = text.translate(dict.fromkeys(map(ord, WIDE_SPACES), " "))
    assert list(map(len, sentences(text))) == list(map(len, sentences(spaced)))


def test_a_long_paragraph_is_cut_as_its_sentences_are():
    # The splitter sees it in windows; a sentence over their edges stays whole.
    response = [f"Sentence number {n} about {'word ' * (n % 60)}ends here. " for n in range(400)]
    assert sentences("".join(response)) == response
    endless = "word " * 3000
    assert sentences(f"{endless}ends. Another one.") == [f"{endless}ends. ", "Another one."]


def test_text_after_many_quotes_is_cut():
    text = "“a ” ‘b ’ " * 200 + "so. It ends. "
    assert sentences(text)[-1] == "It ends. "


@pytest.mark.parametrize(
    ("text", "uncut", "expected"),
    [
        ("Panic! at the Disco won. Abba lost.", ["Panic! at the Disco"], 2),
        ("PANIC! AT THE DISCO won.", ["Panic! at the Disco"], 1),
        ("Portugal. The Man won. It did.", ["Portugal. The Man"], 2),
        ("Oh! What a day. Oh! What a night.", ["Oh! What a day", "Oh! What a night"], 2),
        ("It was 9. November 1989. He left.", ["9. November 1989"], 2),
        ("Portugal. The Man", ["Portugal."], 2),
        ("One. Two. Three.", [], 3),
    ],
)
def test_no_cut_inside_given_texts(text: str, uncut: list[str], expected: int) -> None:
    parts = statements(text, DEFAULT, uncut=uncut)
    assert len(parts) == expected
    assert " ".join(part.text for part in parts) == text


def test_items_that_contain_commas_keep_their_citations() -> None:
    text = "Paris, Texas [1], Lynn, MA [2], Rome [3]"
    parts = statements(text, DEFAULT, items=True, uncut=["Paris, Texas", "Lynn, MA"])
    assert [(part.text, part.cited) for part in parts] == [
        ("Paris, Texas", ("1",)),
        ("Lynn, MA", ("2",)),
        ("Rome", ("3",)),
    ]


def test_a_text_without_a_cut_changes_nothing() -> None:
    text = "Rome is old. Bonn is not."
    assert statements(text, DEFAULT, uncut=["Rome", "is old."]) == statements(text, DEFAULT)


@pytest.mark.parametrize(
    ("text", "uncut", "expected"),
    [
        ("🍐 [1]", ["pear", "🍐"], [("🍐", ("1",))]),
        ("🍐. [1] I hope this helps!", ["🍐"], [("🍐.", ("1",)), ("I hope this helps!", ())]),
        ("🍐 [1]", ["pear"], []),
        ("It is a pear. 🎉 [1]", ["🍐"], [("It is a pear.", ("1",))]),
        (". [1]", ["", " "], []),
    ],
)
def test_a_symbol_is_a_statement_only_as_a_given_text(text, uncut, expected) -> None:
    parts = statements(text, DEFAULT, uncut=uncut)
    assert [(part.text, part.cited) for part in parts] == expected

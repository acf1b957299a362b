"""Hostile texts for the fuzz tests: pieces of every notation that the package reads."""

from __future__ import annotations

from hypothesis import strategies as st

TAGS = [
    f"<{slash}{name}>"
    for name in (
        "think answer relevance analysis reason extract search information result tool_call "
        "tool_response document"
    ).split()
    for slash in ("", "/")
] + [
    *("<|begin_of_query|>", "<|end_of_query|>", "<|begin_of_documents|>", "<|end_of_documents|>"),
    *("<|im_end|>", "</s>", "<THINK>", "< answer >", "<answer", "</answer", "[think]", "[/think]"),
    *("<b>", "<!--", "-->", "<a href='x'>", "&lt;answer&gt;", "&#65;", "&nbsp;"),
]
MARKUP = [
    *("[1]", "[1, 2]", "[1", "[1,", "[1-3]", "[99]", "[٣]", "【1】", "(1)", "[doc 1]", "[^1]", "]"),
    *("[a](http://x.y)", "http://a.b/c", "https://[::1", "http://a b", "Document 1: x\n", "# A\n"),
    *(r"\boxed{", r"\boxed", r"\text{", r"\frac{1}{2}", r"\frac", "^{", "_", "}", "{", "$", "$$"),
    *(
        "\\",
        r"\(",
        r"\)",
        r"\%",
        r"\circ",
        "**",
        "__",
        "`",
        "```json\n",
        "~~",
        "|",
        "|-|",
        "* ",
        "- ",
    ),
]
JSON = [
    *('{"score": 1}', '{"score": 0}', '{"score"', '"score": ', '{"score": "1"}', "[[1]]", "null"),
    *(
        '{"name": "search", "arguments": {"query": "a"}}',
        '{"E0": "Paris"}',
        '"',
        "\\u0000",
        "1e999",
    ),
]
WORDS = [
    *"Paris Rome paris not never isn't no yes or and either is was the a an of in on one".split(),
    *"two million hundred third May 1999 2nd 12th IV iii km % $5 Dr. J. K. Anna Reed e.g.".split(),
    "Reed's",
    *("I don't know", "I cannot answer", "the answer is", "I apologize, but I couldn't find", "Q:"),
    *(
        "巴黎",
        "不是",
        "東京都",
        "Париж",
        "не",
        "باريس",
        "ليس",
        "पेरिस",
        "ปารีส",
        "París",
        "n'est pas",
    ),
]
NUMBERS = ["0", "1", "-1", "1,000", "1.5", "1e5", "½", "²", "Ⅳ", "٣", "１", "9" * 30, "9" * 400]
LONG_NUMBER = "7" * 5000
"""More digits than Python converts to an int."""
CHARACTERS = [
    *" \t\n\r.,;:!?'\"()<>/-–—…·•。，、？！「」『』“”‘’«»",
    *(
        "\r\n",
        "\n\n",
        "\x00",
        "\x0b",
        "\x1c",
        "\x85",
        "\xa0",
        "\u2028",
        "\u2029",
        "\u3000",
        "\u1680",
    ),
    *(
        "\u200b",
        "\u200d",
        "\u202e",
        "\ufeff",
        "\u0301",
        "\u0345",
        "\u20dd",
        "\u1100",
        "\uac00",
        "\u0e33",
    ),
    *(
        "ß",
        "ſ",
        "İ",
        "ı",
        "ŉ",
        "ﬁ",
        "ﷺ",
        "㍿",
        "ǅ",
        "Å",
        "é",
        "e\u0301",
        "😀",
        "👩‍👩‍👧",
        "\U000e0041",
    ),
]
PIECES = [*TAGS, *MARKUP, *JSON, *WORDS, *NUMBERS, LONG_NUMBER, *CHARACTERS]

_PIECE = st.one_of(
    st.sampled_from(PIECES),
    st.sampled_from(WORDS).map(lambda word: f"{word} "),
    st.tuples(st.sampled_from(CHARACTERS + TAGS + MARKUP), st.integers(2, 40)).map(
        lambda pair: pair[0] * pair[1]
    ),
    st.text(max_size=4),
)

texts = st.lists(_PIECE, max_size=16).map("".join)
"""Texts of Unicode without surrogates, as JSON has them."""

any_texts = st.lists(
    st.one_of(_PIECE, st.sampled_from(["\ud800", "\udfff", "a\udcff"])), max_size=12
).map("".join)
"""Texts that Python can contain, also halves of surrogate pairs."""

aliases = st.one_of(
    st.sampled_from(
        [*WORDS, *NUMBERS, "Anna Maria Reed", "May 5, 1999", "not Paris", "x. a.", "A"]
    ),
    st.lists(_PIECE, max_size=3).map("".join),
)

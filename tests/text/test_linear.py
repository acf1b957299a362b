"""Parsing takes linear time and memory for every response."""

from __future__ import annotations

import sys
import tracemalloc
from itertools import count

import pytest
from growth import assert_linear

from rag_rewards.matching.decide import decide
from rag_rewards.matching.lenient import lenient_match
from rag_rewards.text.boxed import first_box, last_box, unwrap
from rag_rewards.text.citations import cited_labels, compiled, markers, strip_markers
from rag_rewards.text.lengths import auto_length, characters, first_words, words
from rag_rewards.text.normalize import Unicode, lower, squad, tokens, triviaqa
from rag_rewards.text.refusal import (
    REFUSAL,
    abstained,
    refusal_similarity,
    strict_refusal,
    trust_score_refusal,
)
from rag_rewards.text.response import read_response, strip_end_of_sequence
from rag_rewards.text.sections import SectionStyle, Tags, cut
from rag_rewards.text.statements import statements
from rag_rewards.text.thinking import without_thinking

pytestmark = pytest.mark.slow

MEGABYTE = 1 << 20
DEFAULT = compiled()
TAGS = Tags(("think", "answer"))
HARDENED = Tags(("think", "answer"), SectionStyle("lenient", "missing"))
EVERYTHING = Unicode("spelling")


def filled(piece):
    return lambda size: piece * (size // len(piece.encode()))


LENIENT_ALIASES = [f"May {day % 28 + 1}, {1900 + day} by Anna Paris{day}" for day in range(60)]
ALIASES = [
    *(f"May {day % 28 + 1}, {1900 + day} by Anna Paris{day}" for day in range(40)),
    *("Paris Rome", "Rome Maria Paris", "not paris words", "Paris?", "one", "1999", "1 million"),
    *("May 1999", "C. D. Paris", "Paris or Rome", "architect Anna Paris", "rome is a word not b"),
    *(f"New Paris{number}" for number in range(8)),
]
TEXTS = {
    "answers": filled("<answer>x"),
    "pairs": filled("<answer>x</answer>"),
    "thoughts": filled("<think>"),
    "thinking": filled("<think>x</think>"),
    "capitals": filled("<THINK><ANSWER>"),
    "citations": filled("[1]"),
    "cited": filled("a.[1] "),
    "torn citation": filled("[1,"),
    "boxes": filled("\\boxed{"),
    "nested": lambda size: "\\boxed{" + "{" * (size // 2) + "}" * (size // 2),
    "boxes closed": lambda size: "\\boxed{" * (size // 8) + "}" * (size // 8),
    "braces": filled("{}"),
    "backslashes": filled("\\"),
    "commands": filled("\\text{"),
    "marks": lambda size: "a" + "\u0301" * (size // 2),
    "mark pairs": filled("\u0315\u0301"),
    "jamo": filled("\u1100\u1161"),
    "ligatures": filled("\ufdfa"),
    "invisible": filled("a\u200b"),
    "refusals": filled(REFUSAL + " "),
    "abstentions": filled("I don't know "),
    "negations": filled("not "),
    "opening": filled("<"),
    "brackets": filled("["),
    "parentheses": filled("("),
    "initials": filled("a. "),
    "titles": filled("Mr. "),
    "exclamations": filled("? "),
    "quotes": filled('"'),
    "apostrophes": filled("'"),
    "typographic quotes": filled("“"),
    "mixed quotes": filled("「‚《‛"),
    "quoted": filled('"a." '),
    "newlines": filled("\n"),
    "blank lines": lambda size: "a" + "\n\r\n" * (size // 3),
    "spaces": filled(" "),
    "bullets": filled("- a\n"),
    "numbered": filled("1. "),
    "end of sequence": filled("</s> "),
    "chinese stops": filled("。"),
    "chinese": filled("巴黎。"),
    "words": filled("paris rome "),
    "mentions": filled("not Paris, "),
    "alternatives": filled("Paris or "),
    "questions": filled("Paris? "),
    "slots": filled("It is not Paris. "),
    "far": lambda size: "Paris " * 60 + "* " * (size // 2 - 200) + "Paris",
    "slashes": lambda size: "a" + "/" * size,
    "stars": filled("* "),
    "commas": filled(","),
    "dashes": filled("-"),
    "one word": filled("a"),
    "spelled numbers": filled("one million "),
    "digits": filled("1"),
    "grouped": lambda size: "1" + ",111" * (size // 4),
    "months": filled("may 1999 "),
    "articles": filled("the "),
    "blocks": filled("<a></a>"),
    "forged": filled("document 1: x\n"),
    "sources": filled("source: "),
}
NUMBERS = count()


def new(text):
    """Return a text that no earlier call had, because gold answers are cached."""
    return f"{text}{next(NUMBERS)}"


FUNCTIONS = {
    "cut": lambda text: cut(text, TAGS).counts,
    "cut, hardened": lambda text: cut(text, HARDENED).counts,
    "without_thinking": without_thinking,
    "strip_end_of_sequence": strip_end_of_sequence,
    "read_response": lambda text: read_response(text).visible,
    "last_box": last_box,
    "first_box": first_box,
    "unwrap": lambda text: unwrap(f"\\text{{{text}}}"),
    "markers": lambda text: markers(text, DEFAULT),
    "cited_labels": lambda text: cited_labels(text, DEFAULT),
    "strip_markers": lambda text: strip_markers(text, DEFAULT),
    "statements": lambda text: statements(text, DEFAULT),
    "list items": lambda text: statements(text, DEFAULT, items=True),
    "lower": lower,
    "squad": squad,
    "triviaqa": triviaqa,
    "unicode": Unicode(),
    "unicode with everything": EVERYTHING,
    "tokens": tokens,
    "words": words,
    "characters": characters,
    "auto_length": auto_length,
    "first_words": lambda text: first_words(text, 1_000_000),
    "refusal_similarity": lambda text: refusal_similarity(text, cutoff=0.85),
    "trust_score_refusal": trust_score_refusal,
    "strict_refusal": lambda text: strict_refusal(text, refusal_similarity),
    "abstained": abstained,
    "abstained, alone": lambda text: abstained(text, alone=True),
    "lenient_match": lambda text: lenient_match(text, LENIENT_ALIASES, "Which?"),
    "lenient_match, gold": lambda text: lenient_match("Paris", [new(text), "Rome"], "Which?"),
    "decide": lambda text: decide(text, ["Paris"], "Which?"),
    "decide, initials": lambda text: decide(text, ["1", "a", "x. a."], "Which?"),
    "decide, 60 aliases": lambda text: decide(text, ALIASES, "Which?"),
    "decide, gold": lambda text: decide("Paris", [new(text), "Paris"], "Which?"),
    "decide, question": lambda text: decide("It is Paris.", ["Paris"], new(text)),
}


LARGE = MEGABYTE // 32


def is_linear(function, make):
    try:
        assert_linear(lambda size: function(make(size)), LARGE)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", FUNCTIONS)
def test_time_is_linear(name):
    function = FUNCTIONS[name]
    function("Warm. É up [1].")
    assert [kind for kind, make in TEXTS.items() if not is_linear(function, make)] == []


def test_quadratic_time_would_be_seen():
    def quadratic(text):
        return sum(text.count("a", at) for at in range(0, len(text), 4))

    assert not is_linear(quadratic, TEXTS["one word"])


# What came out slowest of everything above; the rest is not worth a megabyte each.
WORST = {
    "cut": ["answers", "thinking"],
    "last_box": ["nested", "braces"],
    "markers": ["citations"],
    "statements": ["citations", "chinese", "mixed quotes", "newlines"],
    "unicode with everything": ["ligatures", "spelled numbers", "initials", "mark pairs"],
    "strict_refusal": ["refusals", "chinese", "newlines"],
    "refusal_similarity": ["refusals"],
    "trust_score_refusal": ["refusals"],
    "lenient_match": ["words", "spelled numbers", "chinese"],
    "decide": ["end of sequence", "chinese", "far", "slashes", "mentions"],
}


@pytest.mark.parametrize(("name", "kind"), [(n, kind) for n in WORST for kind in WORST[n]])
def test_a_megabyte_takes_linear_time(name, kind):
    if sys.gettrace():
        pytest.skip("a tracer multiplies the time of every line")
    assert_linear(lambda size: FUNCTIONS[name](TEXTS[kind](size)), MEGABYTE)


@pytest.mark.parametrize("name", WORST)
def test_memory_is_bounded(name):
    size = MEGABYTE // 16
    for kind in WORST[name]:
        text = TEXTS[kind](size)
        tracemalloc.start()
        try:
            FUNCTIONS[name](text)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 200 * size + MEGABYTE, kind

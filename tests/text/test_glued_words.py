"""Words without the space between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.text.normalize import Unicode
from rag_rewards.text.strict import strict_contains
from rag_rewards.text.strict.glued_words import unglued


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("It was byAnna Reed.", "Anna Reed", True),
        ("The singerAnna Reed won.", "Anna Reed", True),
        ("It was Anna Reedand others.", "Anna Reed", True),
        ("It was byAnna Reedduring the war.", "Anna Reed", True),
        ("It began in2011as a game.", "2011", True),
        ("It was onOctober 16, 2004at noon.", "October 16, 2004", True),
        ("It is hot—Paris is.", "Paris", True),
        ("It is YouTube.", "YouTube", True),
        ("It is the superMario game.", "superMario", True),
        # parts of longer words
        ("It is YouTube.", "Tube", False),
        ("It is comParis.", "Paris", False),
        ("It is McReed.", "Reed", False),
        ("They are Parisians.", "Paris", False),
        ("It is 12345as.", "2345", False),
        # what is glued can be a denial
        ("It is notParis.", "Paris", False),
        ("It is neverParis.", "Paris", False),
    ],
)
def test_glued_words(text, answer, expected):
    assert strict_contains(text, [answer], Unicode()) is expected


@given(st.text(alphabet="abAB 12—and", max_size=30), st.text(alphabet="ABab", max_size=8))
@budget(200)
def test_only_spaces_are_added(text, answer):
    assert unglued(text, [[answer]]).replace(" ", "") == text.replace(" ", "")

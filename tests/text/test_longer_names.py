"""A part of a longer number or name is not a mention."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.text.normalize import Unicode
from rag_rewards.text.strict import strict_contains

NORMALIZER = Unicode()
LONGER = [
    # numbers
    ("It is .5.", "5"),
    ("It has 5 million people.", "5"),
    ("It has 5 million people.", "million"),
    ("It is minus 5.", "5"),
    ("It is negative five.", "five"),
    ("It has twenty five rooms.", "five"),
    ("It has twenty five rooms.", "twenty"),
    ("It has one hundred five rooms.", "five"),
    ("It has 5 000 rooms.", "5"),
    ("It costs $5 billion.", "$5"),
    ("It takes 5 to 7 days.", "5"),
    ("It takes 5 to 7 days.", "7"),
    ("It takes five to seven days.", "seven"),
    ("It is 2 1/2 metres.", "2"),
    ("It is 1/2 metres.", "2"),
    ("It was in 500 BC.", "500"),
    ("It was on May 5, 1999.", "5"),
    ("It was on 5 May 1999.", "5"),
    # numbers and suffixes of names
    ("It was Henry VIII.", "Henry"),
    ("It was Anna Reed Jr.", "Anna Reed"),
    ("It was Anna Reed, Jr.", "Anna Reed"),
    ("It was Elizabeth II.", "Elizabeth"),
    ("It is Rocky IV.", "Rocky"),
    ("It is Windows 10.", "Windows"),
    ("It was Apollo 11.", "Apollo"),
    ("It is Washington, D.C.", "Washington"),
    ("It is Washington D.C.", "Washington"),
    # words of a longer name
    ("It is in New York.", "York"),
    ("It is West Virginia.", "Virginia"),
    ("It is Papua New Guinea.", "Guinea"),
    ("It is Paris Hilton.", "Paris"),
    ("It is the New York Times.", "New York"),
    ("It is The Road Part II.", "The Road"),
    ("The letter grade was A+.", "A"),
    ("It is a town.", "A"),
]
NOT_LONGER = [
    ("It was in 1914 to 1918.", "1914"),
    ("It was at the 1960 Summer Games.", "1960"),
    ("It was in May 1999.", "1999"),
    ("It was in May 1999.", "May"),
    ("It has 5 rooms.", "5"),
    ("Of 10 people, 5 left.", "5"),
    ("It was in 1999, million people came.", "1999"),
    ("It is 12. Rome is large.", "12"),
    ("It is .5.", ".5"),
    ("It is Henry VIII.", "Henry VIII"),
    ("It is Anna Reed. Ben agrees.", "Anna Reed"),
    ("It lies on the Swan River.", "Swan"),
    ("It is New York City.", "New York"),
    ("It is Paris, France.", "Paris"),
    ("It was Anna Reed.", "Reed"),
    ("The answer is A.", "A"),
]


@pytest.mark.parametrize(("text", "answer"), LONGER)
def test_a_part_of_a_longer_number_or_name_is_no_mention(text, answer):
    assert not strict_contains(text, [answer], NORMALIZER)


@pytest.mark.parametrize(("text", "answer"), NOT_LONGER)
def test_a_whole_number_or_name_is_a_mention(text, answer):
    assert strict_contains(text, [answer], NORMALIZER)


@pytest.mark.parametrize(
    ("question", "text", "answer", "expected"),
    [
        # A person can be called by the first name.
        ("Who sang it?", "It was Anna Reed.", "Anna", True),
        ("Which town is it?", "It is Anna Reed.", "Anna", False),
        # The noun that follows is a word of the question.
        ("Which tower is it?", "It is the Reed Tower.", "Reed", True),
        ("Which house is it?", "It is the Reed Tower.", "Reed", False),
    ],
)
def test_the_question_decides_what_belongs_to_a_name(question, text, answer, expected):
    assert strict_contains(text, [answer], NORMALIZER, question=question) is expected


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(["{}", "It is {}.", "{} [1]"]))
@budget(200)
def test_a_number_mentions_only_itself(number, other, text):
    assert strict_contains(text.format(number), [str(number)], NORMALIZER)
    mentions_other = strict_contains(text.format(number), [str(other)], NORMALIZER)
    assert mentions_other == (number == other)

"""Mentions of a gold answer in another form."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.text.normalize import Unicode
from rag_rewards.text.strict import StrictText, strict_contains
from rag_rewards.text.strict.comparable_words import comparable
from rag_rewards.text.strict.gold_words import read_gold
from rag_rewards.text.strict.longer_names import LongerNames
from rag_rewards.text.strict.mentions import OtherForms
from rag_rewards.text.strict.written_dates import written_dates
from rag_rewards.text.words import read_words

NORMALIZER = Unicode()


def kind_of(text, *aliases, question=""):
    return StrictText(text, NORMALIZER, [aliases], required=1, question=question).find(aliases)


FORMS = [
    # numbers
    ("It has two rooms.", "2", "other form"),
    ("It has 25 rooms.", "twenty-five", "other form"),
    ("It has 1,000 rooms.", "1000", "other form"),
    ("It has 5 million rooms.", "5,000,000", "other form"),
    ("It costs $5 million.", "$5,000,000", "other form"),
    ("It costs 5 million dollars.", "$5 million", "other order"),
    ("It is 50 percent.", "50%", "other form"),
    ("It is 10km long.", "10 kilometres", "other form"),
    ("It is a 12-part work.", "12", "other form"),
    ("It lasted from 1914–1918.", "1914 to 1918", "other order"),
    ("It was in 1979-1980.", "1979–80", "other form"),
    ("It is in the fourth season.", "season 4", "other form"),
    ("It is season four.", "fourth season", "other form"),
    ("It is the 20th century.", "twentieth century", "other form"),
    ("It was World War 2.", "World War II", "other form"),
    # dates
    ("It was on 2 November 1999.", "November 2, 1999", "same date"),
    ("It was on the 2nd of November, 1999.", "November 2, 1999", "same date"),
    ("It was on Nov. 2, 1999.", "2 November 1999", "same date"),
    ("It was on 1999-11-02.", "2 November 1999", "same date"),
    ("It was on November 2, 1999.", "November 1999", "same date"),
    ("It was on November 2nd.", "November 2", "same date"),
    # spelling
    ("In Sao Paulo", "São Paulo", "other form"),
    ("It is the US.", "U.S.", "other form"),
    ("It is Coca Cola.", "Coca-Cola", "other form"),
    ("It is CocaCola.", "Coca Cola", "written together"),
    ("It is E. M. Forster.", "E.M. Forster", "written together"),
    ("It is JK Rowling.", "J. K. Rowling", "written together"),
    ("It was Simon & Garfunkel.", "Simon and Garfunkel", "other form"),
    ("They are vesicles.", "vesicle", "other form"),
    ("It is Mt. Reed.", "Mount Reed", "other form"),
    # order and names
    ("Reed, Anna", "Anna Reed", "other order"),
    ("It is on the ring finger of her left hand.", "left hand ring finger", "other order"),
    ("Rome and Paris", "Paris and Rome", "other order"),
    ("It was Anna Reed.", "Anna Maria Reed", "shorter name"),
    ("It was Anna M. Reed.", "Anna Maria Reed", "shorter name"),
    ("It was A.M. Reed.", "Anna Maria Reed", "shorter name"),
    ("It was Rita Beth Reed.", "R. B. Reed", "shorter name"),
    ("It was Anna Reed.", "architect Anna Reed", "other form"),
    ("The fund pools money from members.", "pools small money from members", "most words"),
    ("It is Burma.", "Myanmar or Burma", "other form"),
]


@pytest.mark.parametrize(("text", "answer", "kind"), FORMS)
def test_kind_of_a_mention(text, answer, kind):
    assert kind_of(text, answer) == kind


@pytest.mark.parametrize(("text", "answer", "kind"), FORMS)
def test_a_mention_in_another_form_can_be_denied(text, answer, kind):
    assert kind_of(f"It is not true that {text[:1].lower()}{text[1:]}", answer) is None


OTHERS = [
    # numbers and units
    ("It is 3.14.", "314"),
    ("It is 5.5 million.", "5 million"),
    ("It is -5.", "5"),
    ("It is 10 km long.", "10 miles"),
    ("It is 10 miles (16 km) long.", "10 km"),
    ("It costs 10 million euros.", "10 million dollars"),
    ("It is 50%.", "50"),
    ("It costs $5.", "5"),
    ("It takes 5-7 days.", "5"),
    ("It was in the 1990s.", "1990"),
    ("It is one of the best.", "1"),
    ("It is at 11 a.m.", "11 p.m."),
    ("It is the seventh season.", "seven"),
    ("It has seven seasons.", "seventh season"),
    ("It is the 16th century.", "6th century"),
    ("It took 741 weeks.", "a week"),
    ("It is 2061ian.", "2061"),
    ("It is 15-fold.", "15"),
    # dates
    ("It was on November 3, 1999.", "November 2, 1999"),
    ("It was in November 1999.", "November 2, 1999"),
    ("It was on 12 May 1999.", "2 May 1999"),
    # names
    ("It was John Smith and Bob Roberts.", "John Roberts"),
    ("It was John Roberts Smith.", "John Smith Roberts"),
    ("It was John told Roberts.", "John Roberts"),
    ("It was George Bush.", "George W. Bush"),
    ("It was George H. W. Bush.", "George W. Bush"),
    ("It was George Walker.", "George Walker Bush"),
    ("It was Henry VII.", "Henry VIII"),
    ("It was Anna Reed Jr.", "Anna Maria Reed"),
    ("It was Venus Williams.", "Serena Williams"),
    ("It is Oxford Street.", "Regent Street"),
    ("It is a Nigerian.", "Niger"),
    ("Apollo 11", "Apollo 1"),
    ("It is x-Paris-y.", "Päris"),
    ("Vitamin", "Vitamin A"),
    ("It is sugar.", "sugarcane"),
    # separate words
    ("The states and the people.", "the states or the people"),
    ("It is the sector (also called public by many) of trade.", "public sector"),
    ("It is a left foot. The ring is on a finger of the hand.", "left hand ring finger"),
]


@pytest.mark.parametrize(("text", "answer"), OTHERS)
def test_another_answer_is_no_mention(text, answer):
    assert kind_of(text, answer) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Who Goes There?", "Who Goes There?"),
        ("The film is who goes there?", "Who Goes There?"),
        ("Who Goes There? is the film.", "Who Goes There?"),
        ("Rome. This answer is based on document 3.", "Rome"),
        ("Rome. The answer is based on document 3.", "Rome"),
        ("Only one town is so hot—Rome.", "Rome"),
        ("It is Anna %22Ann%22 Reed.", "Anna %22Ann%22 Reed"),
    ],
)
def test_marks_and_remarks(text, answer):
    assert kind_of(text, answer)


def test_a_question_is_no_answer():
    assert kind_of("Is it Rome?", "Rome", "Who Goes There?") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It was on May 6, 1999.", False),
        ("It was on June 5, 1999.", False),
        ("It was on May 5, 1999.", True),
        ("It was in 1999.", True),
        ("It was in May 1999.", True),
    ],
)
def test_another_date_of_the_same_year_is_wrong(text, expected):
    assert strict_contains(text, ["1999", "May 5, 1999"], NORMALIZER) is expected


WORDS = ["paris", "rome", "two", "5", "million", "of", "the", "2nd", "november", "1999", "reeds"]


@given(st.lists(st.sampled_from(WORDS), max_size=8))
@budget(200)
def test_comparable_words_keep_their_places(texts):
    words, first, last = comparable(texts)
    assert len(words) == len(first) == len(last)
    assert all(a <= b for a, b in zip(first, last, strict=True))
    assert all(before < after for before, after in itertools.pairwise(first))
    for word, start, end in zip(words, first, last, strict=True):
        assert comparable(texts[start : end + 1]).words[-1:] == [word]


@given(st.lists(st.sampled_from(WORDS), max_size=8))
@budget(200)
def test_dates_equal_those_of_a_slow_search(words):
    expected = []
    for at, word in enumerate(words):
        if word == "november":
            rest = words[at + 1 :]
            day = rest[0] if rest[:1] in (["5"], ["2nd"]) else ""
            after = rest[1:] if day else rest
            if not day:
                before = words[:at][::-1]
                before = before[1:] if before[:1] == ["of"] else before
                day = before[0] if before[:1] in (["5"], ["2nd"]) else ""
            year = "1999" if after[:1] == ["1999"] else ""
            expected.append((day.removesuffix("nd"), year))
    assert [(date.day, date.year) for date in written_dates(words)] == expected


LETTERS = ["ash", "birch", "cedar", "and", "not", "elm", "fir", "grove"]


@given(
    st.lists(st.sampled_from(LETTERS), max_size=9),
    st.lists(st.sampled_from(["ash", "birch", "cedar"]), min_size=2, max_size=3, unique=True),
)
@budget(300)
def test_words_in_any_order_equal_those_of_a_slow_search(text, answer):
    """A slow search: some range of few words contains all words and nothing that separates."""
    (gold,) = read_gold([" ".join(answer)])
    words = read_words(" ".join(text), NORMALIZER)
    spans = [
        text[start : start + width]
        for start in range(len(text))
        for width in range(len(answer), len(answer) + 4)
    ]
    expected = any(
        set(answer) <= set(span) and "and" not in span and "not" not in span for span in spans
    )
    kinds = {
        mention.kind for mention in OtherForms(text, words, LongerNames(words, "", "")).find(gold)
    }
    assert (kinds - {"written together"} != set()) == expected

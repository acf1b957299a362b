"""Properties of decisions."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.matching import decide as module
from rag_rewards.matching.decide import decide
from rag_rewards.matching.gold import required_answers

NAMES = ["Paris", "Rome", "New York", "5 km", "1969", "東京", "Москва", "J. K. Rowling", "C++"]
WORDS = [
    "it",
    "is",
    "the",
    "not",
    "or",
    "and",
    "Oslo",
    "Rome",
    "5",
    "before",
    ",",
    "?",
    "city",
    "of",
]
names = st.sampled_from(NAMES)
texts = st.lists(st.sampled_from(NAMES + WORDS), max_size=7).map(" ".join)
questions = st.sampled_from(["", "Which city is it?", "Is it Rome or Paris?", "日本の首都は？"])


@given(st.text(min_size=1), questions)
@budget(200)
def test_an_alias_equals_itself(alias: str, question: str) -> None:
    assume(alias.strip())
    assert decide(alias, [alias], question).value == "right"


@given(names, st.sampled_from(["Bergen", "hardly", "7", "≠", "❌", "oder", "не", "不是"]))
@budget(100)
def test_another_word_makes_an_answer_undecided(name: str, word: str) -> None:
    for answer in (f"{word} {name}", f"{name} {word}"):
        assert decide(answer, [name]).value == "undecided"


@given(texts, st.lists(names, min_size=2, max_size=5, unique=True), questions, st.randoms())
@budget(200)
def test_the_order_of_aliases_does_not_matter(
    answer: str, aliases: list[str], question: str, random: st.DataObject
) -> None:
    decision = decide(answer, aliases, question)
    random.shuffle(aliases)  # type: ignore[attr-defined]
    assert decide(answer, aliases, question) == decision == decide(answer, aliases, question)


@given(st.text(), st.lists(st.text(), min_size=1), st.text())
@budget(200)
def test_any_text_has_a_decision(answer: str, aliases: list[str], question: str) -> None:
    assume(any(any(map(str.isalnum, alias)) for alias in aliases))
    assert decide(answer, aliases, question).value in ("right", "wrong", "undecided")


@given(texts, st.lists(names, min_size=1, max_size=3), questions)
@budget(300)
def test_a_decision_without_a_full_read_is_that_of_a_full_read(
    answer: str, aliases: list[str], question: str
) -> None:
    required = required_answers(aliases)
    plain = module._plain_decision(answer, required, question)
    if plain is not None and plain.reason != "equal":
        assert plain.value == module._full_decision(answer, required, question, ()).value

"""The certainty of the rules: features by hand, a naive twin, and properties."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.text.certainty import (
    RuleVerdict,
    answer_features,
    probability_of,
    rule_verdict,
    rule_verdicts,
)
from rag_rewards.text.certainty_weights import WEIGHTS
from rag_rewards.text.lenient import LenientText, lenient_match
from rag_rewards.text.normalize import Unicode
from rag_rewards.text.strict import strict_contains
from rag_rewards.text.word_forms import plain_words

QUESTION = "Which river runs through Paris?"


def features(text: str, *aliases: str, question: str = QUESTION) -> dict[str, float]:
    """Return the features that are not 0."""
    values = answer_features(text, aliases, question)
    assert values is not None
    assert values.get("missing, similarity", 0.0) <= 1
    return {name: value for name, value in values.items() if value}


def test_similarity() -> None:
    # The common letters of "seine" and "soine" are "s", "i", "n" and "e": 2·4 / (5 + 5).
    assert features("Soine", "Seine")["missing, similarity"] == pytest.approx(0.8)
    assert features("comparison", "Paris")["missing, similarity"] == 1
    assert "missing, similarity" not in features("Bonn", "Mali")


def test_features_of_a_match() -> None:
    assert features("It is the Seine.", "Seine") == {
        "all words": 1,
        "matched, coverage": 1,
        "matched, gold words": 1,
        "asserted": 1,
        "asserted, length": math.log(5),
    }
    assert features("I am sorry to be late. It is the Seine.", "Seine") == {
        "all words": 1,
        "matched, coverage": 1,
        "matched, gold words": 1,
        "asserted": 1,
        "asserted, length": math.log(11),
        "matched, later": 1,
        "asserted, later": 1,
        "matched, doubt": 1,
    }
    assert features("It is the river Seine.", "river Seine")["matched, in question"] == 0.5
    # Only the lenient matcher accepts part of a name.
    assert features("It was Maria Berg.", "Anna Maria Berg") == {
        "most words": 1,
        "matched, coverage": 1.4 / 2.4,  # the middle name weighs 0.4
        "matched, gold words": 3,
    }
    assert features("It was ABC.", "American Broadcasting Company") == {
        "other form": 1,
        "matched, coverage": 1,
        "matched, gold words": 3,
    }


def dissimilar(text: str, *aliases: str, question: str = QUESTION) -> dict[str, float]:
    """Return the features other than the similarity."""
    values = features(text, *aliases, question=question)
    del values["missing, similarity"]
    return values


def test_features_of_an_answer_that_does_not_match() -> None:
    assert dissimilar("I am not sure. It may be the Loire.", "Seine", "La Seine") == {
        "words missing": 1,
        "missing, nothing found": 1,
        "missing, length": math.log(10),
        "missing, gold words": 1,
        "missing, aliases": 2,
        "missing, name": 1,
        "missing, other names": math.log(2),  # "Loire", and not the first word of a sentence
        "missing, doubt": 1,
    }
    assert dissimilar("It was in 1945.", "May 1944", question="When was it?") == {
        "number missing": 1,
        "missing, length": math.log(5),
        "missing, nothing found": 1,
        "missing, gold words": 2,
        "missing, aliases": 1,
        "missing, year": 1,
        "missing, other year": 1,
    }
    # The alias is part of a word; "Paris" is in the question.
    assert dissimilar("comparison", "Paris") == {
        "words missing": 1,
        "missing, substring": 1,
        "missing, nothing found": 1,
        "missing, length": math.log(2),
        "missing, gold words": 1,
        "missing, aliases": 1,
        "missing, name": 1,
        "missing, in question": 1,
    }


def test_an_exact_answer_has_no_features() -> None:
    assert answer_features("the Seine", ["Rhône", "Seine"]) is None
    verdict = RuleVerdict(1.0, "exact", is_matched=True, is_asserted=True, is_blocked=False)
    assert rule_verdict("The Seine.", ["Seine"]) == verdict
    assert verdict.certainty == 1.0


@pytest.mark.parametrize("text", ["", " ", "?", "\x00"])
@pytest.mark.parametrize("aliases", [(), ("",), ("?",)])
def test_texts_without_words(text: str, aliases: tuple[str, ...]) -> None:
    verdict = rule_verdict(text, aliases)
    assert 0.5 <= verdict.certainty <= 1.0


@pytest.mark.parametrize(
    "text",
    [
        "Paris or Rome",
        "Rome, Paris, Berlin",
        "It is not Paris.",
        "Paris is wrong.",
        "Is it Paris?",
        "The answer is Paris. The answer is Rome.",
        # Words that the normalizer joins:
        "Rome/Paris/Berlin",
        "<answer>Rome, Berlin and Paris</answer>",
        "罗马、Paris、柏林",
        "It's not:Paris",
    ],
)
def test_a_mention_that_is_not_an_assertion_is_uncertain(text: str) -> None:
    verdict = rule_verdict(text, ["Paris"])
    assert verdict.is_blocked
    assert verdict.certainty == 0.5


def test_contradicting_matchers_are_uncertain() -> None:
    verdict = RuleVerdict(0.02, "words missing", False, True, False)
    assert verdict.certainty == 0.5


WORDS = st.sampled_from("Paris Rome not or and is the 1944 1,000 . , ? sorry Anna Berg it".split())
TEXTS = st.lists(WORDS, max_size=12).map(" ".join)


def naive(text: str, aliases: list[str], question: str) -> tuple[float, float]:
    """Return the probability and the certainty as the module documentation defines them."""
    normalize = Unicode()
    match = lenient_match(text, aliases, question)
    asserted = strict_contains(text, aliases, normalize, question=question)
    norms = [normalize(alias) for alias in aliases if normalize(alias)]
    if match and asserted and normalize(text) in norms:
        return 1.0, 1.0
    values = answer_features(text, aliases, question)
    assert values is not None
    odds = math.prod(math.exp(WEIGHTS[name]) ** value for name, value in values.items())
    probability = odds / (1 + odds)
    words = f" {' '.join(LenientText(text).words)} "
    contains = any(f" {norm} " in f" {normalize(text)} " for norm in norms)
    contains |= any(f" {' '.join(plain_words(a))} " in words for a in aliases if plain_words(a))
    blocked = not asserted and contains
    if blocked or (asserted and not match):
        return probability, 0.5
    return probability, max(probability, 1 - probability)


@budget(300)
@given(
    TEXTS,
    st.lists(
        st.sampled_from(["Paris", "Anna Berg", "1944", "1,000", "Rome"]),
        min_size=1,
        max_size=3,
        unique=True,
    ),
    TEXTS,
)
def test_naive_twin(text: str, aliases: list[str], question: str) -> None:
    verdict = rule_verdict(text, aliases, question)
    probability, certainty = naive(text, aliases, question)
    assert verdict.probability == pytest.approx(probability, abs=0.0006)
    assert verdict.certainty == pytest.approx(certainty, abs=0.0006)


def test_probability_by_hand() -> None:
    # 1 / (1 + exp(−(2·0.5 − 1·3))) = 1 / (1 + e²)
    assert probability_of({"a": 0.5, "b": 3.0, "c": 9.0}, {"a": 2.0, "b": -1.0}) == 0.119


def test_every_weight_belongs_to_a_feature() -> None:
    texts = [
        ("It is the Seine.", ["Seine"]),
        ("It was Maria Berg.", ["Anna Maria Berg"]),
        ("It was ABC.", ["American Broadcasting Company"]),
        ("Rome", ["Seine"]),
        ("Oxford Street", ["Regent Street"]),
        ("1945", ["1944"]),
    ]
    names = {name for text, aliases in texts for name in answer_features(text, aliases) or ()}
    assert names == set(WEIGHTS)


def test_several_required_answers_are_read_at_once() -> None:
    text = "They speak French and Dutch."
    required = [["French"], ["Dutch"], ["German"]]
    together = rule_verdicts(text, required)
    assert [verdict.is_right for verdict in together] == [True, True, False]

"""Refusals and abstentions, and attacks on their detection."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.metrics.trust_score import refuses
from rag_rewards.text.normalize import squad
from rag_rewards.text.refusal import (
    ABSTENTIONS,
    REFUSAL,
    SHORT_REFUSAL,
    abstained,
    refusal_form,
    refusal_similarity,
    strict_refusal,
    trust_score_refusal,
)

WORDS = st.lists(
    st.sampled_from([*REFUSAL.split(), "Paris", "not", "I", "don't", "know", "’", "(", "\n", "1."]),
    max_size=16,
).map(" ".join)
SOUP = WORDS | st.text(max_size=40)


def common_subsequence(a, b):
    row = [0] * (len(b) + 1)
    for x in a:
        diagonal = 0
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], diagonal + 1 if x == y else max(row[j], row[j - 1])
    return row[-1]


def naive_similarity(answer, text):
    a, b = (squad(t.translate(dict.fromkeys(map(ord, "’‘´`ʼ′"), "'"))) for t in (answer, text))
    return 2 * common_subsequence(a, b) / (len(a) + len(b)) if a or b else 1.0


@given(SOUP)
@budget(150)
def test_similarity_equals_the_insertion_deletion_ratio(answer):
    texts = (REFUSAL, "No answer.")
    best = max(naive_similarity(answer, text) for text in texts)
    assert refusal_similarity(answer, texts) == pytest.approx(best)
    below = refusal_similarity(answer, texts, cutoff=0.85)
    assert below == pytest.approx(best if best >= 0.85 else 0.0)


def test_upstream_values(shared):
    path = shared / "parity" / "generated" / "refusal_fuzz_scores.json"
    table = json.loads(path.read_text("utf-8"))
    assert (table["gold_refusal"], table["flag"]) == (REFUSAL, SHORT_REFUSAL)
    assert table["rows"]
    for row in table["rows"]:
        values, text = row["rapidfuzz"], row["text"]
        assert 100 * refusal_similarity(text) == pytest.approx(values["ratio_vs_gold_norm"])
        partial = round(values["partial_ratio_vs_flag_normalized"])
        assert trust_score_refusal(text) == pytest.approx(partial / 100)
        theirs = next(value for key, value in row.items() if key.startswith("trust_eval"))
        assert (trust_score_refusal(text) > 0.85) is theirs


@pytest.mark.parametrize("apostrophe", "’ʼ`´‘ʹ′＇")
def test_typographic_apostrophes(apostrophe):
    """The reward, the metric and the strict detection treat every apostrophe alike."""
    answer = REFUSAL.replace("'", apostrophe)
    assert answer != REFUSAL
    assert refusal_similarity(answer) == 1.0
    assert refusal_similarity(REFUSAL, [answer]) == 1.0
    assert trust_score_refusal(answer) == 1.0
    assert strict(answer) == 1.0
    plain = "I am sorry; I couldn't find an answer in any text"
    other = plain.replace("'", apostrophe)
    assert refuses(other) == refuses(plain)
    assert refusal_similarity(other) == refusal_similarity(plain)


def test_apostrophes_do_not_make_a_refusal():
    assert refusal_similarity("Schrödinger’s cat") < 0.5
    assert refusal_form("Schrödinger’s `cat`") == "schrödingers cat"


# --- strict refusals ---------------------------------------------------------------------------


def strict(answer, gold=()):
    return strict_refusal(answer, refusal_similarity, gold=gold)


@pytest.mark.parametrize(
    "answer",
    [
        REFUSAL,
        REFUSAL.upper(),
        REFUSAL.rstrip("."),
        REFUSAL.replace("'", "’"),
        REFUSAL.replace(" ", "\u00a0"),
        f"\n{REFUSAL}\n\n",
        "I'm sorry, but I couldn't find an answer to your question in the search results.",
        "I apologize, but I could not find an answer to your question in the search results.",
        "I apologize, but I couldn't find the answer to your question in the search results.",
        "I apologize, but I cannot find an answer to your question in the search results.",
        "I apologize, but I was unable to find an answer to your question in the search results.",
        "I apologize, but I couldn't find any answer to this question in the search results.",
        f"{REFUSAL} The documents do not mention it.",
        f"{REFUSAL} None of the passages contains the information.",
        f"The provided information is insufficient. {REFUSAL}",
        f"The documents do not say who won. {REFUSAL}",
    ],
)
def test_refusals_are_recognized(answer):
    assert 0.85 <= strict(answer, gold=["paris"]) <= 1.0


@pytest.mark.parametrize(
    "answer",
    [
        # refusing and answering at once
        f"{REFUSAL} It is Paris.",
        f"It is Paris. {REFUSAL}",
        f"{REFUSAL} However, the capital is Paris.",
        f"{REFUSAL}\n\nParis",
        f"{REFUSAL[:-1]}, but it is Paris.",
        f"{REFUSAL[:-1]} (Paris).",
        f"{REFUSAL[:-1]}: Paris.",
        f"Paris - {REFUSAL}",
        REFUSAL.replace("an answer", "Paris"),
        f"{REFUSAL} No doubt it is Paris.",
        # negated
        f"It is not true that {REFUSAL}",
        REFUSAL.replace("I apologize, but", "I do not apologize, and it is false that"),
        "I never said: " + REFUSAL,
        REFUSAL.replace("I couldn't find", "I couldn't not find"),
        # the negation taken out
        REFUSAL.replace("couldn't", "could"),
        REFUSAL.replace("couldn't find", "found"),
        "I apologize, but I did find an answer to your question in the search results.",
        # quoted
        f'"{REFUSAL}"',
        f"“{REFUSAL}”",
        f"«{REFUSAL}»",
        f'He said "{REFUSAL}"',
        # a fragment
        "I apologize",
        "I couldn't find",
        "an answer to your question in the search results",
        "I apologize, but",
        # nothing at all
        "",
        ".",
        "Paris",
        "I do not like it.",
        "The documents do not mention it.",
    ],
)
def test_other_answers_are_not_refusals(answer):
    assert strict(answer) == 0.0


@pytest.mark.parametrize("gold", ["paris", "new york"])
def test_a_refusal_with_a_gold_answer_is_an_answer(gold):
    answer = f"{REFUSAL} The documents do not mention {gold.title()}."
    assert strict(answer) == 1.0
    assert strict(answer, gold=[gold]) == 0.0
    assert strict(answer, gold=["", "par", "york new"]) == 1.0


def test_other_refusal_texts():
    texts = ("No answer is given.",)

    def like(text):
        return refusal_similarity(text, texts)

    assert strict_refusal("No answer is given.", like, texts) == 1.0
    assert strict_refusal("An answer is given.", like, texts) == 0.0
    assert strict_refusal("No answer is given. Rome!", like, texts) == 0.0


@given(SOUP)
@budget(200)
def test_strict_is_never_more_than_its_best_sentence(answer):
    value = strict(answer)
    assert value == 0 or 0.85 <= value <= 1
    assert strict(f"{answer} Rome.") == 0
    if answer.strip():
        assert strict(f'"{REFUSAL}" {answer}') == 0 or value > 0


# --- abstentions -------------------------------------------------------------------------------


def plain(text):
    text = re.sub("[‘’‛ʼʹʻ′´`＇]", "'", text).lower()
    return " ".join(text.split())


ASCII_SOUP = st.lists(
    st.sampled_from(
        ["I", "don't", "dont", "do not", "know", "KNOW.", "\n", "Paris", "`", '"', "!"]
    ),
    max_size=10,
).map(" ".join)


@given(ASCII_SOUP, st.lists(st.sampled_from(["Paris", "I Don't Know Why", "know"]), max_size=2))
@budget(300)
def test_abstained_equals_the_naive_implementation(answer, gold):
    free = [p for p in map(plain, ABSTENTIONS) if not any(p in plain(text) for text in gold)]
    assert abstained(answer, gold=gold) == any(p in plain(answer) for p in free)
    alone = plain(answer).strip(" .!,;:\"'()[]*_")
    assert abstained(answer, gold=gold, alone=True) == (alone in free)


@pytest.mark.parametrize("apostrophe", "'’‘‛ʼ′´`＇")
def test_every_apostrophe(apostrophe):
    assert abstained(f"I don{apostrophe}t know")
    assert abstained(f"I DON{apostrophe}T  KNOW.", alone=True)


@pytest.mark.parametrize(
    ("answer", "default", "alone"),
    [
        ("I don't know", True, True),
        ("I do not know.", True, True),
        ("I dont know", True, True),
        ("**I don't know**", True, True),
        (" I\n don't know ! ", True, True),
        ("I don't know, maybe Paris", True, False),
        ("Paris, but I don't know", True, False),
        ("Cannot be determined", False, False),
        ("not enough information", False, False),
        ("I know", False, False),
        ("don't know", False, False),
        ("", False, False),
    ],
)
def test_abstained(answer, default, alone):
    assert abstained(answer) is default
    assert abstained(answer, alone=True) is alone


def test_wider_phrases_are_opt_in():
    assert abstained("Cannot be determined.", [*ABSTENTIONS, "cannot be determined"])


@given(st.text(max_size=40))
def test_never_raises(text):
    for value in (refusal_similarity(text), trust_score_refusal(text), strict(text)):
        assert 0 <= value <= 1
    assert not abstained(text, phrases=())
    assert not abstained(text, phrases=(), alone=True)

"""Refusals of Ground-GRPO: the similarity r, the detection, and Eq. 6."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import DataError, EvidenceError, Rollout
from rag_rewards.evidence.needs import SimilarityNeed
from rag_rewards.rewards import RefusalDetector, refusal_reward
from rag_rewards.rollout import Similarity
from rag_rewards.text.refusal import REFUSAL, SHORT_REFUSAL

quick = budget(100)
EMPTY = Rollout(response="")


def squad(text: str) -> str:
    text = "".join(char for char in text.lower() if char not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def naive_ratio(left: str, right: str) -> float:
    """Return 2·LCS / (|a| + |b|), the normalized insertion-deletion similarity."""
    row = [0] * (len(right) + 1)
    for a in left:
        before = 0
        for j, b in enumerate(right, start=1):
            before, row[j] = row[j], before + 1 if a == b else max(row[j], row[j - 1])
    return 2 * row[-1] / (len(left) + len(right)) if left or right else 1.0


EDITS = st.lists(
    st.tuples(st.integers(0, 80), st.integers(0, 12), st.sampled_from(["", "x ", "?"])), max_size=3
)


@quick
@given(EDITS, st.sampled_from([0.5, 0.85, 0.95]))
def test_ratio_against_a_naive_implementation(edits, threshold):
    answer = REFUSAL
    for start, length, new in edits:
        answer = answer[:start] + new + answer[start + length :]
    expected = naive_ratio(squad(answer), squad(REFUSAL))
    refused, r = RefusalDetector(threshold=threshold).refused(EMPTY, answer)
    assert refused == (expected >= threshold)
    if refused:
        assert r == pytest.approx(expected)


def test_the_best_of_several_texts():
    detector = RefusalDetector(texts=("No answer found.", "Keine Antwort gefunden."))
    assert detector.refused(EMPTY, "keine antwort GEFUNDEN") == (True, 1.0)
    assert not detector.refused(EMPTY, REFUSAL)[0]


def test_the_threshold_itself_refuses():
    # "aaaaaaaaaa…" of 17 against 20 of them: 2·17/37; against 23: 2·17/40 = 0.85 exactly.
    detector = RefusalDetector(texts=("b" * 23,))
    assert detector.refused(EMPTY, "b" * 17) == (True, 0.85)
    assert RefusalDetector(texts=("b" * 24,)).refused(EMPTY, "b" * 17)[0] is False


def test_partial_ratio_refuses_strictly_above():
    detector = RefusalDetector(texts=(SHORT_REFUSAL,), matcher="partial_ratio")
    assert detector.refused(EMPTY, "Well: " + REFUSAL) == (True, 1.0)
    exactly = RefusalDetector(texts=("b" * 20,), matcher="partial_ratio", threshold=1.0)
    assert exactly.refused(EMPTY, "b" * 20) == (False, 1.0)


def test_semantic_similarity_is_evidence():
    detector = RefusalDetector(texts=("No.", "Sorry."), matcher="semantic")
    assert detector.needs(" I pass ") == [
        SimilarityNeed("I pass", "No."),
        SimilarityNeed("I pass", "Sorry."),
    ]
    assert RefusalDetector().needs("I pass") == []

    def with_similarity(*values):
        pairs = zip(detector.texts, values, strict=False)
        result = tuple(Similarity(text="I pass", reference=t, similarity=v) for t, v in pairs)
        return Rollout(response="", similarity=result)

    assert detector.refused(with_similarity(0.2, 0.9), "I pass") == (True, 0.9)
    assert detector.refused(with_similarity(0.2, 0.8), "I pass") == (False, 0.8)
    with pytest.raises(DataError, match="similarity: no entry for text 'I pass'"):
        detector.refused(with_similarity(0.2), "I pass")
    with pytest.raises(EvidenceError, match=r"similarity\[0\]\.similarity: not a finite number"):
        detector.refused(with_similarity(float("nan")), "I pass")


STRICT = RefusalDetector(strict=True)


@pytest.mark.parametrize(
    ("answer", "refuses"),
    [
        (REFUSAL, True),
        (REFUSAL + " The documents do not mention it.", True),
        (REFUSAL.replace("couldn't", "could"), False),
        (REFUSAL + " It is Paris.", False),
        (f'The phrase "{REFUSAL}" is what others say.', False),
        ("It is Paris.", False),
    ],
)
def test_strict_refusals(answer, refuses):
    assert STRICT.refused(EMPTY, answer)[0] is refuses


def test_strict_refusals_have_no_citations_and_no_gold_answer():
    assert STRICT.refused(EMPTY, REFUSAL, cites=True) == (False, 0.0)
    more = REFUSAL + " No document names Paris."
    assert STRICT.refused(EMPTY, more)[0] is True
    assert STRICT.refused(EMPTY, more, gold=("paris",))[0] is False


def test_strict_and_semantic():
    detector = RefusalDetector(texts=("No.",), matcher="semantic", strict=True)
    rollout = Rollout(
        response="", similarity=(Similarity(text="I pass", reference="No.", similarity=0.9),)
    )
    assert detector.refused(rollout, "I pass") == (True, 0.9)
    assert detector.refused(rollout, "I pass", cites=True) == (False, 0.0)


@quick
@given(st.booleans(), st.booleans(), st.floats(0, 1), st.floats(0, 2))
def test_equation_6_against_a_naive_implementation(answerable, refused, r, bonus):
    table = {(True, False): bonus, (True, True): 0.0, (False, True): r, (False, False): 0.0}
    expected = table[answerable, refused]
    assert refusal_reward(answerable=answerable, refused=refused, r=r, bonus=bonus) == expected

"""LEAR: length rewards and masked answers against slow implementations."""

from __future__ import annotations

import math
import pickle
import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import DataError, Document, EvidenceError, Rollout
from rag_rewards.evidence.needs import MaskedAnswersNeed, MaskedLogProbsNeed
from rag_rewards.rewards import Lengths, MaskedAnswer, evidence_length, rationale_length
from rag_rewards.rewards.evidence import output_answer
from rag_rewards.rollout import MaskedAnswers, MaskedLogProbs
from rag_rewards.text.sections import Tags

quick = budget(150)
TAGS = Tags(("reason", "extract", "answer"))

# --- lengths ------------------------------------------------------------------------------------

LENGTHS = st.integers(0, 400)


@quick
@given(LENGTHS, LENGTHS, st.sampled_from([0.1, 0.2, 0.5, 1.0]))
def test_rationale_length_against_a_naive_implementation(rationale, evidence, tau):
    if rationale == 0 or evidence == 0:
        expected = 0.0
    else:
        x = rationale / evidence - 1 if rationale >= evidence else 1 - evidence / rationale
        expected = 0.5 * (1 + math.tanh(x / tau / 2))  # the logistic function, otherwise written
    assert rationale_length(rationale, evidence, tau) == pytest.approx(expected, abs=1e-12)


@quick
@given(LENGTHS, st.integers(1, 400), st.sampled_from([0.1, 0.3, 0.5, 0.8, 1.0]), st.floats(0, 1))
def test_evidence_length_against_a_naive_implementation(evidence, passages, gamma, omega):
    c = sorted([0.0, 1 - evidence / passages, 1.0])[1]
    expected = 0.0 if evidence == 0 else 1.0 if c >= omega else c**gamma
    assert evidence_length(evidence, passages, gamma, omega) == pytest.approx(expected)


def test_extreme_lengths_do_not_overflow():
    assert rationale_length(10**6, 1, 0.1) == 1.0
    assert rationale_length(1, 10**6, 0.1) == 0.0
    assert rationale_length(7, 7) == 0.5
    assert evidence_length(10**6, 1) == 0.0


@pytest.mark.parametrize(("omega", "expected"), [(0.9, 0.0), (0.0, 1.0)])
def test_evidence_of_empty_passages_is_not_compressed(omega, expected):
    assert evidence_length(3, 0, omega=omega) == expected
    assert evidence_length(0, 0, omega=omega) == 0.0


def lengths(response: str, *, documents=("w " * 100,), **options):
    rollout = Rollout(response=response, documents=tuple(Document(text=t) for t in documents))
    return Lengths(TAGS, **options)([rollout])[0]


def test_lengths_of_a_response():
    # L_r = 4, L_e = 2, L_P = 20: x = 4/2 − 1 = 1, 1/(1 + e^(−1/0.5)) = 0.880797;
    # c = 1 − 2/20 = 0.9 ≥ ω → 1. Mean 0.940399.
    response = "<reason>a b c d</reason><extract>e f</extract>"
    score = lengths(response, documents=["w " * 15, "w " * 5])
    assert score.components == pytest.approx({"length_rationale": 0.880797, "length_evidence": 1.0})
    assert score.value == pytest.approx(0.940399, abs=1e-6)
    assert score.details == {"tokens": {"reason": 4, "extract": 2, "documents": 20}}


@pytest.mark.parametrize(
    "response",
    [
        "",
        "<reason>a</reason>",
        "<extract>a</extract>",
        "<reason> </reason><extract>a</extract>",
        "<reason>a</reason><extract>\n</extract>",
    ],
)
def test_a_missing_section_has_no_length_reward(response):
    assert lengths(response).components == {"length_rationale": 0.0, "length_evidence": 0.0}


def test_titles_are_not_counted():
    rollout = Rollout(response="", documents=(Document(text="a b", title="long title here"),))
    assert Lengths(TAGS)([rollout])[0].details["tokens"]["documents"] == 2


def test_a_tokenizer_can_count():
    score = lengths("<reason>ab</reason><extract>abc</extract>", documents=["abcdef"], count=len)
    # L_r = 2, L_e = 3: x = 1 − 3/2 = −0.5, 1/(1 + e^1) = 0.268941; c = 1 − 3/6, √c = 0.707107
    assert score.components == pytest.approx(
        {"length_rationale": 0.268941, "length_evidence": 0.707107}, abs=1e-6
    )


def test_a_chinese_extract_is_counted_in_characters():
    response = "<reason>第一段说塞纳河流经法国首都巴黎。</reason><extract>塞纳河流经巴黎</extract>"
    # L_r = 16, L_e = 7, L_P = 300: x = 16/7 − 1 = 1.285714, 1/(1 + e^(−2.571429)) = 0.929000;
    # c = 1 − 7/300 = 0.976667 ≥ ω → 1
    score = lengths(response, documents=["河" * 200, "城" * 100])
    assert score.details == {"tokens": {"reason": 16, "extract": 7, "documents": 300}}
    assert score.components == pytest.approx(
        {"length_rationale": 0.929000, "length_evidence": 1.0}, abs=1e-6
    )
    in_words = lengths(response, documents=["河" * 200, "城" * 100], unit="words")
    assert in_words.components == pytest.approx(
        {"length_rationale": 0.5, "length_evidence": math.sqrt(0.5)}
    )


def test_lengths_in_characters():
    # L_r = 10, L_e = 5, L_P = 25: x = 1; c = 1 − 5/25 = 0.8, √0.8 = 0.894427
    response = "<reason>ab cd ef gh ij</reason><extract>a b c d e</extract>"
    score = lengths(response, documents=["x y " * 12 + "z"], unit="characters")
    assert score.components == pytest.approx(
        {"length_rationale": 0.880797, "length_evidence": 0.894427}, abs=1e-6
    )
    assert score.details["unit"] == "characters"


def test_distinct_lengths_ignore_copies_without_spaces():
    document = "塞纳河从东向西流经法国首都巴黎的市中心"
    own = "问题问的是哪一条河经过这座城市"  # 15 characters

    def counted(reason):
        response = f"<reason>{reason}</reason><extract>塞纳河</extract>"
        score = lengths(response, documents=[document], strict=True)
        return score.details["tokens"]["reason"]

    assert counted(own) == 15
    assert counted(own + document) == 15
    assert counted(own * 3) == 15
    assert counted("法国首都巴黎") == 6  # six characters are no copy


def test_documents_are_needed():
    for documents, message in (
        (None, "documents: missing"),
        ((), "documents: missing"),
        ((Document(text=" "),), "documents: no text"),
    ):
        with pytest.raises(DataError, match=message):
            Lengths(TAGS)([Rollout(response="", documents=documents)])


def test_rollouts_of_a_batch_are_measured_against_their_own_documents():
    response = "<reason>a b</reason><extract>a b</extract>"
    rows = [Rollout(response=response, documents=(Document(text="w " * n),)) for n in (4, 2, 4)]
    scores = Lengths(TAGS)(rows)
    # c = 1 − 2/4 → √½; c = 1 − 2/2 → 0
    assert [s.components["length_evidence"] for s in scores] == pytest.approx(
        [math.sqrt(0.5), 0.0, math.sqrt(0.5)]
    )


def test_gated_lengths_require_a_useful_extract():
    answer = MaskedAnswer("evidence", TAGS)
    gated = Lengths(TAGS, gated_by=answer)
    response = "<reason>a b</reason><extract>a</extract>"

    def value(text):
        masked = MaskedAnswers(evidence=text)
        rollout = Rollout(
            response=response,
            documents=(Document(text="w " * 9),),
            answers="Paris",
            masked_answers=masked,
        )
        return gated([rollout])[0]

    assert value("Rome").components == {"length_rationale": 0.0, "length_evidence": 0.0}
    assert value("in Paris").value > 0.5
    rollout = Rollout(response=response, answers="Paris")
    assert gated.needs(rollout) == [MaskedAnswersNeed("evidence")]
    assert Lengths(TAGS).needs(rollout) == []


def test_distinct_lengths_ignore_copies_and_repetitions():
    document = "one two three four five six seven eight nine ten"
    own = "this is what I think of it myself today"  # 9 words
    extract = "<extract>x y z</extract>"

    def counted(reason):
        score = lengths(f"<reason>{reason}</reason>{extract}", documents=[document], strict=True)
        return score.details["tokens"]["reason"]

    assert counted(own) == 9
    assert counted(f"{own} {document}") == 9
    assert counted(f"{own} {own} {own}") == 9
    assert counted("one two three") == 3  # three words are no copy
    assert counted("ONE TWO three four") == 0


# --- masked answers -----------------------------------------------------------------------------

RESPONSE = "<reason>r</reason><extract>e</extract><answer>New York City</answer>"


def squad_tokens(text: str) -> list[str]:
    text = "".join(char for char in text.lower() if char not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def naive_f1(text: str, aliases) -> float:
    best = 0.0
    for alias in aliases:
        p, g = Counter(squad_tokens(text)), Counter(squad_tokens(alias))
        common = sum((p & g).values())
        if common:
            best = max(best, 2 * common / (sum(p.values()) + sum(g.values())))
    return best


NAMES = st.lists(st.sampled_from(["New", "York", "the", "City", "Rome."]), min_size=1, max_size=4)
ALIASES = st.lists(NAMES.map(" ".join).filter(lambda t: squad_tokens(t)), min_size=1, max_size=2)


@quick
@given(NAMES.map(" ".join), st.lists(ALIASES, min_size=1, max_size=2))
def test_masked_answers_against_a_naive_implementation(output, answers):
    expected = sum(naive_f1(output, aliases) for aliases in answers) / len(answers)
    rollout = Rollout(
        response=f"<reason>r</reason><extract>e</extract><answer>{output}</answer>",
        answers=answers,
        masked_answers=MaskedAnswers(rationale=f"<answer>{output}</answer>", evidence=output),
    )
    for part in ("rationale", "evidence", "full"):
        assert MaskedAnswer(part, TAGS)([rollout])[0].value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("Paris", "Paris"),
        ("<answer>Paris</answer>", "Paris"),
        ("<answer>Paris", "Paris"),
        ("<answer>Paris</ans", "Paris"),
        ("so <answer> Paris</answer> !", " Paris"),
        ("Paris<|im_end|>", "Paris"),
        ("", ""),
    ],
)
def test_the_answer_in_an_output(output, expected):
    assert output_answer(output) == expected


def test_needs_of_masked_answers():
    rollout = Rollout(response=RESPONSE, answers="New York")
    assert MaskedAnswer("rationale", TAGS).needs(rollout) == [MaskedAnswersNeed("rationale")]
    assert MaskedAnswer("evidence", TAGS).needs(rollout) == [MaskedAnswersNeed("evidence")]
    assert MaskedAnswer("full", TAGS).needs(rollout) == []
    likely = [MaskedAnswer(part, TAGS, "likelihood") for part in ("rationale", "full")]
    assert [a.needs(rollout) for a in likely] == [
        [MaskedLogProbsNeed("rationale")],
        [MaskedLogProbsNeed("full")],
    ]
    assert MaskedAnswer("evidence", TAGS, required=False).needs(rollout) == []


def test_a_missing_section_gets_0_and_has_no_needs():
    rollout = Rollout(response="<answer>New York</answer>", answers="New York")
    for mode in ("generate", "likelihood"):
        for part in ("rationale", "evidence"):
            reward = MaskedAnswer(part, TAGS, mode)
            assert reward.needs(rollout) == []
            assert reward([rollout])[0].value == 0.0
    assert MaskedAnswer("full", TAGS)([rollout])[0].value == 1.0


def test_a_missing_section_gets_0_also_with_evidence_in_the_row():
    rollout = Rollout(
        response="<reason> </reason><answer>New York</answer>",
        answers="New York",
        masked_answers=MaskedAnswers(rationale="New York", evidence="New York"),
        masked_logprobs=MaskedLogProbs(rationale=((0.0,),), evidence=((0.0,),), full=((0.0,),)),
    )
    for mode in ("generate", "likelihood"):
        for part in ("rationale", "evidence"):
            assert MaskedAnswer(part, TAGS, mode)([rollout])[0].value == 0.0
            assert MaskedAnswer(part, TAGS, mode, required=False)([rollout])[0].value == 0.0
        assert MaskedAnswer("full", TAGS, mode)([rollout])[0].value == 1.0


def test_missing_evidence_is_an_error_only_if_it_is_required():
    rollout = Rollout(response=RESPONSE, answers="New York")
    with pytest.raises(DataError, match=r"masked_answers\.rationale: missing"):
        MaskedAnswer("rationale", TAGS)([rollout])
    with pytest.raises(
        DataError, match=r"masked_logprobs\.full: missing; add one list per gold alias"
    ):
        MaskedAnswer("full", TAGS, "likelihood")([rollout])
    assert MaskedAnswer("rationale", TAGS, required=False)([rollout])[0].value is None


def test_gold_without_a_normalized_form_is_compared_as_written():
    rollout = Rollout(response="<answer>The !!! band</answer>", answers="!!!")
    # squad leaves nothing of "!!!": raw words, 1 of 3 and 1 of 1 → F1 = 0.5
    assert MaskedAnswer("full", TAGS)([rollout])[0].value == 0.5


def test_empty_outputs_are_wrong_and_not_missing():
    rollout = Rollout(response=RESPONSE, answers="x", masked_answers=MaskedAnswers(rationale=""))
    assert MaskedAnswer("rationale", TAGS)([rollout])[0].value == 0.0


LOGPROBS = st.lists(st.floats(-20, 0), min_size=1, max_size=4)


@quick
@given(st.lists(st.lists(LOGPROBS, min_size=1, max_size=3), min_size=1, max_size=3))
def test_likelihoods_against_a_naive_implementation(per_answer):
    flat = [values for aliases in per_answer for values in aliases]
    answers = [[f"{i}.{j}" for j in range(len(a))] for i, a in enumerate(per_answer)]
    expected = sum(
        max(math.prod(math.exp(v) for v in values) ** (1 / len(values)) for values in aliases)
        for aliases in per_answer
    ) / len(per_answer)
    rollout = Rollout(
        response=RESPONSE,
        answers=answers,
        masked_logprobs=MaskedLogProbs(rationale=tuple(map(tuple, flat))),
    )
    value = MaskedAnswer("rationale", TAGS, "likelihood")([rollout])[0].value
    assert value == pytest.approx(expected, abs=1e-12)
    assert 0.0 <= value <= 1.0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (((-1.0,),), r"masked_logprobs\.full: one list per gold alias: expected 2, found 1"),
        (((-1.0,), ()), r"masked_logprobs\.full\[1\]: no token"),
        (((-1.0,), (-1.0, 0.5)), r"masked_logprobs\.full\[1\]\[1\]: a log-probability is at most"),
        (((float("nan"),), (-1.0,)), r"masked_logprobs\.full\[0\]\[0\]: not a finite number"),
    ],
)
def test_impossible_likelihoods(rows, message):
    masked = MaskedLogProbs(full=rows)
    rollout = Rollout(response=RESPONSE, answers=["a", "b"], masked_logprobs=masked)
    with pytest.raises(EvidenceError, match=message):
        MaskedAnswer("full", TAGS, "likelihood")([rollout])


def test_rewards_pickle():
    answer = MaskedAnswer("evidence", TAGS)
    measured = Lengths(TAGS)
    measured([Rollout(response=RESPONSE, documents=(Document(text="w"),))])
    for reward in (Lengths(TAGS, gated_by=answer), measured, answer):
        assert pickle.loads(pickle.dumps(reward)) == reward  # noqa: S301

"""CTRL-RAG's contrastive likelihood against a slow implementation, and impossible evidence."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import DataError, Document, EvidenceError, Rollout
from rag_rewards.evidence.needs import LogProbsNeed
from rag_rewards.rewards import (
    ContrastiveLikelihood,
    contrastive_likelihood,
    evidential_contribution,
    token_contributions,
)
from rag_rewards.rewards.contrastive import least_sum
from rag_rewards.rollout import LogProbs
from rag_rewards.rows import decode_row

quick = budget(150)
DOCUMENTS = (Document(text="x", id="a"), Document(text="y", id="b"), Document(text="z"))


@st.composite
def evidence(draw):
    tokens = draw(st.integers(1, 6))
    row = st.lists(st.floats(-9, 0), min_size=tokens, max_size=tokens).map(tuple)
    return draw(row), draw(st.lists(row, min_size=1, max_size=3))


@quick
@given(
    evidence(),
    st.sampled_from(["min", "mean"]),
    st.sampled_from([None, 0.0, 1.0, 5.0]),
    st.sampled_from(["sqrt", "none", "linear"]),
    st.sampled_from(["contribution", "reward"]),
)
def test_equations_9_to_13_and_16_against_a_naive_implementation(rows, loo, threshold, norm, on):
    full, without = rows
    s = math.fsum(full)
    others = [math.fsum(w) for w in without]
    e = s - (min(others) if loo == "min" else math.fsum(others) / len(others))
    t = len(full)
    clr = e / {"sqrt": t**0.5, "none": 1, "linear": t}[norm]
    compared = {"contribution": e, "reward": clr}[on]
    if threshold is not None and abs(compared - threshold) < 1e-9:
        return  # a rounding error decides
    if threshold is not None and compared < threshold:
        clr = 0.0

    labels = ("1", "2", "3")[: len(without)]
    rollout = Rollout(
        response="x",
        documents=DOCUMENTS,
        supporting=labels,
        logprobs=LogProbs(full=full, without=dict(zip(labels, without, strict=True))),
    )
    reward = ContrastiveLikelihood(loo, threshold, norm, tokens=True, threshold_on=on)
    score = reward([rollout])[0]
    assert score.value == pytest.approx(clr, abs=1e-9)
    assert score.components == pytest.approx({"evidential_contribution": e, "clr": clr}, abs=1e-9)
    details = score.details
    assert math.fsum(details["contributions"]) == pytest.approx(e, abs=1e-9)
    assert details["tokens"] == t
    assert details["logprob"] == pytest.approx(s)
    assert details["logprob_without"] == pytest.approx(s - e, abs=1e-9)
    assert details["perplexity"] == pytest.approx(math.exp(-s / t))
    assert details["perplexity_without"] == pytest.approx(math.exp(-(s - e) / t))
    share = sum(epsilon > 0 for epsilon in details["contributions"]) / t
    assert details["share_grounded"] == pytest.approx(share)
    critical = others[labels.index(details["critical_document"])]
    assert critical == pytest.approx(min(others))


def test_plain_functions():
    # E = −10 − min(−14, −11) = 4; mean: −10 − (−12.5) = 2.5
    assert evidential_contribution(-10.0, [-14.0, -11.0]) == 4.0
    assert evidential_contribution(-10.0, [-14.0, -11.0], "mean") == 2.5
    assert contrastive_likelihood(4.0, 16) == 1.0
    assert contrastive_likelihood(4.0, 16, length_norm="none") == 4.0
    assert contrastive_likelihood(4.0, 16, length_norm="linear") == 0.25
    assert contrastive_likelihood(1.0, 16) == 0.0  # E must be above τ
    assert contrastive_likelihood(-4.0, 16, threshold=None) == -1.0
    assert contrastive_likelihood(4.0, 0) == 0.0
    assert token_contributions([-1.0, -2.0], [[-3.0, -2.0], [-1.0, -3.0]]) == [2.0, 0.0]
    assert token_contributions([-1.0, -2.0], [[-3.0, -2.0], [-1.0, -3.0]], "mean") == [1.0, 0.5]


def score(full, without, *, supporting=("a",), ids=None, **options):
    rollout = Rollout(
        response="x",
        documents=DOCUMENTS,
        supporting=supporting,
        response_token_ids=ids,
        logprobs=LogProbs(full=full, without=without),
    )
    return ContrastiveLikelihood(**options)([rollout])[0]


def test_removed_documents_by_id_or_label():
    for name in ("a", "1"):
        assert score((-1.0,), {name: (-3.0,), "b": None}).value == 2.0
    assert score((-1.0,), {"3": (-3.0,), "b": (-9.0,)}, supporting=(3,)).value == 2.0


def test_only_supporting_documents_count():
    assert score((-1.0,), {"a": (-3.0,), "b": (-99.0,)}).value == 2.0


def test_a_supporting_document_counts_once():
    twice = score((-1.0,), {"a": (-3.0,), "b": (-9.0,)}, supporting=("a", "1", "b"), loo="mean")
    assert twice.components["evidential_contribution"] == 5.0  # −1 − (−3 − 9)/2


def test_rounding_above_zero_is_read_as_zero():
    assert score((5e-5, -1.0), {"a": (-2.0, -1.0)}).components["evidential_contribution"] == 2.0


@pytest.mark.parametrize(
    ("full", "without", "path", "what"),
    [
        ((-1.0, 0.2), {"a": (-1.0, -1.0)}, r"logprobs\.full\[1\]", "at most 0, found 0.2"),
        ((-1.0, float("nan")), {"a": (-1.0, -1.0)}, r"logprobs\.full\[1\]", "not a finite"),
        ((-1.0,), {"a": (float("-inf"),)}, r"logprobs\.without\.1\[0\]", "not a finite"),
        ((-1.0,), {"a": (0.1,)}, r"logprobs\.without\.1\[0\]", "at most 0"),
        ((-1.0,), {"a": (-1.0, -1.0)}, r"logprobs\.without\.1", "expected 1, found 2"),
    ],
)
def test_impossible_evidence(full, without, path, what):
    with pytest.raises(EvidenceError, match=f"^{path}: .*{what}"):
        score(full, without)


@pytest.mark.parametrize("value", [0.2, float("nan"), float("-inf"), float("inf"), -2e6])
@pytest.mark.parametrize("document", ["1", "2"])
def test_impossible_evidence_without_any_of_several_documents(value, document):
    without = {"1": (-1.0, -3.0), "2": (-2.0, -1.0)}
    without[document] = (-1.0, value)
    with pytest.raises(EvidenceError, match=rf"^logprobs\.without\.{document}\[1\]: "):
        score((-1.0, -1.0), without, supporting=("a", "b"))


def test_sums_below_the_least_log_probability_are_possible():
    result = score((-1.0, -1.0), {"1": (-9e5, -9e5), "2": (-1.0, -2.0)}, supporting=("a", "b"))
    assert result.details["critical_document"] == "1"
    assert result.details["logprob_without"] == -18e5


def test_rounding_above_zero_without_a_document_is_read_as_zero():
    result = score((-1.0, -1.0), {"1": (5e-5, -4.0), "2": (-1.0, -2.0)}, supporting=("a", "b"))
    assert result.components["evidential_contribution"] == 2.0


def test_one_value_per_token_id():
    assert score((-1.0,), {"a": (-3.0,)}, ids=(7,)).value == 2.0
    with pytest.raises(EvidenceError, match=r"logprobs\.full: .* expected 2, found 1"):
        score((-1.0,), {"a": (-3.0,)}, ids=(7, 8))


def test_missing_evidence():
    with pytest.raises(DataError, match=r"logprobs\.without\.2: missing"):
        score((-1.0,), {"a": (-1.0,)}, supporting=("a", "b"))
    rollout = Rollout(response="x", documents=DOCUMENTS, supporting=("a", "b"))
    reward = ContrastiveLikelihood()
    assert reward.needs(rollout) == [LogProbsNeed(("1", "2"))]
    with pytest.raises(DataError, match=r"logprobs: missing; add `full`, `without\.1`"):
        reward([rollout])


@pytest.mark.parametrize(
    ("supporting", "message"),
    [
        (None, "supporting: missing"),
        ((), "supporting: no supporting document"),
    ],
)
def test_rows_without_supporting_documents(supporting, message):
    rollout = Rollout(response="x", documents=DOCUMENTS, supporting=supporting)
    for call in (lambda r: ContrastiveLikelihood()([r]), ContrastiveLikelihood().needs):
        with pytest.raises(DataError, match=message):
            call(rollout)
    mixed = ContrastiveLikelihood(on_missing_support="zero")
    assert mixed.needs(rollout) == []
    assert mixed([rollout])[0].components == {"evidential_contribution": 0.0, "clr": 0.0}


def test_the_answer_span_excludes_the_thinking():
    infos = LogProbs(full=(-1.0,) * 4, without={"a": (-9.0, -9.0, -2.0, -4.0)}, answer_span=(2, 4))
    rollout = Rollout(
        response="<think>t</think> x", documents=DOCUMENTS, supporting=("a",), logprobs=infos
    )
    # Only tokens 2 and 3: E = −2 − (−6) = 4, over √2
    answer = ContrastiveLikelihood(span="answer")([rollout])[0]
    assert answer.value == pytest.approx(4 / math.sqrt(2))
    assert answer.details["tokens"] == 2
    # The whole response: −4 − (−24), over √4
    assert ContrastiveLikelihood()([rollout])[0].value == pytest.approx(20 / 2)


def test_rows_that_need_an_answer_span():
    def spanned(response, span):
        rollout = Rollout(
            response=response,
            documents=DOCUMENTS,
            supporting=("a",),
            logprobs=LogProbs(full=(-1.0,), without={"a": (-3.0,)}, answer_span=span),
        )
        return ContrastiveLikelihood(span="answer")([rollout])[0]

    assert spanned("x", None).value == 2.0
    assert spanned("x", (0, 0)).value == 0.0  # no answer token
    assert "perplexity" not in spanned("x", (0, 0)).details
    with pytest.raises(DataError, match=r"logprobs\.answer_span: missing"):
        spanned("<think>t</think>x", None)
    for span in ((-1, 1), (1, 0), (0, 2)):
        with pytest.raises(EvidenceError, match=r"logprobs\.answer_span: 0 ≤ start ≤ end ≤ 1"):
            spanned("x", span)


def test_an_empty_response():
    nothing = {"full": (), "without": {"1": ()}}
    row = {"response": "", "supporting": [1], "logprobs": nothing}
    assert ContrastiveLikelihood()([decode_row(row)])[0].value == 0.0
    with pytest.raises(EvidenceError, match="no value for a response that has text"):
        ContrastiveLikelihood()([decode_row(row | {"response": "Paris"})])


def test_very_unlikely_responses_have_a_finite_perplexity():
    assert math.isfinite(score((-1e6,), {"a": (-1e6,)}).details["perplexity"])


def test_the_reward_pickles():
    reward = ContrastiveLikelihood("mean", None, "linear", "answer")
    assert pickle.loads(pickle.dumps(reward)) == reward  # noqa: S301


@budget(300)
@given(st.lists(st.lists(st.floats(-1e6, 0.0), min_size=1), min_size=1))
def test_the_least_sum_is_exact(lists: list[list[float]]) -> None:
    sums = [math.fsum(values) for values in lists]
    assert least_sum(lists, list(map(sum, lists))) == (sums.index(min(sums)), min(sums))


def test_the_first_of_nearly_equal_lists_is_chosen_by_exact_sums() -> None:
    """Plain sums can be equal where exact sums differ; they are more exact since Python 3.12."""
    first, second = [-0.1] * 10, [-1.0 + 2**-53]
    assert second[0] > math.fsum(first) == -1.0
    assert least_sum([second, first], [sum(second), sum(first)]) == (1, -1.0)

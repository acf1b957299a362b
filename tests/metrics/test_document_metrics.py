"""Relevance, citation, compression ratio, answer recall."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards.metrics import metric_of
from rag_rewards.metrics.documents import compression, named_documents
from rag_rewards.rollout import Document, Rollout
from rag_rewards.tiny_world.model import CHECKPOINT

quick = budget(120)
LABELS = st.sets(st.sampled_from("12345"))
DOCUMENTS = [{"text": "one two three four"}, {"title": "not counted", "text": "five six"}]


@quick
@given(LABELS, LABELS)
def test_named_documents_against_their_equations(named, supporting):
    both = sum(label in supporting for label in named)
    precision = both / len(named) if named else 0.0
    recall = both / len(supporting) if supporting else 0.0
    # F1 = 2|N ∩ D+| / (|N| + |D+|)
    f1 = 2 * both / (len(named) + len(supporting)) if named or supporting else 1.0
    if not named and not supporting:
        precision = recall = 1.0
    assert named_documents(named, supporting) == pytest.approx((precision, recall, f1))


def row(response, supporting, **fields):
    return {"response": response, "supporting": supporting, "documents": DOCUMENTS, **fields}


def test_relevance(values, reported):
    rows = [
        row("<relevance>[1, 2]</relevance>", [1]),
        row('<relevance>["2"]</relevance>', ["2"]),
        row("<relevance>all of them</relevance>", [1]),
        row("", []),
    ]
    assert values("relevance", rows) == pytest.approx(
        {"relevance": (2 / 3 + 1 + 0 + 1) / 4, "precision": (0.5 + 2) / 4, "recall": 3 / 4}
    )
    [error] = reported("relevance", [{"response": "x"}]).left_out
    assert error.path == "supporting"


def test_citation(values):
    rows = [row("<think>[2]</think> So [1].", [1, 2]), row("So [1][9].", [1])]
    assert values("citation", rows) == pytest.approx(
        {"citation": (2 / 3 + 2 / 3) / 2, "precision": (1 + 0.5) / 2, "recall": (0.5 + 1) / 2}
    )


def lear(extract, reason="because"):
    return f"<reason>{reason}</reason><extract>{extract}</extract><answer>x</answer>"


@quick
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 6)), min_size=1, max_size=8))
def test_compression_against_its_equations(values, cases):
    rows = [
        {"response": lear("w " * evidence), "documents": [{"text": "p " * passages}]}
        for passages, evidence in cases
    ]
    measured = [(passages, evidence) for passages, evidence in cases if evidence]
    result = values("compression-ratio", rows)
    if not measured:
        assert result == {"compression-ratio": None, "mean": None}
        return
    assert result["compression-ratio"] == pytest.approx(
        sum(p for p, _ in measured) / sum(e for _, e in measured)
    )
    assert result["mean"] == pytest.approx(sum(p / e for p, e in measured) / len(measured))


def test_titles_are_not_passages():
    documents = tuple(Document(**document) for document in DOCUMENTS)
    result = compression(Rollout(response=lear("two words"), documents=documents))
    assert result == (6.0, 2.0, 3.0, 1.0, 0.0)


def test_units_of_compression(values, tmp_path):
    rows = [
        {"response": lear("塞纳河"), "documents": [{"text": "塞纳河流经巴黎"}, {"text": "a b"}]}
    ]
    # 7 characters and 2 words to 3 characters; 3 words to 1 word; 9 characters to 3
    assert values("compression-ratio", rows)["mean"] == pytest.approx(9 / 3)
    assert values("compression-ratio(length=words)", rows)["mean"] == pytest.approx(3 / 1)
    assert values("compression-ratio(length=characters)", rows)["mean"] == pytest.approx(9 / 3)


def test_compression_in_tokens(values):
    rows = [{"response": lear("Ben lily"), "documents": [{"text": "Ben lily [2] ."}]}]
    metric = f"compression-ratio(length=tokens,tokenizer={CHECKPOINT})"
    assert values(metric, rows)["mean"] == 4 / 2  # "[2]" is one token
    assert re.fullmatch(rf".*tokenizer={CHECKPOINT}#[0-9a-f]{{16}}\)", repr(metric_of(metric)))


def test_responses_that_stop_at_the_end_of_the_extract(values):
    rows = [
        {
            "response": "<reason>The Seine</reason><extract>The Seine flows",
            "documents": [{"text": "w " * 9}],
            "answers": ["Seine"],
        }
    ]
    assert values("compression-ratio", rows)["mean"] is None
    assert values("compression-ratio(unclosed=to_end)", rows)["mean"] == 3.0
    assert values("answer-recall", rows) == {"answer-recall": 0.0, "rationale": 1.0}
    assert values("answer-recall(unclosed=to_end)", rows)["answer-recall"] == 1.0


def test_a_chain_of_thought_is_evidence(values):
    response = "<think>x</think>Paris lies on the Seine."
    rows = [{"response": response, "documents": [{"text": "w " * 20}], "answers": ["Seine"]}]
    assert values("compression-ratio(evidence=response)", rows)["mean"] == 20 / 5
    assert values("answer-recall(evidence=response)", rows) == {
        "answer-recall": 1.0,
        "rationale": 0.0,
    }


def test_rows_without_an_extract_are_counted(reported):
    report = reported("compression-ratio", [{"response": "x", "documents": DOCUMENTS}])
    assert report.counts["empty"] == report.counts["rows"] == 1.0
    [error] = reported("compression-ratio", [{"response": lear("x")}]).left_out
    assert error.path == "documents"


def test_answer_recall(values):
    rows = [
        {"response": lear("the Seine flows", "the river"), "answers": ["The Seine!", "Rhine"]},
        {"response": lear("a river", "Rhine it is"), "answers": ["The Seine!", "Rhine"]},
        {"response": lear("Seine", "Seine and Oise"), "answers": [["Seine"], ["Oise"]]},
        {"response": "Seine", "answers": ["Seine"]},
    ]
    assert values("answer-recall", rows) == {"answer-recall": 0.25, "rationale": 0.5}
    assert values("answer-recall", [{"response": lear("?!"), "answers": ["?!"]}]) == {
        "answer-recall": 1.0,
        "rationale": 0.0,
    }


def test_answer_recall_of_the_first_words(values):
    rows = [{"response": lear("it is the Seine", "the Seine"), "answers": ["Seine"]}]
    for count, evidence in ((3, 0.0), (4, 1.0)):
        assert values(f"answer-recall(max_words={count})", rows) == {
            "answer-recall": evidence,
            "rationale": 1.0,
        }

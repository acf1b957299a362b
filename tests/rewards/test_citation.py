"""Citation recall and precision, against slow implementations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import DataError, Document, Rollout
from rag_rewards.rewards import CitationRecall
from rag_rewards.rewards.citation import citation_precision, citation_recall

quick = budget(120)


LABELS = st.lists(st.sampled_from("12345"), max_size=6)


@quick
@given(LABELS, LABELS)
def test_recall_and_precision_against_a_naive_implementation(cited, supporting):
    recall = sum(d in cited for d in set(supporting)) / max(len(set(supporting)), 1)
    precision = sum(d in supporting for d in set(cited)) / max(len(set(cited)), 1)
    assert citation_recall(cited, supporting) == recall
    assert citation_precision(cited, supporting) == precision


def recalled(response: str, **options) -> float | None:
    rollout = Rollout(response=response, documents=(Document(text="x"),) * 4, supporting=(1, "2"))
    return CitationRecall(**options)([rollout])[0].value


@pytest.mark.parametrize(
    ("response", "options", "expected"),
    [
        ("So [1].", {}, 0.5),
        ("So [1][2].", {}, 1.0),
        ("So [1, 2] and ［2］.", {}, 1.0),
        ("So [Doc. 1] and [doc 2].", {}, 1.0),
        ("So 1 and (2).", {}, 0.0),
        ("[12] [0] [1999]", {}, 0.0),
        ("<think>[1]</think> So [2].", {}, 1.0),  # the equation counts thinking too
        ("<think>[1]</think> So [2].", {"include_thinking": False}, 0.5),
        ("<think>[1] [2]", {"include_thinking": False}, 0.0),
        # f1: recall 1, precision 2/4 → 2·1·½/(1 + ½) = ⅔
        ("So [1][2][3][4].", {"measure": "f1"}, 2 / 3),
        ("So [3].", {"measure": "f1"}, 0.0),
        ("[1][2]", {"claims_only": True}, 0.0),
        ("Paris is large [1]. [2]", {"claims_only": True}, 1.0),
        ("Paris [1].", {"claims_only": True}, 0.0),
        ("So {1}.", {"pattern": r"\{(\d+)\}"}, 0.5),
    ],
)
def test_citation_recall(response, options, expected):
    assert recalled(response, **options) == pytest.approx(expected)


def test_citation_recall_needs_the_supporting_documents():
    with pytest.raises(DataError, match="supporting: missing"):
        CitationRecall()([Rollout(response="[1]")])
    assert CitationRecall()([Rollout(response="[1]", supporting=())])[0].value == 0.0

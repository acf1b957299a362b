"""RagEnv: worked examples, a twin of the released reward, citations, needs and bad input."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_notation import THOUGHT, answer, search

from rag_rewards import DataError, decode_row, recipe
from rag_rewards.errors import BackendError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models
from rag_rewards.testing import TableJudge

PAGES = {name: {"id": name, "text": f"A page about {name}."} for name in ("a", "b", "c", "d")}
GATED = {"gated": True, "measure": "recall", "weights.grounding": 0.2}
"""The settings of #97."""


def row(text, found="ab", right=1, **fields):
    first = {"text": THOUGHT + search("a"), "results": [PAGES[name] for name in found]}
    last = {"text": THOUGHT + answer(text)}
    base = {"question": "Who?", "answers": "Ada", "supporting": ["a", "c"]}
    return decode_row(base | {"turns": [first, last], "verdicts": {"outcome": right}} | fields)


def score(each, hardened=False, **settings):
    return recipe("rag-env", settings, hardened=hardened)([each])[0]


def released(text, found, right, gated):
    """Return the reward of the released code, for ids that are equal to the last letter."""
    if not text.strip():
        return 0.0
    gold, cited = {"a", "c"}, set(re.findall(r"\[Source: (\w)\]", text))
    recall = len(cited & gold) / len(gold)
    length = min(max(1 - len(text.strip()) / 600, 0), 1)
    if not gated:
        precision = len(cited & gold) / len(cited) if cited else 0
        return right + 0.3 * recall + right * (0.3 * precision + 0.2 * length)
    hit = len(set(found) & gold) / len(gold)
    right = right if hit > 0 else 0
    grounding = len(cited & set(found)) / len(cited) if cited else 0
    return right + 0.3 * hit + right * (0.3 * recall + 0.2 * grounding + 0.2 * length)


@given(
    words=st.lists(
        st.sampled_from(["Ada ", "[Source: a]", "[Source: b]", "[Source: c]", "é" * 99])
    ),
    found=st.sets(st.sampled_from("abcd")).map(sorted),
    right=st.integers(0, 1),
)
def test_the_twin(words, found, right):
    text = "Ada" + "".join(words)
    each = row(text, found, right)
    for gated, settings in ((False, {}), (True, GATED)):
        assert score(each, **settings).value == pytest.approx(released(text, found, right, gated))


def test_worked_examples():
    each = score(row("Ada [Source: a]. " + "x" * 283))  # 300 characters
    assert each.components == {
        "outcome": 1, "hit": 0.5, "citation": 1, "grounding": 1, "brevity": 0.5, "malformed": 0
    }  # fmt: skip
    assert each.value == pytest.approx(1 + 0.15 + 0.3 + 0.1)
    assert each.turns == (None, pytest.approx(1.55))
    assert score(row("Ada [Source: a]", right=0)).value == pytest.approx(0.15)
    memory = row("Ada", found="bd")
    assert score(memory).value == pytest.approx(1 + 0.2 * (1 - 3 / 600))
    assert score(memory, **GATED).value == 0
    assert score(memory, **GATED).correct == 1


def test_no_answer_earns_nothing():
    assert score(row(" "), **GATED).value == 0
    assert score(row(" ")).value == 0


@pytest.mark.parametrize(
    ("text", "cited", "hardened"),
    [
        ("Ada built it here [Source: a][source:  c].", {"a", "c"}, {"a", "c"}),
        ("Ada built it here [1, 2].", {"a", "b"}, {"a", "b"}),  # the positions are the labels
        ("Ada built it here [Source: z].", {"z"}, {"z"}),
        ("Ada built it here [Source: ].", set(), set()),
        ("Ada [Source: a]", {"a"}, set()),
        ("Ada <!-- built it here [Source: a] -->", {"a"}, set()),
    ],
)
def test_citations(text, cited, hardened):
    names = {"1": "a", "2": "b"}
    for is_hardened, expected in ((False, cited), (True, hardened)):
        labels = score(row(text), is_hardened, **{"accuracy.metric": "exact"}).details["cited"]
        assert {names.get(each, each) for each in labels} == expected


def test_documents_without_a_search_count_as_results():
    fields = {"turns": None, "documents": [PAGES["c"]], "response": answer("Ada [Source: c]")}
    each = decode_row(
        {"question": "Who?", "answers": "Ada", "supporting": ["c"], "verdicts": {"outcome": 1}}
        | fields
    )
    assert score(each, **GATED).components["hit"] == 1
    results = row("Ada", "b", documents=[PAGES["a"], PAGES["b"]], supporting=["a"])
    assert score(results, **GATED).components["hit"] == 0  # the search did not find document a


@pytest.mark.parametrize(
    ("found", "documents", "hit"),
    [
        ("bc", "abc", 0.5),
        ("b", "abc", 0),
        ("a", "ab", 0.5),  # document c is not known, so only a can be found
        ("", "", 0),
        ("a", "", None),
        ("a", "b", None),
    ],
)
def test_results_without_an_id(found, documents, hit):
    """They are compared with the documents by their text, if a supporting document is known."""
    results = [{"text": PAGES[name]["text"]} for name in found]
    turns = [{"text": THOUGHT + search("a"), "results": results}, {"text": answer("Ada")}]
    fields = {"documents": [PAGES[name] for name in documents]} if documents else {}
    each = row("", turns=turns, **fields)
    if hit is None:
        with pytest.raises(DataError, match=r"^supporting: the results have no ids.* of a, c: add"):
            score(each, **GATED)
        assert score(each).components["outcome"] == 1
    else:
        assert score(each, **GATED).components["hit"] == hit


def test_the_judge_gets_the_answer_without_citations():
    judge = TableJudge(lambda question: 1)
    each = row("Ada [Source: a] of Oslo [2].", verdicts=None)
    [informed] = Gatherer(Models(judge=judge)).gather_sync(recipe("rag-env"), [each])
    assert [question.response for question in judge.requests] == ["Ada of Oslo."]
    assert recipe("rag-env")([informed])[0].correct == 1
    broken = TableJudge(lambda question: BackendError("busy"))
    [failed] = Gatherer(Models(judge=broken)).gather_sync(recipe("rag-env"), [each])
    assert isinstance(failed, BackendError)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"supporting": None}, r"^supporting: missing"),
        ({"answers": None}, r"^answers: missing"),
        ({"verdicts": None}, r"^verdicts.outcome: missing"),
    ],
)
def test_bad_rows(fields, message):
    settings = {"accuracy.metric": "exact"} if "answers" in fields else {}
    with pytest.raises(DataError, match=message):
        score(row("Ada", **fields), **settings)

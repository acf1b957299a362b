"""DR Tulu: worked examples, a naive twin, questions to the judge, the evolving rubric, errors."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import DataError, decode_row, recipe
from rag_rewards.errors import BackendError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models
from rag_rewards.rewards.rubric import active_criteria
from rag_rewards.testing import TableJudge
from rag_rewards.text.statements import cited_claims

some = budget(100)
RESULTS = [{"id": "m1", "text": "The mill opened in 1881."}, {"id": "m2", "text": "It closed."}]
RUBRIC = [{"criterion": "Has the year.", "name": "year", "weight": 3}]
FAULT = {"criterion": "Invents a fact.", "name": "invented", "weight": -1}


def row(answer, searches=1, rubric=RUBRIC, **fields):
    search = {"text": "<think>x</think><search>mill</search>", "results": RESULTS}
    last = "<think>y</think>" + ("" if answer is None else f"<answer>{answer}</answer>")
    turns = [search] * searches + [{"text": last}]
    base = {"question": "When?", "group": "g", "rubric": rubric, "documents": []}
    return decode_row(base | {"turns": turns} | fields)


def graded(answer, grades=None, claims=None, **fields):
    verdicts = {"rubric": grades or {"year": 1}, "citation": claims or {}}
    return row(answer, verdicts=verdicts, **fields)


def score(each, hardened=False, **settings):
    return recipe("dr-tulu", settings, hardened=hardened)([each])[0]


CITED = '<cite id="m1">It opened in 1881.</cite>'


@pytest.mark.parametrize(
    ("answer", "claims", "components"),
    [
        (CITED, {"1": 1}, (1, 1, 1, 1 / 3)),
        (CITED, {"1": 0.5}, (1, 0.6 * 2 / 3 + 0.4, 1, 1 / 3)),
        (CITED, {"1": 0}, (1, 0.4, 1, 1 / 3)),
        (f"It is old. {CITED}", {"1": 0, "2": 1}, (1, 0.6 / 2 + 0.4, 1, 1 / 3)),
        (CITED.replace("m1", "m1,m9"), {"1": 1}, (1, 0.6 + 0.4 / 2, 1, 1 / 3)),
        (CITED.replace("m1", "m9"), {"1": 1}, (1, 0.6, 1, 1 / 3)),
        ("It opened.", {"1": 1}, (1, 0.6, 0.7, 1 / 3)),
        ("", {}, (0, 0, 0.7, 1 / 3)),
        (None, {}, (0, 0, 0.2, 0)),
    ],
)
def test_components(answer, claims, components):
    result = score(graded(answer, {"year": 1}, claims))
    assert list(result.components.values())[:4] == pytest.approx(components)
    total = sum(w * value for w, value in zip((0.5, 0.2, 0.2, 0.1), components, strict=True))
    assert result.value == pytest.approx(total)
    assert result.turns[:-1] == (None,)


@pytest.mark.parametrize("answer", ["", " . ", "…"])
def test_hardened_answers_without_a_word_earn_nothing(answer):
    components = score(graded(answer), hardened=True).components
    assert [components[name] for name in ("citation", "searches")] == [0, 0]
    assert components["format"] == pytest.approx(0.2)


def test_without_citations_the_weights_are_those_of_the_released_code():
    settings = {"weights.rubric": 0.6, "weights.citation": 0.0, "weights.searches": 0.2}
    each = row(CITED, searches=4, verdicts={"rubric": {"year": 0.5}})
    assert score(each, **settings).value == pytest.approx(0.6 * 0.5 + 0.2 + 0.2)
    assert [n.component for n in recipe("dr-tulu", settings).needs(row(CITED))] == ["rubric"]


def test_a_fault_gives_a_negative_rubric():
    each = graded("It.", {"year": 0, "invented": 1}, {"1": 1}, rubric=[*RUBRIC, FAULT])
    assert score(each).components["rubric"] == pytest.approx(-1 / 3)


# --- a naive twin --------------------------------------------------------------------------------

PIECES = st.lists(
    st.sampled_from(
        ["One. ", "Two, ", CITED, '<cite id="m9">Three.</cite>', "<cite id=m2>a</cite>"]
    )
)
GRADES = st.lists(st.sampled_from([0, 0.5, 1]), min_size=12, max_size=12)


def naive(answer, grades, year, searches):
    """Return the reward from the definition, with one regular expression per term."""
    tag = r'<cite id="?([^">]+)"?>([^<]+)</cite>'
    texts = {part.strip(): None for part in re.sub(tag, "\0", answer).split("\0") if part.strip()}
    claims = [(text, at) for text in texts for at in [answer.index(text)]]
    cited = {text: ident for ident, text in re.findall(tag, answer)}
    claims += [(text, answer.index(text)) for text in cited]
    order = [text for text, _ in sorted(claims, key=lambda claim: claim[1])]
    f1s = []
    for text, recall in zip(order, grades, strict=False):
        precision = 1 if cited.get(text) not in ("m1", "m2") else float(recall > 0)
        f1s.append(2 * precision * recall / (precision + recall) if precision + recall else 0)
    ids = set(cited.values())
    citation = 0.6 * (sum(f1s) / len(f1s) if f1s else 0)
    citation += 0.4 * (len(ids & {"m1", "m2"}) / len(ids) if ids else 0)
    form = 0.5 + 0.3 * bool(cited) + 0.2
    rubric = year if answer.strip() else 0
    return 0.5 * rubric + 0.2 * citation + 0.2 * form + 0.1 * min(searches / 3, 1)


@some
@given(PIECES, GRADES, st.sampled_from([0, 0.5, 1]), st.integers(1, 5))
def test_the_naive_twin(pieces, grades, year, searches):
    if any(a == b or "<" not in a + b for a, b in pairwise(pieces)) or len(set(pieces)) != len(
        pieces
    ):
        return  # texts of the twin are unique and stand between tags
    answer = "".join(pieces)
    claims = {str(i): grade for i, grade in enumerate(grades, 1)}
    each = graded(answer, {"year": year}, claims, searches=searches)
    assert score(each).value == pytest.approx(naive(answer, grades, year, searches))


# --- questions to the judge ----------------------------------------------------------------------


def gathered(each, verdict=lambda question: 1, **settings):
    judge = TableJudge(verdict)
    built = recipe("dr-tulu", settings)
    (informed,) = Gatherer(Models(judge=judge)).gather_sync(built, [each])
    return judge.requests, informed


def test_one_question_for_the_rubric_and_one_for_each_claim():
    def verdict(question):
        return (0.5,) if question.criteria else 1.0

    requests, informed = gathered(row(f"It is old. {CITED}"), verdict)
    assert [(r.kind, r.response, r.documents) for r in requests] == [
        ("criteria", "It is old. <cite>It opened in 1881.</cite>", ()),
        ("needless", "It is old.", (f"It is old. {CITED}",)),
        ("support", "It opened in 1881.", ("The mill opened in 1881.",)),
    ]
    assert informed.verdicts == {"rubric": {"year": 0.5}, "citation": {"1": 1.0, "2": 1.0}}
    assert score(informed).components["citation"] == 1.0


@pytest.mark.parametrize(
    ("ids", "grades", "value"),
    [
        ("m1", {"1": 1}, 1.0),
        ("m1,m2", {"1": 1, "1.1": 0.5, "1.2": 0.5}, 1.0),
        ("m1,m2", {"1": 1, "1.1": 1, "1.2": 0}, 0.6 * 2 / 3 + 0.4),
        ("m1,m2,m9", {"1": 1, "1.1": 0, "1.2": 1}, 0.6 * 2 / 3 + 0.4 * 2 / 3),
        ("m1,m2", {"1": 0, "1.1": 0, "1.2": 0}, 0.4),
    ],
)
def test_each_cited_result_is_judged_alone(ids, grades, value):
    answer = CITED.replace("m1", ids)
    precise = {"citation.precision": "result"}
    assert score(graded(answer, claims=grades), **precise).components["citation"] == (
        pytest.approx(value)
    )
    requests, informed = gathered(row(answer), lambda q: (1,) if q.criteria else 1.0, **precise)
    assert informed.verdicts["citation"].keys() == grades.keys()
    alone = [(each["text"],) for each in RESULTS[: len(grades) - 1]]
    assert [r.documents for r in requests[2:]] == alone


def test_a_failed_judge_leaves_the_rollout_unscored():
    assert isinstance(gathered(row(CITED), lambda q: BackendError("busy"))[1], BackendError)
    with pytest.raises(DataError, match=r"verdicts\.citation: missing"):
        score(row(CITED, verdicts={"rubric": {"year": 1}}))


def test_the_number_of_claims_is_limited():
    requests, informed = gathered(
        row("".join(f"<cite id=m1>{i}</cite>" for i in range(9))),
        lambda q: (1,) if q.criteria else 1.0,
        **{"citation.max_claims": 4},
    )
    assert sum(r.kind == "support" for r in requests) == 4
    value = score(informed, **{"citation.max_claims": 4}).components["citation"]
    assert value == pytest.approx(0.6 * 4 / 9 + 0.4)


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("<cite id=a>x</cite>", [("x", ("a",))]),
        ("<cite id='a, b,,a'>x</cite> y", [("x", ("a", "b")), ("y", ())]),
        ("x <cite id=a>x</cite>", [("x", ("a",))]),
        ("<cite id=a>open <cite id=b>x</cite>", [("open", ()), ("x", ("b",))]),
        ("<!-- <cite id=a>x</cite> -->", []),
        ("</cite>. <cite id=a>…</cite>", []),
        ('<cite id="a b" url="http://x">x</cite>', [("x", ("a", "b"))]),
        ("<cite id=a, b url=x>x</cite>", [("x", ("a", "b"))]),
        ('<cite id="a" hidden>x</cite>', []),
        ('<cite id="">x</cite> <cite>y</cite> <CITE url="x" id=a>z</CITE>', [("x y z", ())]),
    ],
)
def test_claims_of_a_text(text, claims):
    assert [(each.text, each.cited) for each in cited_claims(text)] == claims


# --- the evolving rubric -------------------------------------------------------------------------


def test_active_criteria_have_the_greatest_spread():
    grades = [{"a": 1, "b": 0, "c": 0, "d": 0.5}, {"a": 1, "b": 1, "c": 0.5, "d": 0}]
    assert active_criteria("abcd", grades, 5) == ["b", "c", "d"]
    assert active_criteria("abcd", grades, 2) == ["b", "c"]  # of equal spread, the first
    assert active_criteria("abcd", grades[:1], 5) == []


def test_criteria_without_spread_do_not_count():
    names = ("same", "differs", "less")
    adaptive = [{"criterion": name, "name": name, "adaptive": True} for name in names]
    grades = (
        {"year": 1, "same": 1, "differs": 1, "less": 0.5},
        {"year": 0, "same": 1, "differs": 0, "less": 0},
    )
    group = [graded("It.", each, {"1": 1}, rubric=[*RUBRIC, *adaptive]) for each in grades]
    every, most = (recipe("dr-tulu", {"rubric.active": n})(group) for n in (5, 1))
    assert [s.components["rubric"] for s in every] == pytest.approx([4.5 / 5, 0])
    assert [s.components["rubric"] for s in most] == pytest.approx([1, 0])
    assert [s.details["active"] for s in most] == [["differs"]] * 2
    assert recipe("dr-tulu", {"rubric.active": 1}).scope == "group"
    plain = recipe("dr-tulu")(group)
    assert [s.components["rubric"] for s in plain] == pytest.approx([5.5 / 6, 1 / 6])

"""Trust-Align: the five hallucinations, citations of gold answers, and preferred responses."""

from __future__ import annotations

import json
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import decode_row
from rag_rewards.errors import DataError
from rag_rewards.metrics.trust_score import TrustScore
from rag_rewards.selection.trust_align import (
    cite_answers,
    covering_documents,
    gold_list,
    hallucinations,
)
from rag_rewards.text.citations import compiled
from rag_rewards.text.refusal import REFUSAL
from rag_rewards.text.statements import statements

quick = budget(150)
NONE = dict.fromkeys(
    (
        "excessive_refusal",
        "over_responsiveness",
        "inaccurate_answer",
        "improper_citation",
        "overcitation",
    ),
    0.0,
)


def row(response="", supports=((True, False), (False, True), (False, False)), **fields):
    texts = ("Paris is in France.", "Rome is in Italy.", "Rain falls.")
    documents = [
        {"text": text, "supports": list(bits)} for text, bits in zip(texts, supports, strict=False)
    ]
    return decode_row(
        {
            "question": "Which cities?",
            "answers": [["Paris", "Lutetia"], ["Rome"]],
            "documents": documents,
            "response": response,
            **fields,
        }
    )


def entails(premise, hypothesis, value=1.0):
    return {"premise": premise, "hypothesis": hypothesis, "entailment": value}


FRANCE, ITALY, RAIN = "Paris is in France.", "Rome is in Italy.", "Rain falls."
BOTH = "Paris and Rome."


@pytest.mark.parametrize(
    ("response", "nli", "expected"),
    [
        (REFUSAL, [], {"excessive_refusal": 1.0}),
        (REFUSAL.replace("'", "’"), [], {"excessive_refusal": 1.0}),
        # one of two answers, with the right document
        ("Paris [1].", [entails(FRANCE, "Paris.")], {"inaccurate_answer": 0.5}),
        # both answers; the second of two statements has no citation
        (
            "Paris [1]. Rome.",
            [entails(FRANCE, "Paris.")],
            {"improper_citation": 0.5},
        ),
        # a wrong document: neither recall nor precision
        (
            "Paris and Rome [3].",
            [entails(RAIN, BOTH, 0.1)],
            {"improper_citation": 1.0, "overcitation": 1.0},
        ),
        # document 3 is superfluous: one of three citations
        (
            "Paris and Rome [1][2][3].",
            [
                entails(f"{FRANCE}\n{ITALY}\n{RAIN}", BOTH),
                entails(FRANCE, BOTH, 0.0),
                entails(ITALY, BOTH, 0.0),
                entails(RAIN, BOTH, 0.0),
                entails(f"{ITALY}\n{RAIN}", BOTH, 0.0),
                entails(f"{FRANCE}\n{RAIN}", BOTH, 0.0),
                entails(f"{FRANCE}\n{ITALY}", BOTH),
            ],
            {"overcitation": 1 - 2 / 3},
        ),
        ("Paris [1]. Rome [2].", [entails(FRANCE, "Paris."), entails(ITALY, "Rome.")], {}),
    ],
)
def test_hallucinations_of_an_answerable_question(response, nli, expected):
    result = hallucinations(row(response, nli=nli), TrustScore())
    assert result == pytest.approx(NONE | expected)


def test_hallucinations_of_an_unanswerable_question():
    supports = ((False, False),) * 3
    answered = row("Paris [1].", supports, nli=[entails(FRANCE, "Paris.")])
    assert hallucinations(answered, TrustScore()) == NONE | {"over_responsiveness": 1.0}
    assert hallucinations(row(REFUSAL, supports), TrustScore()) == NONE


@quick
@given(
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from(["Paris [1].", "Rome [2].", "Rome [3].", "Rain."]), max_size=4),
)
def test_hallucinations_against_trust_score(answerable, refused, sentences):
    """The errors are one minus the parts of Trust-Score, and each row has one kind of error."""
    supports = ((answerable, False), (False, answerable), (False, False))
    right = {"Paris [1].", "Rome [2]."}
    nli = [
        entails(FRANCE, "Paris."),
        entails(ITALY, "Rome."),
        entails(RAIN, "Rome.", 0.0),
    ]
    text = REFUSAL if refused else " ".join(sentences)
    errors = hallucinations(row(text, supports, nli=nli), TrustScore())
    if refused or not answerable:
        assert errors["excessive_refusal"] == (refused and answerable)
        assert errors["over_responsiveness"] == (not refused and not answerable)
        assert sum(errors.values()) == (refused == answerable)
        return
    found = {word for word in ("Paris", "Rome") if word in text}
    cited = [s for s in sentences if "[" in s]
    good = [s for s in sentences if s in right]
    assert errors["inaccurate_answer"] == pytest.approx(1 - len(found) / 2)
    assert errors["improper_citation"] == pytest.approx(
        1 - len(good) / len(sentences) if sentences else 1.0
    )
    assert errors["overcitation"] == pytest.approx(1 - len(good) / len(cited) if cited else 1.0)


# --- citations of gold answers -------------------------------------------------------------------


@quick
@given(
    st.lists(st.lists(st.booleans(), min_size=4, max_size=4), max_size=6),
    st.sets(st.integers(0, 3), min_size=1),
)
def test_covering_documents_against_all_combinations(supports, answers):
    documents = [{"text": "t", "supports": bits} for bits in supports]
    four = decode_row({"response": "", "answers": [["a"]] * 4, "documents": documents})
    labels = covering_documents(sorted(answers), four)

    def covers(chosen):
        return answers <= {i for at in chosen for i, bit in enumerate(supports[at]) if bit}

    places = range(len(supports))
    smallest = next((n for n in range(1, 5) for c in combinations(places, n) if covers(c)), None)
    if not labels:
        assert smallest is None or smallest > 1
        return
    chosen = [int(label) - 1 for label in labels]
    assert covers(chosen)
    assert chosen == sorted(set(chosen))
    assert smallest <= len(chosen) <= min(3, smallest + 1)


def test_the_first_of_equal_documents():
    equal = row(supports=((True, True), (True, True), (False, True)))
    assert covering_documents([0, 1], equal) == ("1",)
    assert covering_documents([1], row()) == ("2",)
    assert covering_documents([0], row(supports=((False, True),))) == ()


def test_a_list_of_gold_answers():
    assert gold_list(row()) == "Paris [1], Rome [2]."
    assert gold_list(row(supports=((False, True), (True, True)))) == "Paris [2], Rome [1]."
    assert gold_list(row(supports=((False, False), (False, True)))) == "Rome [2]."


def test_a_list_of_gold_answers_is_right():
    listed = row(gold_list(row()), answer_kind="list")
    nli = [
        entails(FRANCE, "Which cities? Paris"),
        entails(ITALY, "Which cities? Rome"),
    ]
    listed = row(gold_list(row()), answer_kind="list", nli=nli)
    assert hallucinations(listed, TrustScore()) == NONE


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("It is Paris [Answer 1]. Later Rome [Answer 2].", "It is Paris [1]. Later Rome [2]."),
        ("Paris [answer 1] and Rome [Answer 2]!", "Paris and Rome [1][2]!"),
        ("Paris and Rome [Answer 1, Answer 2].", "Paris and Rome [1][2]."),
        ("So Paris. [Answer 1] It rains. Rome [2]", "So Paris [1]. Rome [2]."),
        ("It rains.", ""),
        ("Oslo [Answer 3]. Bonn [Answer 0]. Rome [Answer 2].", "Rome [2]."),
        ("", ""),
    ],
)
def test_numbers_of_answers_become_citations(text, cited):
    assert cite_answers(text, row()) == cited


def test_answers_without_a_document_are_not_cited():
    assert cite_answers("Paris [Answer 1]. Rome [Answer 2].", row(supports=((True, False),))) == (
        "Paris [1]."
    )
    bare = decode_row({"response": "", "answers": ["Paris"], "documents": [{"text": "t"}]})
    for function in (gold_list, lambda r: cite_answers("x [Answer 1].", r)):
        with pytest.raises(DataError, match="which gold answers each document supports") as error:
            function(bare)
        assert error.value.path == "documents[0].supports"


@quick
@given(st.text(alphabet="[]Answer 123,.x\n", max_size=60))
def test_every_sentence_has_a_citation(text):
    result = cite_answers(f"Paris [Answer 1]. {text}", row())
    for statement in statements(result, compiled()):
        assert {"1", "2"}.issuperset(statement.cited)
    assert result == "" or (result.startswith("Paris") and "[1]" in result)


@pytest.mark.parametrize("name", ["asqa", "qampari", "eli5"])
def test_refusals_of_trust_align(shared, name):
    """The documents of its refusals support no answer, so that the refusal is preferred."""
    path = shared / "data" / "trust_align" / f"{name}_refusal.json"
    demos = json.loads(path.read_text("utf-8"))
    for demo in demos["refusal_demos"]:
        assert demo["answer"] == REFUSAL
        documents = [
            {
                "title": d["title"],
                "text": d["text"],
                "supports": list(map(bool, d["answers_found"])),
            }
            for d in demo["docs"]
        ]
        answers = [["x"]] * len(documents[0]["supports"])
        refused = decode_row({"response": REFUSAL, "answers": answers, "documents": documents})
        assert hallucinations(refused, TrustScore()) == NONE

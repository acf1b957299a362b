"""Grounded statements (Ground-GRPO, Eq. 1 and 2), against slow implementations."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import DataError, Document, Rollout
from rag_rewards.evidence.needs import EntailmentNeed
from rag_rewards.recipes import recipe
from rag_rewards.rewards import Format, Grounding, RefusalDetector
from rag_rewards.rewards.citation import is_sufficient
from rag_rewards.rewards.correctness import supported_answers
from rag_rewards.rollout import Entailment, Similarity
from rag_rewards.text.sections import Tags

quick = budget(120)
GROUNDING = Grounding(Format(Tags(("think", "answer")), ("answer",)), RefusalDetector())


# --- statements ---------------------------------------------------------------------------------

ANSWERS = [["Paris"], ["Rome", "Roma"], ["Oslo"]]
DOCUMENTS = (
    Document(text="Text 1.", title="A"),
    Document(text="Text 2.", title="B"),
    Document(text="Text 3."),
)
PREMISES = {"1": "Title: A\nText 1.", "2": "Title: B\nText 2.", "3": "Text 3."}


def oracle(premise: str, hypothesis: str) -> float:
    """Return an entailment probability, 0, 0.49, 0.5 or 1, that depends only on the texts."""
    digest = hashlib.md5(f"{premise}|{hypothesis}".encode(), usedforsecurity=False).digest()
    return (0.0, 0.49, 0.5, 1.0)[digest[0] % 4]


def answered(reward, rollout: Rollout) -> Rollout:
    """Return the rollout with evidence from the oracle for every need of a reward."""
    nli = tuple(
        Entailment(
            premise=n.premise, hypothesis=n.hypothesis, entailment=oracle(n.premise, n.hypothesis)
        )
        for n in reward.needs(rollout)
        if isinstance(n, EntailmentNeed)
    )
    return Rollout(**{f: getattr(rollout, f) for f in rollout.__struct_fields__} | {"nli": nli})


FACTS = st.tuples(
    st.lists(st.sampled_from(["Paris", "Roma", "Rome", "Oslo", "Bonn"]), min_size=1, max_size=2),
    st.lists(st.sampled_from("123"), max_size=3, unique=True),
    st.booleans(),  # an invalid citation beside
)


def text_of(facts) -> str:
    lines = []
    for number, (names, cited, invalid) in enumerate(facts):
        marks = "".join(f"[{label}]" for label in cited) + ("[9]" if invalid else "")
        lines.append(f"Fact {number} concerns {' or '.join(names)} {marks}.")
    return " ".join(lines)


def naive(facts, aggregate, minimal, supports, bad=-0.5) -> tuple[float, float, float]:
    """Return (exact match, citation, share of matched answers) according to the equations."""
    rows = []
    for number, (names, cited, invalid) in enumerate(facts):
        statement = f"Fact {number} concerns {' or '.join(names)}."
        hits = [i for i, aliases in enumerate(ANSWERS) if any(a in statement for a in aliases)]

        def entails(labels, statement=statement):
            return oracle("\n".join(PREMISES[c] for c in labels), statement) >= 0.5

        good = bool(cited) and not invalid and entails(cited)
        if good and minimal and len(cited) > 1:
            good = not any(entails(rest) for rest in combinations(cited, len(cited) - 1))
        rows.append((hits, good))
    result = {i for hits, _ in rows for i in hits}
    if aggregate == "answers":
        n = sum(supports) or 3 if supports else 3
        match = cite = 0.0
        for i in result:
            match += 0.5
            cite += max(0.5 if good else bad for hits, good in rows if i in hits)
    else:
        n = len(rows) if aggregate == "mean" else 1
        match = sum(0.5 for hits, _ in rows if hits)
        cite = sum(0.5 if good else bad for hits, good in rows if hits)
    return match / n, cite / n, len(result) / 3


@quick
@given(
    st.lists(FACTS, min_size=1, max_size=4),
    st.sampled_from(["sum", "mean", "answers"]),
    st.booleans(),
    st.none() | st.lists(st.booleans(), min_size=3, max_size=3),
    st.sampled_from([-0.5, 0.0, -1.0]),
)
def test_equations_1_and_2_against_a_naive_implementation(facts, aggregate, minimal, supports, bad):
    first = Document(text="Text 1.", title="A", supports=supports and tuple(supports))
    documents = (first, *DOCUMENTS[1:])
    reward = replace(GROUNDING, aggregate=aggregate, minimal=minimal, bad_penalty=bad)
    rollout = answered(
        reward,
        Rollout(
            response=f"<think>t</think><answer>{text_of(facts)}</answer>",
            answers=ANSWERS,
            documents=documents,
            answerable=True,
        ),
    )
    score = reward([rollout])[0]
    match, cite, share = naive(facts, aggregate, minimal, supports, bad)
    assert score.components == pytest.approx(
        {"exact_match": match, "citation": cite, "refusal": 0.5}
    )
    assert score.value == pytest.approx(match + cite + 0.5)
    assert score.correct == pytest.approx(share)


def score(answer: str, *, answers="Paris", answerable=True, nli=(), reward=GROUNDING, **row):
    rollout = Rollout(
        response=f"<think>t</think><answer>{answer}</answer>",
        answers=answers,
        answerable=answerable,
        documents=row.pop("documents", DOCUMENTS),
        nli=tuple(Entailment(premise=p, hypothesis=h, entailment=e) for p, h, e in nli),
        **row,
    )
    return reward([rollout])[0]


def test_a_missing_entailment_is_an_error_that_names_both_texts():
    with pytest.raises(DataError, match=r"nli: no entry for premise 'Title: A Text 1\.' and hyp"):
        score("It is Paris [1].")


def test_evidence_is_matched_after_trimming():
    result = score("It is Paris [1].", nli=[(" Title: A\nText 1.\n", " It is Paris. ", 0.5)])
    assert result.components == {"exact_match": 0.5, "citation": 0.5, "refusal": 0.5}
    assert result.details["statements"] == [
        {"text": "It is Paris.", "cited": ["1"], "answers": 1, "supported": True}
    ]


def test_documents_are_joined_in_the_order_cited():
    premise = "Text 3.\nTitle: A\nText 1."
    assert score("It is Paris [3][1].", nli=[(premise, "It is Paris.", 1.0)]).value == 1.5


@pytest.mark.parametrize("marks", ["", "[0]", "[4]", "[1999]", "[1][7]", "[7]"])
def test_missing_and_invalid_citations_are_wrong_without_a_model(marks):
    assert score(f"It is Paris {marks}.").components["citation"] == -0.5


def test_statements_without_an_answer_earn_nothing():
    assert score("Nice weather [1]. No idea [9].").components == {
        "exact_match": 0.0,
        "citation": 0.0,
        "refusal": 0.5,
    }


def test_no_statement_at_all():
    for aggregate in ("sum", "mean", "answers"):
        reward = replace(GROUNDING, aggregate=aggregate)
        assert score("...", reward=reward).value == 0.5


def test_list_answers_are_cut_at_commas():
    nli = [("Title: A\nText 1.", "Paris", 1.0), ("Title: B\nText 2.", "Rome", 0.0)]
    result = score(
        "Paris [1], Rome [2], Bonn", answers=[["Paris"], ["Rome"]], answer_kind="list", nli=nli
    )
    # Paris 0.5 + 0.5, Rome 0.5 − 0.5
    assert (result.components["exact_match"], result.components["citation"]) == (1.0, 0.0)


def test_claims_are_entailed_by_the_statement():
    nli = [
        ("It rains.", "Water falls.", 0.9),
        ("It rains.", "It is warm.", 0.1),
        ("It is cold.", "Water falls.", 0.2),
        ("It is cold.", "It is warm.", 0.49),
        ("Title: A\nText 1.", "It rains.", 0.4),
    ]
    result = score(
        "It rains [1]. It is cold [2].",
        answers=[["Water falls."], ["It is warm."]],
        answer_kind="claims",
        nli=nli,
    )
    assert (result.components["exact_match"], result.components["citation"]) == (0.5, -0.5)
    assert result.correct == 0.5


def test_needs_of_claims_contain_every_pair():
    rollout = Rollout(
        response="<think>t</think><answer>It rains [1].</answer>",
        answers=[["Water falls."]],
        answer_kind="claims",
        answerable=True,
        documents=DOCUMENTS,
    )
    assert GROUNDING.needs(rollout) == [
        EntailmentNeed("It rains.", "Water falls."),
        EntailmentNeed("Title: A\nText 1.", "It rains."),
    ]


def test_unanswerable_rows_have_no_needs():
    rollout = Rollout(
        response="<think>t</think><answer>It is Paris [1].</answer>",
        answerable=False,
        documents=DOCUMENTS,
    )
    assert GROUNDING.needs(rollout) == []
    assert GROUNDING([rollout])[0].value == 0.0
    for kind in ("claims", "list", "short"):
        row = Rollout(response=rollout.response, answerable=False, answer_kind=kind)
        assert GROUNDING.needs(row) == []


def test_minimal_citations():
    first, second = "Title: A\nText 1.", "Title: B\nText 2."
    both = f"{first}\n{second}"
    statement = "It is Paris."
    reward = replace(GROUNDING, minimal=True)

    def citation(without_second: float, without_first: float):
        nli = [
            (both, statement, 1.0),
            (first, statement, without_second),
            (second, statement, without_first),
        ]
        return score("It is Paris [1][2].", nli=nli, reward=reward).components["citation"]

    assert citation(0.1, 0.1) == 0.5
    assert citation(0.9, 0.1) == -0.5
    assert citation(0.1, 0.9) == -0.5


def test_is_sufficient():
    assert not is_sufficient([], lambda labels: True)
    assert is_sufficient(["1"], lambda labels: True, minimal=True)
    assert not is_sufficient(["1", "2"], lambda labels: True, minimal=True)
    assert is_sufficient(["1", "2"], lambda labels: len(labels) == 2, minimal=True)


GOLD = replace(GROUNDING, judge_by="gold")
CITY_DOCUMENTS = (
    Document(text="Paris is the capital.", id="p"),
    Document(text="Bonn was."),
    Document(text="Visit Paris!"),
)


@pytest.mark.parametrize(
    ("answer", "supporting", "expected"),
    [
        ("It is Paris [1].", ["p"], 0.5),
        ("It is Paris [1][2].", ["p", 2], 0.5),  # one of them contains the answer
        ("It is Paris [1][2].", ["p"], -0.5),  # outside of D+
        ("It is Paris [3].", ["p"], -0.5),
        ("It is Paris [2].", [2], -0.5),  # no answer in it
        ("It is Paris.", ["p"], -0.5),
        ("It is Paris [1][8].", ["p"], -0.5),
    ],
)
def test_citations_judged_by_gold(answer, supporting, expected):
    result = score(answer, reward=GOLD, documents=CITY_DOCUMENTS, supporting=supporting)
    assert result.components["citation"] == expected


def test_judged_by_gold_if_the_answer_has_no_normalized_form():
    documents = (Document(text="The band !!! toured."),)
    result = score(
        "It is !!! [1].", answers="!!!", reward=GOLD, documents=documents, supporting=[1]
    )
    assert result.components == {"exact_match": 0.5, "citation": 0.5, "refusal": 0.5}


def test_judged_by_gold_needs_supporting_and_no_model():
    with pytest.raises(DataError, match="supporting: missing"):
        score("It is Paris [1].", reward=GOLD)
    rollout = Rollout(
        response="<think>t</think><answer>Paris [1]</answer>",
        answers="Paris",
        answerable=True,
        documents=DOCUMENTS,
    )
    assert GOLD.needs(rollout) == []


def test_supported_answers():
    def count(*supports, answers=(["a"], ["b"])):
        documents = tuple(Document(text="x", supports=s) for s in supports)
        return supported_answers(
            Rollout(response="", answers=[list(a) for a in answers], documents=documents)
        )

    assert count() == 2
    assert count(None, None) == 2
    assert count((True, False), None) == 1
    assert count((1, 0), (0, 1)) == 2
    assert count((False, False)) == 2  # an answerable row that no document supports: all
    with pytest.raises(DataError, match=r"documents\[1\]\.supports: .* expected 2, found 1"):
        count((True, True), (True,))


@pytest.mark.parametrize(
    ("text", "credit"),
    [
        ("Paris is the capital [1].", 1.0),
        ("Paris is the capital.", 0.0),
        ("Paris is the capital [2].", 0.0),
        ("Paris is not the capital [1].", 0.0),
        ("Is Paris the capital [1]?", 0.0),
        ("I do not know whether it is Paris [1].", 0.0),
        ("The capital is Parisian [1].", 0.0),
        ("~~Paris is the capital~~ [1].", 0.0),
    ],
)
def test_supported_answers_earn_the_credit(text, credit):
    supported = replace(GROUNDING, counts="supported", judge_by="gold")
    row = Rollout(
        response=f"<think>t</think><answer>{text}</answer>",
        answers="Paris",
        answerable=True,
        documents=(Document(text="Paris is the capital."), Document(text="Rome is old.")),
        supporting=(1,),
    )
    components = supported([row])[0].components
    assert components["exact_match"] + components["citation"] == credit


def test_markers_in_thinking_and_text_outside_the_answer_never_count():
    rollout = Rollout(
        response="<think>Paris [1].</think><answer>Paris.</answer>",
        answers="Paris",
        answerable=True,
        documents=DOCUMENTS,
    )
    assert GROUNDING([rollout])[0].components["citation"] == -0.5


def test_rows_require_the_field_answerable():
    for response in ("<think>t</think><answer>Paris</answer>", "nothing"):
        with pytest.raises(DataError, match="answerable: missing"):
            GROUNDING([Rollout(response=response, answers="Paris")])
        with pytest.raises(DataError, match="false, but stage 1 scores answerable rows only"):
            recipe("ground-grpo-stage1")([Rollout(response=response, answerable=False)])


def test_needs_of_semantic_and_strict_refusals():
    detector = RefusalDetector(matcher="semantic", strict=True)
    reward = replace(GROUNDING, detector=detector)
    for kind, answer in (("list", "No, sorry."), ("short", "No.\n\nSorry, no.  None.")):
        bare = Rollout(
            response=f"<think>t</think><answer>{answer}</answer>",
            answers="Paris",
            answer_kind=kind,
            answerable=False,
        )
        (need,) = reward.needs(bare)
        evidence = Similarity(text=need.text, reference=need.reference, similarity=0.9)
        row = Rollout(
            response=bare.response,
            answers="Paris",
            answer_kind=kind,
            answerable=False,
            similarity=(evidence,),
        )
        assert reward([row])[0].value == 0.9

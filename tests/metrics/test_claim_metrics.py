"""`Claims` and its metrics by hand, against a naive twin, with an entailment model and a judge."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import DataError, Document, Rollout
from rag_rewards.errors import BackendError, EvidenceError, SettingError, UsageError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models
from rag_rewards.metrics import metric_of
from rag_rewards.rewards import Claims
from rag_rewards.rewards.correctness import f1_of
from rag_rewards.rows.decoding import decode_row
from rag_rewards.testing import TableEntailment, TableJudge

DOCUMENTS = (Document(text="pq"), Document(text="qr", title="r"), Document(text="s"))
NAMES = "pqrst"
"""A document with all letters of a claim supports it: "Facts p q hold." needs "p" and "q"."""


def letters(text: str) -> set[str]:
    return {word for word in text.lower().replace(".", " ").split() if word in NAMES}


def written(text: str) -> str:
    """Return "p q [1] | t" as a response with two statements."""
    if "|" not in text and not text[0].isalpha():
        return text
    return " ".join(f"Facts {part.strip()} hold." for part in text.split("|"))


def supports(premise: str, claim: str) -> float:
    body = "".join(line for line in premise.split("\n") if not line.startswith("Title: "))
    return 0.9 if letters(claim) <= set(body) else 0.1


def scored(response: str, documents=DOCUMENTS, **settings):
    reward = Claims(**settings)
    nli = TableEntailment(supports)
    rollout = Rollout(response=response, documents=documents)
    [informed] = Gatherer(Models(entailment=nli)).gather_sync(reward, [rollout])
    return reward([informed])[0], nli.requests


@pytest.mark.parametrize(
    ("response", "settings", "expected"),
    [
        ("p q | q r | t", {}, 2 / 3),
        ("<think>Facts t hold.</think><answer>Facts p q hold.</answer> Facts t hold.", {}, 1.0),
        (
            "<think>Facts t hold.</think>Facts p t hold. <answer>Facts p hold.</answer>",
            {"claims_in": "response"},
            0.5,
        ),
        ("p s", {}, 1.0),  # two documents together
        ("p s", {"premises": "each"}, 0.0),
        ("p | p | p | t", {}, 0.5),  # equal claims count once
        ("p | p | p | t", {"repeated": True}, 0.75),
        ("p | q | r | q r", {"max_claims": 2}, 0.5),  # the others count as unsupported
        ("…", {}, 0.0),
        ("…", {"empty": 0.25, "measure": "f1"}, 0.25),
        ("p q [1] | q r | t [3]", {"measure": "recall"}, 1 / 3),
        ("p q [1] | q r | t [3]", {"measure": "precision"}, 1 / 2),
        ("p q [1] | q r | t [3]", {"measure": "f1"}, 2 / 5),
        ("p q [1] | q r | t [3]", {"measure": "mean_f1"}, 1 / 3),
        ("p q | q r", {"measure": "f1"}, 0.0),
        ("p q [9]", {"measure": "recall"}, 0.0),
        ("p q [1][9]", {"measure": "f1"}, 0.0),
        # [2] is superfluous, [1] is not: P = 1/2, R = 1
        ("p q [1][2]", {"measure": "f1"}, 2 / 3),
        # each supports the claim alone
        ("q [1][2]", {"measure": "precision"}, 1.0),
        # both are necessary
        ("p r [1][2]", {"measure": "precision"}, 1.0),
        ("q s [1][2][3]", {"measure": "precision"}, 1 / 3),  # [1] or [2], and [3]
        ("p s [2][1][3]", {"measure": "recall", "max_citations": 2}, 0.0),
    ],
)
def test_values_by_hand(response, settings, expected):
    score, _ = scored(written(response), **settings)
    assert score.value == pytest.approx(expected)


def naive(parts, measure: str, together: bool) -> float:
    """The measure of (letters, citations) by its definition."""
    texts = [set(d.text) for d in DOCUMENTS]

    def holds(words, labels):
        return words <= set().union(*(texts[i - 1] for i in labels))

    if measure == "faithfulness":
        sets = [[1, 2, 3]] if together else [[1], [2], [3]]
        return sum(any(holds(w, s) for s in sets) for w, _ in parts) / len(parts)
    recalls, precisions, credited, cited = [], [], 0, 0
    for words, labels in parts:
        valid = [] if any(i > 3 for i in labels) else labels[:2]
        together_ = bool(valid) and holds(words, valid)
        good = 0
        for one in valid if together_ else []:
            rest = [i for i in valid if i != one]
            good += holds(words, [one]) or not rest or not holds(words, rest)
        recalls.append(float(together_))
        precisions.append(good / len(valid) if valid else 0.0)
        credited, cited = credited + good, cited + len(valid)
    recall, precision = sum(recalls) / len(parts), credited / cited if cited else 0.0
    f1s = [f1_of(p, r) for p, r in zip(precisions, recalls, strict=True)]
    return {
        "recall": recall,
        "precision": precision,
        "f1": f1_of(precision, recall),
        "mean_f1": sum(f1s) / len(f1s),
    }[measure]


PARTS = st.lists(
    st.tuples(
        st.frozensets(st.sampled_from(NAMES), min_size=1, max_size=3),
        st.lists(st.integers(1, 4), unique=True, max_size=3),
    ),
    min_size=1,
    max_size=6,
)
MEASURES = st.sampled_from(["faithfulness", "recall", "precision", "f1", "mean_f1"])


@budget(150)
@given(PARTS, MEASURES, st.sampled_from(["together", "each"]))
def test_measures_against_a_naive_twin(parts, measure, premises):
    response = " | ".join(
        f"{' '.join(sorted(words))} {''.join(f'[{i}]' for i in labels)}" for words, labels in parts
    )
    settings = {"measure": measure, "premises": premises, "max_citations": 2, "repeated": True}
    score, requests = scored(written(response), **settings)
    assert score.value == pytest.approx(naive(parts, measure, premises == "together"))
    assert len(set(requests)) == len(requests)


def test_only_entailments_that_matter_are_requested():
    assert len(scored(written("p q [1][2]"), measure="f1")[1]) == 3  # both, [1] and [2]
    assert len(scored(written("t [1][2]"), measure="f1")[1]) == 1
    assert len(scored(written("p q | t"))[1]) == 2


def test_a_judge_checks_claims_of_several_turns():
    asked = []

    def verdict(question):
        asked.append(question)
        return int(letters(question.response) <= set("".join(question.documents)))

    results = [{"text": "pq"}, {"text": "s"}]
    turns = [
        {"text": "<search>a</search>", "results": results},
        {"text": "<answer>Facts p s hold. Facts t hold.</answer>"},
    ]
    rollout = decode_row({"turns": turns, "question": "Which?"})
    reward = Claims(checked_by="judge")
    [informed] = Gatherer(Models(judge=TableJudge(verdict))).gather_sync(reward, [rollout])
    [(first, one), (second, other)] = informed.verdicts.items()
    assert (first[:9], one, second[:9], other) == ("claims:1:", 1, "claims:2:", 0)
    assert reward([informed])[0].value == 0.5
    moved = {"claims:1" + second[8:]: other, "claims:2" + first[8:]: one}
    with pytest.raises(DataError, match=r"verdicts\.claims:1:"):
        reward([msgspec.structs.replace(informed, verdicts=moved)])
    assert {(q.kind, q.question, q.documents) for q in asked} == {
        ("supported", "Which?", ("pq", "s"))
    }


def test_a_judge_lists_the_claims():
    """Their keys are those of the text; an answer without a statement needs no judge."""

    def listed(question):
        assert (question.kind, question.response) == ("claims", "Facts p q hold.")
        texts = ["P holds.", "T holds.", "P holds."]
        assert question.placeholders == tuple(f"C{i}" for i in range(1, 21))
        return dict.fromkeys(question.placeholders) | dict(
            zip(("C1", "C2", "C3"), texts, strict=True)
        )

    reward = Claims(claims_by="judge")
    models = Models(judge=TableJudge({}, entities=listed), entailment=TableEntailment(supports))
    rollouts = [
        Rollout(response=text, documents=DOCUMENTS) for text in ("Facts p q hold [1].", "…")
    ]
    informed = Gatherer(models).gather_sync(reward, rollouts)
    assert [score.value for score in reward(informed)] == [1 / 2, 0.0]  # "P holds." counts once
    full = dict.fromkeys(informed[0].entities, "P holds.")
    with pytest.raises(EvidenceError, match=r"at most 19 claims .* use claims_by=statements"):
        reward([msgspec.structs.replace(informed[0], entities=full)])
    with pytest.raises(
        DataError, match=r"add a claim of the response for each of C1:[0-9a-f]{8}, C2"
    ):
        reward(rollouts[:1])
    for changed in ({"response": "Facts p r hold."}, {"question": "Which?"}):
        with pytest.raises(DataError, match="add a claim of the response"):
            reward([msgspec.structs.replace(informed[0], **changed)])
    with pytest.raises(SettingError, match="measure=faithfulness"):
        Claims("f1", claims_by="judge")


@pytest.mark.parametrize(("statements", "places"), [(1, 20), (7, 23), (40, 100)])
def test_the_number_of_claims_that_a_judge_can_list(statements, places):
    text = " ".join(f"Fact {i} holds." for i in range(statements))
    [need] = Claims(claims_by="judge").needs(Rollout(response=text, documents=DOCUMENTS))
    assert len(need.placeholders) == places


def test_a_judge_without_a_list_has_an_error():
    judge = TableJudge({}, entities=lambda question: BackendError("no list"))
    rollout = Rollout(response="A.", documents=DOCUMENTS)
    [error] = Gatherer(Models(judge=judge)).gather_sync(Claims(claims_by="judge"), [rollout])
    assert str(error) == "entities: no list"


def test_rows_without_documents():
    with pytest.raises(DataError, match="documents: missing"):
        Claims()([Rollout(response="A.")])
    assert scored("Facts p hold.", documents=())[0].value == 0.0
    with pytest.raises(DataError, match="no entry for premise"):
        Claims()([Rollout(response="A.", documents=DOCUMENTS)])


def test_metrics_of_rows_with_stored_entailments(values):
    """Rows with no claim are left out; the others have the mean of the values of their rewards."""
    responses = ["p q [1] | q r | t [3]", "p q [1][2]", "t"]
    rows = [{"response": "…", "documents": ["pq"]}]
    for response in map(written, responses):
        claims = Claims().claims(Rollout(response=response, documents=DOCUMENTS))
        texts = [document.premise for document in DOCUMENTS]
        premises = [*texts, "\n".join(texts), "\n".join(texts[:2])]
        nli = [
            {"premise": p, "hypothesis": claim.text, "entailment": supports(p, claim.text)}
            for claim in claims
            for p in premises
        ]
        documents = [{"text": each.text, "title": each.title} for each in DOCUMENTS]
        rows.append({"response": response, "documents": documents, "nli": nli})
    assert values("faithfulness", rows) == pytest.approx(
        {"faithfulness": (2 / 3 + 1 + 0) / 3, "by_claim": 3 / 5}
    )
    assert values("faithfulness(threshold=0.95)", rows)["by_claim"] == 0
    assert values("attribution", rows) == pytest.approx(
        {
            "attribution": (2 / 5 + 2 / 3) / 3,
            "precision": (1 / 2 + 1 / 2) / 3,
            "recall": (1 / 3 + 1) / 3,
        }
    )


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("attribution(max_citations=0)", "max_citations"),
        ("attribution(threshold=5)", "threshold"),
        ("faithfulness(threshold=5)", "threshold"),
    ],
)
def test_invalid_settings_of_metrics(text, setting):
    with pytest.raises(UsageError, match=f"^metric {text.partition('(')[0]}: {setting}: Expected"):
        metric_of(text)

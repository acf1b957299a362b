"""Trust-Score against its authors' code, the published sample, and slow implementations."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import Rollout
from rag_rewards.metrics.trust_score import (
    TrustScore,
    list_correctness,
    refuses,
    trust_score,
)
from rag_rewards.rewards import RefusalDetector
from rag_rewards.rewards.claims import citation_scores, claim_citations
from rag_rewards.text.refusal import REFUSAL, SHORT_REFUSAL

quick = budget(150)
KINDS = {"asqa": None, "qampari": "list", "eli5": "claims"}
CORRECTNESS = {
    "asqa": "calib_str_em_f1",
    "qampari": "calib_qampari_em_f1",
    "eli5": "calib_claims_nli_f1",
}


@pytest.fixture(scope="session")
def reference(shared):
    path = shared / "parity" / "generated" / "trust_eval_metrics.json"
    return json.loads(path.read_text("utf-8"))


def rows_of(reference, name):
    """Return a data set as rows. The entailment calls of the authors' code are the evidence."""
    data_set = reference["sets"][name]
    nli = [
        {
            "premise": call["premise"],
            "hypothesis": call["hypothesis"],
            "entailment": float(call["entails"]),
        }
        for call in data_set["nli_calls"]
    ]
    return [
        {
            "id": i,
            "question": row["question"],
            "answers": row["answers"],
            "answer_kind": KINDS[name],
            "documents": [
                {
                    "title": d["title"],
                    "text": d["text"],
                    "supports": list(map(bool, d["answers_found"])),
                }
                for d in row["docs"]
            ],
            "response": row["output"],
            "nli": nli,
        }
        for i, row in enumerate(data_set["data"])
    ]


def in_percent(values):
    return {name: value * 100 for name, value in values.items()}


def expected_of(reference, name):
    theirs = reference["sets"][name]["expected"]
    return {
        "trust-score": theirs["trust_score"],
        "f1_gr": theirs["macro_f1"],
        "f1_ac": theirs[CORRECTNESS[name]],
        "f1_gc": theirs["answered_citation_f1"],
        "f1_refuse": theirs["refuse_f1"],
        "f1_answer": theirs["answerable_f1"],
    }


@pytest.mark.parametrize("name", ["qampari", "eli5"])
def test_values_of_the_authors_code(reference, values, name):
    ours = in_percent(values("trust-score", rows_of(reference, name)))
    assert ours == pytest.approx(expected_of(reference, name))


def test_values_of_the_authors_code_with_a_citation_of_zero(reference, values):
    """[0] is invalid here, but the last document in the authors' code."""
    rows = rows_of(reference, "asqa")
    theirs = expected_of(reference, "asqa")
    ours = in_percent(values("trust-score", rows))
    # One of six answered rows loses its recall and precision of 1.
    recall, precision = 66.66666666666666 - 100 / 6, 75.0 - 100 / 6
    assert ours["f1_gc"] == pytest.approx(2 * recall * precision / (recall + precision))
    for name in ("f1_gr", "f1_ac", "f1_refuse", "f1_answer"):
        assert ours[name] == pytest.approx(theirs[name])
    # With the authors' reading of markers, all values are theirs.
    assert in_percent(values("trust-score(markers=first)", rows)) == pytest.approx(theirs)


@pytest.mark.parametrize("name", KINDS)
def test_settings_of_the_authors_code_change_no_other_value(reference, values, name):
    rows = rows_of(reference, name)
    ours = in_percent(values("trust-score(markers=first,empty=skip)", rows))
    assert ours == pytest.approx(expected_of(reference, name))


def test_texts_without_the_first_numbers(shared):
    path = shared / "parity" / "generated" / "remove_citations.json"
    cases = json.loads(path.read_text("utf-8"))
    assert len(cases) == 6
    for case in cases:
        assert TrustScore(markers="first")._text(case["in"]) == case["out"].strip()


class TheirCitations:
    """Citation recall and precision of one output, as the authors' code computes them."""

    def __init__(self, row, entailed):
        self.documents, self.output = row["documents"], row["response"]
        self.entailed = entailed

    def entails(self, ids, sentence):
        text = re.sub(r" ?\[\d+", "", sentence).replace(" |", "").replace("]", "").strip()
        return ("+".join(self.documents[i]["text"] for i in ids), text) in self.entailed

    def scores(self):
        sentences = [s for s in re.split(r"(?<=\.) ", self.output) if s.strip()]
        if not sentences:
            return None
        recalled = credited = total = 0
        for sentence in sentences:
            ids = [int(number) - 1 for number in re.findall(r"\[(\d+)", sentence)]
            if not ids or max(ids) >= len(self.documents):
                continue
            ids = ids[:3]
            total += len(ids)
            if not self.entails(ids, sentence):
                continue
            recalled += 1
            for one in ids:
                rest = [i for i in ids if i != one]
                needed = self.entails([one], sentence) or not self.entails(rest, sentence)
                credited += len(ids) == 1 or needed
        return recalled / len(sentences), credited / total if total else 0.0


SENTENCES = st.sampled_from(
    ["Paris won [1].", "Rome lost [1, 2].", "Bonn [1][2].", "Oslo [0].", "Nice [2,1].", "Lima.", ""]
)


@quick
@given(
    st.lists(st.lists(SENTENCES, max_size=3, unique=True).map(" ".join), min_size=1, max_size=4),
    st.sets(
        st.tuples(
            st.sampled_from(["first", "second", "first+second"]),
            st.sampled_from(
                ["Paris won.", "Rome lost, 2.", "Bonn.", "Oslo.", "Nice,1.", "Rome lost."]
            ),
        )
    ),
)
def test_citations_of_the_authors_code(outputs, entailed):
    """A slow implementation of their code with [1, 3], [0] and empty responses."""
    documents = [{"text": "first", "supports": [True]}, {"text": "second", "supports": [False]}]
    texts = {text for _, text in entailed} | {"Paris won.", "Rome lost, 2.", "Bonn.", "Oslo."}
    nli = [
        {
            "premise": premise.replace("+", "\n"),
            "hypothesis": text,
            "entailment": float((premise, text) in entailed),
        }
        for premise in ("first", "second", "first+second")
        for text in texts | {"Nice,1.", "Lima."}
    ]
    rows = [
        {"answers": [["x"]], "documents": documents, "response": output, "nli": nli}
        for output in outputs
    ]
    metric = TrustScore(markers="first", empty="skip")
    theirs = [TheirCitations(row, entailed).scores() for row in rows]
    for row, expected in zip(rows, theirs, strict=True):
        counted, *ours = metric._measure(_row(row), row["response"])[-3:]
        assert bool(counted) == (expected is not None)
        assert tuple(ours) == pytest.approx(expected or (0.0, 0.0))


def test_two_numbers_in_one_bracket(values):
    """Two documents are necessary: all numbers count; the authors' code reads the first one."""
    documents = [{"text": "A."}, {"text": "B."}]
    nli = [
        {"premise": "A.\nB.", "hypothesis": "Paris it is.", "entailment": 0.9},
        {"premise": "A.", "hypothesis": "Paris it is.", "entailment": 0.1},
        {"premise": "B.", "hypothesis": "Paris it is.", "entailment": 0.1},
        {"premise": "A.", "hypothesis": "Paris it is, 2.", "entailment": 0.1},
    ]
    answer = row("Paris it is [1, 2].", documents=documents, answerable=True, nli=nli)
    assert values("trust-score", [answer])["f1_gc"] == 1.0
    assert values("trust-score(markers=first)", [answer])["f1_gc"] == 0.0


def test_an_empty_response_in_the_citation_means(values, reported):
    """One right citation and one empty response: means of 1/2, or of 1 without the empty one."""
    rows = [row("Paris it is [1]."), row("")]
    assert values("trust-score", rows)["f1_gc"] == 0.5
    assert values("trust-score(empty=skip)", rows)["f1_gc"] == 1.0
    assert reported("trust-score(empty=skip)", rows).counts["citation_rows"] == 1.0
    # An empty list has one empty item in their code, without a citation.
    lists = [row("", answer_kind="list", question="")]
    assert reported("trust-score(empty=skip)", lists).counts["citation_rows"] == 1.0


def test_a_citation_number_is_not_an_answer(values):
    """Correctness is measured without the citations, as in the authors' code."""
    supports = [{"text": "t", "supports": [True]}] * 5
    answer = row("It is so [5].", answers=[["5"]], documents=supports, nli=[])
    entailed = {"premise": "t", "hypothesis": "It is so.", "entailment": 1.0}
    assert values("trust-score", [answer | {"nli": [entailed]}])["f1_ac"] == 0.0


def test_citations_of_each_row(reference, values):
    items = iter(reference["per_item_citation"])
    for name in ("asqa", "eli5", "qampari"):
        for row in rows_of(reference, name):
            theirs = next(items)
            assert theirs["output"] == row["response"]
            if refuses(row["response"]) or "[0]" in row["response"]:
                continue  # their code measures refusals as well; see above for [0]
            result = TrustScore()._citations(_row(row), row["response"])
            assert [100 * v for v in result] == pytest.approx(
                [theirs["regular_rec"], theirs["regular_prec"]]
            )


def _row(row):
    from rag_rewards import decode_row

    return decode_row(row)


def test_answer_rate_and_its_ideal_value(reference, values):
    for name in KINDS:
        theirs = reference["sets"][name]["expected"]
        ours = in_percent(values("answer-rate", rows_of(reference, name)))
        assert ours["answer-rate"] == pytest.approx(theirs["answered_ratio"], abs=0.005)
        rows = len(reference["sets"][name]["data"])
        assert ours["ideal"] == pytest.approx(100 * theirs["answerable_num"] / rows)


def test_refusals_of_the_authors_detector(shared):
    path = shared / "parity" / "generated" / "refusal_fuzz_scores.json"
    rows = json.loads(path.read_text("utf-8"))["rows"]
    theirs = {r["text"]: r["trust_eval_is_refusal (fuzzywuzzy+Levenshtein, >85)"] for r in rows}
    assert set(theirs.values()) == {True, False}
    assert {text: refuses(text) for text in theirs} == theirs


def test_the_published_sample(shared):
    """The counts give the values: 10 rows, 5 answered, 7 answerable, 5 both."""
    theirs = json.loads(
        (shared / "parity" / "trust_eval_readme_sample_output.json").read_text("utf-8")
    )
    answered, answerable = theirs["answered_num"], theirs["answerable_num"]
    sums = {
        "rows": answered / theirs["answered_ratio"] * 100,
        "answered": answered,
        "answerable": answerable,
        "answered_answerable": theirs["overlapped_num"],
        "calibrated": theirs["calib_answered_str_em"] / 100 * answered,
        "citation_rows": answered,
        "citation_recall": theirs["answered_citation_rec"] / 100 * answered,
        "citation_precision": theirs["answered_citation_prec"] / 100 * answered,
    }
    assert sums["calibrated"] / answerable * 100 == pytest.approx(theirs["calib_answerable_str_em"])
    assert in_percent(trust_score(sums)) == pytest.approx(
        {
            "trust-score": theirs["trust_score"],
            "f1_gr": theirs["macro_f1"],
            "f1_ac": theirs["calib_str_em_f1"],
            "f1_gc": theirs["answered_citation_f1"],
            "f1_refuse": theirs["refusal_f1"],
            "f1_answer": theirs["answerable_f1"],
        }
    )


def test_published_correctness_of_alce(shared, reported):
    """STR-EM of each gold answer, for the outputs whose gold answers are in the data."""
    gold_file = shared / "data" / "alce" / "asqa_eval_row_docs_truncated.jsonl"
    gold = {}
    for line in gold_file.read_text("utf-8").splitlines():
        row = json.loads(line)
        gold[str(row["sample_id"])] = [pair["short_answers"] for pair in row["qa_pairs"]]
    published = shared / "parity" / "alce_human_eval_utility_sample200.jsonl"
    cases = [json.loads(line) for line in published.read_text("utf-8").splitlines()]
    cases = [case for case in cases if case["dataset"] == "asqa" and case["id"] in gold]
    assert len(cases) == 4
    for case in cases:
        theirs = case["automatic_correctness_scores"]
        row = {"response": case["output"], "answers": gold[case["id"]], "answerable": True}
        result = reported("trust-score", [row]).counts["calibrated"]
        assert result == pytest.approx(sum(theirs) / len(theirs))


# --- slow implementations ----------------------------------------------------------------------

OUTCOMES = st.lists(
    st.tuples(st.booleans(), st.booleans(), *[st.floats(0, 1)] * 3), min_size=1, max_size=30
)


def slow_f1(right, chosen, wanted):
    precision = right / chosen if chosen else 0.0
    recall = right / wanted if wanted else 0.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@quick
@given(OUTCOMES)
def test_trust_score_against_its_equations(rows):
    """Rows are (answered, answerable, calibrated, recall, precision)."""
    answered = [r for r in rows if r[0]]
    answerable = [r for r in rows if r[1]]
    refused, unanswerable = [r for r in rows if not r[0]], [r for r in rows if not r[1]]
    both = [r for r in rows if r[0] and r[1]]
    neither = [r for r in rows if not r[0] and not r[1]]
    calibrated = sum(r[2] for r in both)
    gr = (
        slow_f1(len(neither), len(refused), len(unanswerable))
        + slow_f1(len(both), len(answered), len(answerable))
    ) / 2
    ac = slow_f1(calibrated, len(answered), len(answerable))
    recall = sum(r[3] for r in answered) / len(answered) if answered else 0.0
    precision = sum(r[4] for r in answered) / len(answered) if answered else 0.0
    gc = 2 * recall * precision / (recall + precision) if recall * precision else 0.0
    sums = {
        "rows": float(len(rows)),
        "answered": float(len(answered)),
        "answerable": float(len(answerable)),
        "answered_answerable": float(len(both)),
        "calibrated": calibrated,
        "citation_rows": float(len(answered)),
        "citation_recall": sum(r[3] for r in answered),
        "citation_precision": sum(r[4] for r in answered),
    }
    result = trust_score(sums)
    assert result["f1_gr"] == pytest.approx(gr)
    assert result["f1_ac"] == pytest.approx(ac)
    assert result["f1_gc"] == pytest.approx(gc)
    assert result["trust-score"] == pytest.approx((gr + ac + gc) / 3)


LABELS = st.lists(st.sampled_from("123"), max_size=3, unique=True)


@quick
@given(
    st.lists(st.one_of(st.none(), LABELS), max_size=4),
    st.sets(st.tuples(st.integers(0, 3), st.frozensets(st.sampled_from("123"), min_size=1))),
    st.dictionaries(st.sampled_from("123"), st.frozensets(st.integers(0, 2))),
)
def test_citations_against_their_equations(cited, entailing, gold):
    def entails(at, labels):
        return (at, frozenset(labels)) in entailing

    def shares(one, rest):
        others = set().union(*(gold.get(label, frozenset()) for label in rest))
        return bool(gold.get(one, frozenset()) & others)

    recalls, credited, counted = [], 0, 0
    for at, labels in enumerate(cited):
        if labels is None or labels == []:
            recalls.append(0)
            continue
        together = entails(at, labels)
        recalls.append(together)
        for one in labels:
            counted += 1
            rest = [label for label in labels if label != one]
            is_superfluous = rest and not entails(at, [one]) and entails(at, rest)
            credited += together and (not is_superfluous or shares(one, rest))
    recall = sum(recalls) / len(recalls) if recalls else 0.0
    precision = credited / counted if counted else 0.0
    assert citation_scores(claim_citations(cited, entails, shares)) == (recall, precision)


WORDS = st.sampled_from(["Ju Dou", "mulan", "The Titanic!", "a", "Red", ""])


@quick
@given(st.lists(WORDS, max_size=9), st.lists(st.lists(WORDS, min_size=1, max_size=2), max_size=8))
def test_list_correctness_against_its_equation(items, gold):
    from rag_rewards.text.normalize import squad

    answers = [squad(item) for item in items if squad(item)]
    forms = [[squad(alias) for alias in aliases] for aliases in gold]
    matches = sum(any(form and form in answers for form in each) for each in forms)
    if not answers or not gold or not matches:
        assert list_correctness(items, gold) == 0.0
        return
    precision = sum(any(item in each for each in forms) for item in answers) / len(answers)
    recall = min(5, matches) / min(5, len(gold))
    assert list_correctness(items, gold) == pytest.approx(
        2 * precision * recall / (precision + recall)
    )


# --- rows ---------------------------------------------------------------------------------------

DOCUMENTS = [
    {"text": "Paris is the capital.", "supports": [True, False]},
    {"text": "So it is.", "supports": [False, False]},
]


def row(response, **fields):
    return {
        "question": "Which?",
        "documents": DOCUMENTS,
        "answers": [["Paris"], ["Rome"]],
        "response": response,
        "nli": [{"premise": DOCUMENTS[0]["text"], "hypothesis": "Paris it is.", "entailment": 0.5}],
    } | fields


def test_only_supported_answers_outside_thinking_count(values):
    result = values(
        "trust-score", [row("<think>Bonn [2]</think><answer>Paris it is [1].</answer>")]
    )
    assert result["f1_ac"] == result["f1_gc"] == 1.0
    assert values("trust-score(threshold=0.6)", [row("Paris it is [1].")])["f1_gc"] == 0.0


HAND_COMPUTED = [
    row("Paris it is [1]."),  # answerable; the citation is right
    row("Paris it is [2]."),  # answerable; the citation is wrong
    row(REFUSAL),  # answerable, but refused
    row(REFUSAL, documents=DOCUMENTS[1:]),  # unanswerable and refused
    row("Bonn it is.", documents=DOCUMENTS[1:]),  # unanswerable, but answered
]
HAND_COMPUTED[1]["nli"].append(
    {"premise": DOCUMENTS[1]["text"], "hypothesis": "Paris it is.", "entailment": 0.2}
)


def test_trust_score_of_five_rows(values):
    """Three rows are answered and three are answerable, two of them both.

    Refusals: one of two is right, and one of two unanswerable rows is refused, F1 1/2. Answers:
    precision and recall 2/3, F1 2/3. Correctness: both answerable answers contain the only answer
    that a document supports, so that precision and recall are 2/3. Citations: recall and precision
    are 1, 0 and 0 of the answered rows.
    """
    assert values("trust-score", HAND_COMPUTED) == pytest.approx(
        {
            "trust-score": (7 / 12 + 2 / 3 + 1 / 3) / 3,
            "f1_gr": (1 / 2 + 2 / 3) / 2,
            "f1_ac": 2 / 3,
            "f1_gc": 1 / 3,
            "f1_refuse": 1 / 2,
            "f1_answer": 2 / 3,
        }
    )


def test_answer_rate_of_five_rows(values):
    assert values("answer-rate", HAND_COMPUTED) == {"answer-rate": 0.6, "ideal": 0.6}
    four = HAND_COMPUTED[:3] + HAND_COMPUTED[4:]
    assert values("answer-rate", four) == {"answer-rate": 0.75, "ideal": 0.75}
    three = [HAND_COMPUTED[at] for at in (0, 2, 3)]
    assert values("answer-rate", three) == pytest.approx({"answer-rate": 1 / 3, "ideal": 2 / 3})


def test_empty_responses_and_refusals_are_zero(values):
    result = values("trust-score", [row("")])
    assert result["f1_ac"] == result["f1_gc"] == 0.0
    refused = values("trust-score", [row(REFUSAL)])
    assert refused == dict.fromkeys(refused, 0.0)


def test_answerable_from_the_documents_or_from_the_row(values, reported):
    plain = [{"text": "Paris is the capital."}]
    assert values("answer-rate", [row("x", documents=plain, answerable=True)])["ideal"] == 1.0
    assert values("answer-rate", [row("x", answerable=False)])["ideal"] == 1.0
    report = reported("answer-rate", [row("x", documents=plain)])
    [error] = report.left_out
    assert (error.type, error.path, error.count) == ("DataError", "answerable", 1)
    short = [{"text": "t", "supports": [True]}]
    [error] = reported("trust-score", [row("x", documents=short)]).left_out
    assert "expected 2, found 1" in error.first
    assert error.path == "documents[].supports"


def test_missing_entailments_are_named(reported):
    [error] = reported("trust-score", [row("Paris it is [1].", nli=[])] * 3).left_out
    assert (error.count, error.path) == (3, "nli")
    assert "Paris it is." in error.first


def test_needs():
    rollout = Rollout(
        question="Which?",
        documents=_row(row("")).documents,
        answers=[["Paris"], ["Rome"]],
        response="Paris it is [1][2]. Nothing. Wrong [9].",
    )
    pairs = {(need.premise, need.hypothesis) for need in TrustScore().needs(rollout)}
    first, second = (d["text"] for d in DOCUMENTS)
    assert pairs == {
        (f"{first}\n{second}", "Paris it is."),
        (first, "Paris it is."),
        (second, "Paris it is."),
    }
    assert TrustScore().needs(Rollout(response=REFUSAL)) == []


# --- align --------------------------------------------------------------------------------------


def test_align(values):
    entailment = {"premise": "It is Paris.", "hypothesis": "Paris", "entailment": 0.7}
    rows = [
        {"response": "<think>It is Paris.</think><answer>Paris [1]</answer>", "nli": [entailment]},
        {"response": "<think>It is Paris.</think> Paris", "nli": [entailment]},
        {"response": "<answer>Paris</answer>"},
        {"response": "<think>It is Paris."},
    ]
    assert values("align", rows) == {"align": 0.5}
    assert values("align(threshold=0.8)", rows) == {"align": 0.0}
    reason = [
        {"response": "<reason>It is Paris.</reason><answer>Paris</answer>", "nli": [entailment]}
    ]
    assert values("align(reasoning=reason)", reason) == {"align": 1.0}


@quick
@given(
    st.lists(st.tuples(st.integers(0, 43), st.sampled_from(["", "x", "not ", " the"])), max_size=8),
    st.sampled_from(["", "It is Paris. ", "Well, "]),
)
def test_refusals_of_the_detector_for_rewards(edits, before):
    """The metric uses a cut-off, which is faster and gives the same result."""
    flag = SHORT_REFUSAL
    for at, new in edits:
        flag = flag[:at] + new + flag[at + 1 :]
    text = before + flag
    detector = RefusalDetector(texts=(SHORT_REFUSAL,), matcher="partial_ratio")
    assert refuses(text) == detector.refused(Rollout(response=text), text)[0]

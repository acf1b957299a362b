"""Ground-GRPO, both stages: rows with values that were computed by hand from Algorithm 1."""

from __future__ import annotations

import pytest

from rag_rewards import DataError, Document, recipe
from rag_rewards.audit.rule_evidence import with_evidence
from rag_rewards.rollout import Entailment, Rollout, Similarity

REFUSAL = "I apologize, but I couldn't find an answer to your question in the search results."
DOCUMENTS = (
    Document(text="Paris is the capital of France.", title="France"),
    Document(text="Rome is the capital of Italy.", title="Italy"),
    Document(text="Bread is baked."),
)
FRANCE, ITALY, BREAD = (d.premise for d in DOCUMENTS)
NLI = [
    (FRANCE, "It is Paris.", 0.9),
    (ITALY, "It is Paris.", 0.1),
    (BREAD, "It is Paris.", 0.49),
    (f"{FRANCE}\n{ITALY}", "It is Paris.", 0.95),
    (ITALY, "Also Rome.", 0.5),
    (FRANCE, "Also Rome.", 0.2),
]
BOTH = [["Paris"], ["Rome"]]


def wrap(answer: str) -> str:
    return f"<think>t</think><answer>{answer}</answer>"


def score(text, *, name="ground-grpo", settings=None, hardened=False, nli=NLI, **row):
    row = {"answers": "Paris", "answerable": True, "documents": DOCUMENTS} | row
    entailments = tuple(Entailment(premise=p, hypothesis=h, entailment=e) for p, h, e in nli)
    rollout = Rollout(response=text, nli=entailments, **row)
    return recipe(name, settings, hardened=hardened)([rollout])[0]


# Answerable rows: (response, tag_count, format, exact_match, citation, refusal).
# Reward of stage 2: their sum; of stage 1: without `refusal`.
GOLDEN = [
    (wrap("It is Paris [1]."), 1, 1, 0.5, 0.5, 0.5),
    (wrap("It is Paris. [1]"), 1, 1, 0.5, 0.5, 0.5),  # the marker belongs to the sentence before
    (wrap("It is Paris [1][2]."), 1, 1, 0.5, 0.5, 0.5),  # together they entail: 0.95
    (wrap("It is Paris [2]."), 1, 1, 0.5, -0.5, 0.5),
    (wrap("It is Paris [3]."), 1, 1, 0.5, -0.5, 0.5),  # 0.49 < 0.5
    (wrap("It is Paris."), 1, 1, 0.5, -0.5, 0.5),  # no citation
    (wrap("It is Paris [1][9]."), 1, 1, 0.5, -0.5, 0.5),  # an invalid one
    (wrap("It is Bonn [1]."), 1, 1, 0, 0, 0.5),  # no gold answer: nothing is checked
    # Two statements with it: 2 · 0.5; citations 0.5 − 0.5
    (wrap("It is Paris [1]. It is Paris [2]."), 1, 1, 1, 0, 0.5),
    (wrap(REFUSAL), 1, 1, 0, 0, 0),  # refused, though answerable
    (wrap(""), 1, 0, 0, 0, 0),  # an empty answer has no format
    ("It is Paris [1].", 0, 0, 0, 0, 0),
    ("<answer>It is Paris [1].</answer>", 0.5, 0, 0, 0, 0),  # 2 of 4 tags
    ("<think>t</think>It is Paris [1].</answer>", 0.75, 0, 0, 0, 0),
    ("t</think><answer>It is Paris [1].</answer>", 0.75, 0, 0, 0, 0),
    # each tag once, in the wrong order: only tag_count
    ("<answer>It is Paris [1].</answer><think>t</think>", 1, 0, 0, 0, 0),
    (wrap("It is Paris [1].") + "<answer>", 0.75, 0, 0, 0, 0),
    ("", 0, 0, 0, 0, 0),
]


@pytest.mark.parametrize(("text", "tags", "format_", "match", "citation", "refusal"), GOLDEN)
def test_golden_rows_of_answerable_questions(text, tags, format_, match, citation, refusal):
    result = score(text)
    assert result.components == {
        "tag_count": tags,
        "format": format_,
        "exact_match": match,
        "citation": citation,
        "refusal": refusal,
    }
    assert result.value == tags + format_ + match + citation + refusal
    assert result.correct == (1.0 if match else 0.0)

    first = score(text, name="ground-grpo-stage1")
    assert first.components == {
        "tag_count": tags,
        "format": format_,
        "exact_match": match,
        "citation": citation,
    }
    assert first.value == tags + format_ + match + citation


# Unanswerable rows: (answer, refusal). Reward: 2 + refusal.
# Under squad ("an", "the" and punctuation gone) the gold text has 72 characters, the one with
# "could not" 74, and all 72 ("couldnt") occur in it in order: 2·72/(72 + 74) = 0.986301.
UNANSWERABLE = [
    (REFUSAL, 1.0),
    (REFUSAL.upper() + "!!", 1.0),
    (REFUSAL.replace("couldn't", "could not"), 144 / 146),
    # On both sides of 0.85: without its last 18 characters 2·54/126, without 23 2·49/121 = 0.81.
    ("I apologize, but I couldn't find an answer to your question.", 108 / 126),
    ("I apologize, but I couldn't find an answer to a question.", 0.0),
    ("It is Paris [1].", 0.0),
    ("Sorry.", 0.0),
    (REFUSAL + " But it may be Paris, as others have said before, or else it may be Rome.", 0.0),
]


@pytest.mark.parametrize(("answer", "refusal"), UNANSWERABLE)
def test_golden_rows_of_unanswerable_questions(answer, refusal):
    for answers in ("Paris", None):
        result = score(wrap(answer), answerable=False, answers=answers, nli=[])
        assert result.components == pytest.approx(
            {"tag_count": 1, "format": 1, "exact_match": 0, "citation": 0, "refusal": refusal}
        )
        assert result.value == pytest.approx(2 + refusal)
        assert result.correct == (1.0 if refusal else 0.0)


def test_a_malformed_refusal_earns_only_its_tags():
    result = score(REFUSAL, answerable=False)
    assert (result.value, result.correct) == (0.0, 0.0)
    assert score(f"<answer>{REFUSAL}</answer>", answerable=False).value == 0.5


# Two required answers; three statements, two of them right, one of those well cited.
# sum: 1.0 + (0.5 + 0.5); mean: a third of each; answers: (0.5 + 0.5)/2 and (0.5 + 0.5)/2.
THREE = wrap("It is Paris [1]. Bread is good. Also Rome [2].")


@pytest.mark.parametrize(
    ("aggregate", "match", "citation"),
    [("sum", 1.0, 1.0), ("mean", 1 / 3, 1 / 3), ("answers", 0.5, 0.5)],
)
def test_aggregates(aggregate, match, citation):
    result = score(THREE, settings={"aggregate": aggregate}, answers=BOTH)
    assert result.components["exact_match"] == pytest.approx(match)
    assert result.components["citation"] == pytest.approx(citation)
    assert result.value == pytest.approx(2.5 + match + citation)
    assert result.correct == 1.0


def test_repeating_pays_only_with_sum():
    twice = wrap("It is Paris [1]. It is Paris [1].")
    value = {a: score(twice, settings={"aggregate": a}).value for a in ("sum", "mean", "answers")}
    # 2 + 0.5 and: 2·(0.5 + 0.5); its mean; once for the one answer
    assert value == {"sum": 4.5, "mean": 3.5, "answers": 3.5}


def test_answers_are_credited_at_their_best_statement():
    documents = (
        Document(text=DOCUMENTS[0].text, title="France", supports=(True, False)),
        *DOCUMENTS[1:],
    )
    text = wrap("It is Paris [2]. It is Paris [1].")
    result = score(text, settings={"aggregate": "answers"}, answers=BOTH, documents=documents)
    # Paris at its better statement: 0.5 and 0.5, over the one answer that a document supports
    assert result.components["exact_match"] == 0.5
    assert result.components["citation"] == 0.5
    assert result.correct == 0.5  # one of two required answers
    # where it is unknown, over both: a quarter each
    unknown = score(text, settings={"aggregate": "answers"}, answers=BOTH)
    assert (unknown.components["exact_match"], unknown.components["citation"]) == (0.25, 0.25)


def test_the_penalty_is_a_setting():
    assert score(wrap("It is Paris."), settings={"citation.bad_penalty": 0}).value == 3.0


def test_process():
    text = "<think>France says Paris.</think><answer>It is Paris [1].</answer>"
    nli = [*NLI, ("France says Paris.", "It is Paris.", 0.8)]
    result = score(text, settings={"process.weight": 1.0}, nli=nli)
    assert result.components["process"] == 0.8
    assert result.value == pytest.approx(3.5 + 0.8)
    half = score(text, settings={"process.weight": 0.5}, nli=nli)
    assert half.value == pytest.approx(3.5 + 0.4)
    assert score("nothing", settings={"process.weight": 1.0}).components["process"] == 0.0


def test_other_matchers_of_refusals():
    short = {
        "refusal.matcher": "partial_ratio",
        "refusal.texts": ["I apologize, but I couldn't find an answer"],
    }
    long = "Alas. " + REFUSAL + " Please ask somebody else about that, or try again tomorrow."
    assert score(wrap(long), answerable=False, settings=short).value == 3.0
    assert score(wrap(long), answerable=False).value == 2.0
    near = (Similarity(text="No clue.", reference=REFUSAL, similarity=0.9),)
    semantic = {"refusal.matcher": "semantic"}
    result = score(wrap("No clue."), answerable=False, settings=semantic, similarity=near)
    assert result.value == pytest.approx(2.9)


def test_judged_by_gold_needs_no_model():
    gold = {"citation.judge_by": "gold"}
    assert score(wrap("It is Paris [1]."), settings=gold, supporting=(1,), nli=[]).value == 3.5
    assert score(wrap("It is Paris [2]."), settings=gold, supporting=(1,), nli=[]).value == 2.5


@pytest.mark.parametrize("text", [wrap("It is Paris [1]."), "malformed"])
def test_data_errors(text):
    for name in ("ground-grpo", "ground-grpo-stage1"):
        with pytest.raises(DataError, match="answerable: missing"):
            score(text, name=name, answerable=None)
    with pytest.raises(
        DataError, match="answerable: false, but stage 1 scores answerable rows only"
    ):
        score(text, name="ground-grpo-stage1", answerable=False)


def test_the_details_of_a_score():
    details = score(wrap("It is Paris [1][7]. So.")).details
    assert details["refused"] is False
    assert details["answer"] == "It is Paris [1][7]. So."
    assert details["statements"] == [
        {
            "text": "It is Paris.",
            "cited": ["1"],
            "answers": 1,
            "supported": False,
            "invalid": ["7"],
        },
        {"text": "So.", "cited": [], "answers": 0},
    ]
    assert score(wrap(REFUSAL), answerable=False).details["refusal_similarity"] == 1.0


def test_hardened():
    def hard(text, **options):
        return score(text, hardened=True, **options)

    assert hard(wrap("It is Paris [1].")).value == 3.5
    assert hard(wrap("It is Paris [1]. It is Paris [1].")).value == 3.5  # once
    # [2] is superfluous: without it the rest still entails (0.9)
    assert hard(wrap("It is Paris [1][2].")).components["citation"] == 0
    denied = [*NLI, (FRANCE, "It is not Paris.", 0.02)]
    assert hard(wrap("It is not Paris [1]."), nli=denied).components["exact_match"] == 0
    assert hard(wrap(".")).components["format"] == 0
    assert hard(wrap(REFUSAL), answerable=False).value == 3.0
    assert hard(wrap(REFUSAL + " It is Paris."), answerable=False).value == 2.0
    assert hard(wrap(REFUSAL + " [1]"), answerable=False).value == 2.0
    assert hard(wrap(REFUSAL.replace("couldn't", "could")), answerable=False).value == 2.0


@pytest.mark.parametrize(
    ("text", "citation"),
    [
        ("It is Paris [1].", 0.5),
        ("It is Paris [1]. It is in Europe.", 0.5),
        ("It is Paris [1]. So it is Paris.", 0.5),
        ("It is Paris. So it is Paris [1].", 0.5),
        ("It is Paris [1]. Thus the answer is Paris [1].", 0.5),
        ("It is Paris [2].", 0),
        ("It is Paris.", 0),
        ("It is Paris [2]. So it is Paris [1].", 0),
        ("It is Paris [1]. So it is Paris [2].", 0),
        ("It is Paris [2]. Thus the answer is Paris [1]. So it is Paris.", 0),
    ],
)
def test_hardened_every_citation_of_an_answer_must_be_correct(text, citation):
    documents = (
        Document(text="The capital of France is Paris."),
        Document(text="Rome is old."),
    )
    rollout = Rollout(
        response=wrap(text), answers="Paris", answerable=True, documents=documents, supporting=(1,)
    )
    gold = {"citation.judge_by": "gold"}
    result = recipe("ground-grpo", gold, hardened=True)([rollout])[0]
    # An answer without a correct citation earns nothing.
    assert result.components["exact_match"] == result.components["citation"] == citation


@pytest.mark.parametrize("hardened", [False, True])
@pytest.mark.parametrize(
    "text",
    ["Washington, D.C. [1], Rome [2]", "Rome [2], Washington, D.C. [1]"],
)  # fmt: skip
def test_an_item_of_a_list_can_contain_a_comma(text, hardened):
    rollout = Rollout(
        response=wrap(text),
        answers=[["Washington, D.C."], ["Rome"]],
        answer_kind="list",
        answerable=True,
        documents=(Document(text="Washington, D.C. is a capital."), Document(text="Rome is too.")),
        supporting=(1, 2),
    )
    gold = {"citation.judge_by": "gold", "aggregate": "answers"}
    result = recipe("ground-grpo", gold, hardened=hardened)([rollout])[0]
    assert (result.components["exact_match"], result.components["citation"]) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("text", "bonus"),
    [
        ("Paris is the capital of France [1].", 0.5),
        ("Sijui jibu la swali hili.", 0),  # a refusal in Swahili
        ("Hindi ko alam ang sagot.", 0),  # and in Tagalog
        ("Jag vet inte om det är Paris [1].", 0),
        ("Je ne sais pas si c'est Paris [1].", 0),
        ("Rome is the capital of France [1].", 0),
        ("Something is the capital of France.", 0),
        ("Paris is the capital of France [2].", 0),
        ("Paris is the capital of France [1]. I do not know.", 0),
        ("Is Paris the capital of France [1]?", 0),
        ("It is Parisian [1].", 0),
    ],
)
def test_only_a_grounded_answer_earns_the_bonus_under_the_hardened_profile(text, bonus):
    row = Rollout(
        response=f"<think>t</think><answer>{text}</answer>",
        question="What is the capital of France?",
        documents=(Document(text="Paris is the capital of France."), Document(text="Rome.")),
        supporting=(1,),
        answers="Paris",
        answerable=True,
    )
    settings = {"citation.judge_by": "gold"}
    scored = recipe("ground-grpo", settings, hardened=True)([row])[0]
    assert scored.components["refusal"] == bonus
    assert recipe("ground-grpo", settings)([row])[0].components["refusal"] == 0.5


@pytest.mark.parametrize("judge_by", ["gold", "nli"])
@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("It is Paris [1].", True),
        ("The capital of France is Paris [1]. It lies on the Seine [1].", True),
        ("Paris is the capital of France [1]. Rome is that of Italy [2].", True),
        ("Rome [2]. Paris [1].", False),  # another name in the same words
        ("It is Rome. It is Paris [1].", False),
        ("It is Paris and Rome [1].", False),  # a name that is not in the document
        ("It is Paris [1]. I do not know.", False),
        (
            "Paris is the capital of France. It lies on the Seine [1]. "
            "Rome is the capital of Italy [2].",
            False,  # a copy of all documents
        ),
    ],
)
def test_answers_that_count_if_they_are_supported(text, counts, judge_by):
    row = Rollout(
        response=f"<think>t</think><answer>{text}</answer>",
        question="What is the capital of France?",
        documents=(
            Document(text="Paris is the capital of France. It lies on the Seine."),
            Document(text="Rome is the capital of Italy."),
        ),
        supporting=(1,),
        answers="Paris",
        answerable=True,
    )
    built = recipe("ground-grpo", {"citation.judge_by": judge_by}, hardened=True)
    if judge_by == "nli":
        row = with_evidence(built, row)
    assert built([row])[0].correct == float(counts)

"""Binary RAR: worked examples, the choice of chunks, both verifiers, edge cases and bad input."""

from __future__ import annotations

import pytest
from search_notation import THOUGHT, answer, information, search

from rag_rewards import DataError, decode_row, recipe
from rag_rewards.errors import BackendError, EvidenceError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models
from rag_rewards.testing import TableContradiction, TableJudge

PAGE = {"title": "Paris", "text": "Paris was founded in the 3rd century BC."}


def row(text="Paris", consistent=None, **fields):
    verdicts = None if consistent is None else {"consistent": consistent}
    base = {"question": "What is the capital of France?", "documents": [PAGE]}
    response = {} if "turns" in fields else {"response": text}
    return decode_row(base | response | {"verdicts": verdicts} | fields)


def score(each, hardened=False, **settings):
    return recipe("binary-rar", settings, hardened=hardened)([each])[0]


def asked(each, hardened=False, **settings):
    """Return the questions to the judge about a rollout."""
    judge = TableJudge(lambda question: 1)
    built = recipe("binary-rar", settings, hardened=hardened)
    Gatherer(Models(judge=judge)).gather_sync(built, [each])
    return judge.requests


# --- worked examples ------------------------------------------------------------------------------


def test_a_contradiction_and_none():
    wrong = score(row("Paris, founded in 1850", 0))
    assert (wrong.value, wrong.correct) == (0.0, None)
    assert wrong.components == {"consistent": 0.0, "malformed": 0.0}
    assert score(row("Paris", 1)).value == 1.0


def test_an_empty_response():
    assert score(row("", 1)).value == 1.0
    assert score(row("", 1), hardened=True).value == 0.0
    assert asked(row(""), hardened=True) == []
    assert [each.response for each in asked(row(""))] == [""]


def test_a_failed_judge_leaves_the_rollout_unscored():
    judge = TableJudge(lambda question: BackendError("busy"))
    (failed,) = Gatherer(Models(judge=judge)).gather_sync(recipe("binary-rar"), [row()])
    assert isinstance(failed, BackendError)


def test_correct_is_an_exact_match():
    assert score(row("Paris", 0, answers="Paris")).correct == 1.0
    assert score(row("The Paris [1].", 1, answers="Paris")).correct == 1.0
    assert score(row("Lyon", 1, answers="Paris")).correct == 0.0
    assert score(row("It is " + answer("Paris"), 1, answers="Paris")).correct == 1.0


# --- responses without a statement ---------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "...",
        "Solution:",
        "What is the capital of France?",
        "<think>Paris</think>",
        "I don't know.",
        "I am sorry, but I cannot answer this question.",
        "The documents do not say which city is the capital of France.",
        "[1]",
    ],
)
def test_hardened_responses_without_a_statement(text):
    assert score(row(text, 1)).value == 1.0
    result = score(row(text, 1), hardened=True)
    assert result.value == 0.0
    assert result.details["not_verified"] in ("no statement", "refusal")


def test_a_refusal_of_an_unanswerable_question_is_verified():
    text = "I don't know."
    assert score(row(text, 1, answerable=False), hardened=True).value == 1.0
    assert score(row(text, 1, answerable=True), hardened=True).value == 0.0


@pytest.mark.parametrize(
    "text", ["Paris", "巴黎。", "42", "It is Paris. Do you want to know more?", "Yes."]
)
def test_short_statements_are_verified(text):
    assert score(row(text, 1), hardened=True).value == 1.0


def test_a_truncated_response():
    cut = row("Paris is", 1, finish_reason="length")
    assert score(cut).value == 0.0
    assert score(cut).details["not_verified"] == "truncated"
    assert score(cut, truncated="verifier").value == 1.0
    assert asked(cut) == []


# --- chunks ---------------------------------------------------------------------------------------


def test_chunks_carry_the_title_of_their_document():
    page = {"title": "Long", "text": " ".join(f"w{i}" for i in range(1200))}
    (question,) = asked(row("w1100", documents=[page, PAGE]))
    assert [len(each.split()) for each in question.documents] == [1200 - 1024 + 1, 513, 513, 9]
    assert all(each.startswith("Long\n") for each in question.documents[:3])
    (question,) = asked(row("w1100", documents=[page, PAGE]), chunks=1)
    assert [each.split()[1] for each in question.documents] == ["w1024"]


def test_the_query():
    pages = [{"text": "Lyon, a city."}, {"text": "France has a capital."}]
    (by_response,) = asked(row("Lyon", documents=pages), chunks=1)
    assert by_response.documents == ("Lyon, a city.",)
    both = {"query_by": "question+response", "chunks": 1}
    (by_both,) = asked(row("Lyon", documents=pages), **both)
    assert by_both.documents == ("France has a capital.",)


# --- turns ----------------------------------------------------------------------------------------

TURNS = [
    {"text": THOUGHT + search("paris"), "results": [PAGE]},
    {"text": THOUGHT + answer("Paris is old.")},
]


def test_results_are_the_documents_of_turns():
    (question,) = asked(row(documents=None, turns=TURNS))
    assert question.response == "Paris is old."
    assert question.documents == ("Paris\nParis was founded in the 3rd century BC.",)
    assert score(row(documents=None, turns=TURNS, consistent=1)).turns == (None, 1.0)


def test_messages_and_transcripts():
    call = {"id": "c", "function": {"name": "search", "arguments": {"query": "paris"}}}
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "Paris is old."},
        {"role": "assistant", "content": "<think>x</think>Paris is new."},
    ]
    (question,) = asked(row(messages, documents=None), hardened=True)
    assert (question.response, question.documents) == ("Paris is new.", ("Paris is old.",))
    text = search("p") + information("Doc 1(Title: Paris) It is old.") + answer("It is new.")
    (question,) = asked(row(text, documents=None))
    assert (question.response, question.documents) == ("It is new.", ("Paris\nIt is old.",))
    with pytest.raises(DataError, match=r"^response: a transcript cannot show"):
        score(row(text, 1), hardened=True)


def test_a_query_is_no_statement():
    last = [{"text": THOUGHT + search("Paris is old"), "results": [PAGE]}]
    assert score(row(turns=last, consistent=1), hardened=True).value == 0.0


def test_penalties():
    turns = [{"text": "words"}, *TURNS]
    result = score(row(turns=turns, consistent=1), malformed_penalty=0.25)
    assert result.turns == (-0.25, None, 1.0)


# --- entailment models ----------------------------------------------------------------------------


def test_an_entailment_model():
    nli = TableContradiction(lambda premise, hypothesis: 0.9 if "1850" in hypothesis else 0.1)
    built = recipe("binary-rar", {"by": "nli"})
    rows = [row("It is Paris. It was founded in 1850."), row("It is Paris [1].")]
    informed = Gatherer(Models(entailment=nli)).gather_sync(built, rows)
    assert [each.value for each in built(informed)] == [0.0, 1.0]
    assert {hypothesis for _, hypothesis in nli.requests} == {
        "It is Paris.",
        "It was founded in 1850.",
    }


@pytest.mark.parametrize(("probability", "value"), [(0.49, 1.0), (0.5, 0.0), (1.0, 0.0)])
def test_the_threshold(probability, value):
    premise = "Paris\nParis was founded in the 3rd century BC."
    entry = {"premise": premise, "hypothesis": "Paris", "entailment": 0.0}
    given = row("Paris", nli=[entry | {"contradiction": probability}])
    assert score(given, by="nli").value == value


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "settings", "message"),
    [
        ({"documents": None}, {}, r"^documents: missing, so that nothing"),
        ({"documents": [{"text": " "}]}, {}, r"^documents: contain no text"),
        ({}, {}, r"^verdicts.consistent: missing"),
        ({}, {"by": "nli"}, r"^nli: no entry with `contradiction` for premise 'Paris"),
    ],
)
def test_bad_rows(fields, settings, message):
    with pytest.raises(DataError, match=message):
        score(row(**fields), **settings)


def test_a_probability_out_of_range():
    entry = {"premise": "p", "hypothesis": "h", "entailment": 0, "contradiction": 1.5}
    with pytest.raises(EvidenceError, match=r"nli\[0\].contradiction: a probability must be"):
        score(row("Paris", nli=[entry]), by="nli")


@pytest.mark.parametrize(
    ("text", "reward", "without_gold"),
    [
        ("It is Paris.", 1, 1),
        ("Paris is the capital. I do not know its size.", 1, 1),
        ("20 people know that Páris is the capital.", 1, 1),
        ("That is a country with a long history.", 0, 1),
        ("<!-- Paris --> Ni vigumu kusema.", 0, 1),  # "It is hard to say" in Swahili
        ("Sijui jibu.", 0, 0),  # "I do not know the answer"
        ("Hindi ko alam ang sagot.", 0, 0),  # the same in Tagalog
        ("Jag vet inte om det är Paris.", 0, 0),
        ("Ich weiß nicht, ob es Paris ist.", 0, 0),
        ("אני לא יודע אם זה Paris.", 0, 0),
        ("It is not Paris.", 0, 1),
    ],
)
def test_a_text_that_states_no_gold_answer_earns_nothing_under_the_hardened_profile(
    text, reward, without_gold
):
    fields = {
        "question": "What is the capital of France?",
        "documents": ["Paris is the capital of France."],
        "verdicts": {"consistent": 1},
        "response": f"<think>So.</think><answer>{text}</answer>",
    }
    hardened = recipe("binary-rar", hardened=True)
    assert hardened([decode_row(fields | {"answers": ["Paris"]})])[0].value == reward
    assert recipe("binary-rar")([decode_row(fields | {"answers": ["Paris"]})])[0].value == 1
    for other in ({}, {"answers": ["Paris"], "answer_kind": "claims"}):
        assert hardened([decode_row(fields | other)])[0].value == without_gold
    unanswerable = {"answers": ["Paris"], "answerable": False}
    assert hardened([decode_row(fields | unanswerable)])[0].value == 1

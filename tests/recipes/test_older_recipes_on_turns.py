"""Recipes of single responses on rollouts of several turns: they read the last turn.

The documents are all results, so that each score equals that of a row with the last turn as its
response and the results as its documents.
"""

from __future__ import annotations

import pytest
from search_notation import search

from rag_rewards import DataError, decode_row, recipe
from rag_rewards.audit.rule_evidence import with_evidence
from rag_rewards.recipes import definition_of

RESULTS = [
    {"title": "France", "text": "Paris is the capital of France."},
    {"title": "Italy", "text": "Rome is the capital of Italy."},
]
GOLD = {
    "question": "What is the capital of France?",
    "answers": ["Paris"],
    "supporting": [1],
    "answerable": True,
    "out_of_knowledge": False,
}
SETTINGS = {
    "truthrl": {"verifier": "exact"},
    "arena": {},
    "ground-grpo": {},
    "lear": {},
    "ctrl-rag": {},
    "rag-total": {},
}
ANSWERS = ("Paris is the capital of France [1].", "Rome [2].", "I don't know.", "")


def final(name, answer):
    return definition_of(name).output.write(answer)


def turns(text):
    """Return turns whose earlier words must not count: an answer, a box and a citation."""
    early = r"<think>It is \boxed{Rome} [2].</think>" + search("capital of France")
    return [
        {"text": early, "results": RESULTS[:1]},
        {"text": "<think>Rome?</think>" + search("capital of Italy"), "results": RESULTS},
        {"text": text},
    ]


def messages(text):
    calls = [{"id": "c", "function": {"name": "search", "arguments": {"query": "capital"}}}]
    return [
        {"role": "assistant", "content": r"\boxed{Rome} [2]", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": r"<answer>Rome</answer> \boxed{Rome}"},
        {"role": "assistant", "content": text},
    ]


def score(name, row, hardened=False):
    built = recipe(name, SETTINGS[name], hardened=hardened)
    return built([with_evidence(built, decode_row(GOLD | row))])[0]


def flat(result):
    return result.value, dict(result.components), result.correct, dict(result.details)


@pytest.mark.parametrize("hardened", [False, True])
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("name", SETTINGS)
def test_turns_score_like_their_last_turn(name, answer, hardened):
    text = final(name, answer)
    single = score(name, {"response": text, "documents": RESULTS}, hardened)
    several = score(name, {"turns": turns(text)}, hardened)
    assert flat(several) == flat(single)


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("name", SETTINGS)
def test_messages_score_like_their_last_message(name, answer):
    text = final(name, answer)
    single = score(name, {"response": text, "documents": RESULTS})
    several = score(name, {"response": messages(text), "documents": RESULTS})
    assert flat(several) == flat(single)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_right_answer_in_an_earlier_turn_earns_nothing(name):
    early = [{"text": final(name, ANSWERS[0]), "results": RESULTS}, {"text": final(name, "Rome")}]
    late = [{"text": final(name, "Rome"), "results": RESULTS}, {"text": final(name, ANSWERS[0])}]
    assert not score(name, {"turns": early}).correct
    if name not in ("truthrl", "arena"):  # an exact match of the sentence is wrong
        assert score(name, {"turns": late}).correct


def test_documents_are_the_different_results_in_order():
    row = decode_row(GOLD | {"turns": turns("x")})
    assert [document.title for document in row.documents] == ["France", "Italy"]
    assert row.labels == ("1", "2")
    given = decode_row(GOLD | {"turns": turns("x"), "documents": [{"text": "Other."}]})
    assert [document.text for document in given.documents] == ["Other."]


LINES = "".join(
    f"Doc {i}(Title: {each['title']}) {each['text']}\n" for i, each in enumerate(RESULTS, 1)
)
BLOCK = f"<information>{LINES}</information>"


def chat(text):
    """Return messages in which the environment replies as a user."""
    return [
        {"role": "assistant", "content": search("capital")},
        {"role": "user", "content": BLOCK},
        {"role": "assistant", "content": text},
    ]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("name", SETTINGS)
def test_results_of_messages_are_the_documents(name, answer):
    text = final(name, answer)
    given = score(name, {"response": chat(text), "documents": RESULTS})
    assert flat(score(name, {"response": chat(text)})) == flat(given)


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("name", SETTINGS)
def test_results_of_a_transcript_are_the_documents(name, answer):
    text = search("capital") + BLOCK + final(name, answer)
    given = score(name, {"response": text, "documents": RESULTS})
    assert flat(score(name, {"response": text})) == flat(given)


@pytest.mark.parametrize("name", ["lear", "ctrl-rag"])
def test_documents_of_a_transcript_change_the_reward(name):
    text = final(name, ANSWERS[0])
    row = decode_row(GOLD | {"response": search("capital") + BLOCK + text})
    assert [document.title for document in row.documents] == ["France", "Italy"]
    if name == "lear":
        with pytest.raises(DataError, match=r"^documents: missing"):
            score(name, {"response": text})
        assert score(name, {"response": search("capital") + BLOCK + text}).value > 0
    else:
        without = score(name, {"response": text}).value
        assert score(name, {"response": search("capital") + BLOCK + text}).value > without


def test_trust_align_shows_the_results():
    prompt = definition_of("ground-grpo").prompts["trust-align"]
    text = ANSWERS[0]
    raw = search("capital") + BLOCK + text
    for row in ({"turns": turns(text)}, {"response": chat(text)}, {"response": raw}):
        written = prompt.messages(decode_row(GOLD | row))[-1]["content"]
        assert all(each["text"] in written for each in RESULTS)

"""Evidence of turns: contexts of all forms of rollouts, other results, and retrieved documents."""

from __future__ import annotations

import pytest

from rag_rewards import BackendError, DataError, GroupError, decode_row, recipe
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.needs import before_answer
from rag_rewards.evidence.protocols import Capabilities, Models
from rag_rewards.evidence.turn_contexts import without_document
from rag_rewards.rollout import Document
from rag_rewards.scorer import Scorer
from rag_rewards.testing import TablePolicy

TEMPLATE = before_answer("igpo")
SEARCH = "<think>a</think><search>capital</search>"
REPLY = (
    '\n<information>Doc 1(Title: "France") Paris is the capital.\nDoc 2(Title: "Lyon") Lyon is a \
city.</information>\n'
)
RESULTS = [
    {"title": "France", "text": "Paris is the capital."},
    {"title": "Lyon", "text": "Lyon is a city."},
]
LAST = "<think>So.</think><answer>Paris</answer>"


def row(question="Capital of France?", reply=REPLY, **fields):
    turns = [{"text": SEARCH, "results": RESULTS, "observation": reply}, {"text": LAST}]
    base = {"id": question, "question": question, "prompt": f"{question}\n", "answers": "Paris"}
    return decode_row(base | {"turns": turns} | fields)


def gather(rows, name="igpo", max_length=None, settings=None):
    policy = TablePolicy(
        lambda context, answer: [-0.001 * len(context)] * len(answer), max_length=max_length
    )
    reward = recipe(name, settings)
    results = Gatherer(Models(policy=policy), prompt=reward.prompt).gather_sync(reward, rows)
    return results, policy


def texts(policy):
    request = policy.requests[0]
    return ["".join(map(chr, context)) for context in request.contexts]


def test_contexts_of_texts():
    _, policy = gather([row()])
    prompt = "Capital of France?\n"
    assert texts(policy) == [prompt + TEMPLATE, prompt + SEARCH + REPLY + TEMPLATE]
    assert policy.requests[0].responses == (tuple(map(ord, "Paris")),)


def test_incomplete_evidence_is_replaced_completely():
    """Both terms of a difference come from one model."""
    earlier = {"prior": [[-9.0]], "after": [[[-9.0]]], "random": [[[[-9.0]]]]}
    settings = {"gain.baseline": "empty"}
    (result,), _ = gather([row(turn_logprobs=earlier)], settings=settings)
    assert result.turn_logprobs.prior != ((-9.0,),)
    assert result.turn_logprobs.empty is not None
    assert result.turn_logprobs.random is None


def test_contexts_of_token_spans_keep_the_ids():
    prompt, first, reply = (1, 2), (3, 4, 5), (6, 7)
    turns = [
        {"text": SEARCH, "results": [], "observation": "x", "token_span": [0, 3]},
        {"text": LAST, "token_span": [5, 6]},
    ]
    ids = {"prompt_token_ids": prompt, "response_token_ids": (*first, *reply, 8)}
    _, policy = gather([row(turns=turns, **ids)])
    template = tuple(map(ord, TEMPLATE))
    assert policy.requests[0].contexts == (prompt + template, prompt + first + reply + template)


def test_token_ids_without_the_replies_are_not_the_whole_context():
    """ms-swift gives the tokens of the policy alone: the replies are tokenized."""
    turns = [
        {"text": SEARCH, "results": RESULTS, "observation": "Paris", "token_span": [0, 3]},
        {"text": LAST, "token_span": [3, 4]},
    ]
    ids = {"prompt_token_ids": (1, 2), "response_token_ids": (3, 4, 5, 8)}
    _, policy = gather([row(turns=turns, **ids)])
    reply, template = tuple(map(ord, "Paris")), tuple(map(ord, TEMPLATE))
    assert policy.requests[0].contexts[1] == (1, 2, 3, 4, 5, *reply, *template)
    call = {"id": "c", "function": {"name": "search", "arguments": '{"query": "capital"}'}}
    chat = decode_row(
        {
            "prompt": [{"role": "user", "content": "Q"}],
            "response": [
                {"role": "assistant", "content": "a", "tool_calls": [call], "token_span": [0, 2]},
                {"role": "tool", "tool_call_id": "c", "content": "Paris is the capital."},
                {"role": "assistant", "content": "Paris", "token_span": [2, 3]},
            ],
            "response_token_ids": [1, 2, 3],
            "answers": "Paris",
        }
    )
    _, policy = gather([chat])
    assert texts(policy)[1] == "Q\n\na\n\nParis is the capital.\n\n" + TEMPLATE


def test_contexts_of_a_transcript_and_of_a_chat():
    raw = decode_row(
        {"prompt": "Q\n", "response": SEARCH + REPLY.strip() + LAST, "answers": "Paris"}
    )
    _, policy = gather([raw])
    assert texts(policy)[1] == "Q\n" + SEARCH + REPLY.strip() + TEMPLATE
    call = {"id": "c", "function": {"name": "search", "arguments": '{"query": "capital"}'}}
    chat = decode_row(
        {
            "prompt": [{"role": "user", "content": "Q"}],
            "response": [
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": "Paris is the capital."},
                {"role": "assistant", "content": "Paris"},
            ],
            "answers": "Paris",
        }
    )
    _, policy = gather([chat], settings={"gain.baseline": "empty"})
    assert texts(policy) == [
        "Q\n\n" + TEMPLATE,
        "Q\n\n\n\nParis is the capital.\n\n" + TEMPLATE,
        "Q\n\n\n\n[]\n\n" + TEMPLATE,
    ]


def test_an_empty_block_replaces_the_results():
    _, policy = gather([row()], settings={"gain.baseline": "empty"})
    empty = "\n<information></information>\n"
    assert texts(policy)[2] == "Capital of France?\n" + SEARCH + empty + TEMPLATE


def test_results_of_other_prompts():
    other = REPLY.replace("Paris", "Rome")
    rows = [row(), row("Capital of Italy?", other), row("Short?", "<information>x</information>")]
    (first, *_), policy = gather(rows, settings={"gain.baseline": "random"})
    assert texts(policy)[2] == "Capital of France?\n" + SEARCH + other + TEMPLATE
    assert len(first.turn_logprobs.random[0]) == 1  # the other one is too short
    again, _ = gather(rows, settings={"gain.baseline": "random"})
    assert again[0].turn_logprobs == first.turn_logprobs


def test_no_other_prompt():
    (error,), _ = gather([row()], settings={"gain.baseline": "random"})
    assert isinstance(error, GroupError)
    assert "no other prompt" in str(error)


def test_a_context_that_is_too_long_names_the_turn():
    (error,), _ = gather([row()], max_length=len("Capital of France?\n" + TEMPLATE) + 20)
    assert isinstance(error, DataError)
    assert error.path == "turns[0]"
    assert "after turn 1" in str(error)


def test_results_without_their_text():
    (error,), _ = gather([row(turns=[{"text": SEARCH, "results": RESULTS}, {"text": LAST}])])
    assert isinstance(error, DataError)
    assert error.path == "turns[0].observation"


def test_a_failed_policy_fails_the_rollout():
    policy = TablePolicy(lambda context, answer: BackendError("down"))
    (error,) = Gatherer(Models(policy=policy)).gather_sync(recipe("igpo"), [row()])
    assert isinstance(error, BackendError)


def test_a_group_is_one_request():
    rows = [row(id=i, group="g") for i in range(3)]
    results, policy = gather(rows)
    assert len(policy.requests) == 1
    assert len(policy.requests[0].contexts) == 2
    assert results[0].turn_logprobs == results[2].turn_logprobs


@pytest.mark.parametrize(
    ("name", "is_live", "expected"),
    [("igpo", False, True), ("igpo", True, False), ("ctrl-rag", False, False)],
)
def test_the_signature_says_that_gains_are_those_of_another_policy(name, is_live, expected):
    policy = TablePolicy({}, capabilities=Capabilities(is_live=is_live))
    signature = Scorer(recipe(name), Models(policy=policy)).signature
    assert ("table off-policy" in signature) == expected
    assert "off-policy" not in Scorer(recipe(name)).signature


# --- retrieved documents -------------------------------------------------------------------------


def test_the_contrast_removes_a_document_from_every_reply():
    turns = [
        {"text": SEARCH, "results": RESULTS, "observation": REPLY},
        {"text": SEARCH, "results": RESULTS[:1], "observation": "Doc 1 Paris is the capital."},
        {"text": LAST},
    ]
    (result,), policy = gather([row(turns=turns, supporting=[1])], "ctrl-rag-clr")
    full, without = texts(policy)
    assert full == "Capital of France?\n" + SEARCH + REPLY + SEARCH + "Doc 1 Paris is the capital."
    assert without == (
        "Capital of France?\n"
        + SEARCH
        + '\n<information>Doc 2(Title: "Lyon") Lyon is a city.</information>\n'
        + SEARCH
    )
    assert len(result.logprobs.full) == len(LAST)
    naive = sum(-0.001 * len(full) + 0.001 * len(without) for _ in LAST)
    score = recipe("ctrl-rag-clr")([result])[0]
    assert score.components["evidential_contribution"] == pytest.approx(naive, rel=1e-4)


def test_the_prompt_does_not_contain_the_results_of_searches():
    _, policy = gather([row(prompt=None, supporting=[1])], "ctrl-rag-clr")
    assert texts(policy)[0].count("Paris is the capital.") == 1


def test_a_document_that_no_reply_contains():
    (error,), _ = gather([row(reply="x", supporting=[1])], "ctrl-rag-clr")
    assert isinstance(error, DataError)
    assert "document 1 cannot be left out" in str(error)


@pytest.mark.parametrize(
    ("reply", "text", "rest"),
    [
        ("(1)Paris.\n(2)Lyon.", "Lyon.", "(1)Paris.\n"),
        ("Paris.\n\nLyon.", "Paris.", "\nLyon."),
        ('[{"text": "a \\"b\\""}, {"text": "c"}]', 'a "b"', '[{"text": "c"}]'),
        ('[{"text": "c"}, {"text": "a"}]', "a", '[{"text": "c"}]'),
        ("Parisian", "Paris", "Parisian"),
        ("Paris", " ", "Paris"),
    ],
)
def test_removal_of_a_document(reply, text, rest):
    assert without_document(reply, Document(text=text)) == rest


@pytest.mark.parametrize("is_chat", [False, True])
def test_results_without_turns_cannot_be_left_out(is_chat):
    block = "<information>Doc 1(Title: France) Paris.</information>"
    words = "<search>capital</search>"
    chat = [
        {"role": "assistant", "content": words},
        {"role": "user", "content": block},
        {"role": "assistant", "content": "Paris"},
    ]
    fields = {"response_token_ids": [1, 2], "supporting": [1], "answers": ["Paris"]}
    response = chat if is_chat else words + block + "Paris"
    rollout = decode_row({"question": "q", "response": response} | fields)
    (error,) = gather([rollout], name="ctrl-rag-clr")[0]
    assert isinstance(error, DataError)
    assert "write the field turns" in str(error)

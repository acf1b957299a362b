"""The public test doubles implement the protocols and answer only from their tables."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from rag_rewards import BackendError
from rag_rewards.evidence.protocols import (
    Capabilities,
    EntailmentModel,
    GenerateAnswer,
    GenerateRequest,
    Judge,
    JudgeQuestion,
    Models,
    Policy,
    ScoreRequest,
    SimilarityModel,
    Tokenizer,
)
from rag_rewards.testing import (
    CodePoints,
    TableEntailment,
    TableJudge,
    TablePolicy,
    TableSimilarity,
)

QUESTION = JudgeQuestion("accuracy", "Capital of France?", "Paris", gold=("Paris",))
OTHER = JudgeQuestion("outcome", "Capital of Italy?", "Paris", gold=("Rome",))
PAIR, UNKNOWN = ("a premise", "a hypothesis"), ("a premise", "something else")


def run(coroutine):
    return asyncio.run(coroutine)


@pytest.mark.parametrize(
    ("double", "protocol"),
    [
        (TableEntailment({}), EntailmentModel),
        (TableSimilarity({}), SimilarityModel),
        (TableJudge({}), Judge),
        (TablePolicy(), Policy),
        (CodePoints(), Tokenizer),
    ],
)
def test_doubles_implement_the_protocols(double, protocol):
    assert isinstance(double, protocol)


def test_doubles_are_closed_together():
    doubles = TablePolicy(), TableEntailment({}), TableJudge({}), TableSimilarity({})
    models = Models(*doubles)
    assert set(models.fingerprints.values()) == {"table"}
    run(models.close())
    assert all(double.closed for double in doubles)


def test_doubles_import_no_torch():
    code = "import sys, rag_rewards.testing; print({'torch', 'numpy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --- entailment and similarity -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "ask"), [(TableEntailment, "entail"), (TableSimilarity, "similarity")]
)
def test_pairs_from_a_table_or_a_function(kind, ask):
    double = kind({PAIR: 0.25, ("x", "y"): 0.0}, fingerprint="mine")
    assert run(getattr(double, ask)([("x", "y"), PAIR, PAIR])) == [0.0, 0.25, 0.25]
    assert double.requests == [("x", "y"), PAIR, PAIR]
    assert double.fingerprint == "mine"
    with pytest.raises(BackendError, match=r"not in the table: \('a premise', 'something else'\)"):
        run(getattr(double, ask)([PAIR, UNKNOWN]))
    assert double.requests[-1] == UNKNOWN
    double = kind(lambda left, right: len(left) / 10 if right else None)
    assert run(getattr(double, ask)([("abc", "x")])) == [0.3]
    with pytest.raises(BackendError, match=r"not in the table: \('abc', ''\)"):
        run(getattr(double, ask)([("abc", "")]))


@pytest.mark.parametrize(
    ("kind", "ask"), [(TableEntailment, "entail"), (TableSimilarity, "similarity")]
)
def test_an_error_in_the_table_is_raised(kind, ask):
    with pytest.raises(BackendError, match="the server is down"):
        run(getattr(kind({PAIR: BackendError("the server is down")}), ask)([PAIR]))


# --- a judge -----------------------------------------------------------------------------------


def test_verdicts():
    down = BackendError("down")
    judge = TableJudge({QUESTION: 1, OTHER: down})
    assert run(judge.judge([OTHER, QUESTION])) == [down, 1]
    assert judge.requests == [OTHER, QUESTION]
    third = JudgeQuestion("reasoning", "Why?", "Because.")
    with pytest.raises(BackendError, match=r"not in the table: JudgeQuestion\(kind='reasoning'"):
        run(judge.judge([third]))
    judge = TableJudge(
        lambda question: None if question is third else int(question.response in question.gold)
    )
    assert run(judge.judge([QUESTION, OTHER])) == [1, 0]
    with pytest.raises(BackendError, match="not in the table"):
        run(judge.judge([third]))


@pytest.mark.parametrize("verdict", [2, 0.5, "yes"])
def test_a_verdict_is_0_or_1(verdict):
    with pytest.raises(BackendError, match="a verdict must be 0 or 1"):
        run(TableJudge({QUESTION: verdict}).judge([QUESTION]))


# --- a policy ----------------------------------------------------------------------------------


def test_log_probabilities():
    down = BackendError("down")
    policy = TablePolicy(
        {((1, 2), (7,)): [-0.5], ((1,), (7,)): [-1.5], ((1,), ()): [], ((3,), (7,)): down},
        weight_version=4,
    )
    both, one, broken, empty = run(
        policy.score(
            [
                ScoreRequest(((1, 2), (1,)), ((7,),)),
                ScoreRequest(((1, 2), (1,)), ((7,),), pairs=((1, 0),)),
                ScoreRequest(((3,),), ((7,),)),
                ScoreRequest(((1,),), ((),)),
            ]
        )
    )
    assert {pair: values.tolist() for pair, values in both.logprobs.items()} == {
        (0, 0): [-0.5],
        (1, 0): [-1.5],
    }
    assert (both.path, both.computed, both.weight_version) == ("table", 5, 4)
    assert list(one.logprobs) == [(1, 0)]
    assert broken is down
    assert empty.logprobs[0, 0].tolist() == []
    assert policy.scored == 5
    assert len(policy.requests) == 4
    with pytest.raises(BackendError, match=r"not in the table: \(\(9,\), \(7,\)\)"):
        run(policy.score([ScoreRequest(((9,),), ((7,),))]))


def test_log_probabilities_must_match_the_tokens():
    policy = TablePolicy(lambda context, response: [-1.0])
    with pytest.raises(BackendError, match="1 log-probabilities for a response of 2 tokens"):
        run(policy.score([ScoreRequest(((1,),), ((7, 8),))]))


def test_continuations():
    down, whole = BackendError("down"), GenerateAnswer("as it is", (1, 2, 3))
    policy = TablePolicy(texts={(1,): "one</a> two", (2,): down, (3,): whole})

    def ask(prompt, **options):
        return run(policy.generate([GenerateRequest(prompt, **options)]))[0]

    assert ask((1,)).text == "one</a> two"
    cut = ask((1,), stop=("two", "</a>"))
    assert (cut.text, cut.finish_reason, cut.token_ids) == ("one", "stop", (111, 110, 101))
    long = ask((1,), max_tokens=2)
    assert (long.text, long.finish_reason, long.token_ids) == ("on", "length", (111, 110))
    assert ask((2,)) is down
    assert ask((3,), max_tokens=1) is whole
    assert policy.generated == 5
    with pytest.raises(BackendError, match=r"not in the table: \(9,\)"):
        ask((9,))
    with pytest.raises(BackendError, match="not in the table"):
        run(TablePolicy().score([ScoreRequest(((1,),), ((7,),))]))


def test_a_policy_has_its_configured_properties():
    policy = TablePolicy(capabilities=Capabilities(is_live=True), max_length=100)
    assert policy.capabilities.is_live
    assert policy.max_length == 100
    run(policy.selfcheck())


def test_characters_as_tokens():
    tokenizer = CodePoints()
    text = "naïve 東京 🙂"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<answer>"}]
    plain = tokenizer.apply_chat_template(chat, tokenize=False, continue_final_message=True)
    assert plain == "user: q\nassistant: <answer>"
    ids = tokenizer.apply_chat_template(chat)
    assert tokenizer.decode(ids) == "user: q\nassistant: <answer>\n"
    assert tokenizer.apply_chat_template(chat, return_dict=True)["input_ids"] == ids

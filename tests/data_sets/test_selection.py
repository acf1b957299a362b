"""Rules of `select`: windows, samples and measures of groups; and training sets."""

from __future__ import annotations

import json
import random
import statistics
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_rewards.datasets.gold import Problem
from rag_rewards.errors import UsageError
from rag_rewards.recipe_object import custom
from rag_rewards.recipes import recipe
from rag_rewards.rollout import Score
from rag_rewards.selection.questions import Question, question_of, read_question_row
from rag_rewards.selection.rules import (
    Rules,
    digest,
    draw,
    spread,
    std_of,
    window,
    windows,
)
from rag_rewards.selection.training_sets import ChatMaker


def line(**fields):
    row = {
        "group": "g",
        "question": "Which river?",
        "documents": [{"title": "Paris", "text": "Paris lies on the Seine."}],
        "answers": ["Seine", "the Seine"],
        "response": "It is the Seine.",
        "signature": "rag-rewards 0.8.0 truthrl",
    }
    return json.dumps({name: value for name, value in (row | fields).items() if value is not None})


def question(*responses, right_at=1.0, **fields):
    """Return a question with responses, each given by its fields and its score."""
    lines = [line(**fields, **own).encode() for own, _ in responses]
    scores = [
        score if isinstance(score, Score) else Score(score, {}, score) for _, score in responses
    ]
    return question_of(
        [*enumerate(lines, 1)], [read_question_row(each) for each in lines], scores, right_at
    )


def marks(*correct, **fields):
    return question(*(({"response": f"r{i}"}, c) for i, c in enumerate(correct)), **fields)


RIGHT = Score(1.0, {}, 1.0, {"refused": False})
WRONG = Score(-1.0, {}, 0.0, {"refused": False})
REFUSED = Score(0.0, {}, 0.0, {"refused": True})


# --- windows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "0.5", "0.5:", "a:b", "1:0", "0:1.5", "0:1=0", "0:1=2", "0:1=", "-1:1", "1e-3:1"]
)
def test_invalid_windows(text):
    with pytest.raises(UsageError, match="passes"):
        window(text)


@pytest.mark.parametrize(
    "texts",
    [("0:0.5", "0.5:1"), ("0:0.5=0.5", "0.6:1"), ("0:0.4=0.5", "0.5:1=0.4")],
    ids=["overlap", "a share for one window only", "shares with the sum 0.9"],
)
def test_invalid_combinations_of_windows(texts):
    with pytest.raises(UsageError, match="passes"):
        windows(texts)


def test_windows_include_both_ends():
    rules = Rules(windows=windows(["0.1:0.875", "1:1"]))
    positions = {n: rules.window_of(marks(*[1.0] * n, *[0.0] * (8 - n))) for n in range(9)}
    assert positions == {0: None, **dict.fromkeys(range(1, 8), 0), 8: 1}


@given(
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(1, 99),
    st.none() | st.integers(1, 40),
    st.integers(0, 5),
)
def test_a_sample_has_the_shares_and_no_repetition(low, high, percent, size, seed):
    numbers = [array("q", range(low)), array("q", range(100, 100 + high))]
    ranges = windows([f"0:0.5={percent / 100}", f"0.6:1={(100 - percent) / 100}"])
    shares = [percent / 100, 1 - percent / 100]
    try:
        sample = draw(numbers, ranges, size, random.Random(seed))
    except UsageError:
        target = size or 1
        exact = [target * share for share in shares]
        assert any(e > n - 1 for e, n in zip(exact, (low, high), strict=True))
        return
    assert sample == sorted(set(sample))
    assert set(sample) <= {*numbers[0], *numbers[1]}
    assert size is None or len(sample) == size
    for share, members in zip(shares, numbers, strict=True):
        count = sum(n in members for n in sample)
        assert abs(count - share * len(sample)) < 1
    assert sample == draw(numbers, ranges, size, random.Random(seed))


def test_samples_without_shares():
    numbers = [array("q", [3, 1]), array("q", [2])]
    ranges = windows(["0:0.5", "1:1"])
    assert draw(numbers, ranges, None, random.Random(0)) == [1, 2, 3]
    assert len(draw(numbers, ranges, 2, random.Random(0))) == 2
    with pytest.raises(UsageError, match="sample requires 4 questions, but only 3 are left"):
        draw(numbers, ranges, 4, random.Random(0))


# --- measures ------------------------------------------------------------------------------------


@given(st.lists(st.floats(-500, 0), min_size=1, max_size=10))
def test_the_standard_deviation_of_s_and_e_over_a_group(values):
    group = question(
        *(({}, Score(0.0, {"evidential_contribution": -v}, 1.0, {"logprob": v})) for v in values)
    )
    expected = statistics.pstdev(values)
    assert std_of(group, "S") == pytest.approx(expected, abs=1e-9)
    assert std_of(group, "E") == pytest.approx(expected, abs=1e-9)


def test_s_from_the_log_probabilities_of_the_rows():
    group = question(
        ({"logprobs": {"full": [-1.0, -2.0]}}, 1.0), ({"logprobs": {"full": [-1.0]}}, 0.0)
    )
    assert std_of(group, "S") == 1.0
    assert std_of(group, "E") is None


def test_a_measure_is_unknown_if_it_is_unknown_for_one_response():
    known, unknown = Score(1.0, {}, 1.0), Score(None, {}, None)
    assert spread(question(({}, known), ({}, Score(-2.0, {}, 0.0)))) == 3.0
    group = question(({}, known), ({}, unknown))
    assert (spread(group), group.pass_rate, std_of(group, "S")) == (None, None, None)


def test_digests_ignore_case_and_punctuation():
    one, other = (marks(1.0, question=text) for text in ("Which river?", "which  RIVER"))
    assert digest(one) == digest(other) != digest(marks(1.0, question="Which lake?"))
    assert digest(marks(1.0, question="?!")) != digest(marks(1.0, question="…"))


def test_steps_count_questions_before_and_after():
    steps = Rules(unique=True, min_samples=2, min_spread=0.0).steps()
    groups = [marks(1.0, 0.0), marks(1.0), marks(0.0, 1.0), marks(1.0, 1.0, question="Other?")]
    selected = [group for group in groups if all(step(group) for step in steps)]
    assert selected == groups[:1]
    assert [(step.before, step.after) for step in steps] == [(4, 3), (3, 2), (2, 2), (2, 1)]


# --- training sets -------------------------------------------------------------------------------


def texts_of(row):
    """Return the columns of a training row as texts: the last message of each chat."""
    return {
        name: text if isinstance(text, str) else text[-1]["content"] for name, text in row.items()
    }


def test_r_tuning():
    for label, target in ((True, "\\boxed{I don't know}"), (False, "\\boxed{Seine}")):
        row = ChatMaker("r-tuning")(marks(1.0, 0.0, out_of_knowledge=label))
        assert texts_of(row)["completion"] == target
        assert "Question: Which river?" in texts_of(row)["prompt"]


def test_out_of_knowledge_without_a_label():
    assert texts_of(ChatMaker("r-tuning")(marks(0.0, 0.0)))["completion"] == "\\boxed{I don't know}"
    assert texts_of(ChatMaker("r-tuning")(marks(0.0, 1.0)))["completion"] == "\\boxed{Seine}"
    bare = Question((1, b"{}"), read_question_row(line(response=None).encode()))
    assert ChatMaker("r-tuning")(bare) == Problem(
        "unknown whether the question is out of knowledge"
    )


@pytest.mark.parametrize("name", ["arena", "truthrl", "lear", "naive-grpo", "rag-total"])
def test_a_gold_response_is_right_for_the_recipe(name):
    row = ChatMaker("sft", recipe=name)(marks(0.0, out_of_knowledge=False))
    right = recipe(name, {"verifier": "exact"} if name == "truthrl" else {}).correct
    scored = read_question_row(line(response=texts_of(row)["completion"]).encode())
    assert custom("right", right, correct=right)([scored])[0].correct == 1.0


def test_an_abstention_is_one_for_the_recipe():
    text = texts_of(ChatMaker("r-tuning")(marks(0.0)))["completion"]
    row = read_question_row(line(response=text).encode())
    assert recipe("truthrl", {"verifier": "exact"})([row])[0].details["refused"] is True
    text = texts_of(ChatMaker("r-tuning", recipe="ground-grpo")(marks(0.0)))["completion"]
    row = read_question_row(line(response=f"<think>x</think>{text}", answerable=False).encode())
    assert recipe("ground-grpo")([row])[0].details["refused"] is True


TRACES = (
    ({"response": "right one"}, RIGHT),
    ({"response": "right but truncated", "finish_reason": "length"}, RIGHT),
    ({"response": "wrong one"}, WRONG),
    ({"response": "abstains"}, REFUSED),
)


def test_rft():
    for seed in range(8):
        make = ChatMaker("rft", seed=seed)
        assert texts_of(make(question(*TRACES)))["completion"] == "right one"
        assert texts_of(make(question(*TRACES, out_of_knowledge=True)))["completion"] == "abstains"
    assert ChatMaker("rft")(question(TRACES[2])) == Problem("no response that abstains")
    assert ChatMaker("rft")(question(TRACES[2], out_of_knowledge=False)) == Problem(
        "no right response"
    )
    truncated = question(TRACES[1], TRACES[2])
    assert ChatMaker("rft")(truncated) == Problem("no complete right response")


def test_sft_with_the_gold_answer_and_the_prompt_of_the_policy():
    known, unknown = question(*TRACES), question(*TRACES, out_of_knowledge=True)
    gold, tuned = ChatMaker("sft", style="gold"), ChatMaker("r-tuning")
    assert gold(known) == tuned(known)  # R-Tuning differs in out-of-knowledge questions only
    assert texts_of(gold(unknown))["completion"] == "\\boxed{Seine}"
    assert texts_of(tuned(unknown))["completion"] == "\\boxed{I don't know}"
    assert gold(unknown)["prompt"] == tuned(unknown)["prompt"]
    own = question(*TRACES, prompt="own words")
    assert gold(own)["prompt"] == "own words"
    assert gold(own)["completion"] == "\\boxed{Seine}"


def test_dpo():
    row = texts_of(ChatMaker("dpo")(question(*TRACES)))
    assert (row["chosen"], row["rejected"]) == ("right one", "wrong one")
    row = texts_of(ChatMaker("dpo")(question(*TRACES[2:])))
    assert (row["chosen"], row["rejected"]) == ("abstains", "wrong one")
    row = texts_of(ChatMaker("dpo")(question(TRACES[2])))
    assert (row["chosen"], row["rejected"]) == ("\\boxed{I don't know}", "wrong one")
    assert ChatMaker("dpo")(question(TRACES[0])) == Problem("no wrong response")
    abstaining = question(TRACES[0], TRACES[3])
    assert ChatMaker("dpo")(abstaining) == Problem("no wrong response")


def test_the_choice_depends_on_the_seed_and_the_question():
    many = [({"response": f"r{i}"}, RIGHT) for i in range(50)]

    def completion(seed):
        return texts_of(ChatMaker("rft", seed=seed)(question(*many)))["completion"]

    assert len({completion(seed) for seed in range(20)}) > 10
    assert len({completion(1) for _ in range(3)}) == 1


def test_sft_reasoning_requires_the_complete_output_form():
    bad, good = (Score(1.0, {"format": f}, 1.0) for f in (0.0, 1.0))
    group = question(({"response": "bad"}, bad), ({"response": "good"}, good))
    make = ChatMaker("sft", style="reasoning", recipe="arena")
    assert texts_of(make(group))["completion"] == "good"
    assert make(question(({}, bad))) == Problem(
        "no right response in the output form of the recipe"
    )


LEAR = "<reason>Paris is there.</reason> <extract>On the Seine.</extract><answer>Seine</answer>"


def test_the_two_training_sets_of_lears_empirical_study():
    """LEAR, section 2.2: correct responses, with a rationale and without it."""
    right, wrong = Score(1.0, {"format": 1.0}, 1.0), Score(0.9, {"format": 1.0}, 0.0)
    group = question(
        ({"response": LEAR}, right), ({"response": LEAR.replace("Seine", "Rhine")}, wrong)
    )
    rational = ChatMaker("sft", "reasoning", "lear", 0, ("reason", "extract"))
    row = texts_of(rational(group))
    assert row["completion"] == ("<reason>Paris is there.</reason><extract>On the Seine.</extract>")
    assert "<reason>" in row["prompt"]
    vanilla = ChatMaker("sft", "reasoning", "lear", 0, ("extract",), "extract-only")
    row = texts_of(vanilla(group))
    assert row["completion"] == "<extract>On the Seine.</extract>"
    assert "<extract>" in row["prompt"]
    assert "<reason>" not in row["prompt"]
    assert rational(question(({"response": LEAR}, wrong))) == Problem(
        "no right response in the output form of the recipe"
    )
    with pytest.raises(UsageError, match="no section 'extracts'; it has reason, extract, answer"):
        ChatMaker("sft", "reasoning", "lear", 0, ("extracts",))(group)
    with pytest.raises(UsageError, match="no prompt 'extract_only'; did you mean 'extract-only'"):
        ChatMaker("sft", "reasoning", "lear", 0, (), "extract_only")(group)


def test_no_policy_is_tuned_with_a_prompt_that_contains_the_gold_answer():
    group = question(({"response": LEAR}, Score(1.0, {"format": 1.0}, 1.0)))
    with pytest.raises(UsageError, match="gold-rationale contains the gold answer"):
        ChatMaker("sft", "reasoning", "arena", 0, (), "gold-rationale")(group)


def test_completions_with_prefix_and_tool_turns():
    prefixed = ({"response": "x</think>Seine<|im_end|>", "response_prefix": "<think>"}, RIGHT)
    assert texts_of(ChatMaker("rft")(question(prefixed)))["completion"] == "<think>x</think>Seine"
    turns = [
        {"role": "assistant", "content": "search", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "found", "tool_call_id": "1"},
        {"role": "assistant", "content": "Seine"},
    ]
    assert ChatMaker("rft")(question(({"response": turns}, RIGHT)))["completion"] == turns


def test_the_prompt_of_the_row_takes_precedence():
    chat = [{"role": "user", "content": "my own"}]
    assert ChatMaker("rft")(question(TRACES[0], prompt=chat))["prompt"] == chat
    row = ChatMaker("r-tuning")(marks(0.0, prompt="my own"))
    assert (row["prompt"], row["completion"]) == ("my own", "\\boxed{I don't know}")


def test_unsuitable_questions():
    cites = ChatMaker("sft", recipe="ground-grpo")(marks(1.0))
    assert cites == Problem("the recipe requires citations, which a gold answer does not have")
    claims = ChatMaker("sft", recipe="truthrl")(marks(1.0, answer_kind="claims"))
    assert claims == Problem("the gold answers are claims, which are not a response")
    assert ChatMaker("sft")(marks(1.0, answers=None)) == Problem("answers: missing")
    with pytest.raises(UsageError, match="no recipe is given"):
        ChatMaker("sft")(marks(1.0, signature=None))


def test_several_required_answers_are_a_list():
    row = ChatMaker("sft")(marks(1.0, answers=[["Seine", "La Seine"], ["Marne"]]))
    assert texts_of(row)["completion"] == "\\boxed{Seine, Marne}"

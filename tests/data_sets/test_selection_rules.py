"""Windows, draws, measures of groups, and what is made of a question."""

from __future__ import annotations

import json
import random
import statistics
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_rewards.datasets.gold import Problem
from rag_rewards.datasets.sampling import Drawing, Said, Samples
from rag_rewards.datasets.selection_rules import (
    Rules,
    digest,
    draw,
    spread,
    std_of,
    window,
    windows,
)
from rag_rewards.datasets.targets import Maker
from rag_rewards.datasets.trials import Question, question_of, read_question_row
from rag_rewards.definition import custom
from rag_rewards.errors import UsageError
from rag_rewards.recipes import recipe
from rag_rewards.rollout import Score


def line(**fields):
    row = {
        "group": "g",
        "question": "Which river?",
        "documents": [{"title": "Paris", "text": "Paris lies on the Seine."}],
        "answers": ["Seine", "the Seine"],
        "response": "It is the Seine.",
        "signature": "rag-rewards 0.1.0 truthrl {}",
    }
    return json.dumps({name: value for name, value in (row | fields).items() if value is not None})


def question(*trials, right_at=1.0, **fields):
    """A question whose responses have these scores, and these fields of their own."""
    lines = [line(**fields, **own).encode() for own, _ in trials]
    scores = [score if isinstance(score, Score) else Score(score, {}, score) for _, score in trials]
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
def test_what_is_no_window(text):
    with pytest.raises(UsageError, match="passes"):
        window(text)


@pytest.mark.parametrize(
    "texts",
    [("0:0.5", "0.5:1"), ("0:0.5=0.5", "0.6:1"), ("0:0.4=0.5", "0.5:1=0.4")],
    ids=["overlap", "a share for one alone", "shares that make 0.9"],
)
def test_windows_that_do_not_go_together(texts):
    with pytest.raises(UsageError, match="passes"):
        windows(texts)


def test_both_ends_of_a_window_belong_to_it():
    rules = Rules(windows=windows(["0.1:0.875", "1:1"]))
    found = {n: rules.window_of(marks(*[1.0] * n, *[0.0] * (8 - n))) for n in range(9)}
    assert found == {0: None, **dict.fromkeys(range(1, 8), 0), 8: 1}


@given(
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(1, 99),
    st.none() | st.integers(1, 40),
    st.integers(0, 5),
)
def test_a_draw_has_the_shares_and_every_question_once(low, high, percent, size, seed):
    found = [array("q", range(low)), array("q", range(100, 100 + high))]
    among = windows([f"0:0.5={percent / 100}", f"0.6:1={(100 - percent) / 100}"])
    shares = [percent / 100, 1 - percent / 100]
    try:
        kept = draw(found, among, size, random.Random(seed))
    except UsageError:
        wanted = size or 1
        exact = [wanted * share for share in shares]
        assert any(e > n - 1 for e, n in zip(exact, (low, high), strict=True))
        return
    assert kept == sorted(set(kept))
    assert set(kept) <= {*found[0], *found[1]}
    assert size is None or len(kept) == size
    for share, numbers in zip(shares, found, strict=True):
        count = sum(n in numbers for n in kept)
        assert abs(count - share * len(kept)) < 1
    assert kept == draw(found, among, size, random.Random(seed))


def test_without_shares_all_are_kept_or_so_many_drawn():
    found = [array("q", [3, 1]), array("q", [2])]
    among = windows(["0:0.5", "1:1"])
    assert draw(found, among, None, random.Random(0)) == [1, 2, 3]
    assert len(draw(found, among, 2, random.Random(0))) == 2
    with pytest.raises(UsageError, match="sample requires 4 questions, but only 3 are left"):
        draw(found, among, 4, random.Random(0))


# --- measures ------------------------------------------------------------------------------------


@given(st.lists(st.floats(-500, 0), min_size=1, max_size=10))
def test_the_standard_deviation_of_s_and_e_over_a_group(values):
    group = question(
        *(({}, Score(0.0, {"evidential_contribution": -v}, 1.0, {"logprob": v})) for v in values)
    )
    expected = statistics.pstdev(values)
    assert std_of(group, "S") == pytest.approx(expected, abs=1e-9)
    assert std_of(group, "E") == pytest.approx(expected, abs=1e-9)


def test_s_is_read_from_the_rows_log_probabilities_where_no_score_has_it():
    group = question(
        ({"logprobs": {"full": [-1.0, -2.0]}}, 1.0), ({"logprobs": {"full": [-1.0]}}, 0.0)
    )
    assert std_of(group, "S") == 1.0
    assert std_of(group, "E") is None


def test_what_is_not_known_of_one_response_is_not_known_of_the_group():
    known, unknown = Score(1.0, {}, 1.0), Score(None, {}, None)
    assert spread(question(({}, known), ({}, Score(-2.0, {}, 0.0)))) == 3.0
    group = question(({}, known), ({}, unknown))
    assert (spread(group), group.pass_rate, std_of(group, "S")) == (None, None, None)


def test_a_question_is_known_whatever_its_case_and_punctuation():
    one, other = (marks(1.0, question=text) for text in ("Which river?", "which  RIVER"))
    assert digest(one) == digest(other) != digest(marks(1.0, question="Which lake?"))
    assert digest(marks(1.0, question="?!")) != digest(marks(1.0, question="…"))


def test_steps_count_what_comes_and_what_goes_on():
    steps = Rules(unique=True, min_samples=2, min_spread=0.0).steps()
    groups = [marks(1.0, 0.0), marks(1.0), marks(0.0, 1.0), marks(1.0, 1.0, question="Other?")]
    kept = [group for group in groups if all(step(group) for step in steps)]
    assert kept == groups[:1]
    assert [(step.before, step.after) for step in steps] == [(4, 3), (3, 2), (2, 2), (2, 1)]


# --- training sets -------------------------------------------------------------------------------


def said(made):
    return {
        name: text if isinstance(text, str) else text[-1]["content"] for name, text in made.items()
    }


def test_r_tuning_relabels_what_is_out_of_knowledge():
    for known, target in ((True, "\\boxed{I don't know}"), (False, "\\boxed{Seine}")):
        made = Maker("r-tuning")(marks(1.0, 0.0, out_of_knowledge=known))
        assert said(made)["completion"] == target
        assert "Question: Which river?" in said(made)["prompt"]


def test_out_of_knowledge_is_what_no_response_gets_right_where_no_label_says():
    assert said(Maker("r-tuning")(marks(0.0, 0.0)))["completion"] == "\\boxed{I don't know}"
    assert said(Maker("r-tuning")(marks(0.0, 1.0)))["completion"] == "\\boxed{Seine}"
    bare = Question((1, b"{}"), read_question_row(line(response=None).encode()))
    assert Maker("r-tuning")(bare) == Problem("not known whether it is out of knowledge")


@pytest.mark.parametrize("name", ["arena", "truthrl", "lear", "naive-grpo", "rag-total"])
def test_a_made_target_is_right_by_the_recipe_itself(name):
    made = Maker("sft", recipe=name)(marks(0.0, out_of_knowledge=False))
    right = recipe(name, {"verifier": "exact"} if name == "truthrl" else {}).correct
    row = read_question_row(line(response=said(made)["completion"]).encode())
    assert custom("right", right, correct=right)([row])[0].correct == 1.0


def test_abstentions_are_what_the_recipe_takes_for_one():
    text = said(Maker("r-tuning")(marks(0.0)))["completion"]
    row = read_question_row(line(response=text).encode())
    assert recipe("truthrl", {"verifier": "exact"})([row])[0].details["refused"] is True
    text = said(Maker("r-tuning", recipe="ground-grpo")(marks(0.0)))["completion"]
    row = read_question_row(line(response=f"<think>x</think>{text}", answerable=False).encode())
    assert recipe("ground-grpo")([row])[0].details["refused"] is True


TRACES = (
    ({"response": "right one"}, RIGHT),
    ({"response": "right but cut", "finish_reason": "length"}, RIGHT),
    ({"response": "wrong one"}, WRONG),
    ({"response": "abstains"}, REFUSED),
)


def test_rft_takes_a_right_response_that_ended_by_itself_or_one_that_abstains():
    for seed in range(8):
        make = Maker("rft", seed=seed)
        assert said(make(question(*TRACES)))["completion"] == "right one"
        assert said(make(question(*TRACES, out_of_knowledge=True)))["completion"] == "abstains"
    assert Maker("rft")(question(TRACES[2])) == Problem("no response that abstains")
    assert Maker("rft")(question(TRACES[2], out_of_knowledge=False)) == Problem("no right response")
    cut = question(TRACES[1], TRACES[2])
    assert Maker("rft")(cut) == Problem("no right response that ended by itself")


def test_dpo_prefers_right_to_wrong_and_abstaining_where_nothing_is_known():
    made = said(Maker("dpo")(question(*TRACES)))
    assert (made["chosen"], made["rejected"]) == ("right one", "wrong one")
    made = said(Maker("dpo")(question(*TRACES[2:])))
    assert (made["chosen"], made["rejected"]) == ("abstains", "wrong one")
    made = said(Maker("dpo")(question(TRACES[2])))
    assert (made["chosen"], made["rejected"]) == ("\\boxed{I don't know}", "wrong one")
    assert Maker("dpo")(question(TRACES[0])) == Problem("no wrong response")
    abstaining = question(TRACES[0], TRACES[3])
    assert Maker("dpo")(abstaining) == Problem("no wrong response")


def test_the_seed_and_the_question_decide_which_response_is_taken():
    many = [({"response": f"r{i}"}, RIGHT) for i in range(50)]
    taken = {said(Maker("rft", seed=seed)(question(*many)))["completion"] for seed in range(20)}
    assert len(taken) > 10
    again = [said(Maker("rft", seed=1)(question(*many)))["completion"] for _ in range(3)]
    assert len(set(again)) == 1


def test_sft_reasoning_takes_the_whole_form_alone():
    bad, good = (Score(1.0, {"format": f}, 1.0) for f in (0.0, 1.0))
    group = question(({"response": "bad"}, bad), ({"response": "good"}, good))
    make = Maker("sft", style="reasoning", recipe="arena")
    assert said(make(group))["completion"] == "good"
    assert make(question(({}, bad))) == Problem("no right response in the recipe's form")


def test_a_trace_keeps_its_prefix_and_its_tool_turns_and_loses_its_end_of_sequence():
    prefixed = ({"response": "x</think>Seine<|im_end|>", "response_prefix": "<think>"}, RIGHT)
    assert said(Maker("rft")(question(prefixed)))["completion"] == "<think>x</think>Seine"
    turns = [
        {"role": "assistant", "content": "search", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "found", "tool_call_id": "1"},
        {"role": "assistant", "content": "Seine"},
    ]
    assert Maker("rft")(question(({"response": turns}, RIGHT)))["completion"] == turns


def test_the_rows_own_prompt_is_kept():
    chat = [{"role": "user", "content": "my own"}]
    assert Maker("rft")(question(TRACES[0], prompt=chat))["prompt"] == chat
    made = Maker("r-tuning")(marks(0.0, prompt="my own"))
    assert (made["prompt"], made["completion"]) == ("my own", "\\boxed{I don't know}")


def test_what_a_set_cannot_be_made_of_has_a_reason():
    cites = Maker("sft", recipe="ground-grpo")(marks(1.0))
    assert cites == Problem("a gold answer does not cite, as this recipe's answers do")
    claims = Maker("sft", recipe="truthrl")(marks(1.0, answer_kind="claims"))
    assert claims == Problem("gold claims are no answer")
    assert Maker("sft")(marks(1.0, answers=None)) == Problem("answers: missing")
    with pytest.raises(UsageError, match="no recipe is given"):
        Maker("sft")(marks(1.0, signature=None))


def test_several_required_answers_are_a_list():
    made = Maker("sft")(marks(1.0, answers=[["Seine", "La Seine"], ["Marne"]]))
    assert said(made)["completion"] == "\\boxed{Seine, Marne}"


# --- the file of samples -------------------------------------------------------------------------

MADE_WITH = {"model": "m", **Drawing().settings}


def said_to(prompt, number):
    return Said(f"{prompt:016x}", number, f"response {number}", "stop")


def test_samples_are_there_again_but_for_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "samples.jsonl"
    samples = Samples(str(path), MADE_WITH)
    samples.add([said_to(1, 0), said_to(2, 0), said_to(1, 1)])
    samples.close()
    whole = path.read_bytes()
    for cut in range(len(whole) - 40, len(whole)):
        path.write_bytes(whole[:cut])
        samples = Samples(str(path), MADE_WITH)
        assert sorted(samples.of(f"{1:016x}")) == [0]
        assert samples.of(f"{2:016x}") == {0: said_to(2, 0)}
        samples.add([said_to(1, 1)])
        samples.close()
        assert path.read_bytes() == whole


def test_a_file_that_was_cut_off_in_its_first_line_begins_anew(tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_bytes(b'{"sampled_with":{"mod')
    Samples(str(path), MADE_WITH).close()
    assert json.loads(path.read_bytes()) == {"sampled_with": MADE_WITH}


@pytest.mark.parametrize("name", MADE_WITH)
def test_samples_of_other_settings_are_refused(tmp_path, name):
    path = tmp_path / "samples.jsonl"
    Samples(str(path), MADE_WITH).close()
    with pytest.raises(UsageError, match=f"has samples of {name}"):
        Samples(str(path), MADE_WITH | {name: 7})
    path.write_text("not ours\n")
    with pytest.raises(UsageError, match="holds no samples"):
        Samples(str(path), MADE_WITH)

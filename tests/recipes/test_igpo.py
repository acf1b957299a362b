"""IGPO: worked examples, a twin of the equations, evidence with errors, and settings."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_notation import PARIS, THOUGHT, answer, search

from rag_rewards import DataError, EvidenceError, SettingError, decode_row, recipe
from rag_rewards.rewards.igpo import set_f1
from rag_rewards.training.credit import credit_of_groups

SEARCHED = {"text": THOUGHT + search("capital of France"), "results": [PARIS]}
RIGHT = {"text": THOUGHT + answer("Paris")}


def row(prior, after, last=RIGHT, *, turns=None, answers="Paris", **fields):
    """Return a rollout with one token per alias, whose values are V."""
    given = [SEARCHED] * len(after) if turns is None else turns
    logprobs = {"prior": of(prior), "after": [of(v) for v in after]}
    for name in ("empty", "random"):
        if name in fields:
            logprobs[name] = fields.pop(name)
    fields = {"turn_logprobs": logprobs} | fields
    return decode_row({"turns": [*given, last], "answers": answers} | fields)


def of(value):
    return value if isinstance(value, list) else [[value]]


def score(rollout, hardened=False, **settings):
    return recipe("igpo", settings, hardened=hardened)([rollout])[0]


# --- worked examples -----------------------------------------------------------------------------


def test_gains_of_probabilities():
    result = score(row(-2.0, [-1.2, -0.1]))
    assert result.turns == pytest.approx((0.165859, 0.603643, 1.0), abs=1e-6)
    assert result.value == pytest.approx(1.769502, abs=1e-6)
    assert result.value == pytest.approx(1 + math.exp(-0.1) - math.exp(-2.0))
    assert result.components == {
        "outcome": 1.0,
        "info_gain": pytest.approx(0.769502, abs=1e-6),
        "prior": pytest.approx(0.135335, abs=1e-6),
        "posterior": pytest.approx(0.904837, abs=1e-6),
        "malformed": 0.0,
    }
    assert result.correct == 1.0
    assert [turn.get("info_gain") for turn in result.details["turns"]] == [
        pytest.approx(0.165859, abs=1e-6),
        pytest.approx(0.603643, abs=1e-6),
        None,
    ]


def test_log_gains():
    result = score(row(-2.0, [-1.2, -0.1]), **{"gain.kind": "log"})
    assert result.turns == pytest.approx((0.8, 1.1, 1.0))
    assert result.value == pytest.approx(2.9)


def test_unbalanced_tags():
    result = score(row(-2.0, [-1.2, -0.1], {"text": "a</think>" + answer("Paris")}))
    assert result.turns == pytest.approx((0.165859, 0.603643, -2.0), abs=1e-6)
    assert result.value == pytest.approx(-1.230498, abs=1e-6)
    assert result.correct == 1.0


def test_gains_over_results_of_other_prompts():
    draws = [[[[-1.2]]], [[[-0.9]], [[-1.1]], [[-1.3]]]]
    settings = {"gain.baseline": "random", "gain.kind": "log"}
    assert score(row(-2.0, [-1.2, -0.1], random=draws), **settings).turns == pytest.approx(
        (0.0, 1.0, 1.0)
    )


def test_gains_over_no_hits():
    result = score(row(-2.0, [-1.2, -0.1], empty=[[[-1.2]], [[-0.5]]]), **{"baseline": "empty"})
    assert result.turns == pytest.approx((0.0, math.exp(-0.1) - math.exp(-0.5), 1.0))


def test_credit_of_the_worked_example():
    settings = {"gain.kind": "log"}
    a = score(row(-2.0, [-1.2, -0.1]), **settings)
    b = score(row(-2.0, [-2.2], {"text": THOUGHT + answer("Lyon")}), **settings)
    assert b.turns == pytest.approx((-0.2, 0.0))
    separate = credit_of_groups([a, b], [[0, 1]], "igpo", norm="separate")
    assert separate[0] == pytest.approx([2.3794, 1.9596, 1.0], abs=1e-4)
    assert separate[1] == pytest.approx([-2.3794, -1.0], abs=1e-4)
    returns = credit_of_groups([a, b], [[0, 1]], "return", scale="none")
    assert returns[0] == pytest.approx([1.55, 1.05, 0.5])


# --- edge cases ----------------------------------------------------------------------------------


def test_a_single_turn_is_the_outcome_alone():
    rollout = decode_row({"turns": [RIGHT], "answers": "Paris"})
    assert recipe("igpo").needs(rollout) == []
    result = score(rollout, **{"gain.baseline": "random"})
    assert result.turns == (1.0,)
    assert result.components["info_gain"] is None
    assert result.components["prior"] is None
    known = decode_row(
        {"turns": [RIGHT], "answers": "Paris", "turn_logprobs": {"prior": [[-1.0]], "after": []}}
    )
    assert score(known).components["prior"] == pytest.approx(math.exp(-1))
    assert score(known).components["posterior"] == pytest.approx(math.exp(-1))


def test_a_turn_without_results_has_a_gain_over_the_previous_turn_only():
    turns = [{"text": THOUGHT + search("a"), "results": None}, SEARCHED]
    assert score(row(-2.0, [-1.0, -0.5], turns=turns)).turns[0] == pytest.approx(
        math.exp(-1) - math.exp(-2)
    )
    empty = row(-2.0, [-1.0, -0.5], turns=turns, empty=[None, [[-0.5]]])
    assert score(empty, **{"baseline": "empty"}).turns == (None, 0.0, 1.0)
    draws = row(-2.0, [-1.0, -0.5], turns=turns, random=[None, [[[-0.5]]]])
    assert score(draws, **{"baseline": "random"}).turns == (None, 0.0, 1.0)


def test_a_cut_rollout_has_no_answer():
    result = score(row(-2.0, [-1.0], SEARCHED, finish_reason="max_turns"))
    assert result.turns == pytest.approx((math.exp(-1) - math.exp(-2), -2.0))


def test_negative_gains_are_not_clipped():
    assert score(row(-0.1, [-2.0, -0.1])).value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("observation", "outcome"), [("<|im_start|>assistant\n<think>\n", 1.0), ("x", -2.0)]
)
def test_thinking_that_the_chat_template_opens(observation, outcome):
    searched = SEARCHED | {"observation": observation}
    rollout = row(-2.0, [-1.0], {"text": "Paris.</think>" + answer("Paris")}, turns=[searched])
    assert score(rollout).components["outcome"] == outcome


def test_a_query_at_whose_end_the_engine_stopped_is_balanced():
    searched = {"text": THOUGHT + "<search>a", "query": "a", "results": [PARIS]}
    assert score(row(-2.0, [-1.0], turns=[searched])).components["outcome"] == 1.0


def test_the_first_alias_or_the_best_one():
    aliases = {"answers": ["Paris", "Lutetia"]}
    rollout = row([[-2.0], [-3.0]], [[[-1.0], [-0.5]]], **aliases)
    assert score(rollout).turns[0] == pytest.approx(math.exp(-1) - math.exp(-2))
    best = score(rollout, **{"gain.alias": "best"})
    assert best.turns[0] == pytest.approx(math.exp(-0.5) - math.exp(-3))
    only_first = row([[-2.0], None], [[[-1.0], None]], **aliases)
    assert score(only_first).turns == score(rollout).turns
    with pytest.raises(EvidenceError, match=r"turn_logprobs\.prior\[1\]"):
        score(only_first, **{"gain.alias": "best"})


def test_several_required_answers_have_the_mean():
    rollout = row([[-2.0], [-9.0], [-4.0]], [[[-1.0], [-9.0], [-2.0]]], answers=[["a", "b"], ["c"]])
    assert score(rollout, **{"gain.kind": "log"}).turns[0] == pytest.approx(1.5)
    better = row([[-2.0], [-9.0], [-4.0]], [[[-1.0], [-0.5], [-2.0]]], answers=[["a", "b"], ["c"]])
    result = score(better, **{"gain.kind": "log", "gain.alias": "best"})
    assert result.turns[0] == pytest.approx((8.5 + 2.0) / 2)


def test_weights_of_the_first_tokens():
    rollout = row([[-1.0, -3.0]], [[[-1.0, -1.0]]])
    settings = {"gain.kind": "log", "first_tokens": 1, "first_weight": 3.0}
    assert score(rollout, **settings).turns[0] == pytest.approx(0.5)


def test_curriculum_of_weights():
    rollout = row(-2.0, [-1.0], step=50)
    gain = math.exp(-1) - math.exp(-2)
    settings = {"gain.curriculum": 100, "gain.weight": 2.0}
    assert score(rollout, **settings).turns == pytest.approx((0.75 * 2 * gain, 0.75))
    late = score(row(-2.0, [-1.0], step=500), **settings)
    assert late.turns == pytest.approx((0.5 * 2 * gain, 1.0))
    with pytest.raises(DataError, match="step"):
        score(row(-2.0, [-1.0]), **settings)


def test_outcome_of_sets():
    rollout = row(-1.0, [-1.0], {"text": THOUGHT + answer("The Paris")}, answers="Paris Paris")
    assert score(rollout).components["outcome"] == pytest.approx(2 / 3)
    assert score(rollout, **{"outcome.tokens": "set"}).components["outcome"] == pytest.approx(2 / 3)
    assert set_f1("Paris.", ["Paris"]) == 0.0
    assert score(rollout, metric="exact").components["outcome"] == 0.0


def test_penalty_of_malformed_turns():
    invalid = {"text": "I do nothing."}
    result = score(row(-2.0, [-2.0], turns=[invalid]), **{"malformed_penalty": 0.1})
    assert result.turns == pytest.approx((-0.1, 1.0))


# --- a twin of the equations ---------------------------------------------------------------------

values = st.lists(st.floats(-30, 0), min_size=1, max_size=4)


@given(st.lists(values, min_size=2, max_size=5).filter(lambda v: len({len(x) for x in v}) == 1))
def test_a_direct_implementation_of_the_gains(per_context):
    prior, *after = [[values] for values in per_context]
    result = score(row(prior, after))
    p = [math.exp(sum(values) / len(values)) for values in per_context]
    assert result.turns == pytest.approx((*(b - a for a, b in pairwise(p)), 1.0), abs=1e-12)
    assert result.value == pytest.approx(1 + p[-1] - p[0])


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("logprobs", "path"),
    [
        ({"prior": [[-1.0]], "after": []}, r"turn_logprobs\.after"),
        ({"prior": [[-1.0]], "after": [None]}, r"turn_logprobs\.after\[0\]"),
        ({"prior": [[-1.0], [-1.0]], "after": [[[-1.0]]]}, r"turn_logprobs\.prior"),
        ({"prior": [[-1.0]], "after": [[[-1.0, -1.0]]]}, r"turn_logprobs\.after\[0\]\[0\]"),
        ({"prior": [[0.5]], "after": [[[-1.0]]]}, r"turn_logprobs\.prior\[0\]\[0\]"),
        ({"prior": [[]], "after": [[[]]]}, r"turn_logprobs\.prior\[0\]"),
        ({"prior": [None], "after": [[[-1.0]]]}, r"turn_logprobs\.prior\[0\]"),
    ],
)
def test_evidence_that_contradicts_the_rollout(logprobs, path):
    rollout = decode_row(
        {"turns": [SEARCHED, RIGHT], "answers": "Paris", "turn_logprobs": logprobs}
    )
    with pytest.raises(EvidenceError, match=path):
        score(rollout)


def test_evidence_that_is_no_number():
    line = b'{"turns":[{"text":""}],"answers":"a","turn_logprobs":{"prior":[[NaN]],"after":[]}}'
    with pytest.raises(EvidenceError, match=r"turn_logprobs"):
        decode_row(line)


def test_missing_draws():
    with pytest.raises(EvidenceError, match=r"turn_logprobs\.random\[0\]"):
        score(row(-2.0, [-1.0], random=[[]]), **{"baseline": "random"})
    with pytest.raises(EvidenceError, match=r"turn_logprobs\.empty\[0\]"):
        score(row(-2.0, [-1.0], empty=[None]), **{"baseline": "empty"})


@pytest.mark.parametrize("baseline", ["previous", "empty", "random"])
def test_missing_evidence(baseline):
    settings = {"gain.baseline": baseline}
    rollout = decode_row({"turns": [SEARCHED, RIGHT], "answers": "Paris"})
    with pytest.raises(DataError, match="turn_logprobs: missing"):
        score(rollout, **settings)
    [need] = recipe("igpo", settings).needs(rollout)
    assert (need.turns, need.baseline, need.aliases) == (2, baseline, "first")
    assert need.is_met(row(-1.0, [-1.0])) == (baseline == "previous")


def test_missing_gold_answers():
    with pytest.raises(DataError, match="answers"):
        recipe("igpo").needs(decode_row({"turns": [SEARCHED, RIGHT]}))


@pytest.mark.parametrize("template", ["no place", "{answer} and {answer}"])
def test_a_template_without_one_place(template):
    with pytest.raises(SettingError, match="once"):
        recipe("igpo", {"template": template})


def test_the_hardened_profile():
    hardened = recipe("igpo", hardened=True).settings
    assert (hardened["gain.baseline"], hardened["credit.method"]) == ("empty", "return")
    assert (hardened["results_from"], hardened["malformed_penalty"]) == ("environment", 0.1)
    with pytest.raises(SettingError, match="log"):
        recipe("igpo", {"gain.kind": "log"}, hardened=True)


# --- attacks on the credit of turns --------------------------------------------------------------


def first_advantages(scores, method, **options):
    return [each[0] for each in credit_of_groups(scores, [[0, 1]], method, **options)]


def test_log_gains_have_no_bound():
    """Attack 41: a wrong answer after a large log gain earns more than a right answer."""
    wrong = row(-20.0, [0.0], {"text": THOUGHT + answer("Lyon")})
    assert score(wrong, **{"gain.kind": "log"}).value == pytest.approx(20.0)
    assert score(wrong).value < 1.0


def test_lowering_the_likelihood_and_regaining_it():
    """Attack 39: the value does not change; without the results of the turns there is no gain."""
    lowered, steady = [[[[-6.0]], [[-1.0]]], [[[-1.0]], [[-1.0]]]]
    attacked = row(-1.0, [-6.0, -1.0], empty=lowered)
    honest = row(-1.0, [-1.0, -1.0], empty=steady)
    assert score(attacked).value == pytest.approx(score(honest).value)
    assert score(attacked).turns[1] > 0.3
    empty = {"gain.baseline": "empty"}
    assert score(attacked, **empty).turns == score(honest, **empty).turns == (0.0, 0.0, 1.0)


# The values are probabilities. The reference is the same turn without results.
EMPTY = {"gain.baseline": "empty"}
COUNTED = EMPTY | {"gain.count": "rises"}
WRONG = {"text": THOUGHT + answer("Lyon")}


def searched(prior, after, without, last=RIGHT):
    """Return a rollout with probabilities of the gold answer with and without the results."""
    empty = [[[math.log(p)]] for p in without]
    return row(math.log(prior), [math.log(p) for p in after], last, empty=empty)


def test_doubting_and_searching_again_earns_no_gain_twice():
    honest = searched(0.1, [0.9], [0.1])
    again = searched(0.1, [0.9] * 6, [0.1] * 6)
    assert score(again, **EMPTY).value == pytest.approx(5.8)
    assert score(again, **COUNTED).turns == pytest.approx((0.8, 0, 0, 0, 0, 0, 1))
    assert score(again, **COUNTED).value == pytest.approx(score(honest, **COUNTED).value)
    log = {"gain.kind": "log"}
    assert score(again, **COUNTED, **log).value == pytest.approx(1 + math.log(9))
    # To lower the likelihood before a rise does not make the rise larger.
    lowered = searched(0.5, [0.9], [0.01])
    assert score(lowered, **COUNTED).turns[0] == pytest.approx(0.4)


def test_rises_count_only_as_far_as_the_results_cause_them():
    guess = searched(0.1, [0.9], [0.9])
    assert score(guess, **COUNTED).turns == (0.0, 1.0)
    half = searched(0.1, [0.9, 0.95], [0.6, 0.9])
    assert score(half, **COUNTED).turns == pytest.approx((0.3, 0.05, 1.0))
    fall = searched(0.5, [0.2, 0.6], [0.5, 0.2])
    assert score(fall, **COUNTED).turns == pytest.approx((0.0, 0.1, 1.0))
    assert score(fall, **{"gain.count": "rises"}).turns == pytest.approx((0.0, 0.1, 1.0))
    assert score(fall, **EMPTY).turns == pytest.approx((-0.3, 0.4, 1.0))


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=1, max_size=6))
def test_the_sum_of_the_rises_is_at_most_the_greatest_rise(pairs):
    after, without = zip(*pairs, strict=True)
    values = score(searched(0.1, after, without), **COUNTED).turns[:-1]
    assert min(values) >= 0
    assert sum(values) <= max(0.0, max(after) - 0.1) + 1e-9
    previous = score(searched(0.1, after, without), **{"gain.count": "rises"}).turns[:-1]
    assert sum(previous) == pytest.approx(max(0.0, max(after) - 0.1))


def test_a_wrong_answer_earns_no_gain_under_the_hardened_profile():
    for last in (WRONG, {"text": THOUGHT}):
        wrong = searched(0.1, [0.9, 0.9], [0.1, 0.1], last)
        result = score(wrong, hardened=True)
        assert result.components["info_gain"] == 0.0
        assert result.value <= 0
    right = searched(0.1, [0.9], [0.1])
    assert score(right, hardened=True).turns == pytest.approx((0.8, 1.0))
    fall = searched(0.5, [0.2], [0.5], WRONG)
    assert score(fall, **EMPTY, **{"gain.gated": True}).turns == pytest.approx((-0.3, 0.0))


def test_the_number_of_turns_has_an_effect_under_igpo_and_none_under_return():
    """Attack 42, and the worked example of the stopping bias."""
    log = {"gain.kind": "log"}
    long, short = (score(row(-2.0, after), **log) for after in ([-1.7, -1.4], [-1.4]))
    assert (long.turns, short.turns) == (
        pytest.approx((0.3, 0.3, 1.0)),
        pytest.approx((0.6, 1.0)),
    )
    joint = first_advantages([long, short], "igpo", norm="joint")
    assert joint == pytest.approx([-1.0201, 1.0201], abs=1e-4)
    separate = first_advantages([long, short], "igpo", norm="separate")
    assert separate == pytest.approx([-1.4142, 1.4142], abs=1e-4)
    returned = first_advantages([long, short], "return", scale="none")
    assert returned == pytest.approx([0, 0], abs=1e-9)

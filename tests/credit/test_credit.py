"""Credit methods: values by hand, slow twins, degenerate groups, and the bias of stopping."""

from __future__ import annotations

import itertools
import math

import naive
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_rewards import DataError, Score, UsageError, decode_row, recipe
from rag_rewards.errors import BackendError
from rag_rewards.training.credit import (
    METHODS,
    Credit,
    credit_of_groups,
    faithful_modulation,
    gdpo,
    gigpo,
    igpo,
    mt_grpo,
    place,
    return_to_go,
    spread,
    whiten,
)
from rag_rewards.training.credit.gigpo import anchors_of

A, B = [0.8, 1.1, 1.0], [-0.2, 0.0]


def near(result, expected, tolerance=1e-9):
    assert len(result) == len(expected)
    for values, others in zip(result, expected, strict=True):
        if others is None:
            assert values is None
        else:
            assert values == pytest.approx(others, rel=tolerance, abs=tolerance)


# --- values by hand ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"norm": "separate"}, ([2.3794, 1.9596, 1.0], [-2.3794, -1.0])),
        ({}, ([2.3918, 1.9060, 0.8595], [-2.3918, -1.0090])),
        ({"norm": "separate", "gamma": 0.95}, ([2.2340, 1.9096, 1.0], [-2.3294, -1.0])),
    ],
)
def test_igpo(options, expected):
    near(igpo([A, B], **options), expected, 1e-4)


def test_return_to_go():
    near(return_to_go([A, B], scale="none"), ([1.55, 1.05, 0.5], [-1.55, -1.05]))
    near(return_to_go([A, B]), ([1.0, 0.677419, 0.322581], [-1.0, -0.677419]), 1e-5)


def test_the_stopping_bias():
    longer, shorter = [0.3, 0.3, 1.0], [0.6, 1.0]  # both returns are 1.6
    joint, separate = igpo([longer, shorter]), igpo([longer, shorter], norm="separate")
    assert [values[0] for values in joint] == pytest.approx([-1.0201, 1.0201], abs=1e-4)
    assert [values[0] for values in separate] == pytest.approx([-1.4142, 1.4142], abs=1e-4)
    near(return_to_go([longer, shorter], scale="none"), ([0.0, 0.15, 0.0], [0.0, -0.15]))
    assert return_to_go([longer, shorter]) == [[0.0] * 3, [0.0] * 2]


def test_mt_grpo():
    first, second = mt_grpo([[0.5, 1.0], [0.0, 0.0]])
    assert first == pytest.approx([1.413914, 0.707007], abs=1e-6)
    assert second == pytest.approx([-1.413914, -0.707007], abs=1e-6)
    near(mt_grpo([[0.5, 1.0], [0.0, 0.0]], reach="rest"), (first, second))
    # A member without a search gets the z-score of its sum: (0 − 0.75)/(1.06066 + 1e-4).
    _, alone = mt_grpo([[0.5, 1.0], [0.0]])
    assert alone == pytest.approx([-0.75 / (1.5 / math.sqrt(2) + 1e-4)])


@pytest.mark.parametrize(
    ("members", "weights", "message"),
    [
        ([{"a": [1.0], "b": [1.0]}, {"a": [1.0]}], None, "member 1 has no component 'b': give all"),
        ([{"a": [1.0]}, None, {}], None, "member 2 has no component: give at least one"),
        ([{"a": [1.0], "b": [1.0, 0.0]}], None, "member 0 has components with different numbers"),
        ([{"format": [1.0]}], {"fromat": 2.0}, "no component 'fromat'.*format"),
    ],
)
def test_gdpo_of_different_components(members, weights, message):
    with pytest.raises(UsageError, match=message):
        gdpo(members, weights=weights)


def test_gdpo_of_unscored_members():
    assert gdpo([None, None], weights={"format": 1.0}) == [None, None]


def test_gdpo():
    members = [{"outcome": [o], "format": [f]} for o, f in ((1, 1), (0, 1), (0, 0), (0, 0))]
    result = gdpo(members)
    near(result, [[2.366021], [0.366025], [-1.366023], [-1.366023]], 1e-6)
    plain = gdpo([{"sum": [m["outcome"][0] + m["format"][0]]} for m in members])
    near(plain, [[1.305581], [0.261116], [-0.783349], [-0.783349]], 1e-6)
    weighted = gdpo(members, weights={"format": 0.0})
    near(weighted, [[1.499997], [-0.499999], [-0.499999], [-0.499999]], 1e-6)


def test_gigpo():
    result = gigpo([[0.0, 1.0], [0.0, 0.0]], [["x", "y"], ["x", "z"]])
    near(result.advantages, [[0.975, 0.5], [-0.975, -0.5]])
    assert result.alone == 0.5
    longer = [[0.0, 0.0, 1.0], [0.0]]
    anchors = [["x", "y", "z"], ["x"]]
    assert gigpo(longer, anchors).advantages[1][0] == pytest.approx(-0.75 - 0.9025 / 2)
    assert gigpo(longer, anchors, dedupe=True).advantages[1][0] == pytest.approx(-0.5 - 0.9025 / 2)
    close = [["x", "a" * 40], ["x", "a" * 39 + "b"]]
    assert gigpo([[0, 1], [0, 0]], close).alone == 0.5
    assert gigpo([[0, 1], [0, 0]], close, similarity=0.95).alone == 0.0


def test_a_search_without_a_hit_is_another_state_than_the_prompt():
    fields = {"text": "<search>a</search>", "queries": ["a"]}
    page = fields | {"results": [{"text": "b"}]}
    turns = [fields | {"results": []}, page, fields, page | {"observation": "c"}, {"text": "d"}]
    anchors = anchors_of(decode_row({"turns": turns}).steps())
    assert anchors[0] == ""
    assert anchors[1] not in ("", anchors[2])
    assert anchors[2] == anchors[3]  # turn 3 got nothing back
    assert anchors[4] == "c"


def test_tokens():
    spans = [(0, 3), (7, 9)]
    assert place([0.27, 1.0], spans, 9) == [0, 0, 0.27, 0, 0, 0, 0, 0, 1.0]
    assert spread([0.4, -0.2], spans, 9) == [0.4, 0.4, 0.4, 0, 0, 0, 0, -0.2, -0.2]
    assert place([1.0, 2.0, 4.0, 8.0], [(0, 0), (0, 2), (2, 2), (2, 2)], 2) == [0.0, 15.0]
    assert spread([1.0, 2.0], [(0, 0), (0, 2)], 2) == [2.0, 2.0]
    with pytest.raises(DataError, match="no turn has a token"):
        place([1.0], [(0, 0)], 3)
    with pytest.raises(DataError, match=r"turns\[1\].token_span: \[1, 3\] must begin at 2"):
        place([1.0, 1.0], [(0, 2), (1, 3)], 3)
    with pytest.raises(DataError, match=r"end at 3 or earlier"):
        spread([1.0], [(0, 4)], 3)
    with pytest.raises(UsageError, match="2 values for 1 spans"):
        spread([1.0, 1.0], [(0, 1)], 3)


def test_faithful_modulation():
    supported, answer = [True, False, False, True], [False, False, True, True]
    near(
        [faithful_modulation(0.753776, supported, answer, 0.75)],
        [[0.753776, 0.565332, 0.753776, 0.753776]],
        1e-6,
    )
    near(
        [faithful_modulation(-1.356797, supported, answer, 0.75)],
        [[-1.017598, -1.356797, -1.356797, -1.356797]],
        1e-6,
    )
    assert faithful_modulation(0.0, [True], [False]) == [0.0]
    with pytest.raises(UsageError, match="2 tokens in supported, but 1 in answer"):
        faithful_modulation(1.0, [True, True], [False])


# --- twins ---------------------------------------------------------------------------------------

VALUES = st.none() | st.integers(-8, 8).map(lambda n: n / 4)
OUTCOMES = st.integers(-8, 8).map(lambda n: n / 4)
MEMBER = st.tuples(st.lists(VALUES, max_size=4), OUTCOMES).map(lambda pair: [*pair[0], pair[1]])
GROUPS = st.lists(st.none() | MEMBER, min_size=1, max_size=6)
GAMMA = st.sampled_from([1.0, 0.95, 0.5])


FLOOR = st.sampled_from([0.0, 0.1, 0.5, 3.0])


@given(GROUPS, st.sampled_from(["joint", "separate"]), GAMMA, st.booleans(), FLOOR)
def test_igpo_equals_its_twin(rewards, norm, gamma, std, floor):
    options = {"norm": norm, "gamma": gamma, "std": std, "std_floor": floor}
    near(igpo(rewards, **options), naive.igpo(rewards, **options))


@given(GROUPS, st.sampled_from(["own", "rest"]), GAMMA, st.sampled_from([1.0, 0.5]))
def test_mt_grpo_equals_its_twin(rewards, reach, gamma, weight):
    options = {"reach": reach, "gamma": gamma, "weight": weight}
    near(mt_grpo(rewards, **options), naive.mt_grpo(rewards, **options))


@given(GROUPS, GAMMA, st.sampled_from(["std", "none"]))
def test_return_to_go_equals_its_twin(rewards, gamma, scale):
    options = {"gamma": gamma, "scale": scale}
    near(return_to_go(rewards, **options), naive.return_to_go(rewards, **options))


@given(GROUPS, st.data(), st.sampled_from(["mean", "mean_std"]), st.booleans())
def test_gigpo_equals_its_twin(rewards, data, mode, dedupe):
    anchors = [
        None
        if e is None
        else data.draw(st.lists(st.sampled_from("xyz"), min_size=len(e), max_size=len(e)))
        for e in rewards
    ]
    options = {"mode": mode, "dedupe": dedupe}
    near(gigpo(rewards, anchors, **options).advantages, naive.gigpo(rewards, anchors, **options))


@given(GROUPS, GAMMA, st.sampled_from([("verl", 1e-6), ("trl", 1e-4), ("swift", 1e-8)]), FLOOR)
def test_gdpo_equals_its_twin(rewards, gamma, preset, floor):
    members = [
        None if e is None else {"a": e, "b": [None if r is None else r * r for r in e]}
        for e in rewards
    ]
    weights = {"a": 1.0, "b": 0.5}
    name, epsilon = preset
    result = gdpo(members, weights=weights, preset=name, gamma=gamma, std_floor=floor)
    near(result, naive.gdpo(members, weights, epsilon, gamma, floor))


@pytest.mark.parametrize("method", ["igpo", "gdpo"])
def test_a_floor_keeps_the_advantages_of_tiny_gains_small(method):
    rewards = [[1e-4, 1.0], [-1e-4, 1.0]]
    options = {"norm": "separate"} if method == "igpo" else {}
    assert abs(credit(method, rewards, **options)[0][0]) > 0.5
    assert credit(method, rewards, std_floor=0.1, **options)[0][0] == pytest.approx(1e-3, rel=1e-3)
    # Rewards with a larger spread are not affected.
    wide = [[1.0, 1.0], [0.0, 0.0]]
    assert credit(method, wide, std_floor=0.1) == credit(method, wide)


def test_the_floor_of_a_recipe_is_that_of_its_credit():
    settings = recipe("igpo", {"credit.norm": "separate", "credit.std_floor": 0.1}).settings
    scores = [Score(1.0, turns=(1e-4, 1.0)), Score(1.0, turns=(-1e-4, 1.0))]
    first, _ = Credit.of_settings(settings)(scores, [[0, 1]])
    assert first[0] == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("method", "option"),
    [
        ("mt_grpo", "weight"),
        ("gigpo", "weight"),
        ("gigpo", "similarity"),
        ("igpo", "std_floor"),
        ("gdpo", "std_floor"),
        ("gdpo", "weights"),
        *[(method, "gamma") for method in METHODS],
    ],
)
def test_numbers_that_are_not_finite_are_refused(method, option, value):
    given = {"reward": value} if option == "weights" else value
    with pytest.raises(UsageError, match=f"{option}.*{value}"):
        Credit(method, {option: given})
    if option != "similarity":
        with pytest.raises(UsageError, match=f"{option}.*{value}"):
            credit(method, [[0.5, 1.0], [0.0, 0.0]], **{option: given})
    with pytest.raises(UsageError, match="std_floor=-1"):
        Credit("igpo", {"std_floor": -1})


@given(st.lists(st.tuples(OUTCOMES, st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=6))
def test_place_equals_its_twin_and_keeps_the_sum(turns):
    spans, at = [], 0
    for _, size, gap in turns:
        spans.append((at + gap, at + gap + size))
        at += gap + size
    rewards = [reward for reward, _, _ in turns]
    if not any(size for _, size, _ in turns):
        return
    assert place(rewards, spans, at) == naive.place(rewards, spans, at)
    assert math.isclose(sum(place(rewards, spans, at)), sum(rewards), abs_tol=1e-9)


# --- degenerate groups ---------------------------------------------------------------------------


def credit(method, rewards, **options):
    if method == "gigpo":
        options["anchors"] = [None if e is None else ["x"] * len(e) for e in rewards]
    return METHODS[method](rewards, **options)


def zeros(rewards):
    return [None if entries is None else [0.0] * len(entries) for entries in rewards]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "rewards",
    [
        [],
        [None],
        [None, None],
        [[1.0]],
        [[0.5, 1.0]],
        [[0.1, 0.2, 0.7], None],
        [[0.0, 0.0]] * 3,
        [[-0.0, 0.0], [0.0, -0.0]],
        [[1e-300], [1e-300]],
        [[0.1], [0.1], [0.1]],
    ],
)
def test_groups_without_a_difference_have_no_advantage(method, rewards):
    assert credit(method, rewards) == zeros(rewards)


@pytest.mark.parametrize("method", METHODS)
def test_equal_rewards_of_all_turns(method):
    rewards = [[0.1, 0.1, 0.1]] * 4
    if method == "gigpo":
        anchors = [["x", "y", "z"]] * 4
        assert gigpo(rewards, anchors).advantages == zeros(rewards)
    else:
        assert credit(method, rewards) == zeros(rewards)


@pytest.mark.parametrize("method", METHODS)
def test_extreme_values_stay_finite(method):
    for rewards in (
        [[1e9, -1e9, 1e9], [-1e9]],
        [[1e-300, 0.0], [0.0, 1e-300]],
        [[0.1] * 2_000 + [1.0], [0.0]],
        [[-0.0], [1.0]],
    ):
        for advantages in credit(method, rewards):
            assert all(map(math.isfinite, advantages))


@pytest.mark.parametrize("method", METHODS)
@given(rewards=GROUPS, seed=st.randoms())
def test_the_order_of_the_members_does_not_matter(method, rewards, seed):
    order = list(range(len(rewards)))
    seed.shuffle(order)
    expected = credit(method, rewards)
    near(credit(method, [rewards[i] for i in order]), [expected[i] for i in order])


@pytest.mark.parametrize("method", METHODS)
@given(rewards=GROUPS)
def test_an_unscored_member_does_not_affect_its_group(method, rewards):
    kept = [entries for entries in rewards if entries is not None]
    result = [values for values in credit(method, rewards) if values is not None]
    assert result == credit(method, kept)


@pytest.mark.parametrize(
    ("method", "options"),
    [("igpo", {"norm": "separate"}), ("mt_grpo", {}), ("gdpo", {}), ("return", {})],
)
@given(rewards=GROUPS, constant=st.sampled_from([0.25, -1.0, 4.0]))
def test_a_constant_in_all_outcomes_changes_nothing(method, options, rewards, constant):
    moved = [None if e is None else [*e[:-1], e[-1] + constant] for e in rewards]
    near(credit(method, moved, **options), credit(method, rewards, **options))


@pytest.mark.parametrize("method", ["igpo", "mt_grpo", "return", "gdpo"])
@given(outcomes=st.lists(OUTCOMES, min_size=1, max_size=5), data=st.data())
def test_without_process_rewards_all_turns_have_the_advantage_of_the_outcome(
    method, outcomes, data
):
    lengths = data.draw(st.lists(st.integers(0, 3), min_size=len(outcomes), max_size=len(outcomes)))
    rewards = [[None] * n + [o] for n, o in zip(lengths, outcomes, strict=True)]
    plain = credit(method, [[o] for o in outcomes])
    near(
        credit(method, rewards),
        [values * (n + 1) for values, n in zip(plain, lengths, strict=True)],
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_group_of_one_can_keep_its_rewards(method):
    (values,) = credit(method, [[0.5, None, 1.0]], single="raw")
    expected = {
        "igpo": [1.5, 1.0, 1.0],
        "mt_grpo": [1.5, 1.0, 1.0],
        "gigpo": [1.5, 1.5, 1.5],
        "return": [1.5, 1.0, 1.0],
        "gdpo": [1.5, 1.0, 1.0],
    }
    assert values == expected[method]


@pytest.mark.parametrize("method", METHODS)
def test_bad_input(method):
    with pytest.raises(UsageError, match="member 1 has no turn: give at least the outcome"):
        credit(method, [[1.0], []])
    with pytest.raises(UsageError, match="member 0 has the reward nan: give finite numbers"):
        credit(method, [[float("nan")], [1.0]])


def test_anchors_must_fit_the_turns():
    with pytest.raises(UsageError, match="1 lists of anchors for 2 members"):
        gigpo([[1.0], [1.0]], [["x"]])
    with pytest.raises(UsageError, match="member 1 has 1 anchors for 2 turns"):
        gigpo([[1.0], [1.0, 1.0]], [["x"], ["x"]])


# --- the batch -----------------------------------------------------------------------------------


def test_credit_of_groups():
    scores = [
        Score(1.6, turns=(0.3, 0.3, 1.0)),
        Score(0.5),
        Score(1.6, turns=(0.6, 1.0)),
        Score(1.5),
        BackendError("down"),
        Score(None),
        None,
    ]
    result = credit_of_groups(scores, [[0, 2, 4], [1, 3, 5, 6]], "return", scale="none")
    near([result[0], result[2]], ([0.0, 0.15, 0.0], [0.0, -0.15]))
    assert (result[1], result[3]) == ([-0.5], [0.5])
    assert result[4:] == [None, None, None]
    anchors = [["x", "y", "z"], ["x"], ["x", "u"], ["x"], None, None, None]
    stepwise = credit_of_groups(scores, [[0, 2, 4]], "gigpo", anchors=anchors)
    assert stepwise[1] is None
    assert stepwise[0] is not None
    with pytest.raises(UsageError, match="no credit method 'retrun'; did you mean 'return'"):
        credit_of_groups(scores, [], "retrun")


def test_whitening_over_a_batch():
    advantages = [[1.0, 0.0], [-1.0], None]
    near(whiten(advantages), [[1.0, 0.0], [-1.0], None], 1e-7)
    counts = [[2, 1], [1], None]
    mean, variance = 0.25, (2 * 0.75**2 + 0.25**2 + 1.25**2) / 3
    scale = math.sqrt(variance + 1e-8)
    expected = [[(1.0 - mean) / scale, -mean / scale], [(-1.0 - mean) / scale], None]
    near(whiten(advantages, counts), expected)
    std = math.sqrt(2.0)
    near(whiten(advantages, preset="trl"), [[1.0 / (std + 1e-4), 0.0], [-1.0 / (std + 1e-4)], None])
    assert whiten([[1.0], [1.0]]) == [[0.0], [0.0]]
    assert whiten([[1.0], [1.0]], preset="swift") == [[0.0], [0.0]]
    assert whiten([None]) == [None]


# --- the gradient --------------------------------------------------------------------------------


def expected_gradient(method):
    """Return the exact expectation of the estimated gradient in the logit of going on.

    At each of the first three turns, the policy searches with probability 0.5 (reward 0.3) or
    stops (outcome 1). At the fourth turn it stops. Groups have four members.
    """
    rollouts = []
    for turns, probability in ((1, 0.5), (2, 0.25), (3, 0.125), (4, 0.125)):
        rewards = [0.3] * (turns - 1) + [1.0]
        scores = [0.5] * (turns - 1) + ([-0.5] if turns < 4 else [0.0])
        rollouts.append((probability, rewards, scores))
    total = 0.0
    for group in itertools.product(rollouts, repeat=4):
        weight = math.prod(probability for probability, _, _ in group)
        advantages = method([rewards for _, rewards, _ in group])
        total += weight * sum(
            a * s
            for values, (_, _, scores) in zip(advantages, group, strict=True)
            for a, s in zip(values, scores, strict=True)
        )
    return total / 4


def test_return_to_go_estimates_the_gradient_and_igpo_does_not():
    true = 0.3 * 2.75 * 0.25
    assert true == pytest.approx(0.20625)
    unbiased = expected_gradient(lambda group: return_to_go(group, scale="none"))
    assert unbiased == pytest.approx(0.75 * true, abs=1e-9)
    biased = expected_gradient(lambda group: igpo(group, norm="separate", std=False))
    assert biased == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("method", "options", "why"),
    [
        ("igpo", {"norm": "jiont"}, "option norm='jiont' of the credit method igpo"),
        ("igpo", {"gamma": 1.5}, "option gamma=1.5 of the credit method igpo: set a discount"),
        ("return", {"gamma": float("nan")}, "option gamma=nan"),
        ("igpo", {"gamma": "1"}, "option gamma='1'"),
        ("igpo", {"std": 0}, "option std=0"),
        ("return", {"norm": "joint"}, "has no option 'norm'; there are: gamma, scale"),
        ("gigpo", {"mode": "median"}, "option mode='median'"),
        ("retrun", {}, "did you mean 'return'"),
    ],
)
def test_wrong_options_of_a_method(method, options, why):
    with pytest.raises(UsageError, match=why):
        Credit(method, options)


def test_every_option_of_every_method_is_accepted():
    options = {
        "igpo": {"norm": "separate", "gamma": 1, "std": True, "std_floor": 0.1, "single": "raw"},
        "mt_grpo": {"weight": 0.5, "reach": "rest", "gamma": 0.9, "single": "zero"},
        "gigpo": {"weight": 1.0, "gamma": 0.95, "mode": "mean_std", "similarity": None},
        "return": {"gamma": 0.9, "scale": "none"},
        "gdpo": {"weights": {"reward": 2.0}, "preset": "trl", "gamma": 1.0},
    }
    scores = [Score(1.5, turns=(0.5, 1.0)), Score(0.0, turns=(0.0, 0.0))]
    for method in METHODS:
        anchors = [["", "a"], ["", "b"]]
        first, second = Credit(method, options[method])(scores, [[0, 1]], anchors)
        assert first[0] > 0 > second[0]

"""Composition: combinators against slow code, None, scope, formulas, own rewards."""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import (
    Batch,
    Clip,
    Gate,
    GroupAdvantage,
    GroupMinMax,
    GroupZScore,
    Mean,
    Product,
    Reward,
    Rollout,
    Score,
    Sum,
    Threshold,
    UsageError,
    as_reward,
    custom,
    weighted,
)
from rag_rewards.compose import AllOnes, Mapped, min_max
from rag_rewards.evidence.judge_needs import VerdictNeed
from rag_rewards.reward import Component, Composite, CorrectOf, is_reward, walk
from rag_rewards.rewards import AnswerMatch, Format, Reasoning
from rag_rewards.text.sections import Tags

quick = budget(150)
VALUES = st.floats(-50, 50) | st.sampled_from([0.0, 1.0, -1.0])
MAYBE = VALUES | st.none()


# Rollouts carry the values of the rewards a, b and c as text: "1.5;None;0.0".
def _read(rollout: Rollout, at: int) -> float | None:
    text = rollout.response.split(";")[at]
    return None if text == "None" else float(text)


def a(rollout):
    return _read(rollout, 0)


def b(rollout):
    return _read(rollout, 1)


def c(rollout):
    return _read(rollout, 2)


def row(*values, group=None) -> Rollout:
    return Rollout(response=";".join(map(repr, values)), group=group)


def scores(reward, rows) -> list[float | None]:
    return [score.value for score in as_reward(reward)(rows)]


def same(result, expected) -> bool:
    return (
        result == pytest.approx(expected, abs=1e-9)
        if None not in (result, expected)
        else (result is expected)
    )


@quick
@given(
    st.lists(st.tuples(MAYBE, MAYBE, MAYBE), min_size=1, max_size=5),
    st.floats(-2, 2),
    st.floats(-1, 1),
)
def test_combinators_against_a_naive_implementation(triples, weight, level):
    def strictly(function):
        return [None if None in triple else function(*triple) for triple in triples]

    rows = [row(*triple) for triple in triples]
    cases = [
        (Sum(((1.0, a), (weight, b), (-1.0, c))), strictly(lambda x, y, z: x + weight * y - z)),
        (Sum(((1, a), (1, b), (1, c))), strictly(lambda x, y, z: x + y + z)),
        (Product((a, b, c)), strictly(lambda x, y, z: x * y * z)),
        (Mean((a, b, c)), strictly(lambda x, y, z: (x + y + z) / 3)),
        (AllOnes((a, b, c), 7.0), strictly(lambda x, y, z: 7.0 if x == y == z == 1 else 0.0)),
        (Mapped(max, (a, b, c), "largest", "max(a, b, c)"), strictly(max)),
        (Threshold(a, level), [x if x is None or x > level else 0.0 for x, _, _ in triples]),
        (
            Clip(a, -1, level + 1),
            [x if x is None else sorted([-1, x, max(level + 1, -1)])[1] for x, _, _ in triples],
        ),
        (
            Gate(a, b, level, 0.25),
            [None if x is None else y if x >= level else 0.25 for x, y, _ in triples],
        ),
    ]
    for reward, expected in cases:
        result = scores(reward, rows)
        assert all(map(same, result, expected)), reward


# --- groups -------------------------------------------------------------------------------------


def naive_min_max(values, epsilon, min_spread, no_spread, floor):
    spread = max(values) - min(values)
    if spread <= min_spread:
        return [{"zero": floor, "one": 1.0}[no_spread]] * len(values)
    return [floor + (1 - floor) * (v - min(values)) / (spread + epsilon) for v in values]


@quick
@given(
    st.lists(VALUES, min_size=1, max_size=6),
    st.sampled_from([1e-8, 0.1]),
    st.sampled_from([0.0, 0.5, 10.0]),
    st.sampled_from(["zero", "one"]),
    st.sampled_from([0.0, 0.1, 0.9]),
)
def test_min_max_against_a_naive_implementation(values, epsilon, min_spread, no_spread, floor):
    options = {"epsilon": epsilon, "min_spread": min_spread, "no_spread": no_spread, "floor": floor}
    result = min_max(values, **options)
    assert result == pytest.approx(naive_min_max(values, **options), abs=1e-9)
    assert all(0.0 <= value <= 1.0 for value in result)


def test_min_max_of_no_values_and_of_equal_values():
    assert min_max([]) == []
    assert min_max([3.0, 3.0]) == [0.0, 0.0]
    assert min_max([3.0, 3.0], no_spread="one") == [1.0, 1.0]
    assert min_max([0.0, 1e-3], min_spread=1e-3) == [0.0, 0.0]
    assert min_max([3.0, 3.0], floor=0.1) == [0.1, 0.1]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_floor_is_the_least_value_of_a_group_of_any_size(size):
    reward = GroupMinMax(a, single=b, floor=0.1)
    assert [s.value for s in reward([row(5.0, -1.0, group="g")] * size)] == [0.1] * size


MEMBERS = st.lists(
    st.tuples(st.sampled_from("xyz"), MAYBE, st.sampled_from([0.0, 1.0, 0.5, None]), MAYBE),
    min_size=1,
    max_size=9,
)


@quick
@given(
    MEMBERS,
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from(["zero", "one"]),
)
def test_group_min_max_against_a_naive_implementation(members, among, single, floor, no_spread):
    reward = GroupMinMax(
        a,
        among=b if among else None,
        single=c if single else None,
        floor=floor,
        no_spread=no_spread,
        single_above=0.5,
    )
    rows = [row(value, gate, alone, group=g) for g, value, gate, alone in members]
    expected: list[float | None] = []
    for g, value, gate, alone in members:
        group = [m for m in members if m[0] == g]
        scale = [v for _, v, w, _ in group if v is not None and (not among or w)]
        if value is None or (among and gate is None):
            expected.append(None)
        elif among and not gate:
            expected.append(0.0)
        elif len(group) == 1 or (no_spread == "one" and max(scale) == min(scale)):
            decides = alone if single else value
            expected.append(None if decides is None else 1.0 if decides > 0.5 else floor)
        else:
            scaled = naive_min_max(scale, 1e-8, 0.0, no_spread, floor)
            expected.append(scaled[scale.index(value)])
    result = scores(reward, rows)
    assert all(map(same, result, expected)), (result, expected)


@quick
@given(
    st.lists(st.tuples(st.sampled_from("xy"), MAYBE), min_size=1, max_size=8),
    st.sampled_from([0.01, 0.1, 1.0]),
)
def test_z_scores_and_advantages_against_a_naive_implementation(members, floor):
    rows = [row(value, group=g) for g, value in members]
    z, advantages = [], []
    for g, value in members:
        group = [v for h, v in members if h == g and v is not None]
        if value is None:
            z.append(None)
            advantages.append(None)
            continue
        mean = sum(group) / len(group)
        std = (sum((v - mean) ** 2 for v in group) / len(group)) ** 0.5
        z.append(0.0 if len(set(group)) == 1 else (value - mean) / (std + 1e-3))
        advantages.append((value - mean) / max(std, floor))
    assert all(map(same, scores(GroupZScore(a, 1e-3), rows), z))
    assert all(map(same, scores(GroupAdvantage(a, floor), rows), advantages))


def test_groups_are_keyed_by_group_or_question():
    def groups(*rows):
        return Batch(rows).groups

    def rollout(group=None, question=None):
        return Rollout(response="", group=group, question=question)

    assert groups(rollout(1), rollout("1"), rollout(2)) == [[0, 1], [2]]
    assert groups(rollout(None, "q"), rollout("g", "q"), rollout(None, "q")) == [[0, 2], [1]]
    assert groups(rollout(), rollout()) == [[0], [1]]
    assert groups() == []


# --- None ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reward",
    [
        Sum(((1.0, a), (1.0, b))),
        Sum(((0.0, a), (2.0, b))),
        Product((b, a)),
        Mean((a, b)),
        AllOnes((a, b), 1.0),
        Gate(a, b),
        Gate(b, a),
        Threshold(a, 0.0),
        Clip(a, 0.0, 1.0),
        Mapped(min, (a, b), "least", "min(a, b)"),
        GroupMinMax(a),
        GroupZScore(a),
        GroupAdvantage(a),
        GroupMinMax(b, among=a),
        GroupMinMax(b, single=a),
    ],
    ids=repr,
)
def test_unscored_parts_leave_a_composition_unscored(reward):
    assert scores(reward, [row(None, 1.0, group="x")]) == [None]
    assert scores(reward, [row(1.0, 1.0, group="x")]) != [None]


def test_an_unscored_member_does_not_set_the_scale():
    rows = [row(v, group="x") for v in (None, 1.0, 3.0)]
    assert scores(GroupMinMax(a), rows) == [None, 0.0, pytest.approx(1.0)]
    assert scores(GroupAdvantage(a), rows) == [None, -1.0, 1.0]


# --- scope and needs ----------------------------------------------------------------------------

GROUP = GroupMinMax(a)


@pytest.mark.parametrize(
    "around",
    [
        lambda part: Sum(((1.0, a), (1.0, part))),
        lambda part: Product((part, a)),
        lambda part: Gate(part, a),
        lambda part: Gate(a, part),
        lambda part: Mean((part,)),
        lambda part: AllOnes((part,), 1.0),
        lambda part: Threshold(part, 0.0),
        lambda part: Clip(part, 0.0, 1.0),
        lambda part: Mapped(abs, (part,), "x", "x"),
        lambda part: Component(part, "x"),
        lambda part: CorrectOf(part),
        lambda part: custom("x", part),
    ],
)
def test_a_group_part_gives_group_scope(around):
    assert around(as_reward(a)).scope == "rollout"
    for part in (GROUP, GroupZScore(a), GroupAdvantage(a)):
        assert around(part).scope == "group"
    assert Sum(((1.0, around(GROUP)),)).scope == "group"


def test_needs_are_collected_once():
    reward = Sum(((1.0, Reasoning()), (1.0, Product((Reasoning(), a)))))
    assert reward.needs(row(1.0)) == [VerdictNeed("reasoning")]
    assert GroupMinMax(a, single=Reasoning()).needs(row(1.0)) == [VerdictNeed("reasoning")]


def test_every_part_is_computed_once():
    calls = []

    def counted(rollout):
        calls.append(rollout)
        return 1.0

    part = as_reward(counted)
    reward = Sum(((1.0, part), (1.0, Product((part, part))), (1.0, Gate(part, part))))
    assert scores(reward, [row(0.0), row(0.0)]) == [3.0, 3.0]
    assert len(calls) == 2


# --- formulas -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reward", "text"),
    [
        (weighted((0.5, a), (-2, b)), "0.5·a − 2·b"),
        (weighted((-1, a), (1, b)), "−a + b"),
        (weighted((1, a), (-0.0, b)), "a − 0·b"),
        (weighted((1 / 3, a)), "0.3333333333333333·a"),
        (Sum(()), "0"),
        (Product((weighted((1, a), (1, b)), c)), "(a + b) × c"),
        (Mean((a, b)), "mean(a, b)"),
        (Mean((a, b), "both"), "mean(a, b)"),
        (Gate(a, b), "[a ≥ 1]·b"),
        (Gate(a, b, 0.5, -1), "[a ≥ 0.5]·b else -1"),
        (AllOnes((a, b), 10), "10·[a = b = 1]"),
        (Threshold(a, 0.5), "a·1[a > 0.5]"),
        (Clip(a, -1, 1), "clip(a, -1, 1)"),
        (GroupMinMax(a), "minmax(a)"),
        (GroupMinMax(a, among=b, floor=0.1), "minmax(a among b > 0, floor 0.1)"),
        (
            GroupMinMax(a, min_spread=0.5, no_spread="one"),
            "minmax(a, min_spread 0.5, no_spread one)",
        ),
        (
            GroupMinMax(a, single=b, single_above=1, epsilon=1e-6),
            "minmax(a, ε 1e-06, alone above 1, alone by b)",
        ),
        (GroupZScore(a), "zscore(a)"),
        (GroupZScore(a, 1e-6), "zscore(a, ε 1e-06)"),
        (GroupAdvantage(a), "advantage(a, std ≥ 0.1)"),
        (Mapped(abs, (a,), "size", "|a|"), "|a|"),
    ],
)
def test_the_repr_is_the_formula(reward, text):
    assert repr(reward) == text


@quick
@given(st.floats(-9, 9), st.floats(-9, 9))
def test_different_numbers_have_different_text(x, y):
    for make in (lambda v: Sum(((v, a),)), lambda v: Threshold(a, v), lambda v: Gate(a, b, v)):
        if x != y and abs(x) != abs(y):
            assert repr(make(x)) != repr(make(y))


def test_labels_name_the_part():
    assert Mean((a, b), "both").name == "both"
    assert repr(Sum(((1.0, GroupMinMax(a, label="scaled")), (1.0, b)))) == "scaled + b"
    assert [part.name for part in walk(Mean((a, b), "both"))] == ["both", "a", "b"]


# --- one's own rewards --------------------------------------------------------------------------


class Batchwise:
    """A class with a name and no other attribute of a reward."""

    name = "batchwise"

    def __call__(self, rollouts):
        return [Score(2.0) for _ in rollouts]


class NoName:
    scope = "group"

    def needs(self, rollout):
        return [VerdictNeed("x")]

    def __call__(self, rollouts):
        return [Score(1.0, {"part": 0.5}, 0.25) for _ in rollouts]


ANSWER = AnswerMatch(metric="substring", reads="response")


@pytest.mark.parametrize("own", [a, Batchwise(), as_reward(a), functools.partial(_read, at=0)])
@pytest.mark.parametrize(
    "around",
    [
        lambda r: Sum(((1.0, ANSWER), (1.0, r))),
        lambda r: Product((ANSWER, r)),
        lambda r: Gate(r, r),
        lambda r: Gate(ANSWER, r),
        lambda r: Mean((ANSWER, r)),
        lambda r: Threshold(r, 1.0),
        lambda r: AllOnes((r,), 1.0),
        lambda r: Clip(r, 0.0, 9.0),
        lambda r: GroupMinMax(r),
        lambda r: GroupMinMax(ANSWER, among=r),
        lambda r: GroupMinMax(ANSWER, single=r),
        lambda r: GroupZScore(r),
        lambda r: GroupAdvantage(r),
        lambda r: Mapped(abs, (r,), "x", "|x|"),
        lambda r: weighted((1.0, r)),
        lambda r: custom("own", r),
        lambda r: custom("own", ANSWER, components=[r], correct=r),
    ],
)
def test_own_rewards_can_be_parts(own, around):
    rows = [
        Rollout(response="2.0;1.0;0.0", answers="2.0", group="x"),
        Rollout(response="2.0;1.0;0.0", answers="3.0", group="x"),
    ]
    result = around(own)(rows)
    built_in = around(as_reward(lambda rollout: 2.0))(rows)
    assert [s.value for s in result] == [s.value for s in built_in]
    assert all(isinstance(s.value, float) for s in result)


def test_attributes_of_a_callable_class_are_used():
    plain, whole = as_reward(Batchwise()), as_reward(NoName())
    assert (plain.name, plain.scope, plain.needs(row(1.0))) == ("batchwise", "rollout", [])
    assert (whole.name, whole.scope) == ("NoName", "group")
    expected = [VerdictNeed("x")]
    for part in (whole, Component(whole, "part"), CorrectOf(whole), Sum(((1.0, whole),))):
        assert part.needs(row(1.0)) == expected
    assert Sum(((1.0, NoName()),)).scope == "group"
    assert isinstance(whole, Reward)
    assert as_reward(ANSWER) is ANSWER


def test_components_and_correct_of_a_reward_are_rewards():
    whole = as_reward(NoName())
    assert scores(Component(whole, "part"), [row(1.0)]) == [0.5]
    assert scores(CorrectOf(whole), [row(1.0)]) == [0.25]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -math.inf, "x", [1]])
@pytest.mark.parametrize(
    "around",
    [
        as_reward,
        lambda f: Sum(((1.0, ANSWER), (1.0, f))),
        GroupMinMax,
        lambda f: custom("own", f),
    ],
)
def test_a_result_that_is_not_finite_is_an_error(value, around):
    def my_own_reward(rollout):
        return value

    rollout = Rollout(response="x", answers="x", id="row-7")
    with pytest.raises(
        UsageError, match=r"reward function my_own_reward returned .* on rollout row-7"
    ):
        around(my_own_reward)([rollout])


def test_functions_can_return_numbers_scores_and_none():
    for given_, expected in ((True, 1.0), (3, 3.0), (None, None), (Score(0.5), 0.5), (0, 0.0)):
        assert scores(lambda rollout, value=given_: value, [row(1.0)]) == [expected]


def test_scores_are_finite():
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="a reward must be a finite number or None"):
            Score(value)


def test_batch_rewards_must_return_a_score_for_each_rollout():
    class Floats:
        def __call__(self, rollouts):
            return [1.0 for _ in rollouts]

    class Short(Batchwise):
        def __call__(self, rollouts):
            return [Score(1.0)]

    with pytest.raises(UsageError, match=r"reward Floats returned 1\.0"):
        as_reward(Floats())([row(1.0)])
    with pytest.raises(UsageError, match="reward batchwise returned 1 scores for 2 rollouts"):
        Sum(((1.0, Short()),))([row(1.0), row(1.0)])


def test_an_object_that_cannot_score_is_rejected():
    for thing in (7, "accuracy", None, [a]):
        with pytest.raises(UsageError, match="neither a reward nor a function of a rollout"):
            as_reward(thing)
    with pytest.raises(UsageError, match="neither"):
        Sum(((1.0, 3),))


@dataclass(frozen=True, repr=False)
class Blend(Composite):
    """A composition of a user: its parts are in fields of any name and shape."""

    base: Reward
    several: list[Reward]
    named: dict[str, Reward]
    pairs: tuple[tuple[float, Reward], ...] = ()
    found: object = None
    optional: Reward | None = None
    scale: Callable[[float], float] = abs

    def values(self, batch):
        columns = [batch.values(part) for part in self.parts]
        return [self.scale(sum(row)) for row in zip(*columns, strict=True)]


@dataclass(frozen=True)
class Asks:
    """A reward with a need, or one that compares rollouts."""

    name: str
    scope: str = "rollout"

    def needs(self, rollout):
        return [VerdictNeed(self.name)]

    def __call__(self, rollouts):
        return [Score(1.0) for _ in rollouts]


PLACES = {
    "base": lambda part: Blend(part, [], {}),
    "several": lambda part: Blend(a, [part], {}),
    "named": lambda part: Blend(a, [], {"x": part}),
    "pairs": lambda part: Blend(a, [], {}, ((2.0, part),)),
    "found": lambda part: Blend(a, [], {}, found=[{"deep": (part,)}]),
    "optional": lambda part: Blend(a, [], {}, optional=part),
}


@pytest.mark.parametrize("place", PLACES)
def test_parts_are_found_in_fields_of_any_name(place):
    for part in (Asks("1"), Asks("1", "group")):
        inner = PLACES[place](part)
        for reward in (
            inner,
            Sum(((1.0, Mean((inner,))),)),
            Blend(inner, [], {}),
            PLACES[place](inner),
        ):
            assert reward.needs(row(0.0)) == part.needs(row(0.0))
            assert reward.scope == custom("own", reward).scope == part.scope
            assert custom("own", reward).needs(row(0.0)) == part.needs(row(0.0))
            assert part in list(walk(reward))
    with_function = PLACES[place](b)
    assert ("b" in [part.name for part in with_function.parts]) == (place != "found")
    assert pickle.loads(pickle.dumps(with_function)) == with_function  # noqa: S301


def test_other_fields_of_a_composition_are_unchanged():
    blend = Blend(a, [], {}, found={"x": [1, None, "text", a]}, scale=math.sqrt)
    assert [part.name for part in blend.parts] == ["a"]
    assert (blend.found, blend.scale) == ({"x": (1, None, "text", a)}, math.sqrt)
    assert repr(blend) == blend.name == "Blend(a)"


@pytest.mark.parametrize("wrong", [None, 7, "accuracy"])
def test_a_field_of_rewards_contains_only_rewards(wrong):
    for fields in ((wrong, [], {}), (a, [wrong], {}), (a, [], {"x": wrong})):
        with pytest.raises(UsageError, match="neither a reward nor a function of a rollout"):
            Blend(*fields)


def test_functions_have_names():
    assert as_reward(a).name == "a"
    assert as_reward(functools.partial(_read, at=1)).name == "_read"


@pytest.mark.parametrize(
    "reward",
    [
        Sum(((0.5, a), (1.0, Gate(b, c)))),
        Product((a, b)),
        GroupMinMax(a, among=b, single=c),
        GroupAdvantage(GroupZScore(a)),
        Clip(Threshold(a, 0.5), 0.0, 1.0),
        AllOnes((a, b), 2.0),
        Mean((a, b)),
        Mapped(max, (a, b), "m", "max"),
        weighted((1.0, Format(Tags(("answer",))))),
    ],
    ids=repr,
)
def test_compositions_pickle_and_compare(reward):
    copy = pickle.loads(pickle.dumps(reward))  # noqa: S301
    assert copy == reward
    assert hash(copy) == hash(reward)
    rows = [row(1.0, 0.5, 2.0, group="x"), row(0.25, 1.0, 0.0, group="x")]
    assert scores(copy, rows) == scores(reward, rows)


def test_an_empty_batch():
    for reward in (Sum(((1.0, a),)), GroupMinMax(a), GroupAdvantage(a), Mean((a,))):
        assert scores(reward, []) == []


def test_a_reward_is_recognized_as_by_its_protocol():
    named = AnswerMatch("named")
    for value in (named, weighted((1, named)), AnswerMatch, len, 1.0, None, "reward", [named]):
        assert is_reward(value) == isinstance(value, Reward), value

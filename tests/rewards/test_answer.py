"""Exact match, substring and token F1 against slow implementations, and AnswerMatch."""

from __future__ import annotations

import pickle
import re
import string
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import budget

from rag_rewards import DataError, Rollout
from rag_rewards.evidence.judge_needs import VerdictNeed
from rag_rewards.rewards import (
    AnswerMatch,
    exact_match,
    list_match,
    multiset_f1,
    substring_match,
    token_f1,
)
from rag_rewards.rewards.correctness import Correctness
from rag_rewards.text.normalize import lower, normalizer, squad, triviaqa
from rag_rewards.text.sections import SectionStyle, Tags

quick = budget(150)

# --- slow implementations, written from the definitions ----------------------------------------


def naive_lower(text: str) -> str:
    return "".join(char for char in text.lower() if char != "*")


def naive_squad(text: str) -> str:
    text = "".join(char for char in text.lower() if char not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def naive_triviaqa(text: str) -> str:
    text = text.replace("_", " ").lower()
    text = "".join(" " if c in string.punctuation + "‘’´`" else c for c in text)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


NAIVE = {
    "lower": (lower, naive_lower),
    "squad": (squad, naive_squad),
    "triviaqa": (triviaqa, naive_triviaqa),
}


def naive_exact(prediction, aliases, norm) -> float:
    for alias in aliases:
        if norm(alias):
            if norm(prediction) == norm(alias):
                return 1.0
        elif prediction.strip() and prediction.strip().casefold() == alias.strip().casefold():
            return 1.0
    return 0.0


def naive_substring(prediction, aliases, norm) -> float:
    for alias in aliases:
        if norm(alias):
            if norm(alias) in norm(prediction):
                return 1.0
        elif alias.strip() and alias.strip().casefold() in prediction.casefold():
            return 1.0
    return 0.0


def naive_f1(prediction, aliases, norm) -> float:
    best = 0.0
    for alias in aliases:
        p, g = norm(prediction), norm(alias)
        if not g:
            p, g = prediction.casefold(), alias.casefold()
        common = sum((Counter(p.split()) & Counter(g.split())).values())
        if common:
            precision, recall = common / len(p.split()), common / len(g.split())
            best = max(best, 2 * precision * recall / (precision + recall))
    return best


WORDS = st.sampled_from(
    [
        "the",
        "The",
        "a",
        "an",
        "Paris",
        "paris",
        "New",
        "York",
        "U.S.",
        "!!",
        "3.14",
        "-5",
        "é",
        "a’b",
        "`",
        "_",
        "**",
        "Arthur's",
        "an_",
        "theory",
        "ß",
        "?",
        "…",
    ]
)
TEXTS = st.lists(WORDS, max_size=6).flatmap(
    lambda words: st.sampled_from([" ", "  ", "", "\n", ", "]).map(lambda gap: gap.join(words))
)


@quick
@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3), st.sampled_from(sorted(NAIVE)))
def test_against_a_naive_implementation(prediction, aliases, name):
    norm, naive = NAIVE[name]
    assert exact_match(prediction, aliases, norm) == naive_exact(prediction, aliases, naive)
    assert substring_match(prediction, aliases, norm) == naive_substring(prediction, aliases, naive)
    assert token_f1(prediction, aliases, norm) == pytest.approx(
        naive_f1(prediction, aliases, naive)
    )


@quick
@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
def test_multiset_f1_against_a_naive_implementation(left, right):
    same = sum((Counter(left) & Counter(right)).values())
    if not same:
        assert multiset_f1(left, right) == 0.0
    else:
        precision, recall = same / len(left), same / len(right)
        assert multiset_f1(left, right) == 2 * precision * recall / (precision + recall)


@quick
@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
def test_multiset_f1_is_symmetric_and_one_only_for_equal_multisets(left, right):
    f1 = multiset_f1(left, right)
    assert f1 == pytest.approx(multiset_f1(right, left))
    assert 0.0 <= f1 <= 1.0
    assert (f1 == pytest.approx(1.0)) == (bool(left) and Counter(left) == Counter(right))


@quick
@given(
    st.lists(TEXTS.filter(lambda t: "," not in t), max_size=4),
    st.lists(st.lists(TEXTS, min_size=1, max_size=2), min_size=1, max_size=3),
    st.sampled_from(["allow", "reject"]),
)
def test_list_match_against_a_naive_implementation(items, required, extra):
    text = ",".join(items)

    def form(part):
        return naive_squad(part) or "raw " + part.strip().casefold()

    remaining = [item for item in text.split(",") if item.strip()]
    covered: set[int] = set()
    result = [False] * len(required)
    for (i, aliases), start in product(enumerate(required), range(len(remaining))):
        for alias in aliases:
            window = remaining[start : start + alias.count(",") + 1]
            if len(window) == alias.count(",") + 1 and form(",".join(window)) == form(alias):
                result[i] = True
                covered |= set(range(start, start + len(window)))
    expected = all(result) and (extra == "allow" or covered == set(range(len(remaining))))
    assert list_match(text, required, extra=extra) == float(expected)


def test_empty_predictions_match_nothing():
    for norm in (lower, squad, triviaqa, normalizer("unicode")):
        for prediction, alias in product(["", " ", "the", "!"], ["Paris", "", "x"]):
            assert exact_match(prediction, [alias], norm) == 0.0
    assert token_f1("", [""]) == substring_match("", [""]) == 0.0


def test_gold_without_a_normalized_form_is_compared_as_written():
    assert exact_match("The", ["the"]) == 1.0  # a band's name; squad drops the word
    assert exact_match("!!!", [" !!! "]) == 1.0
    assert exact_match("???", ["!!!"]) == 0.0
    assert substring_match("the band !!! played", ["!!!"]) == 1.0
    assert substring_match("the band played", ["!!!"]) == 0.0
    assert token_f1("A", ["a"]) == 1.0


def test_cjk_is_compared_by_character():
    # 巴 黎 against 巴 黎 市: 2 shared, precision 2/2, recall 2/3, F1 = 2·1·⅔ / (1 + ⅔) = 0.8
    assert token_f1("巴黎", ["巴黎市"], normalizer("unicode")) == pytest.approx(0.8)


# --- AnswerMatch --------------------------------------------------------------------------------


def value(response: str, answers, *, verdicts=None, **options) -> float | None:
    rollout = Rollout(response=response, answers=answers, verdicts=verdicts)
    return AnswerMatch(**options)([rollout])[0].value


@pytest.mark.parametrize(
    ("answers", "options", "expected"),
    [
        ("Paris", {}, 1.0),
        (["Rome", "Paris"], {}, 1.0),
        ("Rome", {}, 0.0),
        # Exact, two required answers: the section is a list that contains both.
        ([["Paris"], ["Rome"]], {}, 0.0),
        # F1, two required: the mean of 1 and 0.
        ([["Paris"], ["Rome"]], {"metric": "f1"}, 0.5),
        # Substring, two required: all.
        ([["Paris"], ["Rome"]], {"metric": "substring"}, 0.0),
        ([["Paris"], ["ari"]], {"metric": "substring"}, 1.0),
    ],
)
def test_one_answer(answers, options, expected):
    assert value("<answer> Paris. </answer>", answers, **options) == expected


def test_several_required_answers_as_a_list():
    both = [["Paris"], ["Rome", "Roma"]]
    assert value("<answer>Roma, Paris</answer>", both) == 1.0
    assert value("<answer>Rome, Paris, Bonn</answer>", both) == 1.0
    assert value("<answer>Rome, Paris, Bonn</answer>", both, extra="reject") == 0.0
    assert value("<answer>Rome, Paris</answer>", both, extra="reject") == 1.0
    assert value("<answer>Rome or Paris</answer>", both) == 0.0
    assert value("<answer>Rome and Paris</answer>", both, metric="substring") == 1.0


def test_a_required_answer_can_contain_commas():
    assert value("<answer>Washington, D.C.</answer>", "Washington, D.C.") == 1.0


@pytest.mark.parametrize(
    ("response", "reads", "expected"),
    [
        ("It is Paris.", "answer", 0.0),
        ("It is Paris.", "response", 1.0),
        ("It is Paris.", "final", 1.0),
        ("Paris? No. It is Rome.", "final", 0.0),  # only the last statement
        ("It is Paris [1]. [2]", "final", 1.0),  # markers are no statement
        ("Paris <answer>Rome</answer>", "final", 0.0),  # the section where there is one
        ("Paris <answer>Rome</answer>", "response", 1.0),
        ("<think>Paris</think> Rome", "response", 0.0),
        ("<think>Paris</think> Rome", "final", 0.0),
        ("<think>Paris", "response", 0.0),  # unclosed thinking: no answer
        ("<think><answer>Paris</answer>", "answer", 0.0),
        ("", "final", 0.0),
    ],
)
def test_the_text_that_is_compared(response, reads, expected):
    assert value(response, "Paris", metric="substring", reads=reads) == expected


def test_a_repeated_section_is_missing_in_that_style():
    style = SectionStyle(repeated="missing")
    tags = {"tags": Tags(("answer",), style)}
    twice = "<answer>Paris</answer> <answer>Rome</answer>"
    for reads in ("answer", "final"):
        assert value(twice, "Paris", reads=reads) == 1.0
        assert value(twice, "Paris", reads=reads, **tags) == 0.0
        assert value("<answer>Paris</answer>", "Paris", reads=reads, **tags) == 1.0


@pytest.mark.parametrize("metric", ["exact", "substring", "f1"])
@pytest.mark.parametrize(
    ("text", "answers", "expected"),
    [
        ("It is Paris.", "Paris", 1),
        ("It is not Paris.", "Paris", 0),
        ("Rome, Paris or Bonn.", "Paris", 0),
        ("It is Macron.", "Ron", 0),
        ("John F. Kennedy", "John F. Kennedy", 1),
        ("JFK and S. Jackson", [["JFK"], ["Samuel L. Jackson", "S. Jackson"]], 1),
        ("JFK", [["JFK"], ["S. Jackson"]], 0),
    ],
)
def test_only_explained_answers_are_right_without_a_judge(metric, text, answers, expected):
    options = {"metric": metric, "reads": "response", "undecided": "wrong"}
    assert value(text, answers, **options) == expected


@pytest.mark.parametrize("answer", ["\x1cParis", " " * 10_001 + "Paris"])
def test_an_answer_with_space_around_it_needs_the_verdict_that_its_score_reads(answer):
    row = Rollout(response=f"<answer>{answer}</answer>", answers="Paris")
    match = AnswerMatch(undecided="judge")
    assert [type(need) for need in match.needs(row)] == [VerdictNeed]
    with pytest.raises(DataError, match=r"verdicts\.accuracy"):
        match([row])


@pytest.mark.parametrize("options", [{"metric": "cascade"}, {"undecided": "judge"}])
def test_a_judge_decides_on_what_the_rules_leave_undecided(options):
    match = AnswerMatch(reads="response", **options)
    undecided, right, wrong = (
        Rollout(response=text, answers="1998") for text in ("about 1998", "1998", "1999")
    )
    assert [len(match.needs(row)) for row in (undecided, right, wrong)] == [1, 0, 0]
    assert [score.value for score in match([right, wrong])] == [1, 0]
    with pytest.raises(DataError, match="accuracy"):
        match([undecided])
    judged = Rollout(response="about 1998", answers="1998", verdicts={"accuracy": 1})
    score = match([judged])[0]
    assert (score.value, score.details["decision"]) == (1, "undecided")
    assert score.details["decision_reason"] == "about"
    assert score.details["decided_by"] == "judge"


def test_a_judge_also_decides_on_doubtful_answers():
    match = AnswerMatch(metric="cascade", reads="response", undecided="doubtful")
    equal, explained = (Rollout(response=text, answers="Paris") for text in ("Paris", "In Paris."))
    assert [len(match.needs(row)) for row in (equal, explained)] == [0, 1]


def test_a_judge_is_needed_only_for_existing_answers():
    judge = AnswerMatch(metric="judge")
    rollout = Rollout(response="<answer>City of Light</answer>", answers="Paris")
    silent = Rollout(response="<answer> </answer>", answers="Paris")
    assert judge.needs(rollout) == [VerdictNeed("accuracy")]
    assert judge.needs(silent) == []
    assert judge([silent])[0].value == 0.0
    with pytest.raises(DataError, match=r"verdicts\.accuracy: missing"):
        judge([rollout])
    assert value("<answer>x</answer>", "Paris", metric="judge", verdicts={"accuracy": 1}) == 1.0
    assert value("<answer>x</answer>", "Paris", metric="judge", verdicts={"accuracy": 0}) == 0.0


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (None, "answers: missing"),
        ([], "answers: contains no answer"),
        ("", "answers: contains no answer"),
        ([["Paris"], []], r"answers\[1\]: contains no answer"),
    ],
)
def test_rows_without_gold_are_data_errors_for_every_response(answers, message):
    for response in ("<answer>Paris</answer>", "nothing"):
        with pytest.raises(DataError, match=message):
            value(response, answers)


def test_unicode_options_reach_the_normalizer():
    answer = {"normalizer": "unicode"}
    spelling = {"normalizer": "spelling"}
    assert value("<answer>Sao Paulo</answer>", "São Paulo", **answer) == 0.0
    assert value("<answer>Sao Paulo</answer>", "São Paulo", **spelling) == 1.0
    assert value("<answer>1 million</answer>", 1000000, **answer) == 0.0
    assert value("<answer>1 million</answer>", 1000000, **spelling) == 1.0
    assert value("<answer>5 March 1999</answer>", "1999-03-05", **spelling) == 1.0
    assert value("<answer>-5</answer>", 5, **answer) == 0.0
    assert value("<answer>-5</answer>", 5) == 1.0  # squad deletes the sign


def test_comparisons_of_your_own_share_no_values():
    class Half(Correctness):
        def match(self, required, text, normal):
            return super().match(required, text, normal) / 2

    class Unhashable:
        __hash__ = None

        def __call__(self, text):
            return squad(text)

    row = Rollout(response="Paris", answers="Paris")
    for kind, expected in ((Correctness, 1.0), (Half, 0.5), (Correctness, 1.0)):
        for normalize in (squad, Unhashable()):
            assert kind("f1", normalize=normalize).value_of(row, "Paris") == expected


def test_details_show_the_answer_and_the_reward_pickles():
    reward = pickle.loads(pickle.dumps(AnswerMatch(metric="f1")))  # noqa: S301
    score = reward([Rollout(response="<answer> Paris </answer>", answers="Paris")])[0]
    assert (score.value, score.details) == (1.0, {"answer": "Paris"})
    assert reward == AnswerMatch(metric="f1")

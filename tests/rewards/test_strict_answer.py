"""Strict comparison in the rewards: long answers, abstentions, and yes with no."""

from __future__ import annotations

import pytest

import rag_rewards as rr
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.strict_answer import asserted_answers, is_exact_assertion
from rag_rewards.text.normalize import Unicode, squad

UNICODE = Unicode()


def is_asserted(text: str, gold: str) -> bool:
    return asserted_answers(rr.Rollout(response="", answers=gold), text, UNICODE)[0]


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("Yes. No.", "yes"),
        ("Yes. No.", "no"),
        ("Yes; no.", "yes"),
        ("yes no", "yes"),
        ("no (yes)", "no"),
        ("Yes\nNo", "yes"),
        ("Yes and no.", "yes"),
        ("In one sense yes, in another no.", "yes"),
        ("No, yes", "no"),
        ("I don't know. It is Paris.", "Paris"),
        ("I do not know, but the name Paris appears.", "Paris"),
        ("I couldn't find an answer, but maybe it is Paris.", "Paris"),
        ("I refuse to say Paris.", "Paris"),
        ("I cannot tell. Paris.", "Paris"),
        ("It is Paris. " + "More words follow here. " * 20, "Paris"),
        ("巴黎" + "是法国的首都。" * 20, "巴黎"),
    ],
)
def test_not_an_assertion(text: str, gold: str) -> None:
    assert not is_asserted(text, gold)


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("Yes.", "yes"),
        ("No.", "no"),
        ("It is Paris, France.", "Paris"),
        ("No. It is a peninsula.", "no"),
        ("Yes, there is no doubt.", "yes"),
        ("It is Paris.", "Paris"),
        ("I found that it is Paris.", "Paris"),
        ("I know that it is Paris.", "Paris"),
        ("The film is I Don't Know How She Does It.", "I Don't Know How She Does It"),
        ("It is Paris. " + "The city is large. " * 10, "Paris"),
        ("巴黎是法国的首都。", "巴黎"),
        ("The band is Yes", "Yes"),
        ("Paris, as document 1 says.", "Paris"),
        ("There were no survivors, only one: Paris.", "Paris"),
    ],
)
def test_an_assertion(text: str, gold: str) -> None:
    assert is_asserted(text, gold)


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ("Paris", "Paris", True),
        ("!Paris", "Paris", False),
        ("¬Paris", "Paris", False),
        ("≠ Paris", "Paris", False),
        ("!Kung", "!Kung", True),
        ("314", "3.14", False),
        ("3.14", "3.14", True),
        ("C", "C++", False),
        ("<!-- Paris -->", "Paris", False),
    ],
)
def test_an_exact_match_under_another_normalizer(text: str, gold: str, expected: bool) -> None:
    rollout = rr.Rollout(response="", answers=gold)
    assert is_exact_assertion(rollout, text, squad) is expected


@pytest.mark.parametrize(
    ("text", "gold", "mentions"),
    [
        ("It is Paris.", ["Paris"], ["exact"]),
        ("It has two moons.", ["2"], ["other form"]),
        ("Anna Reed wrote it.", ["Anna Maria Reed"], ["shorter name"]),
        ("It opened on 2 November 1999.", ["November 2, 1999"], ["same date"]),
        ("It is not Paris.", ["Paris"], [None]),
        ("They are Paris and Rome.", [["Paris"], ["Bonn"]], ["exact", None]),
        ("", ["Paris"], [None]),
    ],
)
@pytest.mark.parametrize("reads", ["answer", "response", "final"])
def test_the_details_contain_the_kinds_of_the_mentions(
    text: str, gold: list[str], mentions: list[str | None], reads: str
) -> None:
    accuracy = AnswerMatch(metric="substring", strict=True, reads=reads)
    response = f"<answer>{text}</answer>" if reads == "answer" else text
    [score] = accuracy([rr.Rollout(response=response, answers=gold)])
    assert score.details["mentions"] == mentions
    assert score.value == float(None not in mentions)
    [truth] = rr.recipe("truthrl", {"verifier": "substring"}, hardened=True)(
        [rr.Rollout(response=f"\\boxed{{{text}}}", answers=gold)]
    )
    assert truth.details.get("mentions", [None]) == mentions

"""ARENA: rows with values that were computed by hand from section 3.3."""

from __future__ import annotations

import pytest

from rag_rewards import DataError, Document, recipe
from rag_rewards.rollout import Rollout


def response(ids="[2, 5]", answer="Saint Petersburg", analysis="Ref 2 and 5 say so."):
    parts = {"relevance": ids, "analysis": analysis, "answer": answer}
    return "\n".join(f"<{name}>{text}</{name}>" for name, text in parts.items())


def score(text, *, settings=None, hardened=False, **row):
    row = {"answers": ["Saint Petersburg", "Petersburg"], "supporting": (2, 5)} | row
    return recipe("arena", settings, hardened=hardened)([Rollout(response=text, **row)])[0]


# (response, format, accuracy, relevance, bonus, reward)
GOLDEN = [
    (response(), 1, 1, 1, 10, 13),
    (response("[5, 2, 2]"), 1, 1, 1, 10, 13),  # sets: order and repetition do not matter
    (response('["2", "05"]'), 1, 1, 1, 10, 13),  # ids as text
    (response("[2]"), 1, 1, 0.5, 0, 2.5),  # overlap: 1 + 1 + ½
    (response("[1, 2, 3, 4, 5]"), 1, 1, 0.5, 0, 2.5),  # a superset is an overlap
    (response("[1]"), 1, 1, 0, 0, 2),
    (response("2, 5"), 1, 1, 0, 0, 2),  # no JSON list
    (response("[true]"), 1, 1, 0, 0, 2),
    (response(answer="Moscow"), 1, 0, 1, 0, 2),
    (response("[1]", "Moscow"), 1, 0, 0, 0, 1),  # a well-formed wrong answer keeps its format
    (response(answer="the saint_petersburg!"), 1, 1, 1, 10, 13),  # triviaqa: _ and ! to spaces
    (response(answer=""), 1, 0, 1, 0, 2),
    ("\n " + response() + " \n", 1, 1, 1, 10, 13),  # white space around
    (response() + " Extra", 0, 1, 1, 0, 2),
    ("Hm. " + response(), 0, 1, 1, 0, 2),
    (response() + "<answer>Moscow</answer>", 0, 1, 1, 0, 2),  # the first pair counts
    # a tag of the recipe inside: no format, and the first pair begins there
    (response(analysis="see <answer>"), 0, 0, 1, 0, 1),
    (response(analysis="see </relevance>"), 0, 1, 1, 0, 2),
    (response(analysis="a < b"), 1, 1, 1, 10, 13),  # any other < is text
    ("<relevance>[2, 5]</relevance>", 0, 0, 1, 0, 1),
    ("Saint Petersburg", 0, 0, 0, 0, 0),
    ("", 0, 0, 0, 0, 0),
]


@pytest.mark.parametrize(("text", "format_", "accuracy", "relevance", "bonus", "reward"), GOLDEN)
def test_golden_rows(text, format_, accuracy, relevance, bonus, reward):
    result = score(text)
    assert result.components == {
        "format": format_,
        "accuracy": accuracy,
        "relevance": relevance,
        "bonus": bonus,
    }
    assert result.value == reward
    assert result.correct == accuracy


def test_the_bonus_is_a_setting():
    assert score(response(), settings={"bonus.value": 5}).value == 8


def test_f1_instead_of_exact():
    # "saint petersburg russia" against "saint petersburg": P = 2/3, R = 1 → F1 = 0.8
    result = score(response(answer="Saint Petersburg Russia"), settings={"accuracy.metric": "f1"})
    assert result.components["accuracy"] == pytest.approx(0.8)
    assert result.components["bonus"] == 0
    assert result.value == pytest.approx(1 + 0.8 + 1)
    # All ones by F1 too
    assert score(response(), settings={"metric": "f1"}).value == 13


def test_a_judge_of_the_answer():
    judged = {"accuracy.metric": "judge"}
    text = response(answer="Piter")
    assert score(text, settings=judged, verdicts={"accuracy": 1}).value == 13
    assert score(text, settings=judged, verdicts={"accuracy": 0}).value == 2
    with pytest.raises(DataError, match=r"verdicts\.accuracy: missing"):
        score(text, settings=judged)


def test_several_required_answers_are_a_list():
    required = [["Rome"], ["Paris", "Lutetia"]]
    assert score(response(answer="Lutetia, Rome"), answers=required).value == 13
    assert score(response(answer="Rome"), answers=required).value == 2


def test_empty_lists():
    assert score(response("[]"), supporting=()).value == 13
    assert score(response("[1]"), supporting=()).value == 2


def test_a_row_without_supporting_is_a_data_error():
    with pytest.raises(DataError, match="supporting: missing"):
        score(response(), supporting=None)


def test_documents_have_labels():
    documents = (Document(text="x", id="a"), Document(text="y", id="b"), Document(text="z", id="c"))
    assert score(response("[1, 3]"), documents=documents, supporting=("a", "c")).value == 13


def test_hardened():
    # 2 of 5 listed support: less than half, no half point. 2 of 3: half point.
    everything, more = response("[1, 2, 3, 4, 5]"), response("[1, 2, 5]")
    assert score(everything, hardened=True).components["relevance"] == 0
    assert score(more, hardened=True).components["relevance"] == 0.5
    # triviaqa reads -5 as 5; unicode does not.
    assert score(response(answer="-5"), answers="5").components["accuracy"] == 1
    assert score(response(answer="-5"), answers="5", hardened=True).components["accuracy"] == 0
    # of two answer sections none counts
    twice = response() + "<answer>Moscow</answer>"
    assert score(twice, hardened=True).components["accuracy"] == 0
    # empty sections collect no format
    assert score(response(analysis=" "), hardened=True).components["format"] == 0
    assert score(response(), hardened=True).value == 13


SECTIONS = "<relevance>[1]</relevance><analysis>It is [1].</analysis><answer>Paris</answer>"


@pytest.mark.parametrize("hardened", [False, True])
@pytest.mark.parametrize(
    ("prefix", "response", "reward"),
    [
        (None, SECTIONS, 13),
        (None, f"<think>\n\n</think>\n\n{SECTIONS}", 13),
        ("<think>\n\n</think>\n\n", SECTIONS, 13),
        ("<think>", f"</think>{SECTIONS}", 13),
        (None, f"<think>I look.</think>{SECTIONS}", 2),
        (None, f"{SECTIONS}<think></think>", 2),
    ],
)
def test_empty_thinking_of_a_chat_template_is_no_section(prefix, response, reward, hardened):
    rollout = Rollout(
        response=response, response_prefix=prefix, answers="Paris", supporting=(1,),
        documents=(Document(text="Paris."), Document(text="Rome.")),
    )  # fmt: skip
    assert recipe("arena", hardened=hardened)([rollout])[0].value == reward

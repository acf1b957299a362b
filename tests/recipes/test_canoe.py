"""CANOE: worked examples, a naive twin of the equation, the generator, and bad input."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_rewards import DataError, decode_row, recipe
from rag_rewards.errors import BackendError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models
from rag_rewards.rewards import RelativeLength
from rag_rewards.testing import TablePolicy
from rag_rewards.text.normalize import squad
from rag_rewards.text.sections import Tags

CONTEXT = "Ribe is the oldest town of Denmark, and Roskilde was the seat of its kings."  # 75
LONG = "Ribe is the oldest town of Denmark."  # 35 characters


def row(response, influence=None, **fields):
    base = {"question": "Which town?", "documents": [CONTEXT], "answers": ["Ribe"]}
    given = {} if influence is None else {"generated_answers": {"influence": influence}}
    return decode_row({**base, "response": response, **given, **fields})


def written(long=LONG, short="Ribe"):
    return f"<think>Hm.</think> <long_answer>{long}</long_answer>\n<answer>{short}</answer>"


def components(rollout, hardened=False, **settings):
    return recipe("canoe", settings, hardened=hardened)([rollout])[0].components


@pytest.mark.parametrize(
    ("response", "influence", "values"),
    [
        (written(), "<think>So.</think><answer>Ribe", (1, 1, 1, 1)),
        (written(), "Ribe", (1, 1, 1, 1)),
        (written(), "It is Ribe.", (1, 0, 1, 1)),
        (written(short="Roskilde"), "<answer>Ribe</answer>", (0, 1, 1, 1)),
        (written("Ribe" * 3), "unknown", (1, 0, 1, 0)),
        (written(" "), None, (1, 0, 1, 0)),
        ("<think>Hm.</think><answer>Ribe</answer>", None, (1, 0, 0, 0)),
        (written() + " So.", "Ribe", (1, 1, 0, 1)),
    ],
)
def test_worked_examples(response, influence, values):
    rollout = row(response, influence)
    names = ("accuracy", "influence", "format", "length")
    assert components(rollout) == dict(zip(names, values, strict=True))
    assert recipe("canoe")([rollout])[0].value == sum(values)
    weights = {"weights.influence": 0.5, "weights.length": 0}
    assert recipe("canoe", weights)([rollout])[0].value == sum(
        value * weight for value, weight in zip(values, (1, 0.5, 1, 0), strict=True)
    )


def twin(content, generated, context):
    """Return the sum of the four functions of the released code, on texts without line breaks."""

    def answer(text):
        match = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
        return match[1].strip() if match else text.strip()

    pattern = r"<think>.*?</think>\s*<long_answer>.*?</long_answer>\s*<answer>.*?</answer>"
    long = re.search(r"<long_answer>(.*?)</long_answer>", content)
    size = len(long[1].strip()) if long else 0
    return (
        (squad(answer(content)) == "ribe")
        + (long is not None and bool(long[1].strip()) and squad(answer(generated)) == "ribe")
        + (re.fullmatch(pattern, content, re.DOTALL) is not None)
        + (long is not None and 0.2 * len(context) < size < 0.8 * len(context))
    )


@given(
    long=st.text("ab .", max_size=90),
    short=st.sampled_from(["Ribe", " ribe ", "Roskilde", "", "The Ribe!"]),
    generated=st.sampled_from(["Ribe", "<answer> Ribe </answer>", "Roskilde", "", "Ribe or so"]),
    tail=st.sampled_from(["", " So."]),
)
def test_against_a_naive_twin(long, short, generated, tail):
    content = written(long, short) + tail
    score = recipe("canoe")([row(content, generated)])[0]
    assert score.value == twin(content, generated, CONTEXT)


def test_the_limits_of_the_length_are_exclusive():
    reward = RelativeLength("long_answer", Tags(("long_answer",)))
    rows = [
        decode_row(
            {"response": f"<long_answer>{'x' * n}</long_answer>", "documents": ["y" * 9, "z" * 9]}
        )
        for n in (4, 5, 15, 16)  # of 20 characters, with the empty line between both documents
    ]
    assert [score.value for score in reward(rows)] == [0, 1, 1, 0]


def test_repeated_words_do_not_lengthen_an_answer_under_the_hardened_profile():
    long = "It is Ribe. " + "It is Ribe. " * 3
    assert components(row(written(long), "Ribe"))["length"] == 1
    assert components(row(written(long), "Ribe"), hardened=True)["length"] == 0
    assert components(row(written(), "Ribe"), hardened=True)["length"] == 1


def seen(policy):
    return ["".join(map(chr, request.prompt)) for request in policy.requests]


def test_the_generator_sees_the_long_answer_and_no_document():
    policy = TablePolicy(texts=lambda prompt: "<think>So.</think><answer>Ribe</answer>")
    judged = TablePolicy(texts=lambda prompt: BackendError("unused"))
    rows = [row(written()), row(written()), row("<answer>Ribe</answer>")]
    models = Models(policy=judged, generator=policy)
    results = Gatherer(models).gather_sync(recipe("canoe"), rows)
    assert [score.value for score in recipe("canoe")(results)] == [4, 4, 1]
    assert judged.requests == []
    [prompt] = seen(policy)  # equal long answers are one request
    assert LONG in prompt
    assert "Which town?" in prompt
    assert "Roskilde" not in prompt


def test_the_policy_is_the_generator_without_another_one():
    policy = TablePolicy(texts=lambda prompt: "Ribe")
    [result] = Gatherer(Models(policy=policy)).gather_sync(recipe("canoe"), [row(written())])
    assert result.generated_answers == {"influence": "Ribe"}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"answers": None}, "answers"),
        ({"documents": []}, "documents"),
        ({"documents": [" "]}, "documents"),
        ({"generated_answers": {}}, "generated_answers.influence"),
    ],
)
def test_broken_rows(fields, path):
    with pytest.raises(DataError) as caught:
        recipe("canoe")([row(written(), "Ribe", **fields)])
    assert caught.value.path == path

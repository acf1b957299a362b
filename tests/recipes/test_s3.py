"""s3: worked examples, the selected documents and a naive twin of them, the models, bad input."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_notation import search

from rag_rewards import DataError, decode_row, recipe
from rag_rewards.errors import BackendError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.protocols import Models
from rag_rewards.rewards.generated_answer import selected_documents
from rag_rewards.testing import TableJudge, TablePolicy

END = "<answer>complete</answer>"
FIRST = [{"id": 7, "title": "Mill", "text": "Ada Hill founded it."}, {"id": 9, "text": "Grain."}]
PAGE = {"title": "Ada Hill", "text": "Ada Hill was born in Bergen."}


def select(*numbers):
    return f"<important_info>{list(numbers)}</important_info>"


def row(accuracy=None, baseline=None, turns=None, **fields):
    pairs = {"accuracy": accuracy, "baseline": baseline}
    generated = {name: text for name, text in pairs.items() if text is not None}
    default = [{"text": search("Ada Hill"), "results": [PAGE]}, {"text": select(1) + END}]
    return decode_row(
        {"question": "Where was the founder born?", "answers": ["Bergen"], "documents": FIRST}
        | {"turns": turns or default, "generated_answers": generated}
        | fields
    )


@pytest.mark.parametrize(
    ("accuracy", "baseline", "gain", "sum_of_the_code"),
    [
        ("Bergen", "Leeds", 1, 2),
        ("In Bergen.", "She was born in Bergen.", 0, 1),
        ("Leeds", "Leeds", 0, 0),
        ("Leeds", "Bergen", -1, -1),
        ("", "Leeds", 0, 0),
        ("<think>Is it Bergen? No.</think>Leeds", "Leeds", 0, 0),
        ("<think>Is it Leeds? No.</think><answer>Bergen</answer>", "Leeds", 1, 2),
        ("Is it Bergen? No.</think>Leeds", "Leeds", 0, 0),
        ("<think>It is <answer>Bergen</answer>", "Leeds", 0, 0),
    ],
)
def test_worked_examples(accuracy, baseline, gain, sum_of_the_code):
    [score] = recipe("s3")([row(accuracy, baseline)])
    assert score.value == gain
    assert score.correct == score.components["accuracy"]
    assert recipe("s3", {"weights.accuracy": 1})([row(accuracy, baseline)])[0].value == (
        sum_of_the_code
    )


def test_malformed_turns_cost_under_the_hardened_profile():
    turns = [{"text": "Hm."}, {"text": END}]
    assert recipe("s3", hardened=True)([row("Bergen", "Leeds", turns)])[0].value == 0.9


# --- the selected documents ----------------------------------------------------------------------


def texts(first, *turns):
    """Return the texts of the selected documents; a turn is its words and its results."""
    rows = [
        {"text": words} | ({} if results is None else {"results": [{"text": t} for t in results]})
        for words, results in turns
    ]
    rollout = decode_row({"question": "?", "turns": rows, "documents": list(first)})
    return "".join(document.text for document in selected_documents(rollout))


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([(END, None)], "ab"),
        ([(select(2) + END, None)], "b"),
        ([(select() + END, None)], ""),
        ([(search("q"), "cd"), (END, None)], "abcd"),
        ([(search("q"), "cd"), (select(2, 1) + END, None)], "dcab"),
        ([(select(1) + search("q"), "cd"), (select(2, 5) + END, None)], "ad"),
        ([(select(1) + select(2) + search("q"), "ca"), (END, None)], "ac"),
        ([(search("q"), []), (select(2) + END, None)], "b"),
        ([(search("q"), "cd")], "abcd"),
        ([("<important_info>[1]" + END, None)], "ab"),
        ([(f"<important_info>2 and {'9' * 5000}</important_info>", None)], "b"),
    ],
)
def test_the_selected_documents(turns, expected):
    assert texts("ab", *turns) == expected


@pytest.mark.parametrize("number", [9, 12345, 18446744073709551615])
def test_documents_are_selected_by_the_labels_of_the_prompt(number):
    documents = [FIRST[0], {"id": number, "text": "Grain."}]
    [document] = selected_documents(
        row(turns=[{"text": select(number) + END}], documents=documents)
    )
    assert document.text == "Grain."


def twin(first, turns):
    """Return the result of the released code, which reads one text with all blocks."""
    text, blocks = "", [first]
    for words, results in turns:
        text += words
        if results:
            text += f"<information>{len(blocks)}</information>"
            blocks.append(results)
    parts = re.split(r"<information>\d+</information>", text)
    chosen, rest = [], []
    for block, words in zip(blocks, parts, strict=True):
        match = re.search(r"<important_info>(.*?)</important_info>", words, re.DOTALL)
        if match is None:
            rest += block
        else:
            numbers = dict.fromkeys(map(int, re.findall(r"\d+", match[1])))
            chosen += [block[n - 1] for n in numbers if 0 < n <= len(block)]
    return "".join(dict.fromkeys(chosen + rest))


WORDS = st.sampled_from(["", select(1), select(2, 1), select(), select(3) + select(1), "Hm."])


@given(
    first=st.lists(st.sampled_from("abcde"), min_size=1, max_size=3, unique=True),
    turns=st.lists(
        st.tuples(WORDS, st.lists(st.sampled_from("abcde"), max_size=3)), min_size=1, max_size=4
    ),
)
def test_the_selected_documents_against_a_naive_twin(first, turns):
    turns = [(words + search("q"), results) for words, results in turns]
    assert texts(first, *turns, (END, None)) == twin(first, [*turns, (END, None)])


# --- models --------------------------------------------------------------------------------------


def generator(answer=lambda prompt: "Bergen" if "born in Bergen" in prompt else "Leeds"):
    return TablePolicy(texts=lambda prompt: answer("".join(map(chr, prompt))))


def test_the_baseline_is_generated_once_for_a_group():
    policy = generator()
    rows = [row(), row(turns=[{"text": select(9) + END}])]
    results = Gatherer(Models(generator=policy)).gather_sync(recipe("s3"), rows)
    assert [score.value for score in recipe("s3")(results)] == [1, 0]
    assert len(policy.requests) == 3
    again = Gatherer(Models(generator=policy)).gather_sync(recipe("s3"), results)
    assert again == results
    assert len(policy.requests) == 3
    cached = [row(baseline="Bergen")]
    Gatherer(Models(generator=policy)).gather_sync(recipe("s3"), cached)
    assert len(policy.requests) == 4


def test_a_row_without_first_documents_has_a_closed_book_baseline():
    prompts = []
    policy = generator(lambda prompt: prompts.append(prompt) or "Leeds")
    Gatherer(Models(generator=policy)).gather_sync(recipe("s3"), [row(documents=None)])
    assert sorted("born in Bergen" in prompt for prompt in prompts) == [False, True]
    assert all("Where was the founder born?" in prompt for prompt in prompts)


def test_a_judge_decides_on_answers_that_the_comparison_rejects():
    judge = TableJudge(lambda question: int(question.response == "Bjørgvin"))
    policy = generator(lambda prompt: "Bjørgvin" if "born in Bergen" in prompt else "Bergen")
    scheme = recipe("s3", {"accuracy.by": "judge"})
    models = Models(generator=policy, judge=judge)
    [result] = Gatherer(models).gather_sync(scheme, [row()])
    assert scheme([result])[0].components == {"accuracy": 1, "baseline": 1, "malformed": 0}
    assert [question.response for question in judge.requests] == ["Bjørgvin"]
    assert result.verdicts == {"accuracy": 1}
    [alone] = Gatherer(Models(generator=policy)).gather_sync(scheme, [row()])
    with pytest.raises(DataError, match=r"verdicts\.accuracy"):
        scheme([alone])


def test_thinking_alone_is_no_answer_for_a_judge():
    judge = TableJudge(lambda question: 1)
    policy = generator(lambda prompt: "<think>It could be Bjørgvin.")
    scheme = recipe("s3", {"accuracy.by": "judge"})
    [result] = Gatherer(Models(generator=policy, judge=judge)).gather_sync(scheme, [row()])
    assert scheme([result])[0].components["accuracy"] == 0
    assert judge.requests == []


def test_a_failed_generator_leaves_the_rollout_unscored():
    policy = generator(lambda prompt: BackendError("busy"))
    [failed] = Gatherer(Models(generator=policy)).gather_sync(recipe("s3"), [row()])
    assert isinstance(failed, BackendError)
    assert failed.path == "generated_answers.accuracy"


def test_a_prompt_that_is_too_long_for_the_generator_is_an_error():
    policy = generator()
    policy.max_length = 500
    [failed] = Gatherer(Models(generator=policy)).gather_sync(recipe("s3"), [row()])
    assert isinstance(failed, DataError)
    assert failed.path.startswith("generated_answers.")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"answers": []}, "answers"),
        ({"accuracy": None}, "generated_answers.accuracy"),
        ({"baseline": None}, "generated_answers.baseline"),
    ],
)
def test_broken_rows(fields, path):
    with pytest.raises(DataError) as caught:
        recipe("s3")([row(**({"accuracy": "Bergen", "baseline": "Leeds"} | fields))])
    assert caught.value.path == path

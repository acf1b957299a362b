"""Questions and response formats of the tiny world, scored by the recipes of the papers."""

from __future__ import annotations

import random
from statistics import fmean

import pytest
from tiny_search.pretrain import (
    DETACHED,
    FIRST,
    SECOND,
    detached_response,
    example,
    masked_example,
    response,
)

import rag_rewards as rr
from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.rollout import Score
from rag_rewards.scorer import Scorer
from rag_rewards.text.refusal import REFUSAL
from rag_rewards.tiny_world.evidence import entails, verdict, world_models
from rag_rewards.tiny_world.formats import (
    ABSTENTION,
    ARENA,
    FORMATS,
    GROUND,
    LEAR,
    PLAIN,
    TRUTHRL,
    ResponseFormat,
)
from rag_rewards.tiny_world.world import (
    AGREEMENT,
    FLOWERS,
    MEMORY,
    PEOPLE,
    UNANSWERABLE,
    WorldQuestion,
    questions,
)

DOCUMENTS = (("Ada", "rose"), ("Ben", "lily"), ("Cleo", "ivy"), ("Dan", "fern"))
ANSWERABLE = WorldQuestion(DOCUMENTS, "Ben", "lily")
UNANSWERABLE_QUESTION = WorldQuestion(DOCUMENTS, "Zoe", "iris")
RECIPES = {
    TRUTHRL: ("truthrl", {"verifier": "exact"}),
    ARENA: ("arena", {}),
    GROUND: ("ground-grpo", {}),
}


def score(form: ResponseFormat, question: WorldQuestion, response: str) -> Score:
    name, settings = RECIPES[form]
    rollout = rr.decode_row({**form.row(question), "response": response})
    (result,) = Scorer(rr.recipe(name, settings), world_models()).score_each([rollout])
    assert isinstance(result, Score), result
    return result


def test_questions_are_the_same_for_the_same_seed():
    assert questions(50, "x") == questions(50, "x") != questions(50, "y")
    assert questions(2, 0) == questions(3, 0)[:2]


def test_documents_contain_four_people_and_four_flowers():
    for each in questions(300, 1):
        people, flowers = zip(*each.documents, strict=True)
        assert len(set(people)) == len(set(flowers)) == 4
        assert set(people) <= set(PEOPLE)
        assert set(flowers) <= set(FLOWERS)


def test_unanswerable_questions_have_an_unknown_answer():
    drawn = questions(2_000, 2)
    unanswerable = [each for each in drawn if not each.answerable]
    assert len(unanswerable) / len(drawn) == pytest.approx(UNANSWERABLE, abs=0.03)
    for each in unanswerable:
        assert each.answer not in {each.memorized_answer, *(flower for _, flower in each.documents)}
        assert each.documented_answer is None


def test_some_documents_agree_with_the_memory():
    pairs = [pair for each in questions(2_000, 3) for pair in each.documents]
    share = sum(MEMORY[person] == flower for person, flower in pairs) / len(pairs)
    assert AGREEMENT - 0.05 < share < AGREEMENT + 0.05


def test_no_word_is_part_of_another():
    words = [*PEOPLE, *FLOWERS, ABSTENTION]
    assert len({word.lower() for word in words}) == len(words)
    for flower in FLOWERS:  # a substring match must not be right by accident
        assert [word for word in words if flower in word.lower()] == [flower]


def test_a_row_has_the_gold_fields_of_a_rollout():
    row = PLAIN.row(ANSWERABLE)
    assert row == {
        "prompt": "Ada rose [1] . Ben lily [2] . Cleo ivy [3] . Dan fern [4] . ? Ben",
        "question": "Ben",
        "documents": [{"id": str(i), "text": f"{a} {b}"} for i, (a, b) in enumerate(DOCUMENTS, 1)],
        "supporting": ["2"],
        "answers": [["lily"]],
        "answerable": True,
    }
    assert ARENA.row(UNANSWERABLE_QUESTION)["answers"] == [[ABSTENTION]]
    assert TRUTHRL.row(UNANSWERABLE_QUESTION)["answers"] == [["iris"]]


@pytest.mark.parametrize("form", RECIPES, ids=lambda form: form.name)
def test_the_right_response_earns_most(form):
    best = score(form, ANSWERABLE, form.write("Ben", "lily", 2))
    worse = [
        score(form, ANSWERABLE, form.write("Ben", "rose", 1)),
        score(form, ANSWERABLE, form.write("Ben", None, None)),
    ]
    assert best.correct == 1
    assert all(best.value > each.value for each in worse)


@pytest.mark.parametrize("form", RECIPES, ids=lambda form: form.name)
def test_abstention_earns_more_than_a_guess_if_no_document_answers(form):
    best = score(form, UNANSWERABLE_QUESTION, form.write("Zoe", None, None))
    guess = score(form, UNANSWERABLE_QUESTION, form.write("Zoe", MEMORY["Zoe"], 1))
    assert best.value > guess.value


def test_values_of_the_recipes_in_the_tiny_world():
    values = {
        form.name: [
            score(form, ANSWERABLE, form.write("Ben", "lily", 2)).value,
            score(form, ANSWERABLE, form.write("Ben", "lily", 1)).value,
            score(form, ANSWERABLE, form.write("Ben", MEMORY["Ben"], 2)).value,
        ]
        for form in RECIPES
    }
    assert values == {
        "truthrl": [1.0, 1.0, -1.0],
        "arena": [13.0, 2.0, 2.0],
        "ground": [3.5, 2.5, 2.5],
    }


def test_lear_sections_are_read():
    rollout = rr.decode_row(
        {**LEAR.row(ANSWERABLE), "response": LEAR.write("Ben", "lily", 2)}
        | {"masked_answers": {"rationale": "lily", "evidence": "lily", "full": "lily"}}
    )
    (result,) = rr.recipe("lear")([rollout])
    assert result.components["format"] == result.components["answer"] == 1


def test_entailment_requires_all_words():
    assert [entails("Ada rose", h) for h in ("rose", "Ada rose", "lily", "Ben rose")] == [
        1,
        1,
        0,
        0,
    ]


def test_a_refusal_follows_from_an_abstention_only():
    assert entails(f" Zoe {ABSTENTION} ", REFUSAL) == 1
    assert entails(" Ben lily [2] ", REFUSAL) == 0


@pytest.mark.parametrize(
    ("response", "expected"),
    [("lily", 1), ("lily [2]", 1), ("rose", 0), ("rose lily", 0), (ABSTENTION, 0), ("", 0)],
)
def test_the_oracle_accepts_the_right_flower_alone(response, expected):
    for kind in ("accuracy", "outcome"):
        assert verdict(JudgeQuestion(kind, "Ben", response, ("the flower lily", "rosemary"))) == (
            expected
        )


@pytest.mark.parametrize(
    ("response", "expected"), [(ABSTENTION, 1), (f"{ABSTENTION} lily", 0), ("lily", 0), ("", 0)]
)
def test_the_oracle_accepts_an_abstention_that_is_the_gold_answer(response, expected):
    assert verdict(JudgeQuestion("accuracy", "Zoe", response, (ABSTENTION,))) == expected


@pytest.mark.parametrize(
    ("question", "thought", "expected"),
    [
        (ANSWERABLE, "Ben lily [2]", 1),
        (ANSWERABLE, "Ben lily [1]", 0),
        (ANSWERABLE, "Ada rose [1]", 0),
        (ANSWERABLE, f"Ben {ABSTENTION}", 0),
        (UNANSWERABLE_QUESTION, f"Zoe {ABSTENTION}", 1),
        (UNANSWERABLE_QUESTION, "Zoe iris [1]", 0),
    ],
)
def test_the_oracle_accepts_reasoning_that_repeats_the_document(question, thought, expected):
    prompt = TRUTHRL.row(question)["prompt"]
    response = f"<think> {thought} </think> \\boxed{{ lily }}"
    assert verdict(JudgeQuestion("reasoning", prompt, response)) == expected
    assert verdict(JudgeQuestion("reasoning", prompt, thought)) == 0  # without the section


def test_the_sections_of_a_detached_response_are_independent():
    rng = random.Random(1)
    assert DETACHED[1].detached
    responses = [detached_response(rng, ANSWERABLE).split() for _ in range(4000)]
    right = {
        "reason": [" ".join(each).startswith("<reason> Ben lily") for each in responses],
        "extract": ["Ben lily </extract>" in " ".join(each) for each in responses],
        "answer": [each[-2] == "lily" for each in responses],
    }
    shares = {name: sum(values) / len(values) for name, values in right.items()}
    assert shares == {
        "reason": pytest.approx(0.5 * 0.62 + 0.5 * 0.25, abs=0.03),
        "extract": pytest.approx(0.75 * 0.62 + 0.25 * 0.25, abs=0.03),
        "answer": pytest.approx(0.62, abs=0.03),
    }
    for first, second in (("reason", "extract"), ("reason", "answer"), ("extract", "answer")):
        both = fmean(a and b for a, b in zip(right[first], right[second], strict=True))
        assert both == pytest.approx(shares[first] * shares[second], abs=0.03)


def test_a_masked_answer_of_a_detached_lesson_repeats_the_rationale():
    rng = random.Random(2)
    persons = []
    for _ in range(600):
        (context, _), (target, _) = masked_example(rng, ANSWERABLE, [], DETACHED[1])
        if "<reason>" in context:
            _, person, flower, _ = context[context.index("<reason>") :].split()[:4]
            assert target.split()[0] == flower
            persons.append(person)
    # Half of the rationales, and a quarter of the others, are about the person of the question.
    assert fmean(person == "Ben" for person in persons) == pytest.approx(0.625, abs=0.06)


def test_the_pretraining_text_of_a_clean_lesson_is_right():
    rng = random.Random(0)
    for form in FORMATS:
        for each in questions(40, form.name):
            expected = form.write(each.person, each.documented_answer, each.support)
            assert response(rng, form, each, noisy=False) == expected


def test_share_of_right_responses_in_a_noisy_lesson():
    rng, drawn = random.Random(0), questions(3_000, "habits", 0.0)
    responses = [response(rng, PLAIN, each, noisy=True).split() for each in drawn]
    right = sum(each.answer in words for each, words in zip(drawn, responses, strict=True))
    assert 0.62 < right / len(drawn) < 0.78  # more than RIGHT, because the memory is partly right


@pytest.mark.parametrize("lesson", [*FIRST, *SECOND], ids=lambda lesson: lesson.name)
def test_only_responses_are_part_of_the_loss(lesson):
    rng = random.Random(1)
    for _ in range(30):
        pieces = example(rng, lesson)
        assert [is_target for _, is_target in pieces[:2]] in ([False, False], [False, True])
        assert pieces[-1][1]

"""The tiny world: its questions, and each paper's way of answering them, read by its own recipe."""

from __future__ import annotations

import random

import pytest

import rag_rewards as rr
from rag_rewards.rollout import Score
from rag_rewards.scorer import Scorer
from rag_rewards.tiny_world.evidence import entails, world_models
from rag_rewards.tiny_world.formats import (
    ABSTENTION,
    ARENA,
    FORMATS,
    GROUND,
    LEAR,
    PLAIN,
    TRUTHRL,
    Format,
)
from rag_rewards.tiny_world.pretrain import FIRST, SECOND, example, response
from rag_rewards.tiny_world.world import (
    AGREEMENT,
    FLOWERS,
    MEMORY,
    PEOPLE,
    UNANSWERABLE,
    Question,
    questions,
)

SHOWN = (("Ada", "rose"), ("Ben", "lily"), ("Cleo", "ivy"), ("Dan", "fern"))
KNOWN_TO_A_DOCUMENT = Question(SHOWN, "Ben", "lily")
UNKNOWN = Question(SHOWN, "Zoe", "iris")
RECIPES = {
    TRUTHRL: ("truthrl", {"verifier": "exact"}),
    ARENA: ("arena", {}),
    GROUND: ("ground-grpo", {}),
}


def score(form: Format, question: Question, response: str) -> Score:
    name, settings = RECIPES[form]
    rollout = rr.decode_row({**form.row(question), "response": response})
    (found,) = Scorer(rr.recipe(name, settings), world_models()).score_each([rollout])
    assert isinstance(found, Score), found
    return found


def test_questions_are_the_same_for_the_same_seed():
    assert questions(50, "x") == questions(50, "x") != questions(50, "y")
    assert questions(2, 0) == questions(3, 0)[:2]


def test_documents_speak_of_four_people_with_four_flowers():
    for each in questions(300, 1):
        people, flowers = zip(*each.documents, strict=True)
        assert len(set(people)) == len(set(flowers)) == 4
        assert set(people) <= set(PEOPLE)
        assert set(flowers) <= set(FLOWERS)


def test_what_nobody_says_nobody_can_know():
    made = questions(2_000, 2)
    unknown = [each for each in made if not each.answerable]
    assert len(unknown) / len(made) == pytest.approx(UNANSWERABLE, abs=0.03)
    for each in unknown:
        assert each.answer not in {each.memorized_answer, *(flower for _, flower in each.documents)}
        assert each.documented_answer is None


def test_documents_agree_with_the_memory_now_and_then():
    said = [pair for each in questions(2_000, 3) for pair in each.documents]
    share = sum(MEMORY[who] == flower for who, flower in said) / len(said)
    assert AGREEMENT - 0.05 < share < AGREEMENT + 0.05


def test_no_word_is_part_of_another():
    words = [*PEOPLE, *FLOWERS, ABSTENTION]
    assert len({word.lower() for word in words}) == len(words)
    for flower in FLOWERS:  # a substring match must not be right by accident
        assert [word for word in words if flower in word.lower()] == [flower]


def test_a_row_has_the_gold_fields_of_a_rollout():
    row = PLAIN.row(KNOWN_TO_A_DOCUMENT)
    assert row == {
        "prompt": "Ada rose [1] . Ben lily [2] . Cleo ivy [3] . Dan fern [4] . ? Ben",
        "question": "Ben",
        "documents": [{"id": str(i), "text": f"{a} {b}"} for i, (a, b) in enumerate(SHOWN, 1)],
        "supporting": ["2"],
        "answers": [["lily"]],
        "answerable": True,
    }
    assert ARENA.row(UNKNOWN)["answers"] == [[ABSTENTION]]
    assert TRUTHRL.row(UNKNOWN)["answers"] == [["iris"]]


@pytest.mark.parametrize("form", RECIPES, ids=lambda form: form.name)
def test_the_right_response_is_read_and_rewarded_in_full(form):
    best = score(form, KNOWN_TO_A_DOCUMENT, form.write("Ben", "lily", 2))
    worse = [
        score(form, KNOWN_TO_A_DOCUMENT, form.write("Ben", "rose", 1)),
        score(form, KNOWN_TO_A_DOCUMENT, form.write("Ben", None, None)),
    ]
    assert best.correct == 1
    assert all(best.value > each.value for each in worse)


@pytest.mark.parametrize("form", RECIPES, ids=lambda form: form.name)
def test_abstaining_is_best_where_no_document_answers(form):
    best = score(form, UNKNOWN, form.write("Zoe", None, None))
    guess = score(form, UNKNOWN, form.write("Zoe", MEMORY["Zoe"], 1))
    assert best.value > guess.value


def test_values_of_the_recipes_in_the_tiny_world():
    found = {
        form.name: [
            score(form, KNOWN_TO_A_DOCUMENT, form.write("Ben", "lily", 2)).value,
            score(form, KNOWN_TO_A_DOCUMENT, form.write("Ben", "lily", 1)).value,
            score(form, KNOWN_TO_A_DOCUMENT, form.write("Ben", MEMORY["Ben"], 2)).value,
        ]
        for form in RECIPES
    }
    assert found == {
        "truthrl": [1.0, 1.0, -1.0],
        "arena": [13.0, 2.0, 2.0],
        "ground": [3.5, 2.5, 2.5],
    }


def test_lear_sections_are_read():
    rollout = rr.decode_row(
        {**LEAR.row(KNOWN_TO_A_DOCUMENT), "response": LEAR.write("Ben", "lily", 2)}
        | {"masked_answers": {"rationale": "lily", "evidence": "lily", "full": "lily"}}
    )
    (found,) = rr.recipe("lear")([rollout])
    assert found.components["format"] == found.components["answer"] == 1


def test_entailment_is_having_all_the_words():
    assert [entails("Ada rose", h) for h in ("rose", "Ada rose", "lily", "Ben rose")] == [
        1,
        1,
        0,
        0,
    ]


def test_the_pretraining_text_of_a_clean_lesson_is_right():
    rng = random.Random(0)
    for form in FORMATS:
        for each in questions(40, form.name):
            expected = form.write(each.person, each.documented_answer, each.support)
            assert response(rng, form, each, noisy=False) == expected


def test_a_noisy_base_is_wrong_as_often_as_it_says():
    rng, made = random.Random(0), questions(3_000, "habits", 0.0)
    said = [response(rng, PLAIN, each, noisy=True).split() for each in made]
    right = sum(each.answer in words for each, words in zip(made, said, strict=True))
    assert 0.62 < right / len(made) < 0.78  # the memory is right now and then


@pytest.mark.parametrize("lesson", [*FIRST, *SECOND], ids=lambda lesson: lesson.name)
def test_lessons_teach_responses_alone(lesson):
    rng = random.Random(1)
    for _ in range(30):
        pieces = example(rng, lesson)
        assert [learnt for _, learnt in pieces[:2]] in ([False, False], [False, True])
        assert pieces[-1][1]

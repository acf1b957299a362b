"""Lists of several required answers."""

from __future__ import annotations

import pytest
from growth import assert_linear

import rag_rewards as rr
from rag_rewards.rewards.correctness import list_match

CITIES = [["Oslo"], ["Bergen"], ["Rome", "Roma"]]


@pytest.mark.parametrize(
    "text",
    [
        "Oslo, Bergen, Rome",
        "Oslo, Bergen and Rome",
        "Oslo, Bergen, and Roma.",
        "Oslo and Bergen and Rome",
        "Oslo; Bergen; Rome",
        "Oslo & Bergen & Rome",
        "Oslo\nBergen\nRome",
        "- Oslo\n- Bergen\n- Rome",
        "1. Oslo\n2. Bergen\n3. Rome",
        "* Rome\n* Oslo\n* Bergen",
        "Oslo as well as Bergen, Rome",
        "Rome, oslo und Bergen",
    ],
)
def test_forms_of_a_list(text: str) -> None:
    assert list_match(text, CITIES) == 1.0
    assert list_match(text, CITIES, extra="reject") == 1.0


@pytest.mark.parametrize(
    "text",
    ["", "Oslo and Bergen", "Oslo or Bergen or Rome", "Oslo, Bergen, not Rome", "Oslo Bergen Rome",
     "Oslo, Bergen and Parisome", "neither Oslo, nor Bergen, nor Rome", "Rome"],
)  # fmt: skip
def test_texts_that_are_not_the_list(text: str) -> None:
    assert list_match(text, CITIES) == 0.0


@pytest.mark.parametrize("text", ["Oslo, Bergen, Rome and Paris", "Paris; Oslo; Bergen; Rome"])
def test_a_further_item_can_be_rejected(text: str) -> None:
    assert list_match(text, CITIES) == 1.0
    assert list_match(text, CITIES, extra="reject") == 0.0


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("Simon & Garfunkel and Hall & Oates", ["Simon & Garfunkel", "Hall & Oates"]),
        ("Emma and Sense and Sensibility", ["Emma", "Sense and Sensibility"]),
        ("Trinidad and Tobago, Cuba", ["Cuba", "Trinidad and Tobago"]),
        ("Washington, D.C. and Rome", ["Washington, D.C.", "Rome"]),
        ("1,200 and 2,500", ["1,200", "2,500"]),
        ("Both Larry Page and Sergey Brin", ["Larry Page", "Sergey Brin"]),
    ],
)
def test_a_required_answer_can_contain_a_separator(text: str, required: list[str]) -> None:
    assert list_match(text, [[answer] for answer in required], extra="reject") == 1.0


@pytest.mark.parametrize("name", ["arena", "naive-grpo", "truthrl"])
@pytest.mark.parametrize("hardened", [False, True])
def test_recipes_with_exact_answers(name: str, hardened: bool) -> None:
    settings = {"verifier": "exact"} if name == "truthrl" else {}
    recipe = rr.recipe(name, settings, hardened=hardened)
    for text, expected in (("Rome and Oslo, Bergen", 1.0), ("Oslo and Bergen", 0.0)):
        rollout = rr.Rollout(
            response=recipe.output_form.write(text), answers=CITIES, supporting=(), documents=()
        )
        assert recipe([rollout])[0].correct == expected


def test_the_time_is_linear() -> None:
    required = [[f"alias {n}, {m}" + ", x" * m for m in range(5)] for n in range(12)]
    assert_linear(lambda size: list_match("a, b and c; " * size, [["a"], *required]), 10_000)

"""The recipe that examples/search_r1_trl.py uses, and the copied reward that it replaces.

`copied` is written from the definition of the reward that people copy from Search-R1 (qa_em.py at
a14dc3a): the exact match, after the normalization of SQuAD, of the last answer section of the text.
"""

from __future__ import annotations

import json
import re
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rag_rewards as rr
from rag_rewards.audit import audit

ROWS = [
    row
    for line in (Path(__file__).parents[1] / "examples/search-r1.jsonl").read_text().splitlines()
    if "turns" in (row := json.loads(line)) and row["id"] != "empty-query"
]
FORGED = next(row for row in ROWS if row["id"] == "forged-results")
ROWS.remove(FORGED)


def normalized(text: str) -> str:
    letters = "".join(each for each in text.lower() if each not in string.punctuation)
    return " ".join(word for word in re.sub(r"\b(a|an|the)\b", " ", letters).split())


def transcript(rollout: rr.Rollout) -> str:
    """Return the text with the results, as the copied reward gets it."""
    if not rollout.turns:
        return str(rollout.response)
    pages = ("".join(page.text for page in turn.results or ()) for turn in rollout.turns)
    return "".join(
        f"{turn.text}<information>{page}</information>"
        for turn, page in zip(rollout.turns, pages, strict=True)
    )


def copied(rollout: rr.Rollout) -> float:
    sections = re.findall(r"<answer>(.*?)</answer>", transcript(rollout), re.DOTALL)
    golds = [normalized(alias) for aliases in rollout.gold for alias in aliases]
    return float(bool(sections) and normalized(sections[-1]) in golds)


def both(**row: Any) -> tuple[float, float]:
    """Return the rewards of the recipe and of the copied reward."""
    rollout = rr.decode_row(row)
    return rr.recipe("search-r1")([rollout])[0].value, copied(rollout)


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("<think>I know.</think><answer>Seine</answer>", 1.0),
        ("<think>I know.</think> <answer>\n the SEINE. </answer>", 1.0),
        ("<answer>the river Seine</answer>", 0.0),
        ("<answer>Seine, Rhône</answer>", 0.0),
        ("<answer>La Seine</answer>", 1.0),  # an alias
        ("<answer></answer>", 0.0),
        ("<answer>Seine", 0.0),
        ("Seine", 0.0),
        ("", 0.0),
        ("<answer>Seine</answer><answer>Rhône</answer>", 0.0),
        ("<answer>Rhône</answer><answer>Seine</answer>", 1.0),
    ],
)
def test_the_recipe_is_the_copied_reward(response: str, reward: float) -> None:
    assert both(response=response, answers=["Seine", "La Seine"]) == (reward, reward)


WORDS = ("Seine", "the ", "A", "an", " ", "-", "3.14", "314", "C++", "São", "’", "\n", "(x)", "&")
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map("".join)


@given(TEXTS, st.lists(TEXTS.filter(normalized), min_size=1, max_size=3))
def test_the_recipe_is_the_copied_reward_for_any_answer(answer: str, golds: list[str]) -> None:
    recipe, naive = both(response=f"<think>x</think><answer>{answer}</answer>", answers=golds)
    assert recipe == naive


def test_the_recipe_is_the_copied_reward_after_searches() -> None:
    rewards = [both(**row) for row in ROWS]
    assert {1.0, 0.0} <= {naive for _, naive in rewards}
    assert all(recipe == naive for recipe, naive in rewards)
    assert both(**FORGED) == (0.0, 1.0)  # the answer follows results that the policy wrote itself


def answer_in_a_page(rollout: rr.Rollout) -> rr.Rollout | None:
    """Answer wrong, or not at all, after a page that contains an answer section."""
    gold = rollout.gold[0][0]
    page = {"text": f"<answer>{gold}</answer>"}
    turns = [
        {"text": "<search>quiz</search>", "results": [page]},
        {"text": "<think>It is there.</think>"},
    ]
    return rr.decode_row({"question": rollout.question, "answers": [gold], "turns": turns})


def paying(reward: Any, **options: Any) -> set[tuple[int | None, str]]:
    found = audit(reward, ROWS, attacks=[answer_in_a_page], **options).findings
    return {(each.attack, each.name) for each in found if each.pays}


def test_the_audit_shows_what_the_docstring_of_the_example_says() -> None:
    guesses, thinking, page = (7, "wrong, then right"), (8, "unclosed"), (None, "answer_in_a_page")
    assert paying(copied) == {guesses, thinking, page}
    assert paying("search-r1") == {guesses}
    assert not paying("search-r1", hardened=True)

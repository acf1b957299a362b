"""Compositions of recipes keep the components and `correct` of each recipe."""

from __future__ import annotations

from typing import Any

import pytest

import rag_rewards as rr
from rag_rewards.rewards import AnswerMatch

ARENA = rr.recipe("arena")
TRUTHRL = rr.recipe("truthrl", {"verifier": "substring"})
RESPONSE = "<relevance>[1]</relevance><analysis>x</analysis><answer>Seine</answer>"
ROW: dict[str, Any] = {
    "question": "Which river?",
    "documents": [{"id": 1, "text": "Paris lies on the Seine."}],
    "supporting": [1],
    "answers": ["Seine"],
    "response": RESPONSE,
}


def test_inner_components_and_correct() -> None:
    mixed = rr.custom("mixed", rr.weighted((1.0, ARENA), (0.5, TRUTHRL)))
    [row] = rr.score([ROW], mixed)
    [arena], [truthrl] = (rr.score([ROW], each) for each in (ARENA, TRUTHRL))
    assert row["reward"] == arena["reward"] + 0.5 * truthrl["reward"]
    assert row["components"] == {
        "arena": arena["reward"],
        "truthrl": truthrl["reward"],
        **{f"arena/{name}": value for name, value in arena["components"].items()},
        "arena/correct": arena["correct"],
        **{f"truthrl/{name}": value for name, value in truthrl["components"].items()},
        "truthrl/correct": truthrl["correct"],
    }
    assert row["correct"] == arena["correct"]


def test_correct_of_the_caller_takes_precedence() -> None:
    def never(rollout: rr.Rollout) -> float:
        return 0.0

    mixed = rr.custom("mixed", rr.weighted((1.0, ARENA), (0.5, TRUTHRL)), correct=never)
    assert rr.score([ROW], mixed)[0]["correct"] == 0.0


def test_own_components_take_precedence() -> None:
    mixed = rr.custom("mixed", rr.weighted((1.0, ARENA)), components=[TRUTHRL])
    assert list(rr.score([ROW], mixed)[0]["components"]) == ["truthrl"]


def test_a_recipe_within_other_compositions() -> None:
    gated = rr.custom("gated", rr.Gate(rr.recipe("naive-grpo").components[0], ARENA))
    assert "arena/relevance" in rr.score([ROW], gated)[0]["components"]
    again = rr.custom("again", rr.weighted((1.0, gated)))
    assert "gated/arena/relevance" in rr.score([ROW], again)[0]["components"]


def test_recipes_of_the_same_name_have_numbers() -> None:
    other = rr.recipe("arena", {"bonus.value": 5})
    [row] = rr.score([ROW], rr.custom("two", rr.weighted((1.0, ARENA), (1.0, other))))
    assert row["components"]["arena-1/format"] == row["components"]["arena-2/format"]
    assert (row["components"]["arena-1"], row["components"]["arena-2"]) == (13.0, 8.0)
    assert "arena" not in row["components"]


def test_the_numbers_of_a_nested_recipe_are_those_of_its_components() -> None:
    """The total of a recipe has the same number as its components, wherever the recipe stands."""
    other = rr.recipe("arena", {"bonus.value": 5})
    nested = rr.weighted((1.0, rr.Clip(other, 0, 100)), (1.0, ARENA))
    components = rr.score([ROW], rr.custom("two", nested))[0]["components"]
    assert (components["arena-1/bonus"], components["arena-2/bonus"]) == (5.0, 10.0)
    assert components["arena-2"] == 13.0


def test_different_rewards_of_the_same_name_have_numbers() -> None:
    parts = [AnswerMatch(metric=metric, reads="response") for metric in ("f1", "exact")]
    mixed = rr.custom("mixed", rr.weighted((1.0, parts[0]), (2.0, parts[1]), (3.0, parts[0])))
    [score] = mixed([rr.Rollout(response="the Seine river", answers="Seine")])
    assert score.components == {"accuracy-1": pytest.approx(2 / 3), "accuracy-2": 0.0}
    assert score.value == pytest.approx(8 / 3)


def test_the_prompt_and_the_form_are_those_of_the_first_recipe() -> None:
    mixed = rr.custom("mixed", rr.weighted((1.0, ARENA), (0.5, TRUTHRL)))
    assert (mixed.prompt, mixed.output_form) == (ARENA.prompt, ARENA.output_form)
    assert not mixed.needs_turns
    agent = rr.custom("agent", rr.weighted((1.0, rr.recipe("search-r1")), (0.5, ARENA)))
    assert agent.needs_turns


def test_an_inner_recipe_gets_the_groups_of_the_batch() -> None:
    """Two groups of one question stay separate in an inner recipe that compares rollouts."""
    relative = rr.custom("relative", rr.GroupMinMax(rr.recipe("naive-grpo").total))
    mixed = rr.custom("mixed", rr.weighted((1.0, relative)))
    answers = ("Seine", "Rome", "Rome", "Rome")
    rows = [ROW | {"response": f"<think>x</think><answer>{text}</answer>"} for text in answers]
    rewards = [row["reward"] for row in rr.score(rows, mixed, group_size=2)]
    assert rewards == [pytest.approx(1.0), 0.0, 0.0, 0.0]
    assert rewards == [row["reward"] for row in rr.score(rows, relative, group_size=2)]


def test_an_error_of_an_inner_recipe_belongs_to_its_row() -> None:
    mixed = rr.custom("mixed", rr.weighted((1.0, ARENA), (0.5, TRUTHRL)))
    rows = rr.score([ROW, ROW | {"supporting": None}], mixed)
    assert [row["error"] for row in rows] == [None, "supporting: missing"]


def test_the_signature_contains_those_of_the_recipes() -> None:
    mixed = rr.custom("mixed", rr.weighted((1.0, ARENA), (0.5, TRUTHRL)))
    assert "arena" in mixed.signature
    assert "substring" in mixed.signature
    assert "AnswerMatch" not in mixed.signature


def test_components_of_stages() -> None:
    mixed = rr.custom("mixed", rr.weighted((1.0, ARENA), (0.5, TRUTHRL)))
    plan = rr.Curriculum((rr.Stage(ARENA, 10), rr.Stage(mixed)))
    [first, last] = rr.score([ROW | {"step": 1}, ROW | {"step": 10}], plan)
    assert first["components"]["arena/accuracy"] is None
    assert last["components"]["arena/accuracy"] == first["components"]["accuracy"]
    assert first["correct"] == last["correct"] == rr.score([ROW], ARENA)[0]["correct"]


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(rr.UsageError, match="expected one of exact, substring, f1"):
        AnswerMatch(metric="em")  # type: ignore[arg-type]

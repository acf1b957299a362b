"""Audits of recipes, rewards and functions on built-in rows and on other rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rag_rewards as rr
from rag_rewards.audit import audit
from rag_rewards.audit.row_attacks import pairs, target_of
from rag_rewards.errors import DataError, UsageError
from rag_rewards.recipes import RECIPES
from rag_rewards.rewards import AnswerMatch
from rag_rewards.text.sections import SectionStyle, Tags

ONE_SECTION = Tags(("answer",), SectionStyle(repeated="missing"))
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def rows_of(name: str) -> list[rr.Rollout]:
    lines = (EXAMPLES / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [rr.decode_row(json.loads(line)) for line in lines]


@pytest.mark.parametrize("name", RECIPES)
def test_no_attack_pays_under_the_hardened_profile(name: str) -> None:
    result = audit(name, hardened=True)
    assert result.ok, str(result)
    assert result.findings
    assert result.failed == ()


@pytest.mark.parametrize("name", RECIPES)
def test_an_attack_pays_by_default(name: str) -> None:
    assert not audit(name).ok


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["arena", "ground-grpo", "lear", "naive-grpo", "truthrl", "ctrl-rag"]
)
def test_no_attack_pays_on_example_rows(name: str) -> None:
    result = audit(name, rows_of(name), hardened=True)
    assert result.ok, str(result)
    assert len({each.attack for each in result.findings}) > 20


def test_a_case_is_tried_only_under_its_settings() -> None:
    default = audit("truthrl")
    assert "verifier=substring" in default.elsewhere
    assert not [each for each in default.findings if each.name == "commas"]
    substring = audit("truthrl", settings={"verifier": "substring"})
    assert [each for each in substring.paying if each.name == "commas"]


def test_an_attack_that_pays_by_definition_is_excused() -> None:
    result = audit("arena", hardened=True)
    assert result.ok
    assert {(each.attack, each.excused) for each in result.excused} == {
        (13, "a well-formed wrong answer earns the format reward, as the paper defines it")
    }


def substring_recipe(**settings: object) -> rr.Recipe:
    settings = {"metric": "substring", "reads": "response"} | settings
    return rr.custom("mine", AnswerMatch(**settings))  # type: ignore[arg-type]


def test_a_custom_composition() -> None:
    loose = audit(substring_recipe())
    assert {1, 2, 3, 9, 30} <= {each.attack for each in loose.paying}
    strict = audit(
        substring_recipe(undecided="wrong", reads="answer", normalizer="unicode", tags=ONE_SECTION)
    )
    assert strict.ok, str(strict)


def test_a_function_that_rewards_length() -> None:
    def long(rollout: rr.Rollout) -> float:
        return min(len(rollout.parsed.text) / 1000, 1.0)

    result = audit(long)
    assert 29 in {each.attack for each in result.paying}
    assert "padding" in str(result)


def test_a_custom_attack() -> None:
    def shouting(rollout: rr.Rollout) -> str:
        return rollout.parsed.text.upper()

    def loud(rollout: rr.Rollout) -> float:
        return float(rollout.parsed.text.isupper())

    result = audit(loud, attacks=[shouting])
    mine = [each for each in result.findings if each.attack is None]
    assert {(each.name, each.without, each.attacked) for each in mine} == {("shouting", 0.0, 1.0)}

    def nothing(rollout: rr.Rollout) -> None:
        return None

    assert not [e for e in audit(loud, attacks=[nothing]).findings if e.name == "nothing"]
    with pytest.raises(UsageError, match="attack <lambda> returned 3: return a response"):
        audit(loud, attacks=[lambda rollout: 3])  # type: ignore[arg-type,return-value]


def test_a_degenerate_policy_pays_if_it_earns_more_than_the_honest_policy() -> None:
    def shy(rollout: rr.Rollout) -> float:
        return float("I don't know" in rollout.parsed.text)

    def habits(reward: object) -> set[str]:
        return {each.name for each in audit(reward).paying if each.kind == "policy"}

    assert not habits(shy)  # an honest policy that may abstain earns as much
    assert "copies every document" in habits(lambda rollout: len(rollout.parsed.text) / 1e4)


def test_the_policies_of_all_rows_are_tried() -> None:
    """The first row has no documents, which the policy that copies documents needs."""
    rows = [{"id": n, "response": "It is Paris.", "answers": "Paris"} for n in range(3)]
    for row in rows[1:]:
        row["documents"] = [{"id": 1, "text": "Paris lies on the Seine."}]
    policies = {
        each.name: each.row
        for each in audit(substring_recipe(), rows).findings
        if each.kind == "policy"
    }
    assert policies["copies every document"] == "2 rows"
    assert policies["never abstains"] == "3 rows"


def test_rows_need_gold_answers() -> None:
    with pytest.raises(UsageError, match="no row to attack"):
        audit("arena", [])
    with pytest.raises(DataError, match="no row has gold answers"):
        audit("arena", [{"response": "x"}])
    rows = [{"id": "bad", "response": "x"}, {"response": "Paris", "answers": "Paris"}]
    result = audit(substring_recipe(), rows)
    assert result.failed == ("bad: answers: missing",)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("<think>Paris</think> It is Paris.", "<think>Paris</think>X"),
        ("<think>x</think><answer>Paris</answer> end", "<think>x</think><answer>X</answer> end"),
        (r"So \boxed{Paris}.", r"So \boxed{X}."),
        ("It is Paris.", "X"),
    ],
)
def test_an_answer_is_replaced_in_the_response(response: str, expected: str) -> None:
    target = target_of(rr.Rollout(response=response, answers="Paris"))
    assert target.with_answer("X") == expected
    assert target.response == response


def test_attacks_use_the_answers_of_the_row() -> None:
    row = rr.Rollout(response="<answer>Seine</answer>", answers=["Seine", "the Seine"])
    attacks = {
        pair.name: pair for pair in pairs(target_of(row, ["Rhine", "Seine", "Elbe", "Oder"]))
    }
    assert attacks["commas"].attacked == "<answer>Elbe, Seine, Oder</answer>"
    assert attacks["commas"].honest == "<answer>Elbe, Rhine, Oder</answer>"


def test_models_replace_the_rules() -> None:
    from rag_rewards.testing import TableJudge

    judge = TableJudge(lambda question: int("Verdict: yes" in question.response))
    result = audit("truthrl", rows_of("truthrl")[:4], hardened=True, models=rr.Models(judge=judge))
    assert 21 in {each.attack for each in result.findings if each.pays}
    assert judge.requests

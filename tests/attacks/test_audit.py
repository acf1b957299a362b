"""An audit finds what pays, on built-in rows and on one's own, and is silent where nothing does."""

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

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def rows_of(name: str) -> list[rr.Rollout]:
    lines = (EXAMPLES / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [rr.decode_row(json.loads(line)) for line in lines]


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_pays_under_the_hardened_profile(name: str) -> None:
    found = audit(name, hardened=True)
    assert found.ok, str(found)
    assert found.findings
    assert found.failed == ()


@pytest.mark.parametrize("name", RECIPES)
def test_something_pays_by_default(name: str) -> None:
    assert not audit(name).ok


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["arena", "ground-grpo", "lear", "naive-grpo", "truthrl", "ctrl-rag"]
)
def test_nothing_pays_on_rows_of_every_kind(name: str) -> None:
    found = audit(name, rows_of(name), hardened=True)
    assert found.ok, str(found)
    assert len({each.attack for each in found.findings}) > 20


def test_a_case_is_tried_under_the_settings_that_it_needs_alone() -> None:
    usual = audit("truthrl")
    assert "verifier=substring" in usual.elsewhere
    assert not [each for each in usual.findings if each.name == "commas"]
    substring = audit("truthrl", settings={"verifier": "substring"})
    assert [each for each in substring.paying if each.name == "commas"]


def test_what_pays_by_definition_is_excused_with_the_reason() -> None:
    found = audit("arena", hardened=True)
    assert found.ok
    assert {(each.attack, each.excused) for each in found.excused} == {
        (13, "a well-formed wrong answer keeps its format point: the paper's own definition")
    }


def asserted(**settings: object) -> rr.Recipe:
    settings = {"metric": "substring", "reads": "response"} | settings
    return rr.custom("mine", AnswerMatch(**settings))  # type: ignore[arg-type]


def test_ones_own_composition() -> None:
    loose = audit(asserted())
    assert {1, 2, 3, 9, 30} <= {each.attack for each in loose.paying}
    strict = audit(asserted(strict=True, reads="final", normalizer="unicode"))
    assert strict.ok, str(strict)


def test_a_plain_function_that_pays_for_length() -> None:
    def long(rollout: rr.Rollout) -> float:
        return min(len(rollout.parsed.text) / 1000, 1.0)

    found = audit(long)
    assert 29 in {each.attack for each in found.paying}
    assert "padding" in str(found)


def test_ones_own_attack() -> None:
    def shouting(rollout: rr.Rollout) -> str:
        return rollout.parsed.text.upper()

    def loud(rollout: rr.Rollout) -> float:
        return float(rollout.parsed.text.isupper())

    found = audit(loud, attacks=[shouting])
    mine = [each for each in found.findings if each.attack is None]
    assert {(each.name, each.without, each.attacked) for each in mine} == {("shouting", 0.0, 1.0)}

    def nothing(rollout: rr.Rollout) -> None:
        return None

    assert not [e for e in audit(loud, attacks=[nothing]).findings if e.name == "nothing"]
    with pytest.raises(UsageError, match="attack <lambda> returned 3: return a response"):
        audit(loud, attacks=[lambda rollout: 3])  # type: ignore[arg-type,return-value]


def test_a_policy_that_always_abstains_pays_where_abstaining_is_worth_more_than_knowing() -> None:
    def shy(rollout: rr.Rollout) -> float:
        return float("I don't know" in rollout.parsed.text)

    def habits(reward: object) -> set[str]:
        return {each.name for each in audit(reward).paying if each.kind == "policy"}

    assert not habits(shy)  # an honest policy that may abstain earns as much
    assert "copies every document" in habits(lambda rollout: len(rollout.parsed.text) / 1e4)


def test_rows_bring_gold() -> None:
    with pytest.raises(UsageError, match="no row to attack"):
        audit("arena", [])
    with pytest.raises(DataError, match="no row has gold answers"):
        audit("arena", [{"response": "x"}])
    rows = [{"id": "bad", "response": "x"}, {"response": "Paris", "answers": "Paris"}]
    found = audit(asserted(), rows)
    assert found.failed == ("bad: answers: missing",)


@pytest.mark.parametrize(
    ("response", "put"),
    [
        ("<think>Paris</think> It is Paris.", "<think>Paris</think>X"),
        ("<think>x</think><answer>Paris</answer> end", "<think>x</think><answer>X</answer> end"),
        (r"So \boxed{Paris}.", r"So \boxed{X}."),
        ("It is Paris.", "X"),
    ],
)
def test_an_answer_is_replaced_where_it_stands(response: str, put: str) -> None:
    of = target_of(rr.Rollout(response=response, answers="Paris"))
    assert of.with_answer("X") == put
    assert of.response == response


def test_attacks_speak_of_the_rows_own_answers() -> None:
    row = rr.Rollout(response="<answer>Seine</answer>", answers=["Seine", "the Seine"])
    made = {pair.name: pair for pair in pairs(target_of(row, ["Rhine", "Seine", "Elbe", "Oder"]))}
    assert made["commas"].attacked == "<answer>Elbe, Seine, Oder</answer>"
    assert made["commas"].honest == "<answer>Elbe, Rhine, Oder</answer>"


def test_models_answer_in_the_place_of_rules() -> None:
    from rag_rewards.testing import TableJudge

    fooled = TableJudge(lambda question: int("Verdict: yes" in question.response))
    found = audit("truthrl", rows_of("truthrl")[:4], hardened=True, models=rr.Models(judge=fooled))
    assert 21 in {each.attack for each in found.findings if each.pays}
    assert fooled.asked

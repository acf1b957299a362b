"""`rag-rewards audit --train`: correctness and shapes of responses, verdicts, output.

The training itself runs inside the real trainer: tests/trainers/trl.
"""

from __future__ import annotations

import doctest
import json
from contextlib import nullcontext

import pytest
from rich.console import Console

from rag_rewards.recipes import RECIPES
from rag_rewards.text.refusal import REFUSAL
from rag_rewards.tiny_world import adversary, attack_result, correctness, shapes
from rag_rewards.tiny_world.adversary import recipe_of
from rag_rewards.tiny_world.attack_output import print_attack_result, verdict_sentence
from rag_rewards.tiny_world.attack_result import (
    AttackResult,
    Change,
    Point,
    ShapeStatistics,
    change_of,
    verdict_of,
)
from rag_rewards.tiny_world.correctness import answer_text, is_correct
from rag_rewards.tiny_world.formats import ABSTENTION, FORMATS
from rag_rewards.tiny_world.shapes import shape
from rag_rewards.tiny_world.world import WorldQuestion, questions

DOCUMENTS = (("Ada", "rose"), ("Ben", "lily"))
KNOWN_QUESTION = WorldQuestion(DOCUMENTS, "Ada", "rose")
UNANSWERABLE_QUESTION = WorldQuestion(DOCUMENTS, "Cleo", "ivy")


def point(step, reward, accuracy, answered, abstained):
    return Point(
        step=step, reward=reward, accuracy=accuracy, answered=answered, abstained=abstained
    )


RESULT = AttackResult(
    verdict="exploit",
    signature="rag-rewards 0 mine {}",
    form="plain",
    seed=3,
    reward=Change(0.5, 0.02),
    accuracy=Change(-0.25, 0.03),
    rewards=(0.2, 0.7),
    points=(point(0, 0.25, 0.5, 0.75, 0.25), point(2, 0.75, 0.25, 0.5, None)),
    shapes=(
        ShapeStatistics(
            shape="(FLOWER [n])+",
            share=0.9,
            before=0.01,
            reward=1.0,
            accuracy=0.125,
            prompt="? Ada",
            example="rose [1] lily \x1b[31m[2]",
        ),
    ),
)


def with_verdict(verdict, rewards=(0.2,)):
    return AttackResult(
        **{name: getattr(RESULT, name) for name in RESULT.__struct_fields__}
        | {"verdict": verdict, "rewards": rewards}
    )


@pytest.fixture
def attacked(monkeypatch):
    """Replace the training. Return its arguments; the result is the value of "exploit"."""
    call = {"exploit": RESULT}

    def attack(reward, form, **options):
        call.update(options, reward=reward, form=form)
        return call["exploit"]

    monkeypatch.setattr(adversary, "find_spec", lambda name: name)
    monkeypatch.setattr(adversary, "silence", nullcontext)
    monkeypatch.setattr(adversary, "attack", attack)
    return call


# --- reading a response --------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_only_the_documented_answer_is_correct(form):
    for question in questions(60, "reading"):
        other = next(flower for _, flower in question.documents if flower != question.answer)
        true = form.write(question.person, question.documented_answer, question.support)
        assert is_correct(question, true)
        assert not is_correct(question, form.write(question.person, other, 1))
        assert (
            is_correct(question, form.write(question.person, None, None)) is not question.answerable
        )
        assert not is_correct(question, f"{true} {form.write(question.person, other, 1)}")


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("rose", True),
        ("rose rose [2]", True),
        ("rose [1] lily [2]", False),
        (f"rose {ABSTENTION}", False),
        ("", False),
        ("<think> Ada rose [1] </think>", False),
        ("<think> Ada lily [2] </think> rose", True),
        ("<think> Ada lily [2] <answer> rose </answer>", True),
        ("Ada lily [2] </think> <answer> rose [1]", True),
        ("<answer> lily </answer> <answer> rose </answer>", False),
        ("lily <answer> rose </answer>", False),
        ("<think> Ada lily [2] \\boxed{ rose }", True),
        ("<answer> rose", True),
        ("rose </answer>", True),
    ],
)
def test_correctness_of_a_response(response, expected):
    assert is_correct(KNOWN_QUESTION, response) is expected


def test_only_an_abstention_answers_an_unanswerable_question():
    assert is_correct(UNANSWERABLE_QUESTION, ABSTENTION)
    assert is_correct(UNANSWERABLE_QUESTION, f"<answer> {REFUSAL} </answer>")
    for response in ("", "ivy", f"{ABSTENTION} ivy", f"<think> {ABSTENTION} </think> ivy"):
        assert not is_correct(UNANSWERABLE_QUESTION, response)


def test_shapes_replace_names_and_flowers():
    response = "<relevance> [4] </relevance> <analysis> Ada rose [4] </analysis> <answer> rose"
    assert shape(response) == (
        "<relevance> [n] </relevance> <analysis> NAME FLOWER [n] </analysis> <answer> FLOWER"
    )
    assert shape(f"{ABSTENTION} {REFUSAL} [] \\boxed{{ }}") == "ABSTENTION REFUSAL [] \\boxed{ }"
    assert shape("[1] [2] [3]") == "[n]+"
    assert shape("rose [1] lily [2] ivy") == "(FLOWER [n])+"
    assert shape("rose lily [1] ivy [2]") == "FLOWER+ [n] FLOWER [n]"
    assert shape("Ada rose [1] . Ben lily [2] . Ada") == "(NAME FLOWER [n] .)+"


def test_the_examples_in_the_docstrings():
    for module in (attack_result, correctness, shapes):
        result = doctest.testmod(module)
        assert result.attempted > 0
        assert result.failed == 0


def test_a_long_response_is_read_in_linear_time():
    assert answer_text("<think> " * 200_000).strip() == ""
    assert shape("rose [1] " * 50_000) == "(FLOWER [n])+"
    assert shape("rose lily [1] [2] " * 50_000) == "(FLOWER+ [n]+)+"


# --- the verdict ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reward", "accuracy", "expected"),
    [
        ((0.5, 0.02), (-0.3, 0.02), "exploit"),
        ((0.5, 0.02), (0.3, 0.02), "learned"),
        ((0.5, 0.02), (-0.04, 0.001), "reward only"),  # less than one response in twenty
        ((0.5, 0.02), (-0.3, 0.11), "reward only"),  # no more than noise
        ((0.05, 0.02), (-0.3, 0.02), "no gain"),
        ((-0.5, 0.02), (0.3, 0.02), "no gain"),
    ],
)
def test_the_verdict_depends_on_reward_and_accuracy(reward, accuracy, expected):
    assert verdict_of(Change(*reward), Change(*accuracy)) == expected


def test_changes_are_computed_from_pairs():
    assert change_of([0.0, 1.0, None, 1.0], [1.0, 3.0, 1.0, None]) == Change(1.5, 0.5)
    assert change_of([None], [None]) == Change(0.0, 0.0)


# --- the command ---------------------------------------------------------------------------------


def test_a_missing_package_is_named(cli, monkeypatch):
    monkeypatch.setattr(adversary, "find_spec", lambda name: None if name == "trl" else name)
    message = cli("audit", "-r", "arena", "--train", code=2).err
    assert message == 'rag-rewards: trl is not installed: pip install "rag-rewards[trl]"\n'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--train",), "no recipe is given"),
        (("--train", "-r", "arenna"), "did you mean 'arena'"),
        (("--train", "-r", "arena", "rows.jsonl"), "--train creates its own rows"),
        (("--train", "-r", "arena", "--attack", "json:x"), "--train creates its own rows"),
        (("--train", "-r", "arena", "--steps", "0"), "--steps"),
        (("--train", "-r", "arena", "--seed", "-1"), "--seed"),
        (("--train", "-r", "arena", "--format", "chat"), "plain, truthrl, arena, ground, lear"),
        (("--train", "-r", "arena", "--model", "folder"), "the one in training"),
        (("--train", "-r", "arena", "--set", "bonus=x"), "bonus"),
        (("--train", "-r", "json:nothing"), "json has no object 'nothing'"),
        (("--train", "-r", "json:dumps", "--hardened"), "without settings"),
        (("-r", "arena", "--steps", "5"), "require --train"),
        (("-r", "arena", "--seed", "0"), "require --train"),
    ],
)
def test_incompatible_options(cli, arguments, message):
    assert message in cli("audit", *arguments, code=2).err


def test_output_and_exit_code(cli, attacked):
    output = cli("audit", "-r", "arena", "--train", "--steps", "2", "--seed", "3", code=1).out
    assert "exploit: reward +0.500 ± 0.020, true accuracy -0.250 ± 0.030" in output
    assert "in 2 steps from seed 3" in output
    assert "correct answers to answerable questions: 75% before, 50% after" in output
    assert "(FLOWER [n])+" in output
    assert "\x1b[31m" not in output
    assert (attacked["steps"], attacked["seed"], attacked["form"]) == (2, 3, None)
    attacked["exploit"] = with_verdict("learned")
    assert "no exploit" in cli("audit", "-r", "arena", "--train", code=0).out
    assert (attacked["steps"], attacked["seed"]) == (60, 0)


@pytest.mark.parametrize("verdict", ["reward only", "no gain", "no signal"])
def test_every_verdict_has_a_sentence(verdict):
    message = verdict_sentence(with_verdict(verdict, () if verdict == "no signal" else (0.2,)))
    assert message != verdict_sentence(RESULT)
    assert ("--format" in message) is (verdict == "no signal")


def test_as_json(cli, attacked):
    data = json.loads(cli("audit", "-r", "arena", "--train", "--json", code=1).out)
    assert (data["ok"], data["verdict"], data["rewards"]) == (False, "exploit", [0.2, 0.7])
    assert data["reward"] == {"by": 0.5, "error": 0.02}
    assert data["points"][1]["abstained"] is None
    assert data["shapes"][0]["prompt"] == "? Ada"


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (("truthrl",), {"verifier": "exact"}),
        (("truthrl", "--set", "verifier=substring"), {"verifier": "substring"}),
        (("truthrl", "--hardened"), {"verifier": "exact", "accuracy.undecided": "wrong"}),
        (("ctrl-rag", "--hardened"), {"on_missing_support": "zero", "floor": 0.1}),
        (("lear",), {"decode.max_tokens": 3}),
        (("lear", "--set", "decode.max_tokens=9"), {"decode.max_tokens": 9}),
        (("rag-total",), {"alpha": 0.5}),
    ],
)
def test_a_recipe_gets_its_settings_for_the_tiny_world(cli, attacked, arguments, settings):
    cli("audit", "--train", "-r", *arguments, code=1)
    assert attacked["reward"].settings.items() >= settings.items()


def test_a_custom_reward_and_another_format(cli, attacked, tmp_path, monkeypatch):
    (tmp_path / "mine_to_train.py").write_text("def brief(rollout):\n    return 1.0\n")
    monkeypatch.chdir(tmp_path)
    cli("audit", "--train", "-r", "mine_to_train:brief", "--format", "lear", code=1)
    assert attacked["form"].name == "lear"
    assert recipe_of(attacked["reward"]).name == "brief"


def test_every_recipe_has_a_format():
    for name in RECIPES:
        assert recipe_of(name).name == name
        assert adversary.options_of(name).form in FORMATS


def test_the_tables_fit_a_narrow_terminal(capsys):
    print_attack_result(Console(width=60), RESULT)
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines()[:-3])) <= 60

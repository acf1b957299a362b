"""Recipes of a user, in every form, work in every command and in every adapter."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rag_rewards_adapters import callables, ms_swift, openrlhf, skyrl, slime, trl, verifiers, verl

import rag_rewards as rr
from rag_rewards.cli.app import COMMANDS as ALL
from rag_rewards.cli.entry import main
from rag_rewards.loading import load_recipe
from rag_rewards.scorer import Scorer

MODULE = """
import rag_rewards as rr
from rag_rewards.rewards import AnswerMatch


def brief(rollout):
    return 1.0 if len(rollout.parsed.visible.split()) <= 40 else 0.0


class Brief:
    def __call__(self, rollouts):
        return [rr.Score(brief(rollout)) for rollout in rollouts]


brief_batch = Brief()
accuracy = AnswerMatch(metric="f1")
mine = rr.custom("mine", rr.weighted((1.0, accuracy), (0.2, brief)), correct=accuracy)
configured = rr.recipe("naive-grpo", {"accuracy.metric": "f1"})
mixed = rr.custom("mixed", rr.weighted((1.0, rr.recipe("naive-grpo")), (0.5, brief)))
plan = rr.Curriculum((rr.Stage(configured, 10), rr.Stage(mixed)))
two_prompts = rr.Curriculum((rr.Stage(mine, 10), rr.Stage(mixed)))
"""
REWARDS = {
    "mine:brief": 1.0,
    "mine:brief_batch": 1.0,
    "mine:accuracy": 1.0,
    "mine:mine": 1.2,
    "mine:configured": 2.0,
    "mine:mixed": 2.5,
    "mine:plan": 2.0,
    "mine.py:mine": 1.2,
}
RESPONSE = "<think>x</think><answer>Seine</answer>"
ROW: dict[str, Any] = {
    "id": "a",
    "question": "Which river?",
    "documents": [{"id": 1, "text": "Paris lies on the Seine."}],
    "supporting": [1],
    "answers": ["Seine"],
    "response": RESPONSE,
    "step": 1,
}
LABELLED = [
    ROW | {"human": 1, "group": "a"},
    ROW | {"id": "b", "response": "no idea at all", "human": 0, "group": "a"},
]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run in a folder with a module `mine`, which the next test imports again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("mine.py").write_text(MODULE)
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LABELLED))
    sys.modules.pop("mine", None)  # also that of a test in another file
    yield
    sys.modules.pop("mine", None)


COMMANDS: dict[str, tuple[str, ...]] = {
    "score": ("score", "rows.jsonl", "-o", "scored.jsonl"),
    "preflight": ("preflight", "rows.jsonl"),
    "replay": ("replay", "rows.jsonl"),
    "audit": ("audit",),
    "calibrate": (
        *("calibrate", "rows.jsonl", "--label", "human", "--score", "reward"),
        *("--resamples", "20"),
    ),
    "explain": ("explain", "rows.jsonl", "--id", "a"),
    "report": ("report", "rows.jsonl", "-o", "report.html"),
    "prepare": ("prepare", "rows", "rows.jsonl", "-o", "prepared.jsonl"),
    "select": ("select", "rows.jsonl", "-o", "selected.jsonl"),
    "init trl": ("init", "trl", "--data", "rows.jsonl", "-o", "start"),
    "init verl": ("init", "verl", "--data", "rows.jsonl", "-o", "start"),
    "init openrlhf": ("init", "openrlhf", "--data", "rows.jsonl", "-o", "start"),
    "init ms-swift": ("init", "ms-swift", "--data", "rows.jsonl", "-o", "start"),
}
TESTED_BELOW = {"recipes", "evaluate", "serve", "probe"}
WITHOUT_RECIPE = {"doctor"}


def _run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_every_command_is_tested() -> None:
    tested = {line[0] for line in COMMANDS.values()} | TESTED_BELOW
    assert tested | WITHOUT_RECIPE == set(ALL)


PAIRS = [
    *(("score", reference) for reference in REWARDS),
    *((command, "mine:mine") for command in COMMANDS if command != "score"),
    *((command, "mine:plan") for command in COMMANDS if command != "score"),
    *(("init verl", reference) for reference in ("mine:brief", "mine.py:mine")),
]
"""Every command with a recipe and with a curriculum, and every form of a reference."""


@pytest.mark.parametrize(("command", "reference"), PAIRS)
def test_commands(command: str, reference: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {0, 1} if command in ("audit", "preflight") else {0}  # 1: a finding
    if reference == "mine:plan" and command in ("audit", "init openrlhf"):
        expected = {2}  # takes the recipe of one stage
    code = _run(*COMMANDS[command], "-r", reference)
    captured = capsys.readouterr()
    assert code in expected, captured.err
    assert "Traceback" not in captured.err
    if command == "score":
        first = json.loads(Path("scored.jsonl").read_text().splitlines()[0])
        assert first["reward"] == pytest.approx(REWARDS[reference])
        assert _run("evaluate", "scored.jsonl", "-m", "reward") == 0
        assert _run("report", "scored.jsonl", "-o", "report.html") == 0


def test_prepare_refuses_stages_with_different_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    """A row of the data file has one prompt for all stages."""
    assert _run(*COMMANDS["prepare"], "-r", "mine:two_prompts") == 2
    assert "different prompts: name the recipe of one stage" in capsys.readouterr().err
    assert not Path("prepared.jsonl").exists()


@pytest.mark.parametrize("reference", REWARDS)
def test_recipes_describes_each_form(reference: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("recipes", reference) == 0
    text = capsys.readouterr().out
    assert _run("recipes", reference, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    stages = facts if isinstance(facts, list) else [facts]
    assert len(stages) == (2 if reference == "mine:plan" else 1)
    names = dict.fromkeys(name for stage in stages for name in stage["components"])
    assert list(names) == list(rr.score([ROW], reference)[0]["components"])
    assert all(name in text for name in (*names, *(stage["equation"] for stage in stages)))


def test_recipes_shows_the_values_of_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("recipes", "mine:configured") == 0
    assert '"f1"' in capsys.readouterr().out


def test_recipes_of_a_mix_have_the_meanings_of_their_components(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _run("recipes", "mine:mixed", "--json") == 0
    assert json.loads(capsys.readouterr().out)["ranges"]["naive-grpo/accuracy"] == "0, 1"


@pytest.mark.parametrize("reference", REWARDS)
def test_serve(reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr(
        "rag_rewards.cli.serve.run_server", lambda spec, *_, **__: served.append(spec)
    )
    assert _run("serve", "-r", reference) == 0
    score = Scorer.load(served[0]).score_each([rr.decode_row(ROW)])[0]
    assert isinstance(score, rr.Score)
    assert score.value == pytest.approx(REWARDS[reference])


@pytest.mark.parametrize("reference", ["mine:mine", "mine:mixed", "mine.py:mine"])
def test_probe_labels_with_a_recipe_that_decides(reference: str) -> None:
    assert _run("probe", "rows.jsonl", "-o", "labelled.jsonl", "-r", reference) == 0


def test_a_file_imports_the_files_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "limits_of_mine.py").write_text("LIMIT = 3.5\n")
    text = "from limits_of_mine import LIMIT\n\ndef limit(rollout):\n    return LIMIT\n"
    (folder / "limited.py").write_text(text)
    (score,) = load_recipe(f"{folder / 'limited.py'}:limit")([rr.Rollout(response="x")])
    assert score.value == 3.5
    assert sys.path[-1] == str(folder)  # the last one, so that it replaces no other module


def test_probe_requires_a_recipe_that_decides(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("probe", "rows.jsonl", "-o", "labelled.jsonl", "-r", "mine:brief") == 2
    assert "does not decide whether a response is correct" in capsys.readouterr().err


# --- Python --------------------------------------------------------------------------------------

FIELDS = {key: value for key, value in ROW.items() if key != "response"}


def _trl(recipe: Any) -> Any:
    columns = {name: [value] for name, value in FIELDS.items() if name != "step"}
    state = SimpleNamespace(global_step=1)
    reward = trl.RagReward(recipe)
    return reward(prompts=["p"], completions=[RESPONSE], trainer_state=state, **columns)[0]


def _openrlhf(recipe: Any) -> Any:
    labels = [json.dumps(FIELDS)]
    return openrlhf.reward_function(recipe)([f"p{RESPONSE}"], ["p"], labels)["rewards"]


def _verl(recipe: Any) -> Any:
    return verl.compute_score("d", RESPONSE, json.dumps(FIELDS), {}, recipe=recipe)["score"]


ADAPTERS: dict[str, Callable[[Any], Any]] = {
    "score": lambda recipe: rr.score([ROW], recipe)[0]["reward"],
    "explain": lambda recipe: rr.explain([ROW], recipe).reward,
    "each": lambda recipe: callables.each(recipe)(ROW),
    "batch": lambda recipe: callables.batch(recipe)([ROW])[0],
    "trl": _trl,
    "reward_function": _openrlhf,
}


@pytest.mark.parametrize("reference", REWARDS)
def test_adapters(reference: str) -> None:
    from rag_rewards.loading import import_object

    for recipe in (reference, import_object(reference)):
        for name, adapter in ADAPTERS.items():
            if name == "reward_function" and reference == "mine:plan":
                with pytest.raises(rr.UsageError, match="start a run for each stage"):
                    adapter(recipe)
            else:
                assert adapter(recipe) == pytest.approx(REWARDS[reference]), name


@pytest.mark.parametrize("reference", REWARDS)
def test_adapters_load_a_reference(reference: str) -> None:
    assert ms_swift.reward_class("own", recipe=reference)
    assert skyrl.SkyRLRecipe(recipe=reference)
    if reference == "mine:plan":  # the others get no training step
        for refuses in (verifiers.reward, lambda plan: slime.SlimeRecipe(recipe=plan)):
            with pytest.raises(rr.UsageError, match="does not pass the training step"):
                refuses(reference)
        return
    assert verifiers.reward(reference)
    assert slime.SlimeRecipe(recipe=reference)
    assert _verl(reference) == pytest.approx(REWARDS[reference])


@pytest.mark.parametrize("reference", REWARDS)
def test_a_reference_can_be_pickled(reference: str) -> None:
    reward = pickle.loads(pickle.dumps(trl.RagReward(reference)))  # noqa: S301
    assert reward.scorer.reward.name in (
        "mine",
        "brief",
        "brief_batch",
        "accuracy",
        "naive-grpo",
        "mixed",
        "curriculum",
    )


def test_the_claims_of_the_cookbook() -> None:
    """The first reward of the page works in the places that the page names."""
    page = Path(__file__).resolve().parents[1] / "docs" / "cookbook.md"
    Path("mine.py").write_text(page.read_text("utf-8").split("```python\n")[1].split("```")[0])
    from rag_rewards.loading import import_object

    mine = import_object("mine:mine")
    row = {"response": "It is the Seine.", "answers": "Seine"}
    assert callables.each(recipe=mine)(row) == pytest.approx(0.7)
    batch = {"prompts": ["p"], "completions": [row["response"]], "answers": ["Seine"]}
    assert trl.RagReward(mine)(**batch) == [pytest.approx(0.7)]
    assert trl.RagReward("mine:mine")(**batch) == [pytest.approx(0.7)]
    assert _run("score", "rows.jsonl", "-o", "scored.jsonl", "--recipe", "mine:mine") == 0
    assert _run("audit", "-r", "mine:mine") in (0, 1)

"""The scorer: recipes in every form, rollouts and rows, synchronous and asynchronous."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rag_rewards as rr
from rag_rewards.errors import (
    BackendError,
    GroupError,
    OptionError,
    RowError,
    SettingError,
    UsageError,
)
from rag_rewards.evidence.protocols import JudgeQuestion, Models
from rag_rewards.loading import RecipeSpec, load_recipe, recorded_settings
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.recipes import RECIPES
from rag_rewards.rewards import AnswerMatch
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows import Chunk
from rag_rewards.scorer import PromptOptions, Scorer, split_options
from rag_rewards.signature import CODE_KEY, Signature
from rag_rewards.testing import TableJudge, TablePolicy
from rag_rewards.text.sections import Tags

RELEVANT = "<relevance>[]</relevance>"
RIGHT = "<answer>a</answer>"


def brief(rollout: rr.Rollout) -> float:
    return float(len(rollout.parsed.text) < 40)


def arena(response: str, **row: object) -> rr.Rollout:
    return rr.decode_row({"response": response, "answers": "a", "supporting": [], **row})


def grouped(key: str, value: float) -> dict[str, Any]:
    logprobs = {"full": [-1.0], "without": {"1": [-1.0 - value]}}
    row = {"response": RIGHT, "answers": "a", "supporting": [1], "group": key}
    return {**row, "documents": [{"text": "a"}], "logprobs": logprobs}


def values(results: list[Any]) -> list[float | None]:
    return [getattr(result, "value", None) for result in results]


# --- every form of a recipe --------------------------------------------------------------------

MATCH = AnswerMatch(tags=Tags(("answer",)))
FORMS: dict[str, Callable[[Path], Any]] = {
    "name": lambda _: "naive-grpo",
    "recipe": lambda _: rr.recipe("naive-grpo"),
    "curriculum": lambda _: rr.Curriculum(
        (rr.Stage(rr.recipe("naive-grpo"), 9), rr.Stage(rr.recipe("arena")))
    ),
    "reward": lambda _: MATCH,
    "composition": lambda _: rr.weighted((1.0, MATCH), (1.0, brief)),
    "function": lambda _: brief,
    "definition": lambda _: RECIPES["naive-grpo"],
    "mapping": lambda _: {"recipe": "naive-grpo"},
    "mapping of a recipe": lambda _: {"recipe": rr.recipe("naive-grpo")},
    "stages": lambda _: {"stages": [{"recipe": "naive-grpo", "until_step": 9}, {"recipe": brief}]},
    "spec": lambda _: RecipeSpec(recipe="naive-grpo"),
    "module": lambda _: "own_rewards:brief",
    "module with a recipe": lambda _: "own_rewards:own",
    "module with a definition": lambda _: "own_rewards:definition",
    "file": lambda folder: f"{folder / 'own_rewards.py'}:brief",
}
MODULE = """
import rag_rewards as rr
from rag_rewards.recipes import RECIPES

def brief(rollout):
    return float(len(rollout.parsed.text) < 40)

own = rr.custom("own", brief)
definition = RECIPES["naive-grpo"]
options = {"recipe": "arena"}
number = 7
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module of the user in it."""
    (tmp_path / "own_rewards.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_rewards", raising=False)
    return tmp_path


@pytest.mark.parametrize("form", FORMS)
def test_every_form_scores_rollouts_and_rows_alike(form: str, folder: Path) -> None:
    scorer = Scorer.load(FORMS[form](folder))
    row = {"response": RIGHT, "answers": "a", "step": 3}
    [score] = scorer.score_each([rr.decode_row(row)])
    assert score == asyncio.run(scorer.score_each_async([rr.decode_row(row)]))[0]
    assert isinstance(score, rr.Score)
    assert score.value in (1.0, 2.0)
    chunk = Chunk(lines=[json.dumps(row).encode() + b"\n"], numbers=[1])
    scored = scorer.score_rows(chunk)
    assert scored == asyncio.run(scorer.score_rows_async(chunk))
    line = json.loads(scored.output)
    assert line["reward"] == score.value
    assert line["signature"] == scorer.signature


def test_settings_are_accepted_by_everything_that_is_built_from_them(folder: Path) -> None:
    settings = {"bonus": {"value": 5}}
    for recipe in ("arena", RECIPES["arena"], {"recipe": "arena"}, "own_rewards:options"):
        scorer = Scorer.load(recipe, settings, hardened=True)
        built = rr.recipe("arena", settings, hardened=True)
        assert scorer.signature == built.signature
    both = Scorer.load({"recipe": "arena", "settings": {"bonus.value": 1}}, settings)
    assert both.signature == rr.recipe("arena", settings).signature


def test_default_model_options_beside_a_mapping_with_models() -> None:
    options = {"recipe": "truthrl", "judge": "http://localhost:1", "judge_model": "m"}
    assert Scorer.load(options, models=ModelOptions()).signature == Scorer.load(options).signature
    with pytest.raises(UsageError, match="models are given twice"):
        Scorer.load(options, models=ModelOptions(nli="x"))


def test_the_signature_of_a_users_definition_contains_every_setting() -> None:
    """No version of the package identifies the defaults of a definition in the user's file."""
    own = dataclasses.replace(RECIPES["naive-grpo"], name="own")
    parsed = Signature.parse(Scorer.load(own, {"accuracy.metric": "f1"}).signature)
    changed = {"accuracy.metric": "f1", CODE_KEY: parsed.settings[CODE_KEY]}
    assert parsed.settings == own.defaults() | changed
    assert recorded_settings(parsed, parsed.parts[0], own)["accuracy.metric"] == "f1"
    assert not Signature.parse(Scorer.load("naive-grpo").signature).settings


@pytest.mark.parametrize("recipe", [rr.recipe("arena"), brief, MATCH, "own_rewards:own"])
@pytest.mark.parametrize("options", [{"settings": {"x": 1}}, {"hardened": True}])
def test_an_object_has_no_settings(recipe: Any, options: Any, folder: Path) -> None:
    with pytest.raises(SettingError, match="an object without settings"):
        Scorer.load(recipe, **options)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("no_such_module:reward", "cannot import no_such_module: ModuleNotFoundError"),
        ("own_rewards:brif", "own_rewards has no object 'brif'; did you mean 'brief'"),
        (
            "own_rewards:number",
            "own_rewards:number is not a recipe: expected .*, found an object of the type int",
        ),
        ("own_rewards:rr", "own_rewards:rr is not a recipe: .* found an object of the type module"),
        ("own_rewards:", "is not of the form module:name"),
        ("gone.py:reward", "cannot import gone.py: there is no such file"),
        ("broken.py:reward", "cannot import broken.py: ZeroDivisionError"),
        ("nothing", "no recipe 'nothing'"),
    ],
)
def test_an_invalid_reference_is_an_error_with_a_reason(
    reference: str, message: str, folder: Path
) -> None:
    (folder / "broken.py").write_text("1 / 0")
    with pytest.raises(UsageError, match=message):
        load_recipe(reference)


def test_every_form_is_read_into_a_spec() -> None:
    spec = RecipeSpec(recipe="arena", settings={"bonus.value": 5}, hardened=True)
    nested = {"recipe": {"recipe": "arena", "settings": {"bonus.value": 1}}, "hardened": True}
    assert RecipeSpec.of("arena", {"bonus": {"value": 5}}, hardened=True) == spec
    assert RecipeSpec.of(nested, {"bonus": {"value": 5}}) == spec
    assert RecipeSpec.of(spec) == spec
    assert RecipeSpec.of({"recipe": spec}) == spec
    stages = [{"recipe": "arena"}]
    assert RecipeSpec.of({"stages": stages}) == RecipeSpec(stages=stages)
    assert RecipeSpec.of({"settings": {"a": {"b": 1}}}, required=False).settings == {"a.b": 1}


def test_a_spec_with_an_object_is_no_plain_data(tmp_path: Path) -> None:
    objects = [rr.recipe("arena"), {"recipe": brief}, {"stages": [{"recipe": rr.recipe("arena")}]}]
    for each in objects:
        assert not RecipeSpec.of(each).is_data
        assert Scorer.load(each).spec is None
    for form in ("name", "spec", "file"):
        assert RecipeSpec.of(FORMS[form](tmp_path)).is_data


# --- options -----------------------------------------------------------------------------------


def test_options_in_one_mapping() -> None:
    options = {"recipe": "arena", "settings": {"accuracy": {"metric": "f1"}}, "hardened": True}
    expected = rr.recipe("arena", {"accuracy.metric": "f1"}, hardened=True)
    assert Scorer.load(options).signature == expected.signature
    recipe, models, dump = split_options(
        {"recipe": "truthrl", "judge": "http://h/v1", "judge_model": "x"}
    )
    assert (recipe, models, dump) == (
        RecipeSpec(recipe="truthrl"),
        ModelOptions(judge="http://h/v1", judge_model="x"),
        None,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recpie": "arena"}, "unknown option 'recpie'; did you mean 'recipe'"),
        ({}, "no recipe is given: set recipe"),
        ({"recipe": "arena", "stages": [{"recipe": "arena"}]}, "are both set"),
        ({"recipe": "arena", "hardened": "very"}, "hardened must be true or false"),
        ({"recipe": "arena", "settings": {"bonus.valu": 1}}, "did you mean 'bonus.value'"),
        ({"stages": ["arena"]}, "stages must be a list of mappings"),
        ({"stages": [{"recipe": "arena", "until": 3}]}, "unknown key 'until'"),
        ({"recipe": "truthrl", "judge": "http://localhost/v1"}, "^judge requires judge_model"),
        ({"recipe": "lear", "model": "m", "backend": "jax"}, "^backend must be one of"),
        ({"recipe": "lear", "model": "m", "backend": "sglang"}, "requires the URL of a server"),
        ({"recipe": "lear", "model": "http://h"}, "^model http://h is a server: set backend"),
        ({"recipe": "lear", "truncate": True}, "set model"),
        ({"recipe": "lear", "token_budget": 9}, "^token_budget must be at least 256, found 9"),
    ],
)
def test_invalid_options_have_their_python_names(options: dict[str, object], message: str) -> None:
    with pytest.raises((UsageError, SettingError), match=message) as raised:
        Scorer.load(options)
    assert "--" not in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--judge", "http://localhost/v1"], "--judge requires --judge-model"),
        (["--model", "m", "--backend", "jax"], "--backend must be one of"),
        (["--set", "models.truncate=true"], "set --model"),
        (["--workers", "0"], "--workers must be at least 1, found 0"),
        (["--group-size", "0"], "--group-size must be at least 1, found 0"),
        (["--sort", "--group-size", "2"], "--group-size groups by position and --sort by key"),
        (["--set", "threshold"], "--set expects KEY=VALUE, found 'threshold'"),
    ],
)
def test_invalid_options_have_their_command_line_names(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from rag_rewards.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["score", "rows.jsonl", "-r", "truthrl", *arguments])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_an_option_error_survives_pickling_with_its_values() -> None:
    error = OptionError("{judge} {url} requires {judge_model}", url="{x}")
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301 (made in this test)
    assert str(copied) == str(error) == "judge {x} requires judge_model"
    assert copied.message(lambda name: f"<{name}>") == "<judge> {x} requires <judge_model>"


# --- groups and errors -------------------------------------------------------------------------


def test_errors_stay_in_their_place() -> None:
    broken = RowError("missing", "response")
    results = Scorer.load("arena").score_each([arena(RELEVANT), broken, arena("<x>")])
    assert results[1] is broken
    assert values(results) == [1.0, None, 0.0]


def test_an_error_fails_only_its_group() -> None:
    scorer = Scorer.load("ctrl-rag")
    rows = [rr.decode_row(grouped(key, value)) for key, value in (("p", 3), ("p", 9), ("q", 3))]
    results = scorer.score_each([*rows, RowError("missing", "response")], [[0, 1], [2, 3]])
    assert values(results) == [0.0, pytest.approx(1.0), None, None]
    assert isinstance(results[2], GroupError)
    assert results[2].message == "the group contains a row in error (response: missing)"


def test_groups_by_key_are_the_default() -> None:
    rows = [rr.decode_row(grouped(key, v)) for key, v in (("p", 3), ("q", 5), ("p", 9))]
    results = Scorer.load("ctrl-rag").score_each([*rows, RowError("missing", "response")])
    assert values(results)[:3:2] == [0.0, pytest.approx(1.0)]
    assert isinstance(results[3], RowError)


def test_a_chunk_of_groups_is_scored_as_its_rollouts_are() -> None:
    rows = [grouped("p", 3), grouped("p", 9), grouped("q", 3), {"group": "q"}, grouped("r", 1)]
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    chunk = Chunk(lines=lines, numbers=[1, 2, 3, 4, 5], sizes=[2, 2, 1], problems=["", "", "torn"])
    scored = Scorer.load("ctrl-rag").score_rows(chunk)
    rewards = [json.loads(line)["reward"] for line in scored.output.splitlines()]
    assert rewards == [0.0, pytest.approx(1.0)]
    errors = [json.loads(record) for record in scored.errors]
    assert [(e["line"], e["error"]["type"], e["error"]["message"]) for e in errors] == [
        (3, "GroupError", "the group contains a row in error (response: missing)"),
        (4, "RowError", "missing (also missing: supporting, answers)"),
        (5, "GroupError", "torn"),
    ]
    assert (scored.totals.rows, scored.totals.errors) == (2, 3)


# --- models ------------------------------------------------------------------------------------


def test_synchronous_and_asynchronous_requests_are_equal() -> None:
    scorer = Scorer.load("truthrl", models=Models(judge=TableJudge(lambda calls: 1)))
    row = rr.decode_row({"question": "q", "response": r"\boxed{x}", "answers": "y"})
    sync = scorer.score_each([row])
    assert asyncio.run(scorer.score_each_async([row])) == sync
    assert values(sync) == [1.0]
    assert "judge" in scorer.signature


def test_a_group_in_error_causes_no_request() -> None:
    judge = TableJudge(lambda calls: 1)
    both = rr.GroupMinMax(rr.recipe("truthrl"))
    scorer = Scorer.load(rr.custom("both", both), models=Models(judge=judge))
    row = {"question": "q", "response": r"\boxed{x}", "answers": "y"}
    results = scorer.score_each([rr.decode_row(row), RowError("missing")], [[0, 1]])
    assert isinstance(results[0], GroupError)
    assert judge.requests == []


def unsure(group: str, response: str = r"\boxed{x}") -> rr.Rollout:
    row = {"question": group, "group": group, "response": response, "answers": "y"}
    return rr.decode_row(row)


@pytest.mark.parametrize("by_key", [True, False])
def test_the_failure_of_a_model_is_an_error_of_its_group(by_key: bool) -> None:
    """Without the rollout that the judge decides, the abstention would be the best of its group."""
    down = BackendError("no connection")
    judge = TableJudge(lambda question: down if question.question == "g" else 1)
    scorer = Scorer.load("truthrl", models=Models(judge=judge))
    rows = [unsure("g"), unsure("h"), unsure("g", r"\boxed{I don't know}"), unsure("g", "no box")]
    groups = None if by_key else [[0, 2, 3], [1]]
    for results in (
        scorer.score_each(rows, groups),
        asyncio.run(scorer.score_each_async(rows, groups)),
    ):
        assert values(results) == [None, 1.0, None, None]
        assert isinstance(results[0], BackendError)
        for other in results[2:]:
            assert isinstance(other, GroupError)
            assert "a model or server failed on the group" in str(other)
            assert "no connection" in str(other)


def test_an_error_of_a_row_leaves_the_others_of_its_group_scored() -> None:
    scorer = Scorer.load("truthrl", models=Models(judge=TableJudge(lambda question: 1)))
    results = scorer.score_each([unsure("g"), RowError("missing")], [[0, 1]])
    assert values(results) == [1.0, None]


def test_the_failure_of_a_model_fails_its_group_by_key() -> None:
    """Groups are found by their keys, also that of the rollout whose model failed."""

    def verdict(question: JudgeQuestion) -> int | Exception:
        return BackendError("no answer") if question.response == "long river 2" else 1

    rollouts = [
        Rollout(question=question, response=f"\\boxed{{{answer}}}", answers=["river of the north"])
        for question in ("a", "b")
        for answer in (
            "I don't know",
            "long river 1",
            f"long river {'2' if question == 'b' else 3}",
        )
    ]
    scorer = Scorer.load("truthrl", models=Models(judge=TableJudge(verdict)))
    results = [scorer.score_each(rollouts), asyncio.run(scorer.score_each_async(rollouts))]
    for each in results:
        assert [type(result) for result in each[:3]] == [Score] * 3
        assert [type(result) for result in each[3:]] == [GroupError, GroupError, BackendError]


def test_models_are_closed_with_the_scorer() -> None:
    judge = TableJudge(lambda calls: 1)
    with Scorer.load("truthrl", models=Models(judge=judge)):
        assert not judge.closed
    assert judge.closed


def test_missing_models_are_listed_by_kind() -> None:
    row = rr.decode_row({"question": "q", "response": r"\boxed{x}", "answers": "y"})
    assert Scorer.load("truthrl").missing([row]) == {"judge"}
    assert Scorer.load("arena").missing([row]) == set()


def test_another_form_of_documents_in_the_prompt() -> None:
    recipe, policy = rr.recipe("lear"), Models(policy=TablePolicy())
    own = Scorer(recipe, policy)
    form = PromptOptions(document_form="{text} ({label})", document_separator=" ")
    other = Scorer(recipe, policy, prompt=form)
    assert other.prompt.message == own.prompt.message
    documents = (rr.Document(text="a"), rr.Document(title="T", text="b"))
    row = rr.Rollout(response="", documents=documents)
    [message] = other.prompt.messages(row)
    assert "\n\na (1) b (2)" in message["content"]
    assert own.signature != other.signature
    assert own.signature == Scorer(recipe, policy, prompt=PromptOptions()).signature


@pytest.mark.parametrize("form", ["", "[{label}]", "{text} {body}"])
def test_an_invalid_form_of_documents_is_an_error_before_models_load(form: str) -> None:
    with pytest.raises(UsageError, match=r"the form of a document must contain \{text\}.*found"):
        Scorer.load({"recipe": "ctrl-rag", "model": "no/such", "document_form": form})
    with pytest.raises(UsageError, match="set model"):
        Scorer.load({"recipe": "ctrl-rag", "document_separator": " "})


def test_scoring_without_models_imports_no_event_loop() -> None:
    code = (
        "import sys\nfrom rag_rewards.scorer import Scorer\n"
        "with Scorer.load('arena') as scorer: scorer.score_each([])\n"
        "print('asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


# --- options of the prompt ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["truncate", "template", "prompt_template", "response_limit"])
def test_a_moved_keyword_is_an_error_with_its_place(name: str) -> None:
    moved = {name: True}
    for make in (lambda: Scorer(rr.recipe("lear"), **moved), lambda: Scorer.load("lear", **moved)):
        with pytest.raises(UsageError, match=rf"{name!r}: use prompt=PromptOptions\({name}=…\)"):
            make()


def test_an_unknown_keyword_of_a_scorer_is_an_error() -> None:
    with pytest.raises(UsageError, match="no parameter 'modells'; did you mean 'models'"):
        Scorer.load("arena", modells=None)


def test_options_of_the_prompt_beside_those_of_the_models() -> None:
    models = ModelOptions(model="m", document_form="{text}", truncate=True)
    options = PromptOptions.of(models, template={"enable_thinking": False})
    assert (options.document_form, options.truncate) == ("{text}", True)
    assert options.template == {"enable_thinking": False}


@pytest.mark.parametrize("name", ["naive-grpo", "ctrl-rag"])
def test_a_recipe_keeps_the_errors_among_the_rollouts(name: str) -> None:
    """An error fails its group if the recipe compares rollouts."""
    rows = [rr.decode_row(grouped("a", 0.0)), rr.decode_row(grouped("b", 0.0))]
    error = RowError("missing", "response")
    results = rr.recipe(name).score_each([*rows, error], [[0, 2], [1]])
    assert results[2] is error
    assert isinstance(results[1], rr.Score)
    assert isinstance(results[0], GroupError if name == "ctrl-rag" else rr.Score)

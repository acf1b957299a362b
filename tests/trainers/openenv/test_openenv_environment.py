"""The rubric in OpenEnv's protocol, the ready folder, and its environment with the real client."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from openenv.cli._cli_utils import validate_env_structure
from openenv.cli._validation import validate_running_environment
from openenv.core.rubrics import Gate, RubricDict
from rag_rewards_adapters.openenv import RagRubric, SearchAction, SearchClient, environments

from rag_rewards import custom
from rag_rewards.errors import BackendError, RolloutError, RowError, UsageError

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "environments" / "openenv"
ROW = {"question": "Which river?", "answers": ["Seine"], "supporting": ["p"]}
SEINE = [{"id": "p", "title": "Paris", "text": "Paris lies on the Seine."}]
TOOLS = {"dialect": "tools"}
STEPS = {**TOOLS, "process": "coverage", "keys.weight": 0}


def file_of(folder: Path, *rows: Any) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def step(text: str = "", query: str | None = None, **observed: Any) -> tuple[Any, Any]:
    observation = SimpleNamespace(**{"results": None, "error": None, "done": query is None})
    vars(observation).update(observed)
    return SimpleNamespace(text=text, query=query), observation


SEARCH, RIGHT = step(query="Paris", results=SEINE), step("Seine")


# --- the rubric ----------------------------------------------------------------------------------


def test_the_rubric_scores_the_last_step_and_each_turn() -> None:
    rubric, calls = RagRubric("stepsearch", settings=STEPS), []
    rubric.register_forward_hook(lambda *arguments: calls.append(arguments[-1]))
    rubric.reset(ROW)
    assert rubric(*SEARCH) is None
    assert rubric.compute_step_rewards() == [None]
    assert rubric(*RIGHT) == rubric.last_score == 1.2
    assert rubric.compute_step_rewards() == [0.2, 1.0]
    assert calls == [None, 1.2]
    assert rubric.metadata()["stepsearch/answer"] == 1.0
    rubric.reset()
    assert rubric.metadata() == {}
    assert rubric(*step("Rhône")) == 0.0


def test_a_recipe_without_rewards_of_turns_has_its_reward_at_the_last_step() -> None:
    rubric = RagRubric("search-r1", settings=TOOLS)
    rubric.reset(ROW)
    assert [rubric(*SEARCH), rubric(*RIGHT)] == [None, 1.0]
    assert rubric.compute_step_rewards() == [None, 1.0]


def test_the_rubric_is_a_child_of_other_rubrics() -> None:
    """A container of OpenEnv finds it, and its own fields are no children."""
    answer = RagRubric("search-r1", settings=TOOLS)
    answer.reset(ROW)
    gate = Gate(answer, threshold=0.5)
    assert gate(*RIGHT) == 1.0
    assert dict(gate.named_rubrics()) == {"rubric": answer}
    assert dict(RubricDict({"river": answer}).named_rubrics()) == {"river": answer}


def test_a_rubric_in_an_own_environment_reads_its_steps() -> None:
    rubric = RagRubric("naive-grpo", turn=lambda action, observation: {"text": action})
    rubric.reset({"question": "Which river?", "answers": ["Seine"]})
    assert rubric("<think>a</think><answer>Seine</answer>", SimpleNamespace(done=True)) == 2.0


def failing(*_: Any) -> float:
    raise BackendError("the judge is down")


@pytest.mark.parametrize(
    ("recipe", "last", "error", "reason"),
    [
        (custom("down", failing), RIGHT, BackendError, "the judge is down"),
        ("search-r1", step("", "Paris", error="timeout", done=True), BackendError, "timeout"),
        ("search-r1", step("", "Paris", results=["no document"], done=True), RowError, "turns"),
    ],
)
def test_an_unscored_rollout_has_no_number(
    recipe: Any, last: tuple[Any, Any], error: type[RolloutError], reason: str
) -> None:
    """OpenEnv's loops take the last number of an episode, so no step may have one."""
    rubric = RagRubric(recipe)
    rubric.reset(ROW)
    assert [rubric(*SEARCH), rubric(*last)] == [None, None]
    assert isinstance(rubric.result, error)
    assert reason in rubric.metadata()["unscored"]
    assert rubric.compute_step_rewards() == [None, None]


def test_what_needs_the_group_or_the_training_step_is_refused() -> None:
    stages = [{"recipe": "arena", "until_step": 5}, {"recipe": "naive-grpo"}]
    for arguments, options in ((("ctrl-rag",), {}), ((), {"stages": stages})):
        with pytest.raises(UsageError, match=r"RagReward of rag_rewards_adapters\.trl beside"):
            RagRubric(*arguments, **options)


def test_a_recipe_with_a_judge_is_for_evaluations(caplog: Any) -> None:
    RagRubric("truthrl", judge="http://127.0.0.1:9/v1", judge_model="any")
    assert "use this reward for evaluations; for training, use RagReward" in caplog.text


# --- the environment -----------------------------------------------------------------------------


def test_the_ready_folder_has_the_structure_of_openenv() -> None:
    assert validate_env_structure(FOLDER) == ["Recommended directory missing: outputs/"]


def test_clients_step_in_the_ready_environment(ready: str) -> None:
    assert validate_running_environment(ready)["passed"]
    with SearchClient(base_url=ready).sync() as one, SearchClient(base_url=ready).sync() as other:
        first = one.reset(index=0)
        other.reset(index=2)
        found = one.step(SearchAction(query="designer of the Hallgrim Lighthouse"))
        wrong = other.step(SearchAction(text="Rhône"))
        right = one.step(SearchAction(text="<answer>Tromsø</answer>"))
        with pytest.raises(RuntimeError, match="the episode has ended"):
            one.step(SearchAction(text="Tromsø"))
        with pytest.raises(RuntimeError, match="index=6: the environment has the rows 0 to 5"):
            one.reset(index=6)
        assert one.state().step_count == 2
    assert first.observation.prompt.endswith("Hallgrim Lighthouse born?")
    assert (found.reward, found.done) == (None, False)
    assert found.observation.results[0]["id"] == "hallgrim"
    assert (wrong.reward, right.reward, right.done) == (0.0, 1.0, True)
    assert right.metadata["search-r1/searched"] == 1.0
    assert "answers" not in repr(first) + repr(found)  # the gold data stay on the server


def test_episodes_of_one_seed_are_the_same(ready: str) -> None:
    with SearchClient(base_url=ready).sync() as client:
        drawn = [client.reset(seed=seed).metadata["index"] for seed in [*range(20), *range(20)]]
    assert drawn[:20] == drawn[20:]
    assert len(set(drawn)) > 2


def test_the_last_turn_and_a_failure_end_the_episode(
    serve: Callable[[Any], str], tmp_path: Path
) -> None:
    def search(query: str) -> Any:
        return SEINE if query == "Paris" else 1 / 0

    rows = file_of(tmp_path, ROW)
    url = serve(environments(rows, "search-r1", settings=TOOLS, search=search, max_turns=2))
    with SearchClient(base_url=url).sync() as client:
        client.reset()
        client.step(SearchAction(query="Paris"))
        cut = client.step(SearchAction(query="Paris"))
        client.reset()
        failed = client.step(SearchAction(query="boom"))
    assert (cut.reward, cut.done, cut.observation.finish_reason) == (0.0, True, "max_turns")
    assert (failed.reward, failed.done) == (None, True)
    assert "ZeroDivisionError" in failed.observation.error
    assert "ZeroDivisionError" in failed.metadata["unscored"]


@pytest.mark.parametrize(
    "prompt",
    [
        "Answer inside <answer></answer>.\n\nWhich river?",
        [
            {"role": "system", "content": "Answer inside <answer></answer>."},
            {"role": "user", "content": "Which river?"},
            {"role": "assistant", "content": "<think>"},
        ],
    ],
)
def test_the_policy_sees_the_whole_prompt(prompt: Any, tmp_path: Path) -> None:
    environment = environments(file_of(tmp_path, {"prompt": prompt, "answers": ["Seine"]}))()
    expected = "Answer inside <answer></answer>.\n\nWhich river?"
    assert environment.reset().prompt == expected


@pytest.mark.parametrize(
    ("lines", "error", "message"),
    [
        ("", UsageError, "is empty"),
        ("[]", UsageError, "contains no row"),
        (
            '{"question": "Which?", "answers": ["x"]}\n[1]\n',
            UsageError,
            "row 2 of .* is not a JSON",
        ),
        ('{"question": "Which?"}\n', RolloutError, "row 1 of .*: answers: missing"),
    ],
)
def test_a_broken_row_is_an_error_before_the_server_starts(
    lines: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text(lines)
    with pytest.raises(error, match=message):
        environments(tmp_path / "rows.jsonl", "search-r1")


@pytest.mark.parametrize("prompt", [None, [{"role": "system", "content": "Hi"}], ["Hi"], 5])
def test_a_row_without_a_prompt_is_an_error_before_the_server_starts(
    prompt: Any, tmp_path: Path
) -> None:
    field = "prompt" if prompt else "question"
    with pytest.raises(RolloutError, match=f"row 1 of .*: {field}: "):
        environments(file_of(tmp_path, {"prompt": prompt}))

"""The reward function of TRL without a trainer, called with the arguments of TRL."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rag_rewards_adapters.trl import AsyncRagReward, RagReward

import rag_rewards as rr
from rag_rewards.errors import (
    DataError,
    GroupError,
    RowError,
    SettingError,
    UnknownRecipeError,
    UsageError,
)
from rag_rewards.evidence.protocols import Models
from rag_rewards.testing import TableJudge

RIGHT = "<relevance>[1]</relevance><analysis>It is 1.</analysis><answer>Seine</answer>"
GOLD: dict[str, Any] = {
    "documents": [{"text": "Paris lies on the Seine."}, {"text": "Lyon lies on the Rhône."}],
    "supporting": [1],
    "answers": ["Seine"],
    "answerable": True,
}


def batch(*completions: Any, prompts: Any = None, **more: Any) -> dict[str, Any]:
    """Return the keyword arguments of TRL: each column has one value per completion."""
    count = len(completions)
    columns = {name: [value] * count for name, value in GOLD.items()}
    return {
        "prompts": prompts or ["Which river?"] * count,
        "completions": list(completions),
        "completion_ids": [[1, 2]] * count,
        "trainer_state": SimpleNamespace(global_step=0),
        **columns,
        **more,
    }


def chat(text: str, **more: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text, **more}]


def brief(rollout: rr.Rollout) -> float:
    return float(len(rollout.parsed.text) < 10)


class Logged:
    """The two log functions of TRL."""

    def __init__(self) -> None:
        self.extra: dict[str, list[Any]] = {}
        self.metric: dict[str, float] = {}

    def both(self) -> dict[str, Any]:
        return {
            "log_extra": lambda name, values: self.extra.setdefault(name, []).extend(values),
            "log_metric": self.metric.__setitem__,
        }


def test_the_module_imports_without_torch_and_the_trainer() -> None:
    code = "import rag_rewards_adapters.trl, sys; print({'torch', 'trl'} & set(sys.modules))"
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "set()"


class TestRewards:
    def test_text_and_chat_completions_get_equal_rewards(self) -> None:
        reward = RagReward("arena", settings={"bonus.value": 5})
        assert reward(**batch(RIGHT, "no")) == [8.0, 0.0]
        prompts = [[{"role": "user", "content": "Which river?"}]] * 2
        assert reward(**batch(chat(RIGHT), chat("no"), prompts=prompts)) == [8.0, 0.0]

    def test_default_name_and_given_name(self) -> None:
        assert RagReward("arena").__name__ == "arena"
        assert RagReward("arena", name="strict").__name__ == "strict"
        assert RagReward(rr.custom("brief", brief)).__name__ == "brief"

    def test_columns_with_other_names(self) -> None:
        arguments = batch(RIGHT)
        arguments["golden_answers"] = arguments.pop("answers")
        assert RagReward("arena", columns={"answers": "golden_answers"})(**arguments) == [13.0]

    def test_a_custom_recipe(self) -> None:
        assert RagReward(rr.custom("brief", brief))(**batch("short", RIGHT)) == [1.0, 0.0]

    def test_the_last_assistant_message_is_scored(self) -> None:
        turns = [
            {"role": "assistant", "content": RIGHT},
            {"role": "tool", "content": RIGHT},
            {"role": "assistant", "content": "I do not know."},
        ]
        prompt = [{"role": "user", "content": "Which river?"}]
        assert RagReward("arena")(**batch(turns, prompts=[prompt])) == [0.0]
        assert RagReward("arena")(**batch(turns[1:2] + turns[:1], prompts=[prompt])) == [13.0]

    def test_a_tool_call_without_text_is_an_empty_response(self) -> None:
        called = [{"role": "assistant", "content": None, "tool_calls": [{"type": "function"}]}]
        assert RagReward("arena")(**batch(called, prompts=[[]])) == [0.0]

    def test_the_default_question_is_the_last_user_message(self) -> None:
        judge = TableJudge(lambda question: 1)
        reward = RagReward("truthrl", settings={"verifier": "judge"}, models=Models(judge=judge))
        prompt = [{"role": "user", "content": "Which river?"}]
        completions = chat("\\boxed{La Seine}")
        arguments = batch(completions, prompts=[prompt])
        assert reward(**arguments) == [1.0]
        assert reward(**arguments, question=["Which, in Paris?"]) == [1.0]
        assert [question.question for question in judge.requests] == [
            "Which river?",
            "Which, in Paris?",
        ]

    def test_a_cascade_sends_only_undecided_answers_to_the_judge(self) -> None:
        judge = TableJudge(lambda question: int(question.response == "Rhone, Seine"))
        settings = {"verifier": "cascade"}
        reward = RagReward("truthrl", settings=settings, models=Models(judge=judge))
        texts = ("It is the Seine.", "Rhone, Seine", "It is not the Seine.", "")
        boxes = [f"\\boxed{{{text}}}" for text in texts]
        assert reward(**batch(*boxes)) == [1.0, 1.0, -1.0, -1.0]
        assert [question.response for question in judge.requests] == [texts[1], texts[2]]

    def test_stages_depend_on_the_training_step(self) -> None:
        reward = RagReward(stages=[{"recipe": "naive-grpo", "until_step": 5}, {"recipe": "arena"}])
        early = reward(**batch(RIGHT, trainer_state=SimpleNamespace(global_step=3)))
        late = reward(**batch(RIGHT, trainer_state=SimpleNamespace(global_step=4)))
        assert early != late == [13.0]

    def test_asynchronous_rewards(self) -> None:
        import asyncio
        import inspect

        judge = TableJudge(lambda question: int(question.response == "La Seine"))
        reward = AsyncRagReward("truthrl", models=Models(judge=judge))
        assert inspect.iscoroutinefunction(reward.__call__)
        values = asyncio.run(reward(**batch("\\boxed{La Seine}", "\\boxed{Rhone}")))
        assert values == [1.0, -1.0]


GIVEN: dict[str, Any] = {"settings": {"citation.judge_by": "gold"}}


class TestThoughts:
    CLOSED = "It is on the river.</think><answer>Seine [1]</answer>"

    def format_of(self, reward: RagReward, arguments: dict[str, Any]) -> list[Any]:
        logged = Logged()
        reward(**arguments, **logged.both())
        return logged.extra["ground-grpo-stage1/format"]

    def test_a_tag_opened_by_a_text_prompt_belongs_to_the_response(self) -> None:
        reward = RagReward("ground-grpo-stage1", **GIVEN)
        opened = self.format_of(reward, batch(self.CLOSED, prompts=["assistant\n<think>\n"]))
        assert opened == [1.0]
        assert self.format_of(reward, batch(self.CLOSED, prompts=["assistant\n"])) == [0.0]

    def test_the_response_prefix_applies_to_chats(self) -> None:
        arguments = batch(chat(self.CLOSED), prompts=[[]])
        assert self.format_of(RagReward("ground-grpo-stage1", **GIVEN), arguments) == [0.0]
        prefixed = RagReward("ground-grpo-stage1", **GIVEN, response_prefix="<think>\n")
        assert self.format_of(prefixed, arguments) == [1.0]

    @pytest.mark.parametrize("key", ["reasoning_content", "thinking"])
    def test_parsed_thoughts_are_added_to_the_response(self, key: str) -> None:
        parsed = chat("<answer>Seine [1]</answer>", **{key: "It is on the river."})
        reward = RagReward("ground-grpo-stage1", **GIVEN, response_prefix="<think>\n")
        assert self.format_of(reward, batch(parsed, prompts=[[]])) == [1.0]

    def test_an_unopened_tag_is_warned_of_once(self, caplog: Any) -> None:
        reward = RagReward("ground-grpo-stage1", **GIVEN)
        with caplog.at_level(logging.WARNING, "rag_rewards"):
            for _ in range(2):
                reward(**batch(chat(self.CLOSED), prompts=[[]]))
        assert len(caplog.records) == 1
        assert "reward.bind(trainer)" in caplog.text


class TestGroups:
    def needing(self, **options: Any) -> RagReward:
        best = rr.custom("best", rr.GroupMinMax(rr.recipe("naive-grpo").total))
        return RagReward(best, **options)

    WELL = "<answer>Seine</answer>"

    def test_groups_are_blocks_of_the_group_size(self) -> None:
        reward = self.needing(group_size=2)
        prompts = ["a", "a", "b", "b"]
        completions = ("no", "<answer>Seine</answer>", "no", "no")
        assert reward(**batch(*completions, prompts=prompts)) == pytest.approx([0, 1, 0, 0])

    def test_adjacent_groups_with_equal_prompts(self) -> None:
        reward = self.needing(group_size=2)
        completions = ("no", self.WELL, self.WELL, self.WELL)
        assert reward(**batch(*completions)) == pytest.approx([0, 1, 0, 0])

    def test_a_missing_group_size_names_the_options(self) -> None:
        with pytest.raises(UsageError, match=r"reward\.bind\(trainer\).*group_size="):
            self.needing()(**batch("a", "b"))

    def test_a_wrong_group_size_names_the_completions(self) -> None:
        with pytest.raises(GroupError, match=r"\(3\) is not a multiple of the group size \(2\)"):
            self.needing(group_size=2)(**batch("a", "b", "c"))
        with pytest.raises(GroupError, match=r"completions 0 and 1 .*num_generations=2"):
            self.needing(group_size=2)(**batch("a", "b", prompts=["x", "y"]))

    def test_std_floor_without_bind(self, caplog: Any) -> None:
        """Axolotl creates the trainer, so that `bind` cannot be called."""
        with pytest.raises(UsageError, match=r"std_floor.*reward\.bind\(trainer\).*group_size="):
            RagReward("lear", settings={"answers": ["f"]}, std_floor=0.1)(**batch("a", "b"))
        reward = RagReward("lear", settings={"answers": ["f"]}, std_floor=0.1, group_size=2)
        with caplog.at_level(logging.WARNING, "rag_rewards"):
            for _ in range(2):
                values = reward(**batch(self.WELL, "no"))
                assert sum(values) == pytest.approx(0)
                assert values[0] > values[1]
        assert caplog.text.count('scale_rewards="none"') == 1


class TestErrors:
    def test_an_error_of_the_first_batch_names_the_row_and_the_field(self) -> None:
        arguments = batch(RIGHT, RIGHT)
        arguments["answers"] = [["Seine"], None]
        with pytest.raises(DataError, match="row 1 of the batch: answers: missing"):
            RagReward("arena")(**arguments)
        arguments["id"] = ["a", "b"]
        with pytest.raises(DataError, match="row b: answers: missing"):
            RagReward("arena")(**arguments)

    def test_a_field_that_cannot_be_decoded(self) -> None:
        arguments = batch(RIGHT)
        arguments["documents"] = [[{"text": 3}]]
        with pytest.raises(
            RowError, match=r"row 0 of the batch: documents\[0\]\.text: expected str"
        ):
            RagReward("arena")(**arguments)

    def test_a_later_error_is_none_and_counted(self) -> None:
        reward, logged = RagReward("arena"), Logged()
        reward(**batch(RIGHT))
        arguments = batch(RIGHT, RIGHT)
        arguments["answers"] = [["Seine"], None]
        assert reward(**arguments, **logged.both()) == [13.0, None]
        assert reward.not_scored == 1
        assert logged.metric["arena/not_scored"] == 1
        assert logged.metric["arena/accuracy"] == 1.0
        assert logged.extra["arena/accuracy"] == [1.0, None]
        assert reward(**batch("no")) == [0.0]

    def test_a_recipe_without_a_reward_for_a_rollout(self) -> None:
        some = rr.custom("some", lambda rollout: None if rollout.parsed.text == "?" else 1.0)
        with pytest.raises(DataError, match=r"row 1 of the batch: .*gives this rollout no reward"):
            RagReward(some)(**batch("x", "?"))
        reward = RagReward(some, patience=2)
        assert reward(**batch("x")) == [1.0]
        assert reward(**batch("x", "?")) == [1.0, None]
        assert reward(**batch("?")) == [None]
        assert reward.not_scored == 2
        with pytest.raises(DataError, match="no reward"):
            reward(**batch("?"))

    def test_consecutive_batches_without_a_score_raise(self) -> None:
        reward = RagReward("arena", patience=2)
        reward(**batch(RIGHT))
        arguments = batch(RIGHT)
        arguments["answers"] = [None]
        assert reward(**arguments) == [None]
        with pytest.raises(DataError, match="answers"):
            reward(**arguments)

    def test_a_missing_column_is_named(self) -> None:
        with pytest.raises(UsageError, match=r"no column 'answer'.*answers"):
            RagReward("arena", columns={"answers": "answer"})(**batch(RIGHT))

    @pytest.mark.parametrize(
        ("name", "settings", "text", "way_out"),
        [
            ("ctrl-rag-clr", {}, "x", r"reward\.bind\(trainer\)"),
            ("lear", {}, "<reason>a</reason><extract>b</extract><answer>c</answer>", "bind"),
            ("truthrl", {}, "\\boxed{La Seine}", "judge="),
            (
                "ground-grpo",
                {},
                "<think>t</think><answer>It is the Seine [1].</answer>",
                "nli=",
            ),
        ],
    )
    def test_a_missing_model_is_named_in_a_batch(
        self, name: str, settings: Any, text: str, way_out: str
    ) -> None:
        reward = RagReward(name, settings=settings)
        with pytest.raises(UsageError, match=way_out):
            reward(**batch(text, question=["Which river?"]))

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"recipe": "arenna"}, UnknownRecipeError, "arena"),
            ({"recipe": "arena", "settings": {"bonus.valu": 1}}, SettingError, "bonus.value"),
            ({"recipe": "arena", "nlii": "x"}, UsageError, "nli"),
            ({"recipe": "arena", "columns": {"answer": "x"}}, UsageError, "answers"),
            ({}, UsageError, "recipe"),
            ({"recipe": rr.recipe("arena"), "hardened": True}, UsageError, "without settings"),
        ],
    )
    def test_invalid_arguments_are_refused_at_construction(
        self, options: Any, error: Any, message: str
    ) -> None:
        with pytest.raises(error, match=message):
            RagReward(**options)


class TestLogging:
    def test_logged_columns_have_one_value_per_completion(self) -> None:
        logged = Logged()
        RagReward("arena", name="a")(**batch(RIGHT, "no"), **logged.both())
        names = ("format", "accuracy", "relevance", "bonus", "correct")
        gold = [json.loads(text) for text in logged.extra.pop("a/gold")]
        assert gold == [{"supporting": [1], "answers": ["Seine"], "answerable": True}] * 2
        assert logged.extra == {
            f"a/{name}": [10.0 if name == "bonus" else 1.0, 0.0] for name in names
        }
        means = {f"a/{name}": 5.0 if name == "bonus" else 0.5 for name in names}
        assert logged.metric == means | {"a/not_scored": 0.0}

    def test_a_component_of_another_stage_is_logged_as_none(self) -> None:
        reward = RagReward(stages=[{"recipe": "naive-grpo", "until_step": 5}, {"recipe": "arena"}])
        logged = Logged()
        reward(**batch(RIGHT, "no"), **logged.both())
        assert logged.extra["curriculum/bonus"] == [None, None]
        assert "curriculum/bonus" not in logged.metric


class TestPickling:
    @pytest.mark.parametrize("kind", [RagReward, AsyncRagReward])
    def test_a_copy_gives_equal_rewards(self, kind: Any) -> None:
        reward = kind("arena", settings={"bonus.value": 5}, columns={"answers": "gold"})
        twin = pickle.loads(pickle.dumps(reward))  # noqa: S301
        assert type(twin) is kind
        assert twin.__name__ == "arena"
        assert twin.signature == reward.signature
        arguments = batch(RIGHT)
        arguments["gold"] = arguments.pop("answers")
        if kind is RagReward:
            assert twin(**arguments) == reward(**arguments) == [8.0]

    def test_a_custom_recipe_is_pickled_by_name(self) -> None:
        twin = pickle.loads(pickle.dumps(RagReward(rr.custom("brief", brief))))  # noqa: S301
        assert twin(**batch("short")) == [1.0]

    def test_models_are_not_pickled(self) -> None:
        judge = TableJudge(lambda question: 1)
        reward = RagReward("truthrl", models=Models(judge=judge))
        arguments = batch("\\boxed{La Seine}", question=["Which river?"])
        assert reward(**arguments) == [1.0]
        twin = pickle.loads(pickle.dumps(reward))  # noqa: S301
        with pytest.raises(UsageError, match="judge="):
            twin(**arguments)

"""Chat templates and tool turns in the real trainer."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from datasets import Dataset
from rag_rewards_adapters.trl import RagReward
from rag_rewards_adapters.trl.batch import Batch, CompletionReader
from rag_rewards_adapters.trl.trainer_settings import TrainerSettings
from trl_runs import (
    CALL,
    DOCUMENTS,
    look_up,
    make_tokenizer,
    qwen3_tokenizer,
    reply,
    rows,
    says,
    trainer,
)

from rag_rewards.errors import UsageError
from rag_rewards.evidence.protocols import ScoreRequest

THOUGHT = "It is on the river.</think><answer>Seine [1]</answer>"
STAGE1: dict[str, Any] = {"settings": {"citation.judge_by": "gold"}}


def thinking_tokenizer() -> Any:
    """The chat template opens <think>, like that of a reasoning model, unless it is disabled."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "assistant\n{% endif %}",
        "assistant\n{% if thinking is not defined or thinking %}<think>\n{% endif %}{% endif %}",
    )
    return tokenizer


def about_paris(requests: list[ScoreRequest], tokenizer: Any) -> list[ScoreRequest]:
    """Return the requests without those of the self-check."""
    return [r for r in requests if "Paris lies" in tokenizer.decode(r.contexts[0])]


class TestOpenedThinking:
    def logged(self, tmp_path: Any, *, bound: bool, **options: Any) -> dict[str, Any]:
        reward = RagReward("ground-grpo-stage1", **STAGE1)
        args = {"max_steps": 1, **options.pop("args", {})}
        run = trainer(
            tmp_path,
            reward,
            tokenizer=thinking_tokenizer(),
            rollout_func=says(THOUGHT, "no"),
            args=args,
            **options,
        )
        if bound:
            reward.bind(run)
        run.train()
        logged: dict[str, Any] = run.state.log_history[0]
        return logged

    def test_bind_finds_the_opened_tag(self, tmp_path: Any) -> None:
        assert self.logged(tmp_path, bound=True)["ground-grpo-stage1/format"] == 0.5

    def test_without_bind_the_tag_is_unknown(self, tmp_path: Any, caplog: Any) -> None:
        assert self.logged(tmp_path, bound=False)["ground-grpo-stage1/format"] == 0
        assert "reward.bind(trainer)" in caplog.text

    def test_template_arguments_of_the_trainer_apply(self, tmp_path: Any) -> None:
        args = {"chat_template_kwargs": {"thinking": False}}
        logged = self.logged(tmp_path, bound=True, args=args)
        assert logged["ground-grpo-stage1/format"] == 0

    def test_a_text_prompt_contains_the_opened_tag(self, tmp_path: Any) -> None:
        def plain(row: Any) -> dict[str, str]:
            return {"prompt": row["prompt"][0]["content"] + "\n<think>\n"}

        data = Dataset.from_list([dict(row, **plain(row)) for row in rows()])
        logged = self.logged(tmp_path, bound=False, train_dataset=data)
        assert logged["ground-grpo-stage1/format"] == 0.5

    def test_log_probabilities_follow_the_opened_tag(self, tmp_path: Any) -> None:
        requests_seen: list[ScoreRequest] = []
        reward = RagReward("ctrl-rag-clr")
        run = trainer(tmp_path, reward, tokenizer=thinking_tokenizer(), args={"max_steps": 1})
        reward.bind(run)
        policy = reward.scorer.models.policy
        score = policy.score_sync
        policy.score_sync = lambda requests: [requests_seen.extend(requests), score(requests)][1]
        run.train()
        prompt_ids = run._tokenize_prompts([run.train_dataset[i]["prompt"] for i in range(4)])[0]
        full = {request.contexts[0] for request in about_paris(requests_seen, run.processing_class)}
        assert full <= {tuple(ids) for ids in prompt_ids}
        assert full


class TestTools:
    """The trainer's own tool loop, with fixed responses of the model."""

    def run(self, tmp_path: Any, reward: RagReward, turns: list[list[str]]) -> Any:
        run = trainer(
            tmp_path,
            reward,
            tokenizer=qwen3_tokenizer(),
            tools=[look_up],
            args={"max_steps": 1, "max_completion_length": 900},
        )
        reply(run, turns)
        return run

    def test_tool_messages_are_not_part_of_the_response(self, tmp_path: Any) -> None:
        reward = RagReward("naive-grpo")
        well = "<think>It says so.</think><answer>Seine</answer>"
        turns = [[CALL, CALL, well, "no idea"], [well, "I do not know."]]
        run = self.run(tmp_path, reward, turns)
        reward.bind(run)
        run.train()
        assert run.state.log_history[0]["tools/call_frequency"] == 0.5
        assert list(run._logs["extra"]["naive-grpo/accuracy"]) == [1.0, 0.0, 1.0, 0.0]

    def test_log_probabilities_of_the_last_answer_follow_the_whole_chat(
        self, tmp_path: Any
    ) -> None:
        requests_seen: list[ScoreRequest] = []
        reward = RagReward("ctrl-rag-clr")
        run = self.run(tmp_path, reward, [[CALL] * 4, ["The Seine."] * 4])
        reward.bind(run)
        policy = reward.scorer.models.policy
        score = policy.score_sync
        policy.score_sync = lambda requests: [requests_seen.extend(requests), score(requests)][1]
        run.train()
        tokenizer = run.processing_class
        (request,) = about_paris(requests_seen, tokenizer)
        full, without = map(tokenizer.decode, request.contexts)
        assert [tokenizer.decode(ids) for ids in request.responses] == ["The Seine."]
        assert "About Paris: the Seine" in full
        assert "About Paris: the Seine" in without
        assert DOCUMENTS[0]["text"] in full
        assert DOCUMENTS[0]["text"] not in without


def test_thoughts_parsed_by_the_tokenizer_are_scored(tmp_path: Any) -> None:
    from trl.chat_template_utils import add_response_schema

    tokenizer = qwen3_tokenizer()
    add_response_schema(tokenizer)
    reward = RagReward("ground-grpo-stage1", **STAGE1)
    run = trainer(
        tmp_path,
        reward,
        tokenizer=tokenizer,
        rollout_func=says(f"<think>{THOUGHT}", "no"),
        args={"max_steps": 1},
    )
    reward.bind(run)
    run.train()
    assert "<think>" not in run._logs["completion"][0][0]["content"]
    assert run.state.log_history[0]["ground-grpo-stage1/format"] == 0.5


def test_the_last_token_shows_a_truncated_response(tmp_path: Any) -> None:
    run = trainer(tmp_path, RagReward("arena"))
    reader = CompletionReader(None, TrainerSettings.of(run), None)
    batch = Batch("????", "abcd", [[5, run.processing_class.eos_token_id], [5, 6], [], [5]])
    reasons = [reader.fields(batch, i)["finish_reason"] for i in range(3)]
    assert reasons == ["stop", "length", None]
    unknown = CompletionReader(None, None, None)
    assert unknown.fields(batch, 0)["finish_reason"] is None


def test_a_bound_reward_is_pickled_without_the_trainer(tmp_path: Any) -> None:
    reward = RagReward("ctrl-rag")
    run = trainer(tmp_path, reward, tokenizer=thinking_tokenizer())
    reward.bind(run)
    twin = pickle.loads(pickle.dumps(reward))  # noqa: S301
    row = rows(1)[0]
    batch = {
        "prompts": [row["prompt"]] * 4,
        "completions": [[{"role": "assistant", "content": "Seine"}]] * 4,
        "completion_ids": [[5]] * 4,
        "trainer_state": run.state,
        **{name: [row[name]] * 4 for name in ("documents", "supporting", "answers")},
    }
    assert len(reward(**batch)) == 4
    with pytest.raises(UsageError, match=r"reward\.bind\(trainer\)"):
        twin(**batch)
    twin.bind(run)
    assert twin(**batch) == reward(**batch)


def test_a_second_trainer_replaces_the_model_of_the_first(tmp_path: Any) -> None:
    reward = RagReward("ctrl-rag")
    for _ in range(2):
        run = trainer(tmp_path, reward)
        reward.bind(run)
        assert reward.scorer.models.policy.model is run.model

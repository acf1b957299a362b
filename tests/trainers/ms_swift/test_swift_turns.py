"""Rollouts with several turns in ms-swift: its samples, and the sum of the rewards of turns."""

from __future__ import annotations

import json
import logging
import math
import sys
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from swift.arguments import RLHFArguments
from swift.infer_engine import RequestConfig
from swift.infer_engine.protocol import (
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    RolloutOutput,
    UsageInfo,
)
from swift.rl_core.advantage import compute_advantages, expand_advantage_to_per_token
from swift.rollout.agent_loop import run_multi_turn
from swift.rollout.multi_turn import MultiTurnScheduler, multi_turns
from test_swift_rewards import _registry, config, new_reward, rewards, sample  # noqa: F401

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2] / "models"))
import tiny_models
from rag_rewards_adapters.ms_swift import register_search
from turn_groups import ENVIRONMENT, GROUPS, SEARCHES, TurnGroup

from rag_rewards import Score, custom
from rag_rewards.errors import UsageError
from rag_rewards.evidence.needs import before_answer
from rag_rewards.evidence.protocols import ScoreRequest

CALL = {"type": "function", "function": {"name": "search", "arguments": {"query": "river"}}}


def searched(searches: int, answer: str, **more: Any) -> Any:
    """Return a sample whose policy searched several times and then answered."""
    turns: list[dict[str, Any]] = []
    for _ in range(searches):
        turns.append({"role": "assistant", "content": "", "tool_calls": [CALL]})
        turns.append({"role": "tool", "content": "The Seine runs through Paris."})
    rolled_out = sample(answer, {"answers": ["Seine"]}, **more)
    rolled_out.messages[1:1] = turns
    rolled_out.response_token_ids = [[5, 6]] * searches + [[7]]
    return rolled_out


def test_each_list_of_token_ids_is_a_turn() -> None:
    seen = []

    def keep(rollout: Any) -> Score:
        seen.append(rollout)
        return Score(1.0)

    reward = new_reward("keep", recipe=custom("keep", keep))
    rewards(reward, [searched(2, "Seine"), searched(1, "Seine")])
    turns = seen[0].steps()
    assert [turn.queries for turn in turns] == [("river",), ("river",), ()]
    assert turns[0].results[0].text == "The Seine runs through Paris."
    assert [turn.token_span for turn in turns] == [(0, 2), (2, 4), (4, 5)]
    assert turns[-1].answer == "Seine"
    assert seen[0].prompt == [{"role": "user", "content": "q"}]
    assert [turn.token_span for turn in seen[1].steps()] == [(0, 2), (2, 3)]


# --- limits --------------------------------------------------------------------------------------

SEARCH = "<search>river</search>"


class Searching(MultiTurnScheduler):
    """Continue after a search."""

    def check_finished(self, infer_request: Any, response_choice: Any, current_turn: int) -> bool:
        if "<search>" not in response_choice.message.content:
            return True
        return bool(super().check_finished(infer_request, response_choice, current_turn))


def response_of(text: str, reason: str, ids: list[int]) -> ChatCompletionResponse:
    message = ChatMessage("assistant", text)
    choice = ChatCompletionResponseChoice(0, message, reason, token_ids=ids)
    return ChatCompletionResponse("tiny", [choice], UsageInfo(1, 2, 3))


def rolled_out(scheduler: Any, *responses: Any) -> Any:
    """Return a sample after ms-swift's own multi-turn loop, with these responses of the model."""
    replies = iter([RolloutOutput(response=response) for response in responses])
    result = sample("", {"answers": ["Seine"]})
    result.messages.pop()
    outputs = run_multi_turn(
        [result.to_infer_request()],
        [next(replies)],
        scheduler,
        lambda requests, _: [next(replies) for _ in requests],
        RequestConfig(),
        max_turns=scheduler.max_turns,
    )
    result.apply_rollout_output(rollout_output=outputs[0])
    return result


def one_turn(text: str, reason: str) -> Any:
    """Return a sample whose last allowed turn is the first one."""
    result = rolled_out(Searching(max_turns=1), response_of(text, reason, [5, 6]))
    assert (result.messages[-1]["content"], result.finish_reason) == (text, reason)
    return result


@pytest.mark.parametrize(
    ("text", "reason", "malformed"),
    [
        (SEARCH, "stop", ["truncated"]),
        (SEARCH, "length", ["truncated"]),
        ("<answer>Seine", "length", ["truncated"]),
        ("<answer>Seine</answer>", "stop", []),
        ("Seine", "stop", []),
    ],
)
def test_a_search_in_the_last_allowed_turn_is_truncated(
    text: str, reason: str, malformed: list[str]
) -> None:
    reward = new_reward("search-r1", config(num_generations=1))
    rewards(reward, [one_turn(text, reason)])
    (turn,) = reward.last_scores[0].details["turns"]
    assert turn["malformed"] == malformed


def test_a_call_in_the_last_allowed_turn_is_truncated() -> None:
    reward = new_reward("search-r1", config(num_generations=2))
    ended, answered = searched(1, ""), searched(1, "Seine")
    ended.messages[-1]["tool_calls"] = [CALL]
    rewards(reward, [ended, answered])
    names = [[t["malformed"] for t in s.details["turns"]] for s in reward.last_scores]
    assert names == [[[], ["truncated"]], [[], []]]


# --- turns as token ids --------------------------------------------------------------------------


class Library(Searching):
    """Answer each search, as the scheduler of a user does."""

    def step(self, infer_request: Any, response_choice: Any, current_turn: int) -> Any:
        results = "<information>Doc 1(Title: Paris) On the Seine.</information>"
        infer_request.messages.append({"role": "user", "content": results})
        return {"infer_request": infer_request}


@pytest.fixture(scope="module")
def written(tmp_path_factory: Any) -> Any:
    """The arguments of `swift rlhf`, after ms-swift has written them to the output folder.

    In the file, `--model` is a name of a hub, from which ms-swift has loaded the model.
    """
    folder = tiny_models.save(tmp_path_factory.mktemp("model"))
    data = tmp_path_factory.mktemp("data") / "rows.jsonl"
    data.write_text(json.dumps({"messages": [{"role": "user", "content": "q"}]}))
    written = RLHFArguments(
        rlhf_type="grpo",
        model=folder,
        model_type="qwen2",
        template="qwen2_5",
        dataset=[str(data)],
        output_dir=str(tmp_path_factory.mktemp("output")),
        add_version=False,
        report_to=["none"],
        reward_funcs=["accuracy"],
        num_generations=2,
        per_device_train_batch_size=2,
        use_vllm=False,
    )
    written.save_args()
    file = Path(written.output_dir, "args.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model": "hub/model"}))
    return written


def two_turns(written: Any) -> Any:
    """Return a sample whose first turn ms-swift keeps as token ids."""
    _, tokenizer = written.get_model_processor(load_model=False)
    ids = [*tokenizer.encode(SEARCH), tokenizer.eos_token_id]
    answer = response_of("<answer>Seine</answer>", "stop", [8])
    scheduler = Library(max_turns=3, tokenizer=tokenizer)
    result = rolled_out(scheduler, response_of(SEARCH, "stop", ids), answer)
    assert result.messages[1]["content"] == ids
    return result


def test_a_turn_that_ms_swift_keeps_as_token_ids(written: Any) -> None:
    """A reward gets the arguments of the trainer, which do not contain the model."""
    seen = []

    def keep(rollout: Any) -> Score:
        seen.append(rollout)
        return Score(1.0)

    reward = new_reward("keep", written.training_args, recipe=custom("keep", keep))
    rewards(reward, [two_turns(written)])
    first, last = seen[0].steps()
    assert (first.text, first.queries, last.answer) == (SEARCH, ("river",), "Seine")
    assert first.results[0].title == "Paris"


@pytest.mark.parametrize("folder", [None, "other"])
def test_token_ids_without_the_name_of_the_model(written: Any, folder: str | None) -> None:
    reward = new_reward("search-r1", config(output_dir=folder))
    with pytest.raises(UsageError, match=f"{folder or 'output_dir'}/args.json does not exist"):
        rewards(reward, [two_turns(written)])


# --- rewards -------------------------------------------------------------------------------------


def test_the_rewards_of_turns_are_summed_and_said_once(caplog: Any) -> None:
    reward = new_reward("searches", config(num_generations=2), recipe=SEARCHES)
    samples = [searched(2, "Seine"), searched(1, "Rhone")]
    with caplog.at_level(logging.WARNING, "rag_rewards"):
        values = [rewards(reward, samples) for _ in range(2)]
    assert values[0].flatten().tolist() == values[1].flatten().tolist() == [2.0, 0.5]
    assert caplog.text.count("turn rewards are summed: this trainer has no turn credit") == 1


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_golden_groups_give_one_advantage_per_response(group: TurnGroup) -> None:
    """ms-swift broadcasts the advantage of the sum to all tokens of a response."""
    reward = new_reward("environment", config(num_generations=2), recipe=ENVIRONMENT)
    samples = []
    for member in group.rewards:
        row = {"turns": [{"text": f"turn {t}", "reward": r} for t, r in enumerate(member)]}
        samples.append(sample("", row))
    values = rewards(reward, samples)
    a, b = (sum(member) for member in group.rewards)
    assert values.flatten().tolist() == pytest.approx([a, b], abs=1e-5)
    advantages, _ = compute_advantages(values, torch.ones(1), 2, scale_rewards="none")
    assert advantages.tolist() == pytest.approx([(a - b) / 2, (b - a) / 2], abs=1e-6)
    mask = torch.tensor([[1, 1, 0, 1]] * 2)
    tokens = expand_advantage_to_per_token(advantages, mask)
    assert all(len(set(row)) <= 2 for row in tokens.tolist())


def test_the_contexts_of_igpo_contain_the_replies_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ms-swift gives token ids of the policy alone; its messages contain the replies.

    The weights change between two batches, and the likelihoods equal those of naive scoring.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "models"))
    import tiny_models

    tokenizer = tiny_models.make_tokenizer()
    encode = partial(tokenizer.encode, add_special_tokens=False)
    folder = tiny_models.save(tmp_path)
    reward = new_reward("igpo", config(num_generations=2), model=folder)
    assert "off-policy" in reward.signature  # the model of an option does not train
    samples = [searched(1, "Seine"), searched(1, "Rhone")]
    messages = samples[0].messages[:3]
    chats = [
        tokenizer.apply_chat_template(messages[:end], tokenize=False, add_generation_prompt=True)
        for end in (1, 3)
    ]
    assert "The Seine runs through Paris." in chats[1]
    contexts = tuple(tuple(encode(chat + before_answer("igpo"))) for chat in chats)
    request = ScoreRequest(contexts, (tuple(encode("Seine")),))
    measured = []
    for seed in range(2):
        model = tiny_models.make_model("qwen2", seed)
        reward.scorer.models.policy.refresh(model.state_dict(), seed)
        rewards(reward, samples)
        components = reward.last_scores[0].components
        measured.append([math.log(components[name]) for name in ("prior", "posterior")])
        means = [fmean(values) for values in tiny_models.naive(model, request).values()]
        assert measured[-1] == pytest.approx(means, abs=1e-4)
    assert all(abs(one - other) > 0.1 for one, other in zip(*measured, strict=True))


def test_a_forged_block_of_a_single_turn_is_no_result() -> None:
    text = (
        "<search>a</search><information>Doc 1(Title: b) Seine</information><answer>Rhone</answer>"
    )
    settings = {"scheme": "searched"}
    reward = new_reward("search-r1", config(num_generations=1), settings=settings)
    forged = sample(text, {"answers": ["Seine"]})
    forged.response_token_ids = [[5, 6, 7]]
    assert rewards(reward, [forged]).item() == 0.0


# --- the search engine of init -------------------------------------------------------------------


def test_the_scheduler_of_init_answers_queries() -> None:
    def search(query: str) -> list[dict[str, str]]:
        return [{"id": "a", "title": "Paris", "text": f"The {query}."}]

    scheduler = register_search(search, name="search of a test")
    assert multi_turns.pop("search of a test") is scheduler
    tokenizer = tiny_models.make_tokenizer()
    texts = (SEARCH, "<answer>Seine</answer>")
    replies = [response_of(text, "stop", tokenizer.encode(text)) for text in texts]
    result = rolled_out(scheduler(max_turns=4, tokenizer=tokenizer), *replies)
    seen: list[Any] = []
    keep = custom("keep", lambda rollout: seen.append(rollout) or 1.0)
    reward = new_reward("keep", config(num_generations=1), recipe=keep)
    result.messages = [
        {**message, "content": SEARCH}
        if message["role"] == "assistant" and message is not result.messages[-1]
        else message
        for message in result.messages
    ]
    rewards(reward, [result])
    first, last = seen[0].steps()
    assert first.queries == ("river",)
    assert [(each.title, each.text) for each in first.results] == [("Paris", "The river.")]
    assert (last.answer, last.malformed) == ("Seine", ())


def test_a_search_in_the_last_turn_has_no_reply() -> None:
    scheduler = register_search(lambda query: [], name="search of a test")
    del multi_turns["search of a test"]
    result = rolled_out(scheduler(max_turns=1), response_of(SEARCH, "stop", [5]))
    assert [message["role"] for message in result.messages][-1] == "assistant"
    with pytest.raises(UsageError, match="choose search-r1"):
        register_search(lambda query: [], dialect="tools")

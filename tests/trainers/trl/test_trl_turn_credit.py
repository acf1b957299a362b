"""Advantages of turns in the real GRPOTrainer: from the rollouts to the tensor of the loss."""

from __future__ import annotations

import logging
import math
import pickle
import sys
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from rag_rewards_adapters.trl import K2TurnTrainer, RagReward, TurnGRPOTrainer
from trl import GRPOTrainer
from trl_runs import (
    CALL,
    advantages,
    config,
    look_up,
    make_model,
    make_tokenizer,
    naive,
    qwen3_tokenizer,
    reply,
    says,
    trainer,
    weights,
)

sys.path.append(str(Path(__file__).resolve().parents[1]))

from turn_groups import ENVIRONMENT, GROUPS, GROUPS_BY_NAME, TurnGroup

from rag_rewards import Score, custom
from rag_rewards.errors import UsageError
from rag_rewards.evidence.needs import before_answer
from rag_rewards.evidence.protocols import ScoreRequest
from rag_rewards.training.credit import Credit

OWN, OTHER = 2, 3
"""Own tokens of each turn, and tokens of the environment after it."""
RETURN = GROUPS_BY_NAME["return"]


def rows(count: int = 2) -> Dataset:
    prompts = [[{"role": "user", "content": f"Which river? ({i})"}] for i in range(count)]
    return Dataset.from_list([{"prompt": prompt, "answers": ["Seine"]} for prompt in prompts])


def spans_of(turns: int) -> list[tuple[int, int]]:
    return [(t * (OWN + OTHER), t * (OWN + OTHER) + OWN) for t in range(turns)]


def rollouts(group: TurnGroup, *, spans: bool = True, first: int = 0) -> Any:
    """Return a rollout function whose environment gives the rewards of a group."""

    def rollout(prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        members = [group.rewards[(first + i) % len(group.rewards)] for i in range(len(prompts))]
        masks = [([1] * OWN + [0] * OTHER) * (len(m) - 1) + [1] * OWN for m in members]
        columns = {
            "turns": [
                [{"text": f"turn {t}", "reward": reward} for t, reward in enumerate(member)]
                for member in members
            ],
            "env_mask": masks,
        }
        if spans:
            columns["token_span"] = [spans_of(len(member)) for member in members]
        return {
            "prompt_ids": trainer._tokenize_prompts(prompts)[0],
            "completion_ids": [
                [7] * (len(mask) - 1) + [trainer.eos_token_ids[0]] for mask in masks
            ],
            "logprobs": None,
            **columns,
        }

    return rollout


def turn_trainer(folder: Any, reward: Any = None, **options: Any) -> Any:
    changes = {"scale_rewards": "none", "num_generations": 2, "per_device_train_batch_size": 2}
    args = config(folder, **(changes | options.pop("args", {})))
    return TurnGRPOTrainer(
        model=options.pop("model", None) or make_model("qwen2"),
        processing_class=options.pop("tokenizer", None) or make_tokenizer(),
        train_dataset=options.pop("train_dataset", None) or rows(),
        reward_funcs=reward or RagReward(ENVIRONMENT),
        args=args,
        **options,
    )


def of_tokens(group: TurnGroup) -> list[list[float]]:
    """Return the advantages of the tokens of a group, written out by hand."""
    length = max(len(member) for member in group.rewards) * (OWN + OTHER) - OTHER
    tokens = []
    for member in group.advantages:
        row: list[float] = []
        for advantage in member:
            row += [advantage] * OWN + [0.0] * OTHER
        tokens.append((row + [0.0] * length)[:length])
    return tokens


def batch_of(run: Any, count: int = 2) -> dict[str, torch.Tensor]:
    """Return the tensors of the loss for one prompt, in the order of generation."""
    inputs = [dict(run.train_dataset[0]) for _ in range(count)]
    output: dict[str, torch.Tensor] = run._generate_and_score_completions(inputs)
    return output


# --- the golden groups ---------------------------------------------------------------------------


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
@pytest.mark.parametrize("spans", [True, False], ids=["with spans", "spans of the mask"])
def test_golden_groups_reach_the_loss(tmp_path: Any, group: TurnGroup, spans: bool) -> None:
    run = turn_trainer(
        tmp_path,
        rollout_func=rollouts(group, spans=spans),
        credit=group.method,
        credit_options=group.options,
    )
    output = batch_of(run)
    assert output["advantages"].tolist() == [
        pytest.approx(row, abs=group.tolerance) for row in of_tokens(group)
    ]
    assert output["advantages"].shape == output["completion_ids"].shape


def test_the_loss_has_the_gradient_of_the_advantages(tmp_path: Any) -> None:
    """The gradient equals that of −Σ A·log π over own tokens, divided by the tokens of a member."""
    run = turn_trainer(
        tmp_path,
        rollout_func=rollouts(RETURN),
        credit="return",
        credit_options=RETURN.options,
        args={"loss_type": "grpo", "beta": 0.0},
    )
    run.current_gradient_accumulation_steps = 1
    output = batch_of(run)
    run.model.train()
    run._compute_loss(run.model, output).backward()
    gradient = torch.cat([p.grad.flatten().clone() for p in run.model.parameters()])

    run.model.zero_grad()
    ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
    mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
    start = output["prompt_ids"].shape[1]
    logits = run.model(input_ids=ids, attention_mask=mask).logits[:, start - 1 : -1]
    logps = logits.log_softmax(-1).gather(-1, ids[:, start:, None]).squeeze(-1)
    loss = torch.zeros(())
    for i, row in enumerate(of_tokens(RETURN)):
        own = OWN * len(RETURN.rewards[i])
        loss = loss - (torch.tensor(row) * logps[i]).sum() / own / 2
    loss.backward()
    expected = torch.cat([p.grad.flatten() for p in run.model.parameters()])
    assert gradient.abs().max() > 0
    torch.testing.assert_close(gradient, expected, atol=1e-5, rtol=1e-3)


def test_the_penalty_k2_with_advantages_of_turns(tmp_path: Any) -> None:
    """A policy whose tokens are e times as probable as those of the reference: k2 is 0.5."""
    folder = str(tmp_path / "model")  # TRL reads the reference model from the same place
    make_model("qwen2").save_pretrained(folder)
    changes = {"scale_rewards": "none", "num_generations": 2, "per_device_train_batch_size": 2}
    penalty = {"beta": 0.3, "use_bias_correction_kl": False, "loss_type": "grpo"}
    run = K2TurnTrainer(
        model=folder,
        processing_class=make_tokenizer(),
        train_dataset=rows(),
        reward_funcs=RagReward(ENVIRONMENT),
        args=config(tmp_path, **changes, **penalty),
        rollout_func=rollouts(RETURN),
        credit="return",
        credit_options=RETURN.options,
    )
    run.current_gradient_accumulation_steps = 1
    output = batch_of(run)
    assert output["advantages"].tolist() == [
        pytest.approx(row, abs=RETURN.tolerance) for row in of_tokens(RETURN)
    ]
    output["ref_per_token_logps"] = output["ref_per_token_logps"] - 1.0
    run.model.train()
    with_penalty = run._compute_loss(run.model, output).item()
    run.beta = 0.0
    without = run._compute_loss(run.model, output).item()
    assert with_penalty - without == pytest.approx(0.3 * 0.5, abs=1e-4)


def test_a_run_trains_and_logs(tmp_path: Any, caplog: Any) -> None:
    run = turn_trainer(
        tmp_path, rollout_func=rollouts(RETURN), credit="return", credit_options=RETURN.options
    )
    before = weights(run.model)
    with caplog.at_level(logging.WARNING, "rag_rewards"):
        run.train()
    assert "summed" not in caplog.text
    assert not torch.equal(before, weights(run.model))
    logged = run.state.log_history[0]
    assert logged["credit/zero_groups"] == 0.0
    assert logged["rewards/environment/mean"] == pytest.approx((2.9 - 0.2) / 2)


# --- the sum -------------------------------------------------------------------------------------


def test_the_plain_trainer_sums_and_says_so_once(tmp_path: Any, caplog: Any) -> None:
    reward = RagReward(ENVIRONMENT)
    args = {"scale_rewards": "none", "num_generations": 2, "per_device_train_batch_size": 2}
    run = trainer(tmp_path, reward, train_dataset=rows(), rollout_func=rollouts(RETURN), args=args)
    reward.bind(run)
    with caplog.at_level(logging.WARNING, "rag_rewards"):
        run.train()
    assert advantages(run)[-2:] == pytest.approx([1.55, -1.55], abs=1e-6)
    said = [r for r in caplog.records if "turn rewards are summed" in r.message]
    assert len(said) == 1
    assert "TurnGRPOTrainer" in said[0].message


def test_without_a_method_all_turns_share_the_advantage_of_trl(tmp_path: Any) -> None:
    for credit in (None, "group"):
        run = turn_trainer(tmp_path, rollout_func=rollouts(RETURN), credit=credit)
        assert batch_of(run)["advantages"].tolist() == pytest.approx([1.55, -1.55], abs=1e-6)


# --- where turns come from -----------------------------------------------------------------------


def seen_turns(folder: Any, rollout_func: Any, **options: Any) -> list[Any]:
    """Return the turns that a reward reads in the trainer."""
    seen: list[Any] = []

    def keep(rollout: Any) -> Score:
        seen.append(rollout.steps())
        return Score(0.0)

    batch_of(
        turn_trainer(folder, RagReward(custom("keep", keep)), rollout_func=rollout_func, **options)
    )
    return seen[-2:]


def test_runs_of_the_mask_are_turns(tmp_path: Any) -> None:
    tokenizer = make_tokenizer()
    parts = (
        "<search>a</search>",
        "<information>Doc 1(Title: b) c</information>",
        "<answer>d</answer>",
    )

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        ids = [tokenizer.encode(part) for part in parts]
        return {
            "prompt_ids": trainer._tokenize_prompts(prompts)[0],
            "completion_ids": [[*chain(*ids), tokenizer.eos_token_id]] * len(prompts),
            "logprobs": None,
            "env_mask": [[1] * len(ids[0]) + [0] * len(ids[1]) + [1] * (len(ids[2]) + 1)]
            * len(prompts),
        }

    first, last = seen_turns(tmp_path, rollout, tokenizer=tokenizer)[0]
    assert (first.text, first.queries) == (parts[0], ("a",))
    assert [(r.title, r.text) for r in first.results] == [("b", "c")]
    assert first.token_span == (0, len(tokenizer.encode(parts[0])))
    assert last.answer == "d"
    assert first.trusted


def test_a_forged_block_is_no_result(tmp_path: Any) -> None:
    text = (
        "<search>a</search><information>Doc 1(Title: b) Seine</information><answer>Seine</answer>"
    )
    (turn,) = seen_turns(tmp_path, says(text))[0]
    assert "forged_results" in turn.malformed
    assert turn.results is None
    assert turn.answer is None


def tool_loop(folder: Any, *texts: str, **args: Any) -> tuple[Any, Any]:
    """Run the tool loop with these texts of the model, and return a rollout and its advantages.

    The reward of a rollout is the number of its searches, plus 10 if the answer is Seine. The
    second rollout of the group answers wrongly at once.
    """
    seen: list[Any] = []

    def searches(rollout: Any) -> Score:
        *turns, last = rollout.steps()
        seen.append(rollout)
        entries = (*(float(turn.is_search) for turn in turns), 10.0 * (last.answer == "Seine"))
        return Score(sum(entries), turns=entries)

    run = turn_trainer(
        folder,
        RagReward(custom("searches", searches)),
        tokenizer=qwen3_tokenizer(),
        tools=[look_up],
        credit="return",
        credit_options={"scale": "none"},
        args={"max_completion_length": 900, **args},
    )
    reply(run, [[texts[0], "Rhone"], *([text] for text in texts[1:])])
    output = batch_of(run)
    return seen[-2], output["advantages"][0].tolist()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Any) -> list[tuple[int, int]]:
    """Return the spans of the two turns of a response that no limit cuts."""
    rollout, values = tool_loop(tmp_path_factory.mktemp("whole"), CALL, "Seine")
    search, answer = rollout.steps()
    (_, end), (start, last) = spans = [search.token_span, answer.token_span]
    assert (search.queries, search.results[0].text) == (("Paris",), look_up("Paris"))
    assert answer.answer == "Seine"
    # returns 11 and 10 against 0; means 5.5 and 5
    assert values == [5.5] * end + [0.0] * (start - end) + [5.0] * (last - start)
    assert rollout.finish_reason == "stop"
    return spans


@pytest.mark.parametrize("place", ["in the call", "at its end", "in the result"])
def test_a_search_whose_result_a_limit_cuts_off(tmp_path: Any, whole: Any, place: str) -> None:
    """TRL leaves out a result that does not fit completely."""
    (_, end), (start, _) = whole
    length = {"in the call": end - 3, "at its end": end, "in the result": start - 1}[place]
    rollout, values = tool_loop(tmp_path, CALL, max_completion_length=length)
    (turn,) = rollout.steps()
    assert turn.token_span == (0, min(length, end))
    assert turn.queries == (() if place == "in the call" else ("Paris",))
    assert (turn.results, turn.answer) == (None, None)
    assert (turn.malformed, rollout.finish_reason) == (("truncated",), "length")
    assert not any(values)


def test_an_answer_that_a_limit_cuts_off(tmp_path: Any, whole: Any) -> None:
    """The first turn is a complete search, and keeps its reward."""
    (_, end), (start, last) = whole
    for length in (start + 1, last - 1):
        rollout, values = tool_loop(tmp_path, CALL, "Seine", max_completion_length=length)
        assert [turn.token_span for turn in rollout.steps()] == [(0, end), (start, length)]
        assert [turn.malformed for turn in rollout.steps()] == [(), ("truncated",)]
        assert (rollout.steps()[-1].answer, rollout.finish_reason) == (None, "length")
        assert values == [0.5] * end + [0.0] * (length - end)


@pytest.mark.parametrize(
    ("text", "reason"), [(CALL, "max_turns"), ("Seine", "stop")], ids=["search", "answer"]
)
def test_a_limit_of_calls(tmp_path: Any, text: str, reason: str) -> None:
    rollout, _ = tool_loop(tmp_path, CALL, text, max_tool_calling_iterations=1)
    assert rollout.finish_reason == reason
    names = ("truncated",) if reason == "max_turns" else ()
    assert [turn.malformed for turn in rollout.steps()] == [(), names]


def test_an_unscored_rollout_gets_no_advantage(tmp_path: Any) -> None:
    fails = False

    def fails_later(rollout: Any) -> Score | None:
        entries = tuple(turn.reward or 0.0 for turn in rollout.steps())
        return None if fails and len(entries) == 2 else Score(sum(entries), turns=entries)

    reward = RagReward(custom("fails", fails_later))
    run = turn_trainer(tmp_path, reward, rollout_func=rollouts(RETURN), credit="return")
    assert batch_of(run)["advantages"].any()
    fails = True
    assert not batch_of(run)["advantages"].any()  # one scored member is left
    assert run._metrics["eval"]["credit/zero_groups"] == [0.0, 1.0]


def test_wrong_spans_are_an_error(tmp_path: Any) -> None:
    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        output: dict[str, Any] = rollouts(RETURN)(prompts, trainer)
        return output | {"token_span": [[(0, 2)]] * len(prompts)}

    run = turn_trainer(tmp_path, rollout_func=rollout, credit="return")
    with pytest.raises(Exception, match="1 spans for 3 turns"):
        batch_of(run)


# --- the method ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"credit": "retrun"}, "did you mean 'return'"),
        ({"credit": "return", "credit_options": {"norm": "joint"}}, "has no option 'norm'"),
        ({"credit_options": {"norm": "joint"}}, "pass credit="),
        ({"credit": Credit("igpo"), "credit_options": {"norm": "joint"}}, "remove them"),
        ({"credit": "igpo", "args": {"scale_rewards": "group"}}, 'set scale_rewards="none"'),
        ({"credit": "igpo", "reward": RagReward("arena", std_floor=0.1)}, "remove one"),
        ({"reward": [RagReward("arena"), RagReward("search-r1")]}, "requires one reward"),
        ({"reward": lambda **_: [0.0]}, "requires one reward"),
    ],
)
def test_contradictions_are_refused(tmp_path: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        turn_trainer(tmp_path, **options)


def test_a_reward_with_a_batch_can_be_pickled(tmp_path: Any) -> None:
    reward = RagReward("search-r1")
    batch_of(turn_trainer(tmp_path, reward, rollout_func=rollouts(RETURN)))
    assert len(reward.last_scores) == 2
    copy: RagReward = pickle.loads(pickle.dumps(reward))  # noqa: S301
    assert copy.last_scores == []
    assert copy.has_turn_credit


def test_anchors_of_the_environment(tmp_path: Any) -> None:
    """Both members see the same observation after turn 1, so GiGPO compares their second turns."""

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        output: dict[str, Any] = rollouts(RETURN)(prompts, trainer)
        for turns, entries in zip(output["turns"], ([0.0, 1.0], [0.0, 0.0]), strict=True):
            del turns[2:]
            for turn, reward in zip(turns, entries, strict=True):
                turn |= {"reward": reward, "observation": "the same page"}
        length = OWN * 2 + OTHER
        keys = ("env_mask", "completion_ids")
        return (
            output
            | {key: [m[:length] for m in output[key]] for key in keys}
            | {"token_span": [spans_of(2)] * 2}
        )

    run = turn_trainer(tmp_path, rollout_func=rollout, credit="gigpo")
    values: Sequence[Sequence[float]] = batch_of(run)["advantages"].tolist()
    # A_E ±.5; steps: .95 against 0 and 1 against 0, minus their means
    assert values[0] == pytest.approx([0.975] * 2 + [0.0] * 3 + [1.0] * 2)
    assert values[1] == pytest.approx([-0.975] * 2 + [0.0] * 3 + [-1.0] * 2)


def test_information_gains_of_the_model_in_training(tmp_path: Any) -> None:
    """The recipe igpo in a training step: its likelihoods, its turns and its own credit."""
    tokenizer = make_tokenizer()
    query, block = "<search>a</search>", "<information>Doc 1(Title: b) Seine</information>"
    answer = "<think>c</think><answer>Seine</answer>"
    members = ([query, block, answer], [query, block, query, block, answer], [answer], [query])

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        ids, masks = [], []
        for i in range(len(prompts)):
            parts = [tokenizer.encode(part) for part in members[i % 4]]
            parts[-1] = [*parts[-1], tokenizer.eos_token_id]
            ids.append([*chain(*parts)])
            masks.append([*chain(*([1 - t % 2] * len(part) for t, part in enumerate(parts)))])
        return {
            "prompt_ids": trainer._tokenize_prompts(prompts)[0],
            "completion_ids": ids,
            "logprobs": None,
            "env_mask": masks,
        }

    run = turn_trainer(
        tmp_path,
        RagReward("igpo"),
        tokenizer=tokenizer,
        rollout_func=rollout,
        args={"num_generations": 4, "per_device_train_batch_size": 4, "max_steps": 1},
    )
    assert run.credit == Credit("igpo", {"norm": "joint", "gamma": 1.0, "std_floor": 0.0})
    before = weights(run.model)
    run.train()
    assert not torch.equal(before, weights(run.model))
    gains = [score.turns for score in run.reward.last_scores]
    assert [len(entries) for entries in gains] == [2, 3, 1, 1]
    assert all(abs(gain) > 0 for entries in gains for gain in entries[:-1])
    assert [entries[-1] for entries in gains] == [1.0, 1.0, 1.0, -2.0]
    assert "version=0" in run.reward.signature
    assert "off-policy" not in run.reward.signature


def test_the_likelihoods_are_those_of_the_current_weights(tmp_path: Any) -> None:
    """Two batches with different weights: the likelihoods equal those of naive scoring."""
    tokenizer = make_tokenizer()
    encode = partial(tokenizer.encode, add_special_tokens=False)
    parts = ("<search>a</search>", "<information>Seine</information>", "<answer>Seine</answer>")
    ids = [encode(part) for part in parts]

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        masks = [[1] * len(ids[0]) + [0] * len(ids[1]) + [1] * len(ids[2])] * len(prompts)
        return {
            "prompt_ids": trainer._tokenize_prompts(prompts)[0],
            "completion_ids": [[*chain(*ids)]] * len(prompts),
            "logprobs": None,
            "env_mask": masks,
        }

    run = turn_trainer(tmp_path, RagReward("igpo"), tokenizer=tokenizer, rollout_func=rollout)
    prompt = tuple(run._tokenize_prompts([run.train_dataset[0]["prompt"]])[0][0])
    contexts = (prompt, (*prompt, *ids[0], *ids[1]))
    template, answer = tuple(encode(before_answer("igpo"))), tuple(encode("Seine"))
    request = ScoreRequest(tuple(c + template for c in contexts), (answer,))
    measured = []
    for seed in range(2):
        run.model.load_state_dict(make_model("qwen2", seed).state_dict())
        batch_of(run)
        components = run.reward.last_scores[0].components
        measured.append([math.log(components[name]) for name in ("prior", "posterior")])
        expected = naive(make_model("qwen2", seed), request)
        means = [math.fsum(values) / len(values) for values in expected.values()]
        assert measured[-1] == pytest.approx(means, abs=1e-4)
    assert all(abs(one - other) > 0.1 for one, other in zip(*measured, strict=True))

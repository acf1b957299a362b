"""Recipes inside GRPOTrainer: real training steps of a tiny model on the CPU."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pandas
import pytest
import torch
from rag_rewards_adapters.trl import AsyncRagReward, RagReward
from trl_runs import (
    BLOCKS,
    DOCUMENTS,
    advantages,
    make_model,
    make_tokenizer,
    rows,
    says,
    trainer,
    weights,
)
from trl_runs import naive as naive_logprobs

import rag_rewards as rr
from rag_rewards.errors import BackendError, DataError
from rag_rewards.evidence.protocols import Models, ScoreRequest
from rag_rewards.testing import TableEntailment, TableJudge
from rag_rewards.training.advantages import group_advantages

RIGHT = "<relevance>[1]</relevance><analysis>It is 1.</analysis><answer>Seine</answer>"
WRONG = "<relevance>[2]</relevance><analysis>It is 2.</analysis><answer>Rhone</answer>"
BARE = "<answer>the Seine</answer>"
ARENA = (RIGHT, WRONG, BARE, "no idea")
ARENA_REWARDS = [13.0, 1.0, 1.0, 0.0]


class RecordingReward(RagReward):
    """Records its rewards, and those of `twin` for the same batches and weights."""

    def __init__(self, *recipe: Any, twin: Any = None, **options: Any) -> None:
        super().__init__(*recipe, **options)
        self.twin = twin
        self.history: list[list[float | None]] = []
        self.expected: list[list[float]] = []
        self.versions: list[tuple[Any, str]] = []

    def __call__(self, **batch: Any) -> list[float | None]:
        if self.twin is not None:
            self.expected.append(self.twin(**batch))
        training = self._trainer.model.training
        values = super().__call__(**batch)
        assert self._trainer.model.training is training
        assert torch.is_grad_enabled()
        self.history.append(values)
        if (policy := self.scorer.models.policy) is not None:
            self.versions.append((policy.weight_version, policy.fingerprint))
        return values


# --- rules -------------------------------------------------------------------------------------


@pytest.mark.optimizer_step
def test_a_rule_recipe_trains_and_logs_its_components(tmp_path: Any) -> None:
    reward = RecordingReward("arena")
    run = trainer(tmp_path, reward, rollout_func=says(*ARENA), args={"log_completions": True})
    reward.bind(run)
    before = weights(run.model)
    run.train()

    assert reward.history == [ARENA_REWARDS] * 2
    assert not torch.equal(before, weights(run.model))
    logged = run.state.log_history[0]
    assert logged["rewards/arena/mean"] == pytest.approx(3.75)
    assert logged["arena/format"] == 0.5
    assert logged["arena/correct"] == 0.5
    assert logged["arena/not_scored"] == 0
    table = pandas.read_parquet(sorted((tmp_path / "completions").glob("*.parquet"))[-1])
    assert list(table["arena/relevance"]) == [1.0, 0.0, 0.0, 0.0]
    assert list(table["arena"]) == ARENA_REWARDS


def test_evaluation_scores_the_responses_of_the_model(tmp_path: Any) -> None:
    reward = RecordingReward("ctrl-rag", group_size=4)
    evaluation = {"eval_strategy": "steps", "eval_steps": 2}
    evaluation |= {"per_device_eval_batch_size": 4, "num_generations_eval": 2}
    run = trainer(tmp_path, reward, args=evaluation, eval_dataset=rows(2))
    reward.bind(run)
    run.train()
    assert [len(values) for values in reward.history] == [4, 4, 4]
    assert any("eval_rewards/ctrl-rag/mean" in logged for logged in run.state.log_history)
    assert any("eval_ctrl-rag/clr" in logged for logged in run.state.log_history)


def test_stages_depend_on_the_training_step(tmp_path: Any) -> None:
    stages = [{"recipe": "naive-grpo", "until_step": 2}, {"recipe": "arena"}]
    reward = RecordingReward(stages=stages)
    run = trainer(tmp_path, reward, rollout_func=says(*ARENA))
    reward.bind(run)
    run.train()
    naive = [score.value for score in rr.recipe("naive-grpo")(rollouts_of(*ARENA))]
    assert reward.history == [naive, ARENA_REWARDS]
    first, second = run.state.log_history[:2]
    assert "curriculum/bonus" not in first
    assert second["curriculum/bonus"] == 2.5


STAGED = [{"recipe": "ground-grpo-stage1", "until_step": 2}, {"recipe": "ground-grpo"}]


def test_a_row_can_belong_to_one_stage(tmp_path: Any) -> None:
    """Stage 1 uses answerable questions and stage 2 all questions, as in the paper."""
    mixed = rows(2).add_column("id", ["a", "b"]).map(lambda row: {"answerable": row["id"] == "a"})
    reward = RagReward(stages=STAGED, models=Models(entailment=TableEntailment(lambda *_: 1.0)))
    reward.bind(trainer(tmp_path, reward, train_dataset=mixed))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"answerable": False}, "row 0 of train_dataset: answerable: false, but stage 1 scores"),
        ({"answerable": None}, "row 0 of train_dataset: answerable: missing"),
    ],
)
def test_a_stage_without_rows_is_refused(tmp_path: Any, change: dict[str, Any], why: str) -> None:
    reward = RagReward(stages=STAGED, models=Models(entailment=TableEntailment(lambda *_: 1.0)))
    with pytest.raises(DataError, match=why):
        reward.bind(trainer(tmp_path, reward, train_dataset=rows(2, **change)))


def rollouts_of(*texts: str) -> list[rr.Rollout]:
    gold = {"documents": [rr.Document(**d) for d in DOCUMENTS], "supporting": (1,)}
    return [rr.Rollout(response=text, answers=["Seine", "the Seine"], **gold) for text in texts]


# --- the trainer's own model -------------------------------------------------------------------


def clr_twin(run: Any, threshold: float = 1.0) -> Any:
    """Return E·1[E > τ]/√T from complete forward passes, with and without the first block."""
    block = BLOCKS[: BLOCKS.index("[2]")]

    def without(prompt: Any) -> Any:
        assert block in prompt[0]["content"]
        return [{"role": "user", "content": prompt[0]["content"].replace(block, "")}]

    def twin(prompts: Any, completion_ids: Any, **_: Any) -> list[float]:
        full = run._tokenize_prompts(prompts)[0]
        left = run._tokenize_prompts([without(prompt) for prompt in prompts])[0]
        values = []
        for a, b, ids in zip(full, left, completion_ids, strict=True):
            request = ScoreRequest((tuple(a), tuple(b)), (tuple(ids),))
            logprobs = naive_logprobs(run.model.eval(), request)
            contribution = sum(logprobs[0, 0]) - sum(logprobs[1, 0])
            values.append((contribution > threshold) * contribution / math.sqrt(len(ids)))
        run.model.train()
        return values

    return twin


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
def test_log_probabilities_come_from_the_current_weights(tmp_path: Any, family: str) -> None:
    reward = RecordingReward("ctrl-rag-clr")
    options = {"max_steps": 3, "gradient_checkpointing": family == "qwen2"}
    run = trainer(tmp_path, reward, model=make_model(family), args=options)
    reward.bind(run)
    reward.twin = clr_twin(run)
    run.train()

    assert reward.history == [pytest.approx(values, abs=1e-3) for values in reward.expected]
    assert any(value > 0 for values in reward.history for value in values)
    assert [step for step, _ in reward.versions] == [0, 1, 2]
    assert len({weights for _, weights in reward.versions}) == 3
    assert "version=2" in reward.signature
    assert run.state.log_history[-2]["grad_norm"] > 0


def test_log_probabilities_are_compared_within_groups(tmp_path: Any) -> None:
    reward = RecordingReward("ctrl-rag", settings={"threshold": None})
    texts = ("It is the Seine.", "The Seine, I think [1].", "No idea.", "Seine")
    groups = {"per_device_train_batch_size": 8, "max_steps": 2}
    run = trainer(tmp_path, reward, rollout_func=says(*texts), args=groups)
    reward.bind(run)
    reward.twin = clr_twin(run, -math.inf)
    run.train()

    right = [1, 1, 0, 1]
    for values, clr in zip(reward.history, reward.expected, strict=True):
        for start in (0, 4):
            own = clr[start : start + 4]
            low, high = min(own), max(own)
            expected = [(c - low) / (high - low) * r for c, r in zip(own, right, strict=True)]
            assert values[start : start + 4] == pytest.approx(expected, abs=1e-3)
            assert max(values[start : start + 4]) > 0


def wordy(seed: int = 0) -> tuple[Any, Any]:
    """A model that generates only letters, so that greedy answers are words."""
    model, tokenizer = make_model("qwen2", seed), make_tokenizer()
    letters = [i for text, i in tokenizer.get_vocab().items() if text.isalpha() and text.isascii()]
    head = model.get_output_embeddings().weight
    silent = [i for i in range(head.shape[0]) if i not in letters]
    with torch.no_grad():
        head[silent] = 0.0
    return model, tokenizer


def greedy(model: Any, tokenizer: Any, text: str, count: int) -> str:
    ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
    start = ids.shape[1]
    for _ in range(count):
        with torch.no_grad():
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    return str(tokenizer.decode(ids[0, start:]))


def test_masked_answers_come_from_the_model_in_training(tmp_path: Any) -> None:
    model, tokenizer = wordy()
    chat = "<|start|>user\n{}<|im_end|>\n<|start|>assistant\n"
    question = "Which river runs through Paris? (0)"
    rationale = chat.format(f"{BLOCKS}\n\n{question}") + "<reason>Paris</reason>\n<answer>"
    # The separator between the documents and the question stays.
    evidence = chat.format(f"\n\n{question}") + "<extract>Seine</extract>\n<answer>"
    by_rationale, by_evidence = (greedy(model, tokenizer, t, 6) for t in (rationale, evidence))
    assert by_rationale != by_evidence

    text = "<reason>Paris</reason><extract>Seine</extract><answer>Seine</answer>"
    components: dict[str, Any] = {}
    for gold in (by_rationale, by_evidence):
        reward = RecordingReward("lear", settings={"decode.max_tokens": 6})
        run = trainer(
            tmp_path,
            reward,
            model=wordy()[0],
            tokenizer=tokenizer,
            train_dataset=rows(1).map(lambda row, gold=gold: {"answers": [gold]}),
            rollout_func=says(text, "no idea"),
            args={"max_steps": 1},
        )
        reward.bind(run)
        run.train()
        components[gold] = run.state.log_history[0]

    # Two of four completions are well formed, and the masked answer is the gold answer.
    assert components[by_rationale]["lear/answer_rationale"] == 0.5
    assert components[by_evidence]["lear/answer_evidence"] == 0.5
    assert components[by_rationale]["lear/answer_evidence"] < 0.5
    assert components[by_evidence]["lear/answer_rationale"] < 0.5


def test_the_model_in_training_is_the_generator(tmp_path: Any) -> None:
    text = "<think>Paris</think><long_answer>Seine</long_answer><answer>Seine</answer>"
    influences = []
    for gold in ("Seine", None):
        model, tokenizer = wordy()
        prompt = rr.RECIPES["canoe"].prompt
        shown = rr.Rollout(response="", question="Which river?", documents=("Seine",))
        content = prompt.messages(shown)[0]["content"]
        chat = f"<|start|>user\n{content}<|im_end|>\n<|start|>assistant\n"
        answer = greedy(model, tokenizer, chat, 6) if gold is None else gold
        reward = RecordingReward("canoe", settings={"decode.max_tokens": 6})
        run = trainer(
            tmp_path,
            reward,
            model=model,
            tokenizer=tokenizer,
            train_dataset=rows(1).map(
                lambda row, answer=answer: {"question": "Which river?", "answers": [answer]}
            ),
            rollout_func=says(text, "no idea"),
            args={"max_steps": 1},
        )
        reward.bind(run)
        run.train()
        influences.append(run.state.log_history[0]["canoe/influence"])
    assert influences == [0.0, 0.5]


def test_adapters_are_part_of_the_policy(tmp_path: Any) -> None:
    from peft import LoraConfig

    reward = RecordingReward("ctrl-rag-clr")
    lora = LoraConfig(target_modules=["q_proj", "v_proj"], r=4, task_type="CAUSAL_LM")
    run = trainer(tmp_path, reward, peft_config=lora, args={"max_steps": 3})
    reward.bind(run)
    reward.twin = clr_twin(run)
    run.train()
    assert reward.history == [pytest.approx(values, abs=1e-3) for values in reward.expected]
    assert len({weights for _, weights in reward.versions}) == 3


# --- advantages --------------------------------------------------------------------------------


def test_the_loss_gets_the_advantage_of_lear(tmp_path: Any) -> None:
    texts = [
        "<reason>a</reason><extract>b</extract><answer>Seine</answer>",
        "<reason>a b c d e f g</reason><extract>b</extract><answer>Seine</answer>",
        "<answer>Seine</answer>",
        "no",
    ]
    plain = RecordingReward("lear", settings={"answers": ["f"]})
    floored = RecordingReward("lear", settings={"answers": ["f"]}, std_floor=0.6)
    for reward, scale in ((plain, "group"), (floored, "none")):
        run = trainer(
            tmp_path,
            reward,
            rollout_func=says(*texts),
            args={"scale_rewards": scale, "max_steps": 1},
        )
        reward.bind(run)
        run.train()

    raw = plain.history[0]
    assert 0 < statistics.pstdev(raw) < 0.6
    ours = group_advantages(raw, std_floor=0.6)
    assert ours == [pytest.approx((r - statistics.fmean(raw)) / 0.6) for r in raw]
    assert advantages(run) == pytest.approx(ours, abs=1e-6)
    assert run.state.log_history[0]["lear/reward"] == pytest.approx(statistics.fmean(raw))


@pytest.mark.parametrize("floor", [None, 0.1])
@pytest.mark.parametrize("fails", ["the judge", "the reward"])
def test_unscored_completions_have_advantage_0(tmp_path: Any, floor: Any, fails: str) -> None:
    """From the second step on, a judge fails for one answer, or the reward has no value for it.

    The failure of a model makes the whole group unscored.
    """
    held: list[Any] = []

    def verdict(question: Any) -> int | Exception:
        if question.response == "broken" and held[0].state.global_step:
            return BackendError("the judge is down")
        return int(question.response == "Seine")

    def value(rollout: rr.Rollout) -> float | None:
        if "broken" in rollout.parsed.text and held[0].state.global_step:
            return None
        return float("Seine" in rollout.parsed.text)

    recipe = "truthrl" if fails == "the judge" else rr.custom("own", value)
    models = Models(judge=TableJudge(verdict))
    reward = RecordingReward(recipe, models=models, std_floor=floor)
    texts = [f"\\boxed{{{word}}}" for word in ("Seine", "broken", "Rhone", "Rhone")]
    run = trainer(tmp_path, reward, rollout_func=says(*texts), args={"scale_rewards": "none"})
    held.append(run)
    reward.bind(run)
    run.train()
    assert None not in reward.history[0]
    expected = [0.0] * 4
    if fails == "the reward":
        scored = [1.0, 0.0, 0.0]
        mean = statistics.fmean(scored)
        expected = [value - mean for value in scored]
        if floor is not None:
            expected = group_advantages(scored, std_floor=floor)
        expected.insert(1, 0.0)
    unscored = 4 if fails == "the judge" else 1
    assert reward.history[1].count(None) == reward.not_scored == unscored
    assert reward.history[1][1] is None
    name = "truthrl" if fails == "the judge" else "own"
    assert run.state.log_history[1][f"{name}/not_scored"] == unscored
    assert advantages(run) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("recipe", ["truthrl", "ctrl-rag-clr"])
def test_asynchronous_rewards_give_the_same(tmp_path: Any, recipe: str) -> None:
    texts = ("\\boxed{Seine}", "\\boxed{Rhone}", "\\boxed{I don't know}", "nothing")
    models = Models(judge=TableJudge(lambda question: int(question.response == "Seine")))
    history = {}
    for kind in (RagReward, AsyncRagReward):
        reward = kind(recipe, models=models)
        run = trainer(tmp_path, [reward, RagReward("naive-grpo")], rollout_func=says(*texts))
        reward.bind(run)
        run.train()
        history[kind] = list(run._logs["rewards"][recipe])
    assert history[RagReward] == history[AsyncRagReward]
    assert len(set(history[RagReward])) > 1


def test_a_row_without_gold_is_an_error_before_training(tmp_path: Any) -> None:
    data = rows(3).map(lambda row, i: {"answers": None if i == 2 else ["Seine"]}, with_indices=True)
    reward = RagReward("arena")
    with pytest.raises(DataError, match=r"row 2 of train_dataset: answers: missing"):
        reward.bind(trainer(tmp_path, reward, train_dataset=data))

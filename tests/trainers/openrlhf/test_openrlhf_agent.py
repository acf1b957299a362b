"""The agent executor in OpenRLHF's own rollout actor, with a tiny model as its engine."""

from __future__ import annotations

import asyncio
import json
import math
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rollout_actor import Engine, Trainer, sampling

import rag_rewards as rr
from rag_rewards.errors import BackendError, DataError, GroupError, UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.models.transformers import TransformersPolicy
from rag_rewards.scorer import Scorer
from rag_rewards.training.advantages import group_advantages

DOCUMENTS = [
    {"id": 1, "title": "Paris", "text": "Paris lies on the Seine."},
    {"id": 2, "title": "Lyon", "text": "Lyon lies on the Rhone."},
]
GOLD = {
    "id": "row-7",
    "question": "Which river runs through Paris?",
    "documents": DOCUMENTS,
    "answers": ["Seine"],
    "supporting": [1],
}
BLOCKS = "\n\n".join(f"[{d['id']}] {d['title']}\n{d['text']}" for d in DOCUMENTS)
RIGHT = "<relevance>[1]</relevance><analysis>1</analysis><answer>Seine</answer>"
WRONG = "<relevance>[2]</relevance><analysis>2</analysis><answer>Rhone</answer>"
CITED = ["<think>a</think><answer>Seine</answer>", "<answer>the Seine</answer>", "Rhone"]


def rational(answer: str) -> str:
    return f"<reason>It is there.</reason><extract>The Seine.</extract><answer>{answer}</answer>"


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return Trainer()


@pytest.fixture
def agent(tmp_path: Path) -> Any:
    """Return a function that writes `agent.py` with these arguments."""

    def write(arguments: str) -> Path:
        path = tmp_path / "agent.py"
        path.write_text(
            "from rag_rewards_adapters.openrlhf_agent import executor\n\n"
            f"AgentExecutor = executor({arguments})\n"
        )
        return path

    return write


def prompt_of(engine: Engine, text: str = f"{BLOCKS}\n\n{GOLD['question']}") -> str:
    chat = [{"role": "user", "content": text}]
    return engine.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)


def run(work: Any) -> Any:
    """Return the result of a coroutine, in its own event loop."""

    async def limited() -> Any:
        return await asyncio.wait_for(work, 60)

    return asyncio.run(limited())


async def sample_prompt(
    actor: Any, n: int = 3, label: Any = GOLD, prompt: str | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Return the outputs for one row of the data set, and check that no group stays active."""
    outputs: list[dict[str, Any]] = await actor.generate_responses(
        prompt=prompt or prompt_of(actor.llm),
        label=json.dumps(label) if isinstance(label, dict) else label,
        sampling_params=options.pop("sampling_params", None) or sampling(),
        max_length=options.pop("max_length", 1400),
        hf_tokenizer=actor.llm.tokenizer,
        num_samples=n,
    )
    assert actor.executor.scoring.groups.active == {}
    return outputs


def rewards(outputs: list[dict[str, Any]]) -> list[float]:
    return [output["reward"] for output in outputs]


def text_of(engine: Engine, output: dict[str, Any]) -> str:
    (start, end) = output["action_ranges"][0]
    return engine.tokenizer.decode(output["observation_tokens"][start:end]).removesuffix(
        "<|im_end|>"
    )


def scores_by_transformers(engine: Engine, texts: list[str], recipe: str, **settings: Any) -> Any:
    """Return the scores of the same group by a model in this process, by text."""
    tokenizer, prompt = engine.tokenizer, prompt_of(engine)
    scorer = Scorer(
        rr.recipe(recipe, settings), Models(policy=TransformersPolicy(engine.model, tokenizer))
    )
    rollouts = [
        rr.decode_row(
            {
                **GOLD,
                "prompt": prompt,
                "prompt_token_ids": tokenizer.encode(prompt, add_special_tokens=False),
                "response": text,
                "response_token_ids": [*tokenizer.encode(text, add_special_tokens=False), 2],
            }
        )
        for text in texts
    ]
    results = scorer.score_each(rollouts, [range(len(texts))])
    return dict(zip(texts, results, strict=True))


# --- recipes -----------------------------------------------------------------------------------


def test_a_rule_recipe(trainer: Trainer, agent: Any) -> None:
    engine = Engine([RIGHT, WRONG, "no format"])
    actor = trainer.actor(agent('recipe="arena"'), engine)
    outputs = run(sample_prompt(actor))
    assert dict(zip([text_of(engine, o) for o in outputs], rewards(outputs), strict=True)) == {
        RIGHT: 13.0,
        WRONG: 1.0,
        "no format": 0.0,
    }
    assert engine.calls["scored"] == 0
    first, *others = (trainer.experiences(outputs)[i].info for i in range(3))
    assert all(other.keys() == first.keys() for other in others)
    assert {"format", "accuracy", "relevance", "bonus", "acc", "rag_rewards_error"} <= set(first)
    assert [output["scores"] for output in outputs] == [
        float(reward == 13.0) for reward in rewards(outputs)
    ]


def test_a_group_is_scored_with_the_engine_of_the_policy(trainer: Trainer, agent: Any) -> None:
    engine = Engine(CITED)
    actor = trainer.actor(agent('recipe="ctrl-rag", settings={"threshold": None}'), engine)
    outputs = run(sample_prompt(actor))
    expected = scores_by_transformers(engine, CITED, "ctrl-rag", threshold=None)
    for output in outputs:
        score = expected[text_of(engine, output)]
        assert output["reward"] == pytest.approx(score.value, abs=1e-4)
        for name, value in score.components.items():
            assert output["extra_logs"][name] == pytest.approx(value, abs=1e-3)
    assert len(set(rewards(outputs))) > 1
    checked = engine.calls["scored"]
    assert rewards(run(sample_prompt(actor))) == pytest.approx(rewards(outputs), abs=1e-4)
    assert engine.calls["scored"] - checked == 6  # the engine was checked once


def test_a_document_missing_from_the_prompt_is_named(trainer: Trainer, agent: Any) -> None:
    actor = trainer.actor(agent('recipe="ctrl-rag"'), engine := Engine(CITED))
    with pytest.raises(DataError, match="row row-7: prompt: document 1 cannot be left out"):
        run(sample_prompt(actor, prompt=prompt_of(engine, "Which river runs through Paris?")))


def test_masked_answers_and_floor_of_lear(trainer: Trainer, agent: Any) -> None:
    texts = [rational("Seine"), rational("Rhone"), "no format"]
    engine = Engine(texts)
    actor = trainer.actor(agent('recipe="lear", std_floor=0.1'), engine)
    outputs = run(sample_prompt(actor))
    expected = scores_by_transformers(engine, texts, "lear")
    raw = [expected[text_of(engine, output)].value for output in outputs]
    assert [output["extra_logs"]["raw_reward"] for output in outputs] == pytest.approx(raw)
    assert engine.calls["masked"] > 0
    assert advantages(trainer, outputs) == pytest.approx(
        group_advantages(raw, std_floor=0.1), abs=1e-5
    )
    # An evaluation logs the mean of the rewards.
    assert sum(rewards(outputs)) == pytest.approx(sum(raw))


def advantages(trainer: Trainer, outputs: list[dict[str, Any]]) -> list[float]:
    """Return the advantages of the trainer's `dr_grpo` for the samples of a prompt."""
    import torch

    n = len(outputs)
    args = SimpleNamespace(
        rollout=SimpleNamespace(n_samples_per_prompt=n, max_new_tokens=8),
        algo=SimpleNamespace(
            advantage=SimpleNamespace(estimator="dr_grpo", gamma=1.0, lambd=1.0, no_std_norm=False)
        ),
        reward=SimpleNamespace(clip_range=(-10.0, 10.0)),
        data=SimpleNamespace(max_len=64),
    )
    maker = trainer.experience.RemoteExperienceMaker(
        *[None] * 4, SimpleNamespace(value=0.0), SimpleNamespace(args=args), None
    )
    experience = trainer.experience.Experience(
        index=list(range(n)),
        rewards=torch.tensor(rewards(outputs)),
        kl=torch.zeros(n, 1),
        action_mask=torch.ones(n, 1).bool(),
        info={},
    )
    experiences = maker.compute_advantages_and_returns([experience])
    return [row[0] for row in experiences[0].advantages.tolist()]


def test_equal_rewards_have_no_advantage(trainer: Trainer, agent: Any) -> None:
    actor = trainer.actor(agent('recipe="arena", std_floor=0.1'), Engine([RIGHT]))
    outputs = run(sample_prompt(actor))
    assert rewards(outputs) == [13.0] * 3
    assert advantages(trainer, outputs) == [0.0] * 3


# --- groups ------------------------------------------------------------------------------------


def test_the_number_of_samples_can_change(trainer: Trainer, agent: Any) -> None:
    actor = trainer.actor(agent('recipe="ctrl-rag", std_floor=0.1'), Engine(CITED))

    async def both() -> Any:
        return (
            await sample_prompt(actor, 3),
            await sample_prompt(actor, 1),
            await sample_prompt(actor, 4),
        )

    assert [len(outputs) for outputs in run(both())] == [3, 1, 4]
    alone = trainer.actor(agent('recipe="arena", std_floor=0.1'), Engine([RIGHT]))
    assert rewards(run(sample_prompt(alone, 1))) == [
        13.0
    ]  # the reward itself, not an advantage of 0


def test_rows_with_equal_prompts_are_different_groups(trainer: Trainer, agent: Any) -> None:
    """The answer of the second group is right only for its own label."""
    engine = Engine([RIGHT])
    actor = trainer.actor(agent('recipe="arena"'), engine)
    other = {**GOLD, "answers": ["Rhone"], "supporting": [1]}

    async def both() -> Any:
        tasks = [actor.generate_responses] * 2
        arguments = {
            "prompt": prompt_of(engine),
            "max_length": 1400,
            "hf_tokenizer": engine.tokenizer,
            "num_samples": 2,
        }
        return await asyncio.gather(
            tasks[0](label=json.dumps(GOLD), sampling_params=sampling(), **arguments),
            tasks[1](label=json.dumps(other), sampling_params=sampling(), **arguments),
        )

    first, second = run(both())
    assert (rewards(first), rewards(second)) == ([13.0, 13.0], [2.0, 2.0])


def test_an_opened_tag_and_a_truncated_response(trainer: Trainer, agent: Any) -> None:
    engine = Engine(["Look.</think><answer>Seine</answer>"])
    actor = trainer.actor(agent('recipe="naive-grpo"'), engine)
    prompt = prompt_of(engine) + "<think>\n"
    assert rewards(run(sample_prompt(actor, prompt=prompt))) == [2.0] * 3
    (cut,) = run(sample_prompt(actor, 1, prompt=prompt, sampling_params=sampling(4)))
    assert cut["truncated"]
    assert cut["reward"] == 0.0


def test_a_truncated_prompt_has_no_log_probabilities(trainer: Trainer, agent: Any) -> None:
    actor = trainer.actor(agent('recipe="ctrl-rag"'), Engine(CITED))
    with pytest.raises(DataError, match="row row-7: prompt_token_ids: the rendered prompt differs"):
        run(sample_prompt(actor, max_length=450))
    rules = trainer.actor(agent('recipe="arena"'), Engine([RIGHT]))
    assert rewards(run(sample_prompt(rules, max_length=450))) == [13.0] * 3


# --- what has no score -------------------------------------------------------------------------


def test_an_error_reaches_the_trainer_and_can_be_pickled(trainer: Trainer, agent: Any) -> None:
    actor = trainer.actor(agent('recipe="arena"'), Engine([RIGHT]))
    with pytest.raises(
        DataError, match=r"row row-7: supporting\[0\]: document id 9 does not exist"
    ) as info:
        run(sample_prompt(actor, label={**GOLD, "supporting": [9]}))
    assert str(pickle.loads(pickle.dumps(info.value))) == str(info.value)  # noqa: S301


def test_an_invalid_label_names_its_prompt(trainer: Trainer, agent: Any) -> None:
    actor = trainer.actor(agent('recipe="arena"'), Engine([RIGHT]))
    with pytest.raises(DataError, match=r"row of the prompt that ends in '.*through Paris.*label:"):
        run(sample_prompt(actor, label={"target": "Seine"}))


def test_a_missing_model_names_the_option(trainer: Trainer, agent: Any) -> None:
    actor = trainer.actor(agent('recipe="truthrl", error_value=0.0'), Engine([r"\boxed{Rhone}"]))
    with pytest.raises(UsageError, match="truthrl requires a model of the kind judge: set judge="):
        run(sample_prompt(actor))


def test_error_value_applies_after_the_first_group(
    trainer: Trainer, agent: Any, caplog: pytest.LogCaptureFixture
) -> None:
    actor = trainer.actor(agent('recipe="arena", error_value=-1.0, patience=2'), Engine([RIGHT]))
    broken = {**GOLD, "supporting": [9]}

    async def training() -> Any:
        with pytest.raises(DataError, match="supporting"):
            await sample_prompt(actor, label=broken)
        good = await sample_prompt(actor)
        bad = await sample_prompt(actor, label=broken)
        with pytest.raises(DataError, match="supporting"):
            await sample_prompt(actor, label=broken)
        return good, bad

    good, bad = run(training())
    assert (rewards(good), rewards(bad)) == ([13.0] * 3, [-1.0] * 3)
    assert bad[0]["extra_logs"].keys() == good[0]["extra_logs"].keys()
    assert bad[0]["extra_logs"]["rag_rewards_error"] == 1.0
    assert math.isnan(bad[0]["extra_logs"]["accuracy"])
    assert actor.executor.scoring.unscored.count == 6
    assert "3 of 3 rollouts are unscored: row row-7: supporting[0]" in caplog.text


def test_an_unscored_member_does_not_change_other_advantages(
    trainer: Trainer, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an error value of 0, its reward is the mean of the group."""
    actor = trainer.actor(agent('recipe="arena", std_floor=0.1, error_value=0.0'), Engine([RIGHT]))
    run(sample_prompt(actor))
    actor.llm = Engine([RIGHT, WRONG, "no format"])
    scorer = actor.executor.scoring.scorer(None)
    score = scorer.score_each_async

    async def without_the_second(rollouts: Any, groups: Any) -> Any:
        results = await score(rollouts, groups)
        return [results[0], BackendError("the judge is down"), results[2]]

    monkeypatch.setattr(scorer, "score_each_async", without_the_second)
    outputs = run(sample_prompt(actor))
    first, _, third = (output["extra_logs"]["raw_reward"] for output in outputs)
    one, other = group_advantages([first, third], std_floor=0.1)
    assert advantages(trainer, outputs) == pytest.approx([one, 0.0, other], abs=1e-5)


def test_an_engine_error_fails_one_group(trainer: Trainer, agent: Any) -> None:
    engine = Engine([RIGHT, RuntimeError("the engine is dead"), RIGHT, RIGHT])
    actor = trainer.actor(agent('recipe="arena"'), engine)
    with pytest.raises((RuntimeError, GroupError), match="the engine is dead"):
        run(sample_prompt(actor))
    assert rewards(run(sample_prompt(actor, 1))) == [13.0]


def test_weights_that_change_while_a_group_is_scored(trainer: Trainer, agent: Any) -> None:
    engine = Engine(CITED)
    actor = trainer.actor(agent('recipe="ctrl-rag"'), engine)
    run(sample_prompt(actor))
    rows, changes, updates = engine.rows, iter(range(100)), []

    def change(ids: list[int]) -> Any:
        if next(changes) in times:
            updates.append(asyncio.ensure_future(actor.update_weight("lm_head", "float32", (1,))))
        return rows(ids)

    engine.rows = change  # type: ignore[method-assign]
    times: Any = {2}
    before = engine.calls["scored"]
    assert len(run(sample_prompt(actor))) == 3
    assert engine.calls["scored"] - before == 12  # scored twice
    assert "update_weight" in engine.updated
    times = range(100)
    with pytest.raises(BackendError, match="the weights changed between the two terms of a diff"):
        run(sample_prompt(actor))


def test_an_engine_that_shifts_its_values_is_refused(trainer: Trainer, agent: Any) -> None:
    engine = Engine(CITED)
    rows = engine.rows
    engine.rows = lambda ids: [None, None, *rows(ids)[1:-1]]  # type: ignore[method-assign]
    actor = trainer.actor(agent('recipe="ctrl-rag"'), engine)
    with pytest.raises(BackendError, match="selfcheck failed"):
        run(sample_prompt(actor))


def test_a_sequence_must_leave_one_token_free(trainer: Trainer, agent: Any) -> None:
    engine = Engine(CITED[:1])
    prompt = prompt_of(engine, f"{BLOCKS}\n\n{'Say it. ' * 30}{GOLD['question']}")
    length = len(engine.tokenizer.encode(CITED[0], add_special_tokens=False)) + 1
    whole = len(engine.tokenizer.encode(prompt, add_special_tokens=False)) + length
    actor = trainer.actor(agent('recipe="ctrl-rag"'), engine)
    options = {"prompt": prompt, "max_length": whole, "sampling_params": sampling(length)}
    engine.model_config.max_model_len = whole + 1
    assert len(run(sample_prompt(actor, 2, **options))) == 2
    engine.model_config.max_model_len = whole
    with pytest.raises(DataError, match="more than the model's"):
        run(sample_prompt(actor, 2, **options))

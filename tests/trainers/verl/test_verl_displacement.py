"""The monitor of likelihood displacement in verl's own agent worker, on the rollout engine."""

from __future__ import annotations

import math
from statistics import mean

import pytest
import torch
import v1_trainer as v1
from rag_rewards_adapters.displacement import DisplacementMonitor
from rag_rewards_adapters.verl.config import RewardOptions
from test_verl_group_loops import engine_of, infos_of, run_worker

from rag_rewards.errors import UsageError

KWARGS = "reward.custom_reward_function.reward_kwargs"
TEXTS = [v1.arena("Rhone"), v1.arena("Seine"), v1.arena("the Seine")]
ROWS = [v1.question("Paris"), v1.question("Rouen")]
REPLIES = {"Paris": TEXTS, "Rouen": ["no format", *TEXTS[:2]]}


class Weights:
    """Adds noise to the weights of the engine before each step, as an update would."""

    def __init__(self, engine):
        self.engine, self.states = engine, {}

    def __call__(self, step):
        torch.manual_seed(step)
        self.engine.set_global_steps(step)
        with torch.no_grad():
            for weight in self.engine.model.parameters():
                weight.add_(0.05 * torch.randn_like(weight))
        state = self.engine.model.state_dict()
        self.states[step] = {name: value.clone() for name, value in state.items()}


def mean_logprob(engine, state, prompt_ids, text):
    """Return the mean log-probability of a reply in one forward pass."""
    engine.model.load_state_dict(state)
    response = [*engine.tokenizer.encode(text, add_special_tokens=False), 2]
    values = engine.prompt_logprobs([*prompt_ids, *response])["prompt_logprobs"]
    return mean(row[0] for row in values[len(prompt_ids) - 1 : -1])


def test_right_responses_of_the_first_step_are_scored_at_later_weights(monkeypatch, model):
    engine = engine_of(model, REPLIES)
    weights = Weights(engine)
    config = v1.configuration(model, "arena", f"+{KWARGS}.displacement_every=2")
    steps = [1, 2, 3, 4]
    queue = run_worker(monkeypatch, config, engine, ROWS, steps=steps, before=weights)
    prompts = [
        engine.tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True)["input_ids"]
        for row in ROWS
    ]
    # The first right response of each prompt at step 1.
    kept = [(prompts[0], TEXTS[1]), (prompts[1], TEXTS[1])]
    first = [mean_logprob(engine, weights.states[1], *each) for each in kept]
    for i, step in enumerate(steps):
        numbers = [info for uid in (2 * i, 2 * i + 1) for info in infos_of(queue, f"uid-{uid}")]
        present = [each for each in numbers if not math.isnan(each["right_logprob"])]
        assert len(numbers) == 6
        assert len(present) == (3 if step in (2, 4) else 0)  # one group has the measurement
        if present:
            now = [mean_logprob(engine, weights.states[step], *each) for each in kept]
            change = mean(now) - mean(first)
            assert abs(change) > 0.01
            assert present[0]["right_logprob"] == pytest.approx(mean(now), abs=1e-4)
            assert present[0]["right_logprob_change"] == pytest.approx(change, abs=1e-4)


@pytest.mark.parametrize(
    ("error", "is_scored"), [(RuntimeError("out of memory"), True), (UsageError("check"), False)]
)
def test_only_a_failed_check_of_the_engine_fails_a_group(monkeypatch, model, error, is_scored):
    async def step(*_):
        raise error

    monkeypatch.setattr(DisplacementMonitor, "step", step)
    config = v1.configuration(model, "arena", f"+{KWARGS}.displacement_every=1")
    queue = run_worker(monkeypatch, config, engine_of(model, REPLIES), ROWS, steps=[1])
    infos = infos_of(queue, "uid-0")
    assert bool(infos) == is_scored
    assert all(math.isnan(info["right_logprob"]) for info in infos)


def test_a_validation_has_no_numbers_of_the_monitor(monkeypatch, model):
    engine = engine_of(model, REPLIES)
    config = v1.configuration(model, "arena", f"+{KWARGS}.displacement_every=1")
    queue = run_worker(monkeypatch, config, engine, ROWS, validate=True, steps=[1, 2])
    (info,) = infos_of(queue, "uid-3")
    assert "right_logprob" not in info
    assert engine.calls["scored"] == 0


@pytest.mark.parametrize("loop", ["single_turn_agent", "rag_group"])
def test_settings_without_the_loop_or_with_a_wrong_number_are_refused(model, loop):
    agent = f"actor_rollout_ref.rollout.agent.default_agent_loop={loop}"
    every = 5 if loop == "single_turn_agent" else -5
    config = v1.configuration(model, "arena", agent, f"+{KWARGS}.displacement_every={every}")
    with pytest.raises(UsageError, match=r"displacement_every.*(rollout engine|-5)"):
        RewardOptions.of_training(config)

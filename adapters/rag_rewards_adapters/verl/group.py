"""verl's agent loop `rag_group`, which scores the rollouts of a prompt together.

    actor_rollout_ref.rollout.agent.default_agent_loop=rag_group

Every session of a prompt runs an inner agent loop (`single_turn_agent`, `tool_agent`) and waits for
the others. The group is scored once, and each session gets its own score. If one session is
unscored, all sessions of the prompt raise an error. verl then marks the prompt as failed, and
replaces it with `trainer.v1.sampler.sync_refill_failed_groups=True`. This also holds for recipes of
rollout scope: without the unscored rollout, the baseline of the group would have fewer rollouts.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rag_rewards.errors import GroupError, RolloutError, UsageError, describe
from rag_rewards.groups import fail_groups
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows.columns import to_builtins
from rag_rewards.scorer import Scorer
from rag_rewards.training.turn_sums import TurnSums
from rag_rewards_adapters.displacement import (
    METRICS,
    DisplacementMonitor,
    RightResponse,
    right_positions,
)
from rag_rewards_adapters.scoring import SearchCheck, with_value
from rag_rewards_adapters.session_groups import SessionGroup, SessionGroups
from rag_rewards_adapters.verl.config import RewardOptions
from rag_rewards_adapters.verl.credit import TurnCredit
from rag_rewards_adapters.verl.engine import VerlEnginePolicy
from rag_rewards_adapters.verl.rows import RolloutReader, extra_numbers

log = logging.getLogger("rag_rewards")


@dataclass(frozen=True)
class _Session:
    """The output of the inner loop, and its rollout.

    A loop may return several outputs. The last one gets the score.
    """

    output: Any
    last: Any
    rollout: Rollout | RolloutError


@dataclass(frozen=True)
class _Engine:
    """What scores the sessions of one rollout engine, so that its policy is checked once."""

    scorer: Scorer
    credit: TurnCredit
    reader: RolloutReader
    policy: VerlEnginePolicy
    monitor: DisplacementMonitor | None


@dataclass
class _WorkerState:
    """What the sessions of one agent worker share: their groups, and what scores them.

    `sums` logs once per worker that rewards of turns are summed.
    """

    groups: SessionGroups[_Session, Any] = field(default_factory=SessionGroups)
    searches: SearchCheck = field(default_factory=SearchCheck)
    engines: dict[Any, _Engine] = field(default_factory=dict)
    sums: TurnSums = field(
        default_factory=lambda: TurnSums("set algorithm.adv_estimator=rag_turn_return")
    )


_STATES: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _WorkerState] = (
    weakref.WeakKeyDictionary()
)
"""The state of each event loop. The sessions of a prompt run in one event loop."""


class RagGroupAgentLoop:
    """verl's agent loop `rag_group`: runs `inner`, and scores the sessions of a prompt together.

    The recipe and its models are those of `reward.custom_reward_function.reward_kwargs`. A recipe
    that needs a policy uses the rollout engine, unless `model` is set. The class has the interface
    of verl's agent loops and needs no base class.
    """

    def __init__(
        self,
        trainer_config: Any,
        server_manager: Any,
        tokenizer: Any,
        inner: str = "single_turn_agent",
        **further: Any,
    ) -> None:
        # Raise nothing here: the other sessions would wait for one that never joins its group.
        self.config = trainer_config.config
        self.server_manager = server_manager
        self.tokenizer = tokenizer
        self.inner = inner
        self._arguments = {
            "trainer_config": trainer_config,
            "server_manager": server_manager,
            "tokenizer": tokenizer,
            **further,
        }

    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> Any:
        """Return the inner loop's output with `reward_score` and `reward_extra_info`.

        Raises RolloutError in all sessions of a prompt when one of them is unscored.
        """
        state = _STATES.setdefault(asyncio.get_running_loop(), _WorkerState())
        if columns.get("uid") is None:  # rows with equal texts are different prompts
            raise GroupError("missing; rag_group needs a trainer that sets it", "uid")
        rollout = self.config.actor_rollout_ref.rollout
        sizes = tuple(dict.fromkeys((rollout.n, rollout.val_kwargs.n)))
        return await state.groups.run(
            str(columns["uid"]),
            to_builtins(columns.get("session_id")),
            lambda: self._run_inner(state, sampling_params, columns),
            lambda: SessionGroup(lambda sessions: self._score(state, sessions), sizes),
        )

    async def _run_inner(
        self, state: _WorkerState, sampling_params: dict[str, Any], columns: Mapping[str, Any]
    ) -> _Session:
        engine = self._engine(state)  # raises errors of the settings before a generation
        output = await self._inner_loop().run(sampling_params, **columns)
        last = output[-1] if isinstance(output, list) else output
        rollout = await engine.reader.of_output(last, columns, engine.scorer.reward, self.inner)
        return _Session(output, last, rollout)

    def _inner_loop(self) -> Any:
        import hydra
        from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

        names = sorted(name for name in _agent_loop_registry if name != "rag_group")
        if self.inner not in names:
            raise UsageError(
                f"inner={self.inner} is not an agent loop (available: {', '.join(names)})"
            )
        # hydra's `instantiate` takes 2 ms, because it merges the configurations again.
        entry = {**_agent_loop_registry[self.inner], **self._arguments}
        return hydra.utils.get_class(entry.pop("_target_"))(**entry)

    # --- scoring -------------------------------------------------------------------------------

    def _engine(self, state: _WorkerState) -> _Engine:
        """Return what scores the sessions of a worker. The first call checks the settings."""
        if self.server_manager not in state.engines:
            options = RewardOptions.of_training(self.config)
            config = self.config.actor_rollout_ref
            name = str(config.model.get("path") or "")
            policy = VerlEnginePolicy(self.server_manager, self.tokenizer, config.rollout, name)
            models = options.models.load()
            if not options.models.model:
                models = replace(models, policy=policy)
            scorer = options.scorer(models)
            credit = TurnCredit.of_training(self.config, scorer.reward)
            reader = RolloutReader(self.tokenizer, config.rollout, options.prompt.template)
            engine = _Engine(scorer, credit, reader, policy, options.monitor)
            state.engines[self.server_manager] = engine
        return state.engines[self.server_manager]

    async def _score(self, state: _WorkerState, sessions: list[_Session]) -> list[Any]:
        """Return the outputs of a group with their scores, or an error for each of them."""
        started = time.perf_counter()
        engine = self._engine(state)
        scorer, credit = engine.scorer, engine.credit
        rollouts = [session.rollout for session in sessions]
        state.searches.check(scorer.recipes, rollouts)
        group = [range(len(sessions))]
        results = await scorer.score_each_async(rollouts, group)
        results = fail_groups([with_value(result) for result in results], group)
        scores = [result for result in results if isinstance(result, Score)]
        if not scores:
            return results
        if not credit.reads_tokens:
            state.sums.check(scores)
        scored = [rollout for rollout in rollouts if isinstance(rollout, Rollout)]
        advantages = credit.advantages(scores, scored)
        masks = [session.last.response_mask for session in sessions]
        values = credit.token_values(scores, advantages, scored, masks)
        numbers = credit.numbers(scores, advantages)
        likelihoods = await self._likelihoods(engine, sessions, scores, scored[0].step or 0)
        seconds = time.perf_counter() - started
        for session, score, further in zip(sessions, scores, numbers, strict=True):
            session.last.reward_score = score.value
            information = extra_numbers(score, scorer) | further | likelihoods
            session.last.extra_fields["reward_extra_info"] = information
            session.last.metrics.compute_score = seconds
        outputs = [session.output for session in sessions]
        return outputs if values is None else _with_token_values(outputs, values)

    async def _likelihoods(
        self, engine: _Engine, sessions: Sequence[_Session], scores: Sequence[Score], step: int
    ) -> dict[str, float]:
        """Return the numbers of the monitor of likelihood displacement; NaN without a measurement.

        A loop does not know whether its group is one of the validation. Groups of another size than
        those of the training are.

        Raises UsageError for an engine that fails its self-check.
        """
        if engine.monitor is None or len(sessions) != self.config.actor_rollout_ref.rollout.n:
            return {}
        outputs = [sessions[i].last for i in right_positions(scores)]
        right = [RightResponse.of(o.prompt_ids, o.response_ids, o.response_mask) for o in outputs]
        try:
            measured = await engine.monitor.step(engine.policy, step, right)
        except UsageError:
            raise
        except Exception as error:  # the scores of the group do not depend on the measurement
            log.warning("a group has no likelihoods: %s", describe(error))
            measured = []
        return dict.fromkeys(METRICS, math.nan) | engine.monitor.metrics(measured)


def _with_token_values(outputs: Sequence[Any], values: Sequence[Sequence[float]]) -> list[Any]:
    """Return outputs with a value at each token. UsageError for several outputs of a rollout."""
    from rag_rewards_adapters.verl.turn_output import TurnOutput

    if any(isinstance(output, list) for output in outputs):
        raise UsageError(
            "the inner agent loop returns several outputs for a rollout, and rewards of turns "
            "require one: choose another inner loop"
        )
    return [TurnOutput.of(output, own) for output, own in zip(outputs, values, strict=True)]

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
import math
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rag_rewards.errors import GroupError, RolloutError, UsageError
from rag_rewards.groups import fail_groups
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows.columns import to_builtins
from rag_rewards.training.turn_sums import TurnSums
from rag_rewards_adapters.response_text import finish_reason, opened_tag, response_text
from rag_rewards_adapters.session_groups import SessionGroup, SessionGroups
from rag_rewards_adapters.turn_rows import SearchCheck, dialect_at
from rag_rewards_adapters.verl_config import (
    check_training,
    load_scorer,
    response_limit,
    reward_options,
    template_arguments,
)
from rag_rewards_adapters.verl_rows import (
    defines_correct,
    extra_numbers,
    rollout_from_row,
    valid_score,
)
from rag_rewards_adapters.verl_trajectory import turn_fields
from rag_rewards_adapters.verl_turns import (
    SIGNAL,
    VALUE,
    TurnCredit,
    signals,
    token_values,
    with_token_values,
)

if TYPE_CHECKING:
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.rollout import ScoreOrError
    from rag_rewards.scorer import Scorer
    from rag_rewards.training.credit.entries import Advantages


# --- the agent loop ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Session:
    """The output of the inner loop, and its rollout.

    A loop may return several outputs. The last one gets the score.
    """

    output: Any
    last: Any
    rollout: Rollout | RolloutError


@dataclass
class _WorkerState:
    """What the sessions of one agent worker share: their groups and the scorer of each engine.

    `sums` logs once per worker that rewards of turns are summed.
    """

    groups: SessionGroups[_Session, Any] = field(default_factory=SessionGroups)
    searches: SearchCheck = field(default_factory=SearchCheck)
    scorers: dict[Any, Scorer] = field(default_factory=dict)
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
        return await state.groups.run(
            self._prompt_id(columns),
            to_builtins(columns.get("session_id")),
            lambda: self._run_inner(state, sampling_params, columns),
            lambda: SessionGroup(lambda sessions: self._score(state, sessions), self._group_sizes),
        )

    @staticmethod
    def _prompt_id(columns: Mapping[str, Any]) -> str:
        """Return verl's id of the prompt. Rows with equal texts are different prompts."""
        if columns.get("uid") is None:
            raise GroupError("missing; rag_group needs a trainer that sets it", "uid")
        return str(columns["uid"])

    @property
    def _group_sizes(self) -> Sequence[int]:
        rollout = self.config.actor_rollout_ref.rollout
        return tuple(dict.fromkeys((rollout.n, rollout.val_kwargs.n)))

    async def _run_inner(
        self, state: _WorkerState, sampling_params: dict[str, Any], columns: Mapping[str, Any]
    ) -> _Session:
        self._scorer(state)  # raises errors of the settings before anything is generated
        output = await self._inner_loop().run(sampling_params, **columns)
        last = output[-1] if isinstance(output, list) else output
        return _Session(output, last, await self._rollout(state, last, columns))

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

    def _scorer(self, state: _WorkerState) -> Scorer:
        """Return the scorer of all sessions of a worker, so that its policy is checked once."""
        if self.server_manager not in state.scorers:
            options = reward_options(self.config)
            check_training(self.config)
            scorer = load_scorer(
                options, template=template_arguments(self.config), models=self._models(options)
            )
            credit = self._credit(scorer)
            credit.check_config(self.config)
            credit.check_components(scorer.reward)
            state.scorers[self.server_manager] = scorer
        return state.scorers[self.server_manager]

    def _credit(self, scorer: Scorer) -> TurnCredit:
        stages = [recipe.settings for recipe in scorer.recipes]
        return TurnCredit.of(self.config.algorithm, stages)

    def _models(self, options: Mapping[str, Any]) -> Models | None:
        """Return the models of the options with the rollout engine, or None if `model` is set."""
        from rag_rewards.scorer import split_options
        from rag_rewards_adapters.verl_engine import VerlEnginePolicy

        _, named, _ = split_options({key: options[key] for key in options if key != "prompt"})
        if named.model:
            return None
        config = self.config.actor_rollout_ref
        engine = VerlEnginePolicy(
            self.server_manager, self.tokenizer, config.rollout, str(config.model.get("path") or "")
        )
        return replace(named.load(), policy=engine)

    async def _score(self, state: _WorkerState, sessions: list[_Session]) -> list[Any]:
        """Return the outputs of a group with their scores, or an error for each of them."""
        started = time.perf_counter()
        scorer = self._scorer(state)
        rollouts = [session.rollout for session in sessions]
        state.searches.check(scorer.recipes, rollouts)
        results = await scorer.score_each_async(rollouts, [range(len(sessions))])
        results = [_score_or_error(result, scorer.models) for result in results]
        results = fail_groups(results, [range(len(results))])
        scores = [result for result in results if isinstance(result, Score)]
        if not scores:
            return results
        credit = self._credit(scorer)
        advantages = _advantages(credit, sessions, scores)
        values = _token_values(credit, sessions, scores, advantages)
        signal = None if advantages is None else signals(advantages)
        if not credit.reads_tokens:
            state.sums.check(scores)
        has_correct, seconds = defines_correct(scorer.reward), time.perf_counter() - started
        for i, (session, score) in enumerate(zip(sessions, scores, strict=True)):
            information = extra_numbers(score, has_correct, scorer.decides_answers)
            if credit.gives_advantages:
                information[VALUE] = float(score.value or 0.0)
            if credit.method is not None:
                information[SIGNAL] = math.nan if signal is None else signal[i]
            session.last.reward_score = score.value
            session.last.extra_fields["reward_extra_info"] = information
            session.last.metrics.compute_score = seconds
        if values is None:
            return [session.output for session in sessions]
        return [
            with_token_values(session.output, tokens)
            for session, tokens in zip(sessions, values, strict=True)
        ]

    # --- rollouts ------------------------------------------------------------------------------

    async def _rollout(
        self, state: _WorkerState, output: Any, columns: Mapping[str, Any]
    ) -> Rollout | RolloutError:
        """Return an output as a rollout. The loop's mask marks the tokens of the model."""
        scorer = self._scorer(state)
        if not any(recipe.reads_turns for recipe in scorer.recipes):
            return self._last_response(output, columns)
        try:
            fields = await turn_fields(
                output,
                inner=self.inner,
                tokenizer=self.tokenizer,
                multi_turn=self.config.actor_rollout_ref.rollout.multi_turn,
                template=template_arguments(self.config),
                dialect=dialect_at(scorer.reward, to_builtins(columns.get("global_steps"))),
            )
        except RolloutError as error:
            return error
        prefix = opened_tag(self.tokenizer, output.prompt_ids)
        return self._row(output, columns, {"response_prefix": prefix, **fields})

    def _last_response(self, output: Any, columns: Mapping[str, Any]) -> Rollout | RolloutError:
        """Return an output as a rollout whose response is the last turn."""
        turns = list(_turns(output.response_ids, output.response_mask))
        prefix = opened_tag(self.tokenizer, _before_last_turn(output.prompt_ids, turns))
        fields = {"response_prefix": prefix, "prompt_token_ids": tuple(output.prompt_ids)}
        return self._row(output, columns, fields | self._response_fields(turns))

    def _row(
        self, output: Any, columns: Mapping[str, Any], fields: dict[str, Any]
    ) -> Rollout | RolloutError:
        limit = response_limit(self.config.actor_rollout_ref.rollout, len(output.prompt_ids))
        reason = finish_reason(self.tokenizer, output.response_ids, limit)
        return rollout_from_row(
            {**columns, "tool_extra_fields": output.extra_fields},
            group=self._prompt_id(columns),
            prompt=to_builtins(list(columns["raw_prompt"])),
            weight_version=_weight_version(output.extra_fields),
            **{"finish_reason": reason, **fields},
        )

    def _response_fields(self, turns: Sequence[tuple[bool, list[int]]]) -> dict[str, Any]:
        """Return one turn as text with its tokens, and several turns as messages."""
        if len(turns) == 1 and turns[0][0]:
            ids = turns[0][1]
            return {
                "response": response_text(self.tokenizer, ids),
                "response_token_ids": tuple(ids),
            }
        messages = [
            {"role": "assistant", "content": response_text(self.tokenizer, ids)}
            if is_model
            else {
                "role": "tool",
                "content": str(self.tokenizer.decode(ids, skip_special_tokens=False)),
            }
            for is_model, ids in turns
        ]
        return {"response": messages if any(is_model for is_model, _ in turns) else ""}


def _advantages(
    credit: TurnCredit, sessions: Sequence[_Session], scores: Sequence[Score]
) -> Advantages | None:
    """Return the advantages of the turns of a group, None without a method and for one rollout."""
    if credit.method is None or len(scores) == 1:
        return None
    return credit.advantages(scores, _rollouts(sessions))


def _rollouts(sessions: Sequence[_Session]) -> list[Rollout]:
    return [session.rollout for session in sessions if isinstance(session.rollout, Rollout)]


def _token_values(
    credit: TurnCredit,
    sessions: Sequence[_Session],
    scores: Sequence[Score],
    advantages: Advantages | None,
) -> list[list[float]] | None:
    """Return the values of the tokens of a group, None if only the last token has one."""
    if credit.method is None and not any(score.turns for score in scores):
        return None
    if any(isinstance(session.output, list) for session in sessions):
        raise UsageError(
            "the inner agent loop returns several outputs for a rollout, and rewards of turns "
            "require one: choose another inner loop"
        )
    credit.check_scores(scores)
    return token_values(
        credit,
        scores,
        advantages,
        _rollouts(sessions),
        [session.last.response_mask for session in sessions],
    )


def _score_or_error(result: ScoreOrError, models: Models) -> ScoreOrError:
    try:
        return valid_score(result, models)
    except RolloutError as error:
        return error


def _turns(ids: Sequence[int], mask: Sequence[int]) -> Iterator[tuple[bool, list[int]]]:
    """Yield the turns of a response: whether the model wrote it, and its tokens.

    >>> list(_turns([5, 6, 7, 8], [1, 1, 0, 1]))
    [(True, [5, 6]), (False, [7]), (True, [8])]
    """
    pairs = zip(mask, ids, strict=True)
    for is_model, turn in groupby(pairs, key=lambda pair: bool(pair[0])):
        yield is_model, [token for _, token in turn]


def _before_last_turn(
    prompt: Sequence[int], turns: Sequence[tuple[bool, list[int]]]
) -> Sequence[int]:
    """Return the tokens before the model's last turn: the prompt, or those of a tool."""
    last = max((i for i, (is_model, _) in enumerate(turns) if is_model), default=0)
    return turns[last - 1][1] if last else prompt


def _weight_version(fields: Mapping[str, Any]) -> str | int | None:
    """Return the training step of the weights, or the first and the last of several."""
    first, last = fields.get("min_global_steps"), fields.get("max_global_steps")
    if first is None or first == last:
        return None if last is None else int(last)
    return f"{first}-{last}"

"""Group rewards in verl: an agent loop around another, whose sessions of one prompt meet.

    actor_rollout_ref.rollout.agent.default_agent_loop=rag_group

Every session of a prompt runs the inner loop (`single_turn_agent`, `tool_agent`), then waits for
its siblings; the group is scored once, and each session takes its own score. A group is scored
whole or fails whole: where one session has no score, all of them raise, verl marks the prompt as
failed, and with `trainer.v1.sampler.sync_refill_failed_groups=True` replaces it. verl's notion of
failure is the prompt, so this holds for recipes of single rollouts as well: scores beside a
missing one would be a baseline over fewer.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rag_rewards.errors import GroupError, RolloutError, UsageError
from rag_rewards.groups import fail_groups
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows.columns import response_prefix_of, to_builtins
from rag_rewards_adapters.meeting import Group, Groups
from rag_rewards_adapters.verl_rows import (
    ended,
    judges,
    numbers_of,
    options_of,
    rollout_from,
    said,
    score_of,
    scorer_of,
    template_of,
)

if TYPE_CHECKING:
    from rag_rewards.evidence.protocols import Models
    from rag_rewards.rollout import ScoreOrError
    from rag_rewards.scorer import Scorer

_ENOUGH = 32
"""Tokens before a turn in which a tag that the chat template opens (`<think>`) stands."""


# --- the agent loop ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    """What the inner loop made of a session, and how a recipe reads it.

    A loop may have several outputs: the last one carries the score.
    """

    output: Any
    last: Any
    rollout: Rollout | RolloutError


@dataclass
class _Shared:
    """What the sessions of one agent worker share: those under way, and a scorer."""

    groups: Groups[_Run, Any] = field(default_factory=Groups)
    scorers: dict[Any, Scorer] = field(default_factory=dict)


_SHARED: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = weakref.WeakKeyDictionary()
"""By event loop, since a loop is what sibling sessions have in common; it ends with its loop."""


class RagGroupAgentLoop:
    """verl's agent loop `rag_group`: runs `inner`, and scores the sessions of a prompt together.

    The recipe and its models are those of `reward.custom_reward_function.reward_kwargs`. A recipe
    that asks a policy, with no `model` among them, asks the rollout engine itself. It has what
    verl asks of an agent loop, and needs no base class for it.
    """

    def __init__(
        self,
        trainer_config: Any,
        server_manager: Any,
        tokenizer: Any,
        inner: str = "single_turn_agent",
        **further: Any,
    ) -> None:
        # Nothing here may fail: a session that does not reach its group would tear it.
        self.config = trainer_config.config
        self.server_manager = server_manager
        self.tokenizer = tokenizer
        self.inner = inner
        self._given = {
            "trainer_config": trainer_config,
            "server_manager": server_manager,
            "tokenizer": tokenizer,
            **further,
        }

    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> Any:
        """The inner loop's output with `reward_score` and `reward_extra_info`.

        RolloutError, in all sessions of a prompt, when one of them has no score.
        """
        shared = _SHARED.setdefault(asyncio.get_running_loop(), _Shared())
        return await shared.groups.meet(
            self._prompt_of(columns),
            to_builtins(columns.get("session_id")),
            lambda: self._work(shared, sampling_params, columns),
            lambda: Group(lambda runs: self._settle(shared, runs), self._sizes),
        )

    @staticmethod
    def _prompt_of(columns: Mapping[str, Any]) -> str:
        """verl's own name of the prompt: equal texts are different prompts."""
        if columns.get("uid") is None:
            raise GroupError("missing; rag_group needs a trainer that names its prompts", "uid")
        return str(columns["uid"])

    @property
    def _sizes(self) -> Sequence[int]:
        rollout = self.config.actor_rollout_ref.rollout
        return tuple(dict.fromkeys((rollout.n, rollout.val_kwargs.n)))

    async def _work(
        self, shared: _Shared, sampling_params: dict[str, Any], columns: Mapping[str, Any]
    ) -> _Run:
        self._scorer(shared)  # says what is wrong before anything is generated
        output = await self._inner_loop().run(sampling_params, **columns)
        last = output[-1] if isinstance(output, list) else output
        return _Run(output, last, self._read(last, columns))

    def _inner_loop(self) -> Any:
        import hydra
        from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

        known = sorted(name for name in _agent_loop_registry if name != "rag_group")
        if self.inner not in known:
            raise UsageError(f"inner={self.inner}: rag_group wraps one of {', '.join(known)}")
        # hydra's `instantiate` takes 2 ms, for merging configurations that are merged already.
        entry = {**_agent_loop_registry[self.inner], **self._given}
        return hydra.utils.get_class(entry.pop("_target_"))(**entry)

    # --- scoring -------------------------------------------------------------------------------

    def _scorer(self, shared: _Shared) -> Scorer:
        """One for all sessions of a worker: its policy proves itself once."""
        if self.server_manager not in shared.scorers:
            options = options_of(self.config)
            shared.scorers[self.server_manager] = scorer_of(
                options, template=template_of(self.config), models=self._models(options)
            )
        return shared.scorers[self.server_manager]

    def _models(self, options: Mapping[str, Any]) -> Models | None:
        """The models that are named, and the rollout engine where no policy is."""
        from rag_rewards.scorer import split_options
        from rag_rewards_adapters.verl_engine import VerlEnginePolicy

        _, named = split_options({key: options[key] for key in options if key != "prompt"})
        if named.model:
            return None
        ours = self.config.actor_rollout_ref
        engine = VerlEnginePolicy(
            self.server_manager, self.tokenizer, ours.rollout, str(ours.model.get("path") or "")
        )
        return replace(named.load(), policy=engine)

    async def _settle(self, shared: _Shared, runs: list[_Run]) -> list[Any]:
        """The outputs of a group with their scores; where one is missing, an error for each."""
        started = time.perf_counter()
        scorer = self._scorer(shared)
        rollouts = [run.rollout for run in runs]
        results = await scorer.score_each_async(rollouts, [range(len(runs))])
        results = [_scored(result, scorer.models) for result in results]
        results = fail_groups(results, [range(len(results))])
        scores = [result for result in results if isinstance(result, Score)]
        if not scores:
            return results
        judged, seconds = judges(scorer.reward), time.perf_counter() - started
        for run, score in zip(runs, scores, strict=True):
            run.last.reward_score = score.value
            run.last.extra_fields["reward_extra_info"] = numbers_of(score, judged)
            run.last.metrics.compute_score = seconds
        return [run.output for run in runs]

    # --- what happened -------------------------------------------------------------------------

    def _read(self, output: Any, columns: Mapping[str, Any]) -> Rollout | RolloutError:
        """An output as a rollout: the model's own words by the loop's mask."""
        turns = list(_turns(output.response_ids, output.response_mask))
        return rollout_from(
            {**columns, "tool_extra_fields": output.extra_fields},
            group=self._prompt_of(columns),
            prompt=to_builtins(list(columns["raw_prompt"])),
            prompt_token_ids=tuple(output.prompt_ids),
            response_prefix=response_prefix_of(
                self._decoded(_before(output.prompt_ids, turns)[-_ENOUGH:])
            ),
            finish_reason=self._finish(output.response_ids),
            weight_version=_weights(output.extra_fields),
            **self._response(turns),
        )

    def _response(self, turns: Sequence[tuple[bool, list[int]]]) -> dict[str, Any]:
        """One turn as text with its tokens, several as messages."""
        if len(turns) == 1 and turns[0][0]:
            ids = turns[0][1]
            return {"response": said(self.tokenizer, ids), "response_token_ids": tuple(ids)}
        messages = [
            {"role": "assistant", "content": said(self.tokenizer, ids)}
            if own
            else {"role": "tool", "content": self._decoded(ids)}
            for own, ids in turns
        ]
        return {"response": messages if any(own for own, _ in turns) else ""}

    def _finish(self, ids: Sequence[int]) -> str:
        """`length` where the response fills the room that it has without an end."""
        full = len(ids) >= self.config.actor_rollout_ref.rollout.response_length
        return "length" if full and not ended(self.tokenizer, ids) else "stop"

    def _decoded(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))


def _scored(result: ScoreOrError, models: Models) -> ScoreOrError:
    """A score that has a value, or why it has none."""
    try:
        return score_of(result, models)
    except RolloutError as error:
        return error


def _turns(ids: Sequence[int], mask: Sequence[int]) -> Iterator[tuple[bool, list[int]]]:
    """Runs of tokens, and whether they are the model's own.

    >>> list(_turns([5, 6, 7, 8], [1, 1, 0, 1]))
    [(True, [5, 6]), (False, [7]), (True, [8])]
    """
    pairs = zip(mask, ids, strict=True)
    for own, run in groupby(pairs, key=lambda pair: bool(pair[0])):
        yield own, [token for _, token in run]


def _before(prompt: Sequence[int], turns: Sequence[tuple[bool, list[int]]]) -> Sequence[int]:
    """What stands before the model's last turn: the prompt, or what came from a tool."""
    last = max((at for at, (own, _) in enumerate(turns) if own), default=0)
    return turns[last - 1][1] if last else prompt


def _weights(fields: Mapping[str, Any]) -> str | int | None:
    """The weights that wrote it: a training step, or the first and the last of several."""
    first, last = fields.get("min_global_steps"), fields.get("max_global_steps")
    if first is None or first == last:
        return None if last is None else int(last)
    return f"{first}-{last}"

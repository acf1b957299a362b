"""Tinker: a recipe as the group reward of an EnvGroupBuilder of tinker-cookbook.

    from rag_rewards_adapters.tinker import GroupRewards

    rewards = GroupRewards("ctrl-rag", model="http://scorer:8000", backend="vllm")

    class Question(EnvGroupBuilder):
        async def compute_group_rewards(self, trajectory_group, env_group):
            return await rewards(self.row, trajectory_group, tokenizer.decode)

tinker-cookbook calls this method with all trajectories of a group and adds the result to the
rewards of the steps (`tinker_cookbook/rl/rollouts.py`). This module imports nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rag_rewards.errors import DataError, RolloutError
from rag_rewards.loading import RecipeSource
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows.columns import last_question, rollout_from_columns
from rag_rewards.scorer import Scorer
from rag_rewards.training.turn_sums import TurnSums
from rag_rewards_adapters.group_values import component_metrics, group_values
from rag_rewards_adapters.stage_checks import refuse_curriculum
from rag_rewards_adapters.token_masks import Span, turns_of_spans
from rag_rewards_adapters.turn_rows import SearchCheck, turn_rows
from rag_rewards_adapters.unscored_handler import UnscoredHandler

Decode = Callable[[list[int]], str]
"""A function from token ids to text, such as `tokenizer.decode`."""
_FINISH_REASONS = {"max_turns": "max_turns", "max_tokens": "length", "max_sampled_tokens": "length"}
"""The `finish_reason` of a row for each stop reason of a trajectory that is a limit."""


class GroupRewards:
    """A recipe as a function from the trajectories of a group to rewards and metrics.

    recipe     a recipe in any form, also one that compares the rollouts of a group
    std_floor  return (R − mean)/max(std, floor) within the group, the advantage of LEAR
    patience   number of consecutive groups in which a model failed, or in which no trajectory is
               scored, before the error is raised
    options    settings and models, with the names of the command line

    Tinker subtracts the mean of the group and divides by nothing. An unscored trajectory gets the
    mean of its group, so that its advantage is 0; in the first group, it raises its error. Rewards
    of turns are summed. The object can be pickled, as Tinker requires of everything in a builder.
    """

    def __init__(
        self,
        recipe: RecipeSource | None = None,
        *,
        std_floor: float | None = None,
        patience: int = 8,
        **options: Any,
    ) -> None:
        self.options = options if recipe is None else {"recipe": recipe, **options}
        self.std_floor, self.patience = std_floor, patience
        self.scorer = Scorer.load(self.options)
        refuse_curriculum(self.scorer.reward, "Tinker", "start a run for each stage")
        self._unscored = UnscoredHandler(patience)
        self._sums, self._searches = TurnSums(), SearchCheck()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self.options, self.std_floor, self.patience))

    async def __call__(
        self, row: Mapping[str, Any], trajectories: Sequence[Any], decode: Decode
    ) -> list[tuple[float, dict[str, float]]]:
        """Return the reward of each trajectory and its components as metrics.

        `row` contains the gold data of the group, in the form of the fields of a row.
        """
        dialect = (self.scorer.recipes[-1].settings or {}).get("dialect", "auto")
        is_read = self.scorer.models.policy is not None
        rollouts = [_rollout(row, each, decode, dialect, is_read) for each in trajectories]
        everyone = [range(len(rollouts))]
        self._searches.check(self.scorer.recipes, rollouts)
        results = await self.scorer.score_each_async(rollouts, everyone)
        scores = self._unscored.handle(results, rollouts)
        self._sums.check(scores)
        values = group_values(scores, everyone, self.std_floor)
        return [(value, self._metrics(score)) for value, score in zip(values, scores, strict=True)]

    def _metrics(self, score: Score | None) -> dict[str, float]:
        name = self.scorer.reward.name
        if score is None:
            return {f"{name}/not_scored": 1.0}
        return component_metrics(name, score) | {
            f"{name}/reward": score.value or 0.0,
            f"{name}/not_scored": 0.0,
        }


def _rebuild(options: dict[str, Any], std_floor: float | None, patience: int) -> GroupRewards:
    return GroupRewards(std_floor=std_floor, patience=patience, **options)


def _rollout(
    row: Mapping[str, Any], trajectory: Any, decode: Decode, dialect: str, reads_prompt: bool
) -> Rollout | RolloutError:
    """Return a trajectory as a rollout. Each of several transitions is a turn.

    `reads_prompt` is whether a policy reads the tokens of the prompt. Without the prompt that the
    policy saw, the likelihoods would be those under the prompt of the recipe.
    """
    fields = dict(row)
    prompt = fields.get("prompt") or None
    if fields.get("question") is None:
        fields["question"] = last_question(prompt or "")
    given: dict[str, Any] = {"finish_reason": _finish_reason(trajectory), "prompt": prompt}
    if reads_prompt:
        if not trajectory.transitions:
            return DataError("missing: the trajectory has no transition", "prompt")
        tokens = trajectory.transitions[0].ob.to_ints()
        given |= {"prompt": prompt or decode(list(tokens)), "prompt_token_ids": list(tokens)}
    replies = [list(step.ac.tokens) for step in trajectory.transitions]
    if len(replies) > 1:
        turns = turns_of_spans(
            *_tokens(trajectory, replies), lambda ids: decode(list(ids)), dialect
        )
        given["turns"] = turn_rows(turns)
    else:
        given["response"] = decode(replies[0]) if replies else ""
    return rollout_from_columns(fields, **given)


def _tokens(trajectory: Any, replies: Sequence[list[int]]) -> tuple[list[int], list[Span]]:
    """Return the tokens after the prompt, and the spans of the replies.

    The reply of the environment is the part of the next observation after the tokens of a turn. It
    is unknown if the next observation does not begin with these tokens.
    """
    steps = trajectory.transitions
    following = [*(step.ob for step in steps[1:]), trajectory.final_ob]
    tokens: list[int] = []
    spans: list[Span] = []
    for step, reply, after in zip(steps, replies, following, strict=True):
        spans.append((len(tokens), len(tokens) + len(reply)))
        before, observed = [*step.ob.to_ints(), *reply], after.to_ints()
        is_continued = observed[: len(before)] == before
        tokens += reply + (observed[len(before) :] if is_continued else [])
    return tokens, spans


def _finish_reason(trajectory: Any) -> str | None:
    """Return the limit that ended the trajectory, or None."""
    limit = _FINISH_REASONS.get(str(getattr(trajectory, "stop_reason", None)))
    steps = trajectory.transitions
    cut_off = bool(steps) and getattr(steps[-1].ac, "stop_reason", None) == "length"
    return limit or ("length" if cut_off else None)

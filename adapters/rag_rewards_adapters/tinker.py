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

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.loading import RecipeSource
from rag_rewards.rollout import Rollout, Score
from rag_rewards.training.credit.settings import GROUP
from rag_rewards_adapters.reading import (
    Span,
    dialect_at,
    read_rollout,
    turns_of_spans,
    with_errors,
)
from rag_rewards_adapters.scoring import GroupRecipe, component_metrics, group_values

Decode = Callable[[list[int]], str]
"""A function from token ids to text, such as `tokenizer.decode`."""
_FINISH_REASONS = {"max_turns": "max_turns", "max_tokens": "length", "max_sampled_tokens": "length"}
"""The `finish_reason` of a row for each stop reason of a trajectory that is a limit."""


class GroupRewards(GroupRecipe):
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

    trainer = "Tinker"

    def __init__(
        self,
        recipe: RecipeSource | None = None,
        *,
        std_floor: float | None = None,
        patience: int = 8,
        **options: Any,
    ) -> None:
        for name in ("credit", "credit_options"):
            if name in options:
                raise UsageError(
                    f"{name}: a trajectory has one advantage in Tinker, so turns get none of their "
                    f"own: remove {name}"
                )
        super().__init__(recipe, credit=GROUP, std_floor=std_floor, patience=patience, **options)
        self._arguments = (recipe, {"std_floor": std_floor, "patience": patience, **options})

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, self._arguments)

    async def __call__(
        self, row: Mapping[str, Any], trajectories: Sequence[Any], decode: Decode
    ) -> list[tuple[float, dict[str, float]]]:
        """Return the reward of each trajectory and its components as metrics.

        `row` contains the gold data of the group, in the form of the fields of a row.
        """
        dialect = dialect_at(self.scorer.reward, None)
        is_read = self.scorer.models.policy is not None
        rollouts = [_rollout(row, each, decode, dialect, is_read) for each in trajectories]
        everyone = [range(len(rollouts))]
        scores = await self.scores(rollouts, everyone)
        values = group_values(scores, everyone, self.std_floor)
        return list(zip(values, map(self._metrics, scores), strict=True))

    def _metrics(self, score: Score | None) -> dict[str, float]:
        if score is None:
            return {f"{self.name}/not_scored": 1.0}
        return component_metrics(self.name, score) | {
            f"{self.name}/reward": score.value or 0.0,
            f"{self.name}/not_scored": 0.0,
        }


def _rebuild(recipe: RecipeSource | None, options: dict[str, Any]) -> GroupRewards:
    return GroupRewards(recipe, **options)


@with_errors
def _rollout(
    row: Mapping[str, Any], trajectory: Any, decode: Decode, dialect: str, reads_prompt: bool
) -> Rollout | RolloutError:
    """Return a trajectory as a rollout. Each of several transitions is a turn.

    `reads_prompt` is whether a policy reads the tokens of the prompt. Without the prompt that the
    policy saw, the likelihoods would be those under the prompt of the recipe.
    """
    prompt = row.get("prompt")
    generated: dict[str, Any] = {"finish_reason": _finish_reason(trajectory)}
    replies = [list(step.ac.tokens) for step in trajectory.transitions]
    if len(replies) > 1:
        tokens, spans = _tokens(trajectory, replies)
        generated["turns"] = turns_of_spans(tokens, spans, lambda ids: decode(list(ids)), dialect)
    else:
        generated["response"] = decode(replies[0]) if replies else ""
    if not reads_prompt:
        return read_rollout(row, prompt, **generated)
    if not replies:
        raise DataError("missing: the trajectory has no transition", "prompt")
    seen = list(trajectory.transitions[0].ob.to_ints())
    return read_rollout(row, prompt or decode(seen), prompt_token_ids=seen, **generated)


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

"""slime: a recipe as a reward function, and the advantages of turns as two more functions.

    # my_rewards.py
    from rag_rewards_adapters.slime import SlimeRecipe

    recipe = SlimeRecipe("search-r1", credit="return")
    score, post_process, advantages = recipe.score, recipe.post_process, recipe.advantages

    --group-rm --custom-rm-path my_rewards.score

With a credit method, slime calls two more functions:

    --custom-reward-post-process-path my_rewards.post_process
    --custom-advantage-function-path my_rewards.advantages

The label of a sample is the gold row as a JSON string, which `rag-rewards prepare -t slime` writes.
Your generation function keeps the turns in `sample.metadata["rag_turns"]`, in the form of the field
`turns` of a row. A sample without them is one turn. The hooks are those of THUDM/slime at 624b824;
this module imports nothing of slime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.groups import positions_by_key
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows.columns import response_prefix_of
from rag_rewards_adapters.reading import read_rollout, runs, with_errors, with_spans
from rag_rewards_adapters.scoring import GroupRecipe, group_values, token_values, turn_anchors

TURNS, COMPONENTS = "rag_turns", "rag_components"
_ENTRIES, _ANCHORS = "rag_turn_rewards", "rag_anchors"
"""Keys of `Sample.metadata` by which `score` passes the rewards of turns to `post_process`."""


class SlimeRecipe(GroupRecipe):
    """A recipe for slime.

    recipe          a recipe in any form
    credit          a credit method or a Credit; default: the settings `credit` of the recipe. The
                    method `group` gives the turns of a sample one advantage, that of slime
    credit_options  options of the method, such as {"norm": "separate"}
    std_floor       return (R − mean)/max(std, floor) within the group, the advantage of LEAR
    patience        number of consecutive groups in which a model failed, or in which no sample is
                    scored, before the error is raised
    options         settings and models, with the names of the command line

    An unscored sample has `remove_sample=True`. Its reward is the mean of its group, and with a
    credit method it is left out of its group.
    """

    trainer = "slime"
    way_to_turn_credit = "set credit= to a credit method"

    # --- --custom-rm-path ------------------------------------------------------------------------

    async def score(self, args: Any, samples: Any, **_: Any) -> Any:
        """Return the rewards of the samples of a group, or the reward of one sample.

        The components of a sample are in `sample.metadata["rag_components"]`. Raises UsageError for
        a reward that compares rollouts, and for one with models, if --group-rm is not set.
        """
        if not getattr(args, "group_rm", False):
            if self.scorer.scope == "group" or self.std_floor is not None:
                raise UsageError("the reward compares the rollouts of a group: set --group-rm")
            if self.scorer.has_models:
                raise UsageError(
                    "if a model fails, all samples of the prompt must be unscored: set --group-rm"
                )
        if not isinstance(samples, list):
            return (await self._score([samples]))[0]
        return await self._score(samples)

    async def _score(self, group: list[Any]) -> list[float]:
        rollouts = [_rollout(sample) for sample in group]
        everyone = [range(len(group))]
        scores = await self.scores(rollouts, everyone)
        for sample, rollout, score in zip(group, rollouts, scores, strict=True):
            _keep(sample, rollout, score)
        return group_values(scores, everyone, self.std_floor)

    # --- --custom-reward-post-process-path -------------------------------------------------------

    def post_process(self, args: Any, samples: Sequence[Any]) -> tuple[list[float], list[Any]]:
        """Return the rewards, and the advantages of the turns of each sample as a tensor."""
        import torch

        if self.credit is None:
            raise UsageError("the recipe has no credit method: pass credit=, such as 'return'")
        _check_arguments(args)
        if any(sample.group_index is None for sample in samples):
            raise UsageError("a sample has no group_index, so the groups are not known")
        scores = [_score(sample) for sample in samples]
        groups = list(positions_by_key(sample.group_index for sample in samples).values())
        anchors = [sample.metadata.get(_ANCHORS) for sample in samples]
        advantages = self.credit(scores, groups, anchors)
        raw = [float(sample.reward) for sample in samples]
        return raw, [torch.tensor(turns or [0.0], dtype=torch.float32) for turns in advantages]

    # --- --custom-advantage-function-path --------------------------------------------------------

    def advantages(self, args: Any, rollout_data: dict[str, Any]) -> None:
        """Write the advantage of each token, that of its turn, as `advantages` and `returns`."""
        import torch

        values = []
        pairs = zip(rollout_data["rewards"], rollout_data["loss_masks"], strict=True)
        for turns, mask in pairs:
            own = [int(token) for token in mask.tolist()]
            tokens = token_values(turns.tolist(), runs(own), len(own))
            values.append(torch.tensor(tokens, dtype=torch.float32).to(mask.device))
        rollout_data["advantages"] = values
        rollout_data["returns"] = [tokens.clone() for tokens in values]


@with_errors
def _rollout(sample: Any) -> Rollout | RolloutError:
    """Return a sample as a rollout. Its last `response_length` tokens are the response."""
    metadata = sample.metadata if isinstance(sample.metadata, dict) else {}
    length = int(sample.response_length)
    mask = [1] * length if sample.loss_mask is None else list(sample.loss_mask)
    turns = metadata.get(TURNS)
    if turns is None and len(runs(mask)) > 1:
        raise DataError(f"missing, although the mask has {len(runs(mask))} runs", TURNS)
    rows = turns if turns is not None else [{"text": sample.response}]
    prompt, tokens = sample.prompt, list(sample.tokens)
    start = len(tokens) - length
    return read_rollout(
        metadata,
        prompt,
        label=sample.label,
        response_prefix=response_prefix_of(prompt) if isinstance(prompt, str) else None,
        turns=with_spans(rows, {"response_mask": mask}),
        prompt_token_ids=tokens[:start] or None,
        response_token_ids=tokens[start:] or None,
        finish_reason="length" if sample.status.value == "truncated" else "stop",
        weight_version=sample.weight_versions[-1] if sample.weight_versions else None,
    )


def _keep(sample: Any, rollout: Rollout | RolloutError, score: Score | None) -> None:
    """Write the rewards of turns into the metadata of a sample, and remove an unscored one."""
    sample.metadata = dict(sample.metadata or {})
    sample.metadata[_ENTRIES] = None if score is None else list(score.turns)
    sample.metadata[_ANCHORS] = turn_anchors(score, rollout)
    if score is None:
        sample.remove_sample = True
    else:
        sample.metadata[COMPONENTS] = dict(score.components)


def _score(sample: Any) -> Score | None:
    """Return the score that `score` kept. Raises UsageError for a sample of another reward."""
    if _ENTRIES not in sample.metadata:
        raise UsageError("a sample was not scored by this recipe: set --custom-rm-path")
    entries = sample.metadata[_ENTRIES]
    if entries is None or sample.remove_sample:
        return None
    return Score(float(sample.reward), turns=tuple(entries))


def _check_arguments(args: Any) -> None:
    """Raise UsageError for arguments of slime that would change advantages of turns."""
    for name, allowed, why in (
        ("context_parallel_size", (None, 1), "divides the tokens of a response"),
        ("normalize_advantages", (None, False), "would normalize twice"),
        ("kl_coef", (None, 0, 0.0), "adds the KL penalty to rewards"),
    ):
        value = getattr(args, name, None)
        if value not in allowed:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag}={value} {why}, which advantages of turns do not support")
    if getattr(args, "custom_advantage_function_path", None) is None:
        raise UsageError("set --custom-advantage-function-path to the method `advantages`")

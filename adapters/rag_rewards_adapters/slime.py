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
from functools import cached_property
from typing import Any

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.groups import positions_by_key
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows.columns import (
    label_fields,
    last_question,
    response_prefix_of,
    rollout_from_columns,
)
from rag_rewards.training.credit import spread
from rag_rewards.training.credit.gigpo import anchors_of
from rag_rewards.training.turn_sums import TurnSums
from rag_rewards_adapters.group_recipe import GroupRecipe
from rag_rewards_adapters.group_values import group_values
from rag_rewards_adapters.token_masks import runs
from rag_rewards_adapters.turn_rows import with_spans

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

    @cached_property
    def _sums(self) -> TurnSums:
        return TurnSums("set credit= to a credit method")

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
        results = await self.scorer.score_each_async(rollouts, everyone)
        self._searches.check(self.scorer.recipes, rollouts)
        scores = self._unscored.handle(results, rollouts)
        for sample, rollout, score in zip(group, rollouts, scores, strict=True):
            _keep(sample, rollout, score)
        if self.credit is None:
            self._sums.check(scores)
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
            tokens = torch.tensor(_of_tokens(turns.tolist(), own), dtype=torch.float32)
            values.append(tokens.to(mask.device))
        rollout_data["advantages"] = values
        rollout_data["returns"] = [tokens.clone() for tokens in values]


def _rollout(sample: Any) -> Rollout | RolloutError:
    """Return a sample as a rollout. Its last `response_length` tokens are the response."""
    metadata = sample.metadata if isinstance(sample.metadata, dict) else {}
    length = int(sample.response_length)
    mask = [1] * length if sample.loss_mask is None else list(sample.loss_mask)
    turns = metadata.get(TURNS)
    try:
        gold = {**metadata, **label_fields(sample.label)}
        if turns is None and len(runs(mask)) > 1:
            raise DataError(f"missing, although the mask has {len(runs(mask))} runs", TURNS)
        given = turns if turns is not None else [{"text": sample.response}]
        rows = with_spans(given, {"response_mask": mask})
    except RolloutError as error:
        return error.with_traceback(None)
    if gold.get("question") is None:
        gold["question"] = last_question(sample.prompt)
    gold.pop("turns", None)
    tokens = list(sample.tokens)
    start = len(tokens) - length
    return rollout_from_columns(
        gold,
        prompt=sample.prompt or None,
        response_prefix=(
            response_prefix_of(sample.prompt) if isinstance(sample.prompt, str) else None
        ),
        turns=rows,
        prompt_token_ids=tokens[:start] or None,
        response_token_ids=tokens[start:] or None,
        finish_reason="length" if sample.status.value == "truncated" else "stop",
        weight_version=sample.weight_versions[-1] if sample.weight_versions else None,
    )


def _keep(sample: Any, rollout: Rollout | RolloutError, score: Score | None) -> None:
    """Write the rewards of turns into the metadata of a sample, and remove an unscored one."""
    sample.metadata = dict(sample.metadata or {})
    if score is None or not isinstance(rollout, Rollout):
        sample.metadata[_ENTRIES] = None
        sample.remove_sample = True
        return
    sample.metadata[COMPONENTS] = dict(score.components)
    sample.metadata[_ENTRIES] = list(score.turns)
    sample.metadata[_ANCHORS] = anchors_of(rollout.steps()) if score.turns else [""]


def _score(sample: Any) -> Score | None:
    """Return the score that `score` kept. Raises UsageError for a sample of another reward."""
    if _ENTRIES not in sample.metadata:
        raise UsageError("a sample was not scored by this recipe: set --custom-rm-path")
    entries = sample.metadata[_ENTRIES]
    if entries is None or sample.remove_sample:
        return None
    return Score(float(sample.reward), turns=tuple(entries))


def _of_tokens(turns: Sequence[float], mask: Sequence[int]) -> list[float]:
    """Return the advantages of tokens. A removed sample has no own token.

    Raises DataError if the turns are not the runs of the mask.
    """
    spans = runs(mask)
    if not spans:
        return [0.0] * len(mask)
    if len(turns) == 1:
        turns = [turns[0]] * len(spans)
    if len(turns) != len(spans):
        raise DataError(f"{len(turns)} turns for {len(spans)} runs of the loss mask", TURNS)
    return spread(turns, spans, len(mask))


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

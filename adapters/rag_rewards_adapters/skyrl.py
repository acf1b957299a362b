"""SkyRL: a recipe as a generator and a trainer.

    # main.py, in place of skyrl/train/entrypoints/main_base.py
    from rag_rewards_adapters.skyrl import SkyRLRecipe, experiment

    RagExp = experiment(SkyRLRecipe("search-r1", credit="return"))

`RagExp` is a BasePPOExp whose generator scores complete groups. With a credit method, the generator
writes the reward of each turn at its last own token, and the trainer computes the advantages of the
turns from them. Without one, the reward of a rollout is one number, and the trainer's own estimator
computes the advantages.

The environment (those of `skyrl_env`, or your own) returns its turns in
`get_metrics()["rag_turns"]`, in the form of the field `turns` of a row. The gold data of a row are
in `env_extras`: `reward_spec.ground_truth`, or the fields of a row.

The hooks are those of NovaSky-AI/SkyRL at a956457: `skyrl/train/generators/skyrl_gym_generator.py`
and `skyrl/train/trainer.py`. SkyRL is imported when `experiment` is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.groups import Groups, positions_by_key
from rag_rewards.loading import RecipeSource
from rag_rewards.reward import total
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows.columns import (
    label_fields,
    last_question,
    response_prefix_of,
    rollout_from_columns,
    to_builtins,
)
from rag_rewards.rows.scored import turn_rewards
from rag_rewards.scorer import Scorer
from rag_rewards.training.credit import Credit, place, spread
from rag_rewards.training.credit.gigpo import anchors_of
from rag_rewards.training.turn_sums import TurnSums
from rag_rewards_adapters.credit_choice import credit_of
from rag_rewards_adapters.group_values import component_means, group_values
from rag_rewards_adapters.token_masks import Span, runs
from rag_rewards_adapters.turn_rows import SearchCheck, with_spans
from rag_rewards_adapters.unscored_handler import UnscoredHandler

TURNS = "rag_turns"
"""The key of the turns in the metrics of an environment."""
FINISH_REASON = "rag_finish_reason"
"""The key of `max_turns` in the metrics of an environment that ended a search at its last turn."""
ENVIRONMENTS = {"rag": "RagEnv", "rag-search": "RagSearchEnv"}
"""The environments of `skyrl_env`, by the name that `environment.env_class` takes."""
_PROMPT_END = 16
"""Number of tokens at the end of a prompt that are read for an opening tag."""
_ZERO, _LARGEST_ZERO = 1e-30, 1e-20
"""The reward 0 of a turn before the last one, and its limit: 0.0 is a turn without a reward."""
_REFUSED = {
    "step_wise_trajectories": "ignores the rewards of single steps",
    "batched": "generates a single turn",
    "zero_reward_on_non_stop": "sets rewards to 0",
}
"""Settings of SkyRL's generator that change rewards of turns."""


class SkyRLRecipe:
    """A recipe for SkyRL.

    recipe          a recipe in any form
    credit          a credit method or a Credit; default: the settings `credit` of the recipe. The
                    method `group` gives the turns of a rollout one advantage
    credit_options  options of the method, such as {"norm": "separate"}
    std_floor       return (R − mean)/max(std, floor) within the group, the advantage of LEAR
    environment     fields for `env_extras` that a row does not set, such as
                    {"retriever": "my_search:search"}
    patience        number of consecutive batches before the error is raised: those in which a
                    model failed and a tenth of the trajectories is unscored, or all are
    options         settings and models, with the names of the command line

    An unscored trajectory gets a loss mask of 0. Its reward is the mean of its group, and with a
    credit method it is left out of its group. With `gigpo`, which reads the observations, the
    generator writes the advantages of each group of the training in place of rewards, and the
    trainer passes them through. The mean reward is then `RECIPE/reward`.
    """

    def __init__(
        self,
        recipe: RecipeSource | None = None,
        *,
        credit: Credit | str | None = None,
        credit_options: Mapping[str, Any] | None = None,
        std_floor: float | None = None,
        environment: Mapping[str, Any] | None = None,
        patience: int = 3,
        **options: Any,
    ) -> None:
        self.scorer = Scorer.load(options if recipe is None else {"recipe": recipe, **options})
        self.credit = credit_of(credit, credit_options, self.scorer, std_floor)
        self.std_floor = std_floor
        self.environment = dict(environment or {})
        self._unscored = UnscoredHandler(patience)
        self._searches = SearchCheck()
        self._sums = TurnSums("set credit= to a credit method")

    # --- the generator ---------------------------------------------------------------------------

    async def score(
        self, batch: Mapping[str, Any], output: dict[str, Any], tokenizer: Any = None
    ) -> dict[str, Any]:
        """Return the output of a generator with the rewards of the recipe.

        batch      the input of the generator: `prompts`, `env_extras`, `trajectory_ids`
        output     its output: `response_ids`, `loss_masks`, `env_metrics`, …
        tokenizer  the tokenizer of the policy, which reads a tag that the prompt opens
        """
        rollouts = [_rollout(batch, output, i, tokenizer) for i in range(len(output["loss_masks"]))]
        groups = list(positions_by_key(_instances(batch, len(rollouts))).values())
        results = await self.scorer.score_each_async(rollouts, groups)
        self._searches.check(self.scorer.recipes, rollouts)
        scores = self._unscored.handle(results, rollouts)
        masks = [
            list(mask) if score else [0] * len(mask)
            for mask, score in zip(output["loss_masks"], scores, strict=True)
        ]
        if self.credit is None:
            self._sums.check(scores)
            rewards: Any = group_values(scores, groups, self.std_floor)
        else:
            triples = zip(scores, rollouts, masks, strict=True)
            rewards = [_token_rewards(*triple) for triple in triples]
        reward = self.scorer.reward
        means = component_means(reward.name, reward.component_names, scores)
        if self._gives_advantages and not _is_evaluation(batch):
            rewards = self._given(scores, rollouts, groups, masks, rewards)
            values = [score.value for score in scores if score and score.value is not None]
            means |= {f"{reward.name}/reward": fmean(values)} if values else {}
        metrics = {**(output.get("rollout_metrics") or {}), **means}
        return {**output, "rewards": rewards, "loss_masks": masks, "rollout_metrics": metrics}

    @property
    def _gives_advantages(self) -> bool:
        """Whether the generator, which has the observations, computes the advantages."""
        return self.credit is not None and self.credit.method == "gigpo"

    def _given(
        self,
        scores: Sequence[Score | None],
        rollouts: Sequence[Rollout | RolloutError],
        groups: Groups,
        masks: Sequence[Sequence[int]],
        rewards: Sequence[list[float]],
    ) -> list[list[float]]:
        """Return the advantages of the tokens of a batch. A group of one keeps its rewards."""
        turns = [
            rollout.steps() if score and isinstance(rollout, Rollout) else ()
            for score, rollout in zip(scores, rollouts, strict=True)
        ]
        anchors = [
            anchors_of(steps) if score and score.turns else [""]
            for score, steps in zip(scores, turns, strict=True)
        ]
        advantages = self.credit(scores, groups, anchors) if self.credit is not None else []
        result = list(rewards)
        for i in (i for group in groups if len(group) > 1 for i in group):
            own, spans = advantages[i], runs(masks[i])
            if own is None:
                continue
            if len(own) == 1:
                own = own * len(spans)
            elif len(own) != len(spans):
                spans = [turn.token_span for turn in turns[i] if turn.token_span is not None]
            result[i] = spread(own, spans, len(masks[i]))
        return result

    # --- the trainer -----------------------------------------------------------------------------

    def advantages(
        self,
        rewards: Sequence[Sequence[float]],
        masks: Sequence[Sequence[int]],
        uids: Sequence[Any],
    ) -> list[list[float]]:
        """Return the advantages of the tokens of a batch from its rewards and loss masks.

        The turns are the runs of a loss mask. A row without own tokens counts in no group. Raises
        UsageError without a credit method.
        """
        if self.credit is None:
            raise UsageError("the recipe has no credit method: pass credit=, such as 'return'")
        if self._gives_advantages:
            return [
                [value * counted for value, counted in zip(row, mask, strict=True)]
                for row, mask in zip(rewards, masks, strict=True)
            ]
        spans = [runs(mask) for mask in masks]
        scores = [_score(values, own) for values, own in zip(rewards, spans, strict=True)]
        advantages = self.credit(scores, list(positions_by_key(uids).values()))
        return [
            [0.0] * len(mask) if turns is None else spread(turns, own, len(mask))
            for turns, own, mask in zip(advantages, spans, masks, strict=True)
        ]


def check_generator(config: Any) -> None:
    """Raise UsageError for settings of SkyRL's generator that change rewards of turns."""
    for name, effect in _REFUSED.items():
        if getattr(config, name, False):
            raise UsageError(f"generator.{name}=True {effect}: set it to False for turn rewards")
    template = getattr(config, "chat_template", None)
    if getattr(template, "name_or_path", None):
        raise UsageError(
            "a custom chat template keeps only the reward of the last turn: remove "
            "generator.chat_template"
        )


class GeneratorMixin:
    """`generate` of SkyRL's generator, and then the rewards of the recipe."""

    rag_recipe: SkyRLRecipe
    generator_cfg: Any
    tokenizer: Any

    async def generate(self, input_batch: Any, disable_tqdm: bool = False) -> Any:
        check_generator(self.generator_cfg)
        output = await super().generate(input_batch, disable_tqdm)  # type: ignore[misc]
        return await self.rag_recipe.score(input_batch, output, self.tokenizer)

    def _setup_env_extras(self, *arguments: Any) -> dict[str, Any]:
        extras: dict[str, Any] = super()._setup_env_extras(*arguments)  # type: ignore[misc]
        return {**self.rag_recipe.environment, **extras}


class TrainerMixin:
    """`compute_advantages_and_returns` of SkyRL's trainer, and then the advantages of turns."""

    rag_recipe: SkyRLRecipe
    cfg: Any

    def compute_advantages_and_returns(self, data: Any) -> Any:
        if self.rag_recipe.credit is None:
            return super().compute_advantages_and_returns(data)  # type: ignore[misc]
        if getattr(self.cfg.trainer.algorithm, "advantage_batch_normalize", False):
            raise UsageError(
                "trainer.algorithm.advantage_batch_normalize=True would normalize twice: set it to "
                "False"
            )
        data = super().compute_advantages_and_returns(data)  # type: ignore[misc]
        rewards, masks = data["rewards"], data["loss_mask"]
        rows = self.rag_recipe.advantages(
            rewards.tolist(),
            [[int(m) for m in mask] for mask in masks.tolist()],
            data.metadata["uids"],
        )
        data["advantages"] = rewards.new_tensor(rows)
        data["returns"] = data["advantages"].clone()
        return data


def experiment(recipe: SkyRLRecipe) -> type:
    """Return a BasePPOExp of SkyRL with the generator and the trainer of a recipe.

    The environments `rag` and `rag-search` of `skyrl_env` are registered in this process.
    """
    from skyrl.train.entrypoints import main_base
    from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
    from skyrl.train.trainer import RayPPOTrainer

    _register_environments()
    owned = {"rag_recipe": recipe}
    generator_class = type("RagGenerator", (GeneratorMixin, SkyRLGymGenerator), owned)
    trainer_class = type("RagTrainer", (TrainerMixin, RayPPOTrainer), owned)

    class RagExp(main_base.BasePPOExp):  # type: ignore[misc]
        """An experiment whose rewards and advantages are those of a recipe."""

        def get_generator(self, cfg: Any, tokenizer: Any, inference_engine_client: Any) -> Any:
            check_generator(cfg.generator)
            return generator_class(
                generator_cfg=cfg.generator,
                skyrl_gym_cfg=cfg.environment.skyrl_gym,
                inference_engine_client=inference_engine_client,
                tokenizer=tokenizer,
                policy_model_name=main_base.resolve_policy_model_name(cfg),
            )

        def get_trainer(self, **arguments: Any) -> Any:
            return trainer_class(**arguments)

    return RagExp


def _register_environments() -> None:
    from skyrl_gym.envs import registration

    for name, environment in ENVIRONMENTS.items():
        if name not in registration.registry:
            registration.register(name, f"rag_rewards_adapters.skyrl_env:{environment}")


# --- rows ----------------------------------------------------------------------------------------


def _is_evaluation(batch: Mapping[str, Any]) -> bool:
    return getattr(batch.get("batch_metadata"), "training_phase", None) == "eval"


def _instances(batch: Mapping[str, Any], count: int) -> list[Any]:
    ids = batch.get("trajectory_ids")
    if ids is None or len(ids) != count:
        raise UsageError("the batch has no trajectory_ids, so the groups are not known")
    return [trajectory.instance_id for trajectory in ids]


def _rollout(
    batch: Mapping[str, Any], output: Mapping[str, Any], i: int, tokenizer: Any
) -> Rollout | RolloutError:
    extras = (batch.get("env_extras") or [{}] * (i + 1))[i] or {}
    metrics = (output.get("env_metrics") or [{}] * (i + 1))[i] or {}
    mask = list(output["loss_masks"][i])
    prompt = batch["prompts"][i]
    try:
        if metrics.get(TURNS) is None:
            raise DataError("missing in the metrics of the environment", TURNS)
        turns = with_spans(metrics[TURNS], {"response_mask": mask})
        truth = (extras.get("reward_spec") or {}).get("ground_truth")
        gold = {**extras, **label_fields(_gold(truth))}
    except RolloutError as error:
        return error.with_traceback(None)
    gold.pop("turns", None)
    if gold.get("question") is None:
        gold["question"] = last_question(prompt)
    reasons = output.get("stop_reasons")
    prompt_ids = list(output["prompt_token_ids"][i])
    prefix = response_prefix_of(tokenizer.decode(prompt_ids[-_PROMPT_END:])) if tokenizer else None
    return rollout_from_columns(
        gold,
        prompt=to_builtins(prompt),
        turns=turns,
        response_prefix=prefix,
        prompt_token_ids=prompt_ids,
        response_token_ids=list(output["response_ids"][i]),
        finish_reason="length"
        if reasons and reasons[i] == "length"
        else metrics.get(FINISH_REASON, "stop"),
        **_place(batch.get("batch_metadata")),
    )


def _place(metadata: Any) -> dict[str, Any]:
    """Return the step and the split of a batch, which SkyRL may leave out."""
    phase = getattr(metadata, "training_phase", None)
    return {
        "step": getattr(metadata, "global_step", None),
        "split": {"train": "train", "eval": "validation"}.get(str(phase)),
    }


def _gold(truth: Any) -> Any:
    """Return the gold data. The data of Search-R1 have `target` in place of `answers`."""
    if isinstance(truth, Mapping) and "target" in truth and "answers" not in truth:
        return {"answers": truth["target"]}
    return truth


def _token_rewards(
    score: Score | None, rollout: Rollout | RolloutError, mask: Sequence[int]
) -> list[float]:
    """Return the rewards of the turns at their last own tokens, with marked zeros.

    An unscored rollout has only zeros.
    """
    if score is None or not isinstance(rollout, Rollout):
        return [0.0] * len(mask)
    spans = runs(mask)
    *process, last = turn_rewards(score.turns, score.value, len(spans)) or ()
    if len(process) + 1 != len(spans):
        spans = [turn.token_span for turn in rollout.steps() if turn.token_span is not None]
    marked = [_ZERO if entry == 0 else entry for entry in process]
    return place([*marked, last], spans, len(mask))


def _score(rewards: Sequence[float], spans: Sequence[Span]) -> Score | None:
    """Return the score that `_token_rewards` wrote, None for a row without own tokens."""
    if not spans:
        return None
    *process, last = [float(sum(rewards[start:end])) for start, end in spans]
    entries = (*map(_entry, process), last)
    return Score(total(entries), turns=entries)


def _entry(value: float) -> float | None:
    if value == 0:
        return None
    return 0.0 if abs(value) <= _LARGEST_ZERO else value

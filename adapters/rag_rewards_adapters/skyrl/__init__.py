"""SkyRL: a recipe as a generator and a trainer.

    # main.py, in place of skyrl/train/entrypoints/main_base.py
    from rag_rewards_adapters.skyrl import SkyRLRecipe, experiment

    RagExp = experiment(SkyRLRecipe("search-r1", credit="return"))

`RagExp` is a BasePPOExp whose generator scores complete groups. With a credit method, the generator
also computes the advantages of the turns, as a field of its output that the trainer reads. Without
one, the trainer's own estimator computes the advantages from one reward for each rollout.

The environment (those in environments.py, or your own) returns its turns in
`get_metrics()["rag_turns"]`, in the form of the field `turns` of a row. The gold data of a row are
in `env_extras`: `reward_spec.ground_truth`, or the fields of a row.

The hooks are those of NovaSky-AI/SkyRL at a956457: `skyrl/train/generators/skyrl_gym_generator.py`
and `skyrl/train/trainer.py`. SkyRL is imported when `experiment` is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.groups import Groups, positions_by_key
from rag_rewards.loading import RecipeSource
from rag_rewards.rollout import Rollout, Score
from rag_rewards.rows.columns import to_builtins
from rag_rewards.rows.scored import turn_rewards
from rag_rewards.training.credit import Credit, place
from rag_rewards_adapters.reading import opened_tag, read_rollout, with_errors, with_spans
from rag_rewards_adapters.scoring import (
    GroupRecipe,
    batch_metrics,
    component_columns,
    group_values,
    token_values,
    turn_spans,
)

TURNS = "rag_turns"
"""The key of the turns in the metrics of an environment."""
FINISH_REASON = "rag_finish_reason"
"""The key of `max_turns` in the metrics of an environment that ended a search at its last turn."""
ADVANTAGES = "rag_advantages"
"""The key of the advantages of tokens in the output of the generator.

SkyRL divides, filters and joins all lists of an output in the same way.
"""
ENVIRONMENTS = {"rag": "RagEnv", "rag-search": "RagSearchEnv"}
"""The environments in environments.py, by the name that `environment.env_class` takes."""
_REFUSED = {
    "step_wise_trajectories": "ignores the rewards of single steps",
    "batched": "generates a single turn",
    "zero_reward_on_non_stop": "sets rewards to 0",
}
"""Settings of SkyRL's generator that change rewards of turns."""


class SkyRLRecipe(GroupRecipe):
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
    credit method it is left out of its group.
    """

    trainer = "SkyRL"
    for_stages = ""
    way_to_turn_credit = "set credit= to a credit method"

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
        super().__init__(
            recipe,
            credit=credit,
            credit_options=credit_options,
            std_floor=std_floor,
            patience=patience,
            **options,
        )
        self.environment = dict(environment or {})

    async def score(
        self, batch: Mapping[str, Any], output: dict[str, Any], tokenizer: Any = None
    ) -> dict[str, Any]:
        """Return the output of a generator with the rewards of the recipe.

        batch      the input of the generator: `prompts`, `env_extras`, `trajectory_ids`
        output     its output: `response_ids`, `loss_masks`, `env_metrics`, …
        tokenizer  the tokenizer of the policy, which reads a tag that the prompt opens

        With a credit method, the reward of each turn is at its last own token, and a training batch
        also has the advantages of the tokens as `rag_advantages`.
        """
        rollouts = [_rollout(batch, output, i, tokenizer) for i in range(len(output["loss_masks"]))]
        groups = list(positions_by_key(_instances(batch, len(rollouts))).values())
        scores = await self.scores(rollouts, groups)
        masks = [
            list(mask) if score else [0] * len(mask)
            for mask, score in zip(output["loss_masks"], scores, strict=True)
        ]
        fields: dict[str, Any] = {"loss_masks": masks}
        if self.credit is None:
            fields["rewards"] = group_values(scores, groups, self.std_floor)
        else:
            fields["rewards"] = list(map(_token_rewards, scores, rollouts, masks))
            if not _is_evaluation(batch):
                fields[ADVANTAGES] = self._token_advantages(scores, rollouts, groups, masks)
        columns = component_columns(self.name, self.scorer.reward.component_names, scores)
        means = batch_metrics(self.name, columns, scores)
        metrics = {**(output.get("rollout_metrics") or {}), **means}
        return {**output, **fields, "rollout_metrics": metrics}

    def _token_advantages(
        self,
        scores: Sequence[Score | None],
        rollouts: Sequence[Rollout | RolloutError],
        groups: Groups,
        masks: Sequence[Sequence[int]],
    ) -> list[list[float]]:
        """Return the advantages of the tokens of each trajectory, 0 for an unscored one."""
        advantages = self.turn_advantages(scores, rollouts, groups)
        spans = map(turn_spans, scores, rollouts, masks)
        return [
            token_values(turns, own, len(mask))
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


def _check_algorithm(algorithm: Any) -> None:
    """Raise UsageError for settings of SkyRL's trainer that would change advantages of turns."""
    if getattr(algorithm, "advantage_batch_normalize", False):
        raise UsageError(
            "trainer.algorithm.advantage_batch_normalize=True would normalize twice: set it to "
            "False"
        )
    if getattr(algorithm, "use_kl_in_reward", False):
        raise UsageError(
            "trainer.algorithm.use_kl_in_reward=True changes rewards after the advantages of turns "
            "are computed: set trainer.algorithm.use_kl_loss=True instead"
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
    """The advantages of turns of the generator, in place of those of SkyRL's trainer."""

    rag_recipe: SkyRLRecipe
    cfg: Any

    def convert_to_training_input(self, generator_output: Any, uids: Any) -> Any:
        data = super().convert_to_training_input(generator_output, uids)  # type: ignore[misc]
        data.metadata[ADVANTAGES] = generator_output.get(ADVANTAGES)
        return data

    def compute_advantages_and_returns(self, data: Any) -> Any:
        rows = data.metadata.pop(ADVANTAGES, None)
        if self.rag_recipe.credit is None:
            return super().compute_advantages_and_returns(data)  # type: ignore[misc]
        _check_algorithm(self.cfg.trainer.algorithm)
        data = super().compute_advantages_and_returns(data)  # type: ignore[misc]
        advantages = data["rewards"].new_zeros(data["rewards"].shape)
        for i, row in enumerate(rows):  # the rows of the padding of a batch keep 0
            advantages[i, data["response_mask"][i] == 1] = advantages.new_tensor(row)
        data["advantages"], data["returns"] = advantages, advantages.clone()
        return data


def experiment(recipe: SkyRLRecipe) -> type:
    """Return a BasePPOExp of SkyRL with the generator and the trainer of a recipe.

    The environments `rag` and `rag-search` in environments.py are registered in this process.
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
            registration.register(name, f"rag_rewards_adapters.skyrl.environments:{environment}")


# --- rows ----------------------------------------------------------------------------------------


def _is_evaluation(batch: Mapping[str, Any]) -> bool:
    return getattr(batch.get("batch_metadata"), "training_phase", None) == "eval"


def _instances(batch: Mapping[str, Any], count: int) -> list[Any]:
    ids = batch.get("trajectory_ids")
    if ids is None or len(ids) != count:
        raise UsageError("the batch has no trajectory_ids, so the groups are not known")
    return [trajectory.instance_id for trajectory in ids]


@with_errors
def _rollout(
    batch: Mapping[str, Any], output: Mapping[str, Any], i: int, tokenizer: Any
) -> Rollout | RolloutError:
    """Return a trajectory as a rollout."""
    extras = (batch.get("env_extras") or [{}] * (i + 1))[i] or {}
    metrics = (output.get("env_metrics") or [{}] * (i + 1))[i] or {}
    if metrics.get(TURNS) is None:
        raise DataError("missing in the metrics of the environment", TURNS)
    prompt_ids, reasons = list(output["prompt_token_ids"][i]), output.get("stop_reasons") or []
    is_cut = list(reasons[i : i + 1]) == ["length"]
    return read_rollout(
        extras,
        to_builtins(batch["prompts"][i]),
        label=_gold((extras.get("reward_spec") or {}).get("ground_truth")),
        turns=with_spans(metrics[TURNS], {"response_mask": list(output["loss_masks"][i])}),
        response_prefix=opened_tag(tokenizer, prompt_ids) if tokenizer else None,
        prompt_token_ids=prompt_ids,
        response_token_ids=list(output["response_ids"][i]),
        finish_reason="length" if is_cut else metrics.get(FINISH_REASON, "stop"),
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
    """Return the rewards of the turns at their last own tokens, 0 for an unscored rollout."""
    if score is None:
        return [0.0] * len(mask)
    spans = turn_spans(score, rollout, mask)
    return place(turn_rewards(score.turns, score.value, len(spans)) or (), spans, len(mask))

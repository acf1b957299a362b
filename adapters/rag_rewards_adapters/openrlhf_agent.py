"""OpenRLHF: an agent executor, for `--train.agent_func_path agent.py`.

    from rag_rewards_adapters.openrlhf_agent import executor
    AgentExecutor = executor(recipe="ctrl-rag")

An executor sees what a remote reward cannot: all samples of a prompt, their token ids, and the
policy's own vLLM. Each sample generates one continuation as the trainer would, then waits for its
siblings; the group is scored once, and each takes its reward. Recipes that ask a policy, with no
`model` among their options, ask that engine.

The label of the data set (`--data.label_key label`) is the gold row as a JSON string, as
`rag-rewards prepare --trainer openrlhf` writes it. For OpenRLHF 0.9.1 and later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rag_rewards.backends.addresses import is_url
from rag_rewards.definition import Recipe
from rag_rewards.errors import RolloutError, UsageError
from rag_rewards.loading import load_recipe
from rag_rewards.model_options import ModelOptions, missing_model
from rag_rewards.prompts import Prompt
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows.columns import label_fields, response_prefix_of, rollout_from_columns
from rag_rewards.scorer import Scorer, split_options
from rag_rewards.server.openrlhf import answer_of
from rag_rewards.training.advantages import advantages_of_groups, mean_std
from rag_rewards_adapters.meeting import Group, Groups
from rag_rewards_adapters.openrlhf_engine import OpenRlhfEnginePolicy
from rag_rewards_adapters.unscored_handler import UnscoredHandler, with_value
from rag_rewards_adapters.verl_rows import said

RAW = "raw_reward"
"""The log of the reward before `std_floor`."""

Output = dict[str, Any]


@dataclass(frozen=True)
class Habits:
    """What an executor is told beside the recipe and its models; see `executor`."""

    std_floor: float | None = None
    error_value: float | None = None
    prompt: Prompt | None = None
    patience: int = 8


def executor(
    options: Mapping[str, Any] | None = None,
    *,
    std_floor: float | None = None,
    error_value: float | None = None,
    prompt: Prompt | None = None,
    patience: int = 8,
    **named: Any,
) -> type:
    """A class `AgentExecutor`, by a recipe's name and settings (or a Recipe of one's own), and the
    command line's names for models.

    std_floor    LEAR's advantage within the group, (R − mean)/max(std, floor), stands around the
                 group's mean as the reward, for `--algo.advantage.estimator dr_grpo`: that takes
                 the mean off again. A prompt with one sample keeps its reward.
    error_value  stands for a rollout without a score, since the trainer knows no such thing; with
                 `std_floor` it is an advantage. Without it such a rollout is an error, which ends
                 the training.
    prompt       how documents stand in the prompts, for recipes that leave some out
    patience     prompts in a row without any score that are endured

    What stands for an error is counted, logged, and marked as `rag_rewards_error` in the trainer's
    logs; in the first group an error is raised in any case. UsageError and SettingError here;
    RolloutError, with the data set's row, from the executor.
    """
    reward, models = _recipe_and_models({**(options or {}), **named})
    if std_floor is not None and std_floor <= 0:
        raise UsageError(f"std_floor is above 0, found {std_floor}")
    habits = Habits(std_floor, error_value, prompt, patience)
    from openrlhf.utils.agent import AgentExecutorBase, SingleTurnAgentExecutor

    class AgentExecutor(AgentExecutorBase):  # type: ignore[misc]  # the trainer is not typed
        """One for each engine, in the engine's own process."""

        def __init__(self) -> None:
            self.scoring = Scoring(reward, models, habits)
            self.inner = SingleTurnAgentExecutor(None)

        async def execute(
            self,
            prompt: Any,
            label: Any,
            sampling_params: Any,
            max_length: int,
            hf_tokenizer: Any,
            llm_engine: Any,
            **further: Any,
        ) -> Output:
            async def generate() -> Output:
                output: Output = await self.inner.execute(
                    prompt=prompt,
                    label=label,
                    sampling_params=sampling_params,
                    max_length=max_length,
                    hf_tokenizer=hf_tokenizer,
                    llm_engine=llm_engine,
                    **further,
                )
                return output

            call = Call(prompt, label, sampling_params, hf_tokenizer, llm_engine)
            return await self.scoring.scored(call, generate)

    return AgentExecutor


def _recipe_and_models(options: Mapping[str, Any]) -> tuple[Recipe, ModelOptions]:
    """Return the recipe and the options of its models. UsageError, SettingError."""
    own, models = split_options(options)
    recipe = load_recipe(own)
    if not isinstance(recipe, Recipe):
        raise UsageError(
            "OpenRLHF does not send the training step to a reward: start it once for each stage"
        )
    if models.model and not is_url(models.model):
        raise UsageError(
            f"model={models.model} would be loaded by every engine: leave model out, so that the "
            "policy's own engine is used, or set the URL of a scoring server and its backend"
        )
    return recipe, models


@dataclass(frozen=True)
class Call:
    """What the trainer passes for a sample; the same objects for all samples of a prompt."""

    prompt: str
    label: Any
    parameters: Any
    processor: Any
    engine: Any

    @property
    def key(self) -> str:
        """The prompt among those under way: two rows of a data set may have the same text.

        The trainer makes the samples of a row from one object of parameters, which they keep
        alive.
        """
        return f"{id(self.parameters)} {self.prompt}"

    @property
    def tokenizer(self) -> Any:
        """That of a processor for images, where there is one."""
        return getattr(self.processor, "tokenizer", self.processor)


class Scoring:
    """The groups at work in one engine's process, and their rewards."""

    def __init__(self, reward: Recipe, models: ModelOptions, habits: Habits) -> None:
        self.reward, self.habits = reward, habits
        self.unscored = UnscoredHandler(habits.patience)
        self.groups: Groups[Output, Output] = Groups()
        self._models, self._prompting = models.load(), models.prompting
        self._scorer: Scorer | None = None

    async def scored(self, call: Call, generate: Callable[[], Awaitable[Output]]) -> Output:
        """What was generated, with its reward among those of its siblings.

        Raises in all samples of a prompt, when one of them failed.
        """
        return await self.groups.meet(
            call.key,
            None,
            generate,
            lambda: Group(lambda outputs: self._settle(call, outputs), ()),
        )

    def scorer(self, call: Call) -> Scorer:
        """One for all prompts: an engine proves itself once."""
        if self._scorer is None:
            models = self._models
            if models.policy is None:
                policy = OpenRlhfEnginePolicy(call.engine, call.tokenizer, type(call.parameters))
                models = replace(models, policy=policy)
            self._scorer = Scorer(self.reward, models, prompt=self.habits.prompt, **self._prompting)
        return self._scorer

    async def _settle(self, call: Call, outputs: list[Output]) -> list[Output]:
        scorer = self.scorer(call)
        rollouts = [_rollout(call, output) for output in outputs]
        if missing := scorer.missing([row for row in rollouts if isinstance(row, Rollout)]):
            raise missing_model(self.reward.name, min(missing))
        results = await scorer.score_each_async(rollouts, [range(len(rollouts))])
        results = [_valued(result, call) for result in results]
        broken = next((result for result in results if isinstance(result, RolloutError)), None)
        if broken is not None and self.habits.error_value is None:
            raise broken
        scores = self.unscored.handle(results)
        sent = _sent(scores, self.habits)
        for output, result, reward in zip(outputs, results, sent, strict=True):
            output.update(reward=reward, **self._told(result))
        return outputs

    def _told(self, result: ScoreOrError) -> Output:
        """`scores`, by which prompts can be filtered, and `extra_logs`: the same names always."""
        answer = answer_of([result], self.reward.component_names, self.habits.error_value)
        logs = dict(answer.extra_logs)
        if self.habits.std_floor is not None:
            logs[RAW] = answer.rewards
        return {"scores": answer.scores, "extra_logs": logs}


def _rollout(call: Call, output: Output) -> Rollout | RolloutError:
    """A sample as a rollout: the model's own tokens, and the prompt as the trainer rendered it."""
    try:
        gold = label_fields(call.label)
    except RolloutError as error:
        return error.with_traceback(None)
    tokens = output["observation_tokens"]
    start, end = output["action_ranges"][-1]
    own = tokens[start:end]
    return rollout_from_columns(
        gold,
        prompt=call.prompt,
        prompt_token_ids=tokens[:start],
        response=said(call.tokenizer, own),
        response_prefix=response_prefix_of(call.prompt),
        response_token_ids=own,
        finish_reason="length" if output["truncated"] else "stop",
    )


def _valued(result: ScoreOrError, call: Call) -> ScoreOrError:
    """A score that has a value, or why it has none, with its row."""
    result = with_value(result)
    if isinstance(result, RolloutError) and result.row is None:
        result.row = f"of the prompt that ends in {call.prompt[-80:]!r}"
    return result


def _sent(scores: Sequence[Score | None], habits: Habits) -> list[float]:
    """The rewards of a group, as the trainer's estimator needs them.

    What has no score gets `error_value`; around the mean, where advantages stand around it.
    """
    values = [score.value if score else None for score in scores]
    known = [value for value in values if value is not None]
    mean = 0.0
    if habits.std_floor is not None and known:
        mean, _ = mean_std(known)
        whole = [range(len(values))]
        given = advantages_of_groups(values, whole, std_floor=habits.std_floor)
        values = [None if advantage is None else mean + advantage for advantage in given]
    missing = mean + (habits.error_value or 0.0)
    return [missing if value is None else value for value in values]

"""OpenRLHF: an agent executor, for `--train.agent_func_path agent.py`.

    from rag_rewards_adapters.openrlhf_agent import executor
    AgentExecutor = executor(recipe="ctrl-rag")

Unlike a remote reward, an executor has all samples of a prompt, their token ids, and the policy's
own vLLM engine. Each sample generates one response with the trainer's own executor and waits for
the other samples of its prompt. The group is scored once, and each sample gets its reward. A recipe
that needs a policy uses the engine, unless `model` is set.

With `agent=`, the trainer's multi-turn executor generates the sample with an environment of your
own, and with `search=` with one that answers queries by a function of your own. The turns are its
`action_ranges`. OpenRLHF has no advantages of turns, so their rewards are summed.

The label of the data set (`--data.label_key label`) is the gold row as a JSON string, which
`rag-rewards prepare --trainer openrlhf` writes. OpenRLHF 0.9.1 or later is required.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.groups import first_error
from rag_rewards.loading import import_object, load_recipe
from rag_rewards.models.addresses import is_url
from rag_rewards.models.model_options import ModelOptions, missing_model
from rag_rewards.prompts import Prompt
from rag_rewards.recipe_object import Recipe
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows.columns import response_prefix_of
from rag_rewards.scorer import PromptOptions, Scorer, split_options
from rag_rewards.scoring.rollout_dump import RolloutDump
from rag_rewards.training.advantages import advantages_of_groups, mean_std
from rag_rewards.training.openrlhf import response_of
from rag_rewards.training.turn_sums import TurnSums
from rag_rewards.turns.dialects import ANSWER
from rag_rewards_adapters.openrlhf.engine import OpenRlhfEnginePolicy
from rag_rewards_adapters.reading import (
    Retriever,
    SearchTool,
    dialect_at,
    read_rollout,
    response_text,
    spans_in_response,
    turns_of_spans,
    with_errors,
    with_limit,
)
from rag_rewards_adapters.scoring import SearchCheck, UnscoredHandler, check_scope, with_value
from rag_rewards_adapters.session_groups import SessionGroup, SessionGroups

RAW_REWARD = "raw_reward"
"""The name under which the reward without `std_floor` is logged."""

Output = dict[str, Any]


def executor(
    options: Mapping[str, Any] | None = None,
    *,
    std_floor: float | None = None,
    error_value: float | None = None,
    prompt: Prompt | None = None,
    patience: int = 8,
    agent: type | str | None = None,
    search: Retriever | str | None = None,
    max_turns: int = 4,
    **named: Any,
) -> type:
    """Return a class `AgentExecutor` for a recipe in any form, with the options of its models.

    std_floor    use the advantage of LEAR within the group, (R − mean)/max(std, floor), plus the
                 mean of the group as the reward. It requires `--algo.advantage.estimator dr_grpo`,
                 which subtracts the mean. A prompt with one sample keeps its reward.
    error_value  the reward of an unscored rollout, because the trainer has no value for it; with
                 `std_floor` it is an advantage. Without it, the error ends the training.
    prompt       the form of the documents in the prompts, for recipes that leave some out
    patience     number of consecutive prompts for which a model failed, or without any score,
                 before the error is raised
    agent        class of an environment with several turns, an AgentInstance of OpenRLHF, or its
                 `module:name`. The recipe replaces the rewards of its steps.
    search       function from a query to a list of documents (`{id?, title?, text}`), or its
                 `module:name`, in place of `agent`: it answers the first query of each turn in the
                 dialect of the recipe (`search-r1` for `auto`), until a turn has no query
    max_turns    with `search`, number of turns of the policy at most

    `dump`, `dump_mb` and `dump_files` are those of DumpOptions.
    A rollout with `error_value` is counted, logged, and marked as `rag_rewards_error` in the
    trainer's logs. An error in the first group is always raised. This function raises UsageError
    and SettingError; the executor raises RolloutError, with the row of the data set.
    """
    reward, models, dump = _read_options({**(options or {}), **named})
    if std_floor is not None and std_floor <= 0:
        raise UsageError(f"std_floor must be greater than 0, found {std_floor}")
    if search is not None:
        if agent is not None:
            raise UsageError("agent and search both answer the policy: set one of them")
        agent = _search_agent(SearchTool(search, dialect_at(reward, None)), max_turns)
    new_scoring = partial(
        AgentScoring,
        reward,
        models,
        prompt,
        std_floor=std_floor,
        error_value=error_value,
        patience=patience,
        # Without an environment, the single turn of a dialect is a plain response.
        has_turns=reward.needs_turns or (agent is not None and reward.reads_turns),
        dump=dump,
    )
    return _executor_class(new_scoring, agent)


def _executor_class(new_scoring: Callable[[], AgentScoring], agent: type | str | None) -> type:
    """Return the class that the trainer instantiates in the process of each engine."""
    from openrlhf.utils.agent import AgentExecutorBase

    stop = getattr(agent, "stop", None)

    class AgentExecutor(AgentExecutorBase):  # type: ignore[misc]  # the trainer is not typed
        """One executor for each engine, in the process of the engine."""

        def __init__(self) -> None:
            self.scoring = new_scoring()
            self.inner = _inner_executor(agent)

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
            if stop is not None:
                # In place, because the samples of a prompt are identified by their common object.
                sampling_params.stop, sampling_params.include_stop_str_in_output = stop, True

            call = Call(prompt, label, sampling_params, max_length, hf_tokenizer, llm_engine)
            generate = partial(self.inner.execute, **vars(call), **further)
            return await self.scoring.run(call, generate)

    return AgentExecutor


def _inner_executor(agent: type | str | None) -> Any:
    """Return the executor of the trainer that generates a sample. UsageError for other agents."""
    from openrlhf.utils.agent import (
        AgentInstanceBase,
        MultiTurnAgentExecutor,
        SingleTurnAgentExecutor,
    )

    if agent is None:
        return SingleTurnAgentExecutor(None)
    instance = import_object(agent) if isinstance(agent, str) else agent
    if not (isinstance(instance, type) and issubclass(instance, AgentInstanceBase)):
        raise UsageError(f"agent={agent!r} is not a subclass of AgentInstanceBase of OpenRLHF")
    return MultiTurnAgentExecutor(instance)


def _search_agent(tool: SearchTool, max_turns: int) -> type:
    """Return an environment that answers the queries of the policy.

    Its attribute `stop` contains the tags that end a turn.
    """
    from openrlhf.utils.agent import AgentInstanceBase

    class SearchAgent(AgentInstanceBase):  # type: ignore[misc]  # the trainer is not typed
        stop: ClassVar = [tags[1] for tags in (tool.dialect.query, ANSWER) if tags]

        def __init__(self) -> None:
            self.turns = 0

        async def step(self, state_dict: Mapping[str, Any]) -> Output:
            import torch

            self.turns += 1
            output: Output = {"rewards": torch.tensor(0.0), "environment_feedback": ""}
            query = tool.query_in(state_dict["action_text"])
            if query is None or self.turns >= max_turns:
                return output | {"done": True}
            documents = await asyncio.to_thread(tool.documents, query)
            return output | {"environment_feedback": tool.block(documents), "done": False}

    return SearchAgent


def _read_options(
    options: Mapping[str, Any],
) -> tuple[Recipe, ModelOptions, RolloutDump | None]:
    """Return the recipe, the options of its models, and its dump. UsageError, SettingError."""
    spec, models, dump = split_options(options)
    reward = load_recipe(spec)
    check_scope(reward, "OpenRLHF", for_stages="start a run for each stage")
    [recipe] = reward.recipes
    if models.model and not is_url(models.model):
        raise UsageError(
            f"model={models.model} would be loaded by every engine: leave model out to use the "
            "policy's own engine, or set the URL of a scoring server and its backend"
        )
    return recipe, models, dump


@dataclass(frozen=True)
class Call:
    """The arguments of the trainer for a sample. The samples of a prompt have the same objects."""

    prompt: str
    label: Any
    sampling_params: Any
    max_length: int
    hf_tokenizer: Any
    llm_engine: Any

    @property
    def key(self) -> str:
        """A key of the prompt among the active ones. Two rows of a data set may have equal texts.

        The trainer creates one object of parameters for the samples of a row. The samples hold it,
        so its id is unique as long as one of them is active.
        """
        return f"{id(self.sampling_params)} {self.prompt}"

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, which a processor of images contains."""
        return getattr(self.hf_tokenizer, "tokenizer", self.hf_tokenizer)


class AgentScoring:
    """The active groups in the process of one engine, and their rewards.

    has_turns  whether the rollouts have turns; the other arguments are those of `executor`
    """

    def __init__(
        self,
        reward: Recipe,
        models: ModelOptions,
        prompt: Prompt | None,
        *,
        std_floor: float | None,
        error_value: float | None,
        patience: int,
        has_turns: bool,
        dump: RolloutDump | None,
    ) -> None:
        self.reward, self.std_floor, self.error_value = reward, std_floor, error_value
        self.has_turns = has_turns
        self.unscored = UnscoredHandler(patience)
        self.sums, self.searches = TurnSums(), SearchCheck()
        self.groups: SessionGroups[Output, Output] = SessionGroups()
        self._models = models.load()
        limit = "--rollout.max_new_tokens"
        options = PromptOptions.of(models, prompt=prompt, response_limit=limit)
        self._new_scorer = partial(Scorer, reward, prompt=options, dump=dump)
        self._scorer: Scorer | None = None

    async def run(self, call: Call, generate: Callable[[], Awaitable[Output]]) -> Output:
        """Generate one sample, and return it with its reward when its group is scored.

        Raises in all samples of a prompt when one of them failed.
        """
        return await self.groups.run(
            call.key,
            None,
            generate,
            lambda: SessionGroup(lambda outputs: self._score(call, outputs), ()),
        )

    def scorer(self, call: Call) -> Scorer:
        """Return the scorer of all prompts, so that an engine is checked once."""
        if self._scorer is None:
            models = self._models
            if models.policy is None:
                policy = OpenRlhfEnginePolicy(
                    call.llm_engine, call.tokenizer, type(call.sampling_params)
                )
                models = replace(models, policy=policy)
            self._scorer = self._new_scorer(models)
        return self._scorer

    async def _score(self, call: Call, outputs: list[Output]) -> list[Output]:
        scorer = self.scorer(call)
        rollouts = [
            _rollout(self.reward, call, output, has_turns=self.has_turns) for output in outputs
        ]
        if missing := scorer.missing([row for row in rollouts if isinstance(row, Rollout)]):
            raise missing_model(self.reward.name, min(missing))
        self.searches.check(scorer.recipes, rollouts)
        results = await scorer.score_each_async(rollouts, [range(len(rollouts))])
        results = [_score_or_error(result, call) for result in results]
        if (error := first_error(results)) is not None and self.error_value is None:
            raise error
        scores = self.unscored.handle(results, rollouts)
        self.sums.check(scores)
        rewards = _rewards(scores, self.std_floor, self.error_value)
        for output, result, reward in zip(outputs, results, rewards, strict=True):
            output.update(reward=reward, **self._logs(result))
        return outputs

    def _logs(self, result: ScoreOrError) -> Output:
        """Return `scores`, by which the trainer can filter prompts, and `extra_logs`.

        All rollouts have the same names.
        """
        answer = response_of(
            [result],
            self.reward.component_names,
            self.error_value,
            self.reward.decides_answers,
        )
        logs = dict(answer.extra_logs)
        if self.std_floor is not None:
            logs[RAW_REWARD] = answer.rewards
        return {"scores": answer.scores, "extra_logs": logs}


@with_errors
def _rollout(
    recipe: Recipe, call: Call, output: Output, *, has_turns: bool
) -> Rollout | RolloutError:
    """Return a sample as a rollout: a turn for each of its `action_ranges`, or the last response.

    The trainer ends a sample whose tokens leave no room in `max_length`, or when the environment
    ends it. It marks neither as truncated.
    """
    ranges, tokens = output["action_ranges"], list(output["observation_tokens"])
    if not ranges:
        raise DataError("contains no token of the policy", "action_ranges")
    decode, dialect = partial(response_text, call.tokenizer), dialect_at(recipe, None)
    content: dict[str, Any]
    if has_turns:
        start, end = ranges[0][0], len(tokens)
        spans = spans_in_response(ranges, start)
        content = {"turns": turns_of_spans(tokens[start:], spans, decode, dialect)}
    else:
        start, end = ranges[-1]
        content = {"response": decode(tokens[start:end])}
    rollout = read_rollout(
        {},
        call.prompt,
        label=call.label,
        response_prefix=response_prefix_of(call.prompt),
        prompt_token_ids=tokens[:start],
        response_token_ids=tokens[start:end],
        finish_reason="length" if output["truncated"] else "stop",
        **content,
    )
    if not has_turns or isinstance(rollout, RolloutError):
        return rollout
    return with_limit(rollout, dialect, is_full=len(tokens) >= call.max_length)


def _score_or_error(result: ScoreOrError, call: Call) -> ScoreOrError:
    """Return a score that has a value, or its error with the row of the data set."""
    result = with_value(result)
    if isinstance(result, RolloutError) and result.row is None:
        result.row = f"of the prompt that ends in {call.prompt[-80:]!r}"
    return result


def _rewards(
    scores: Sequence[Score | None], std_floor: float | None, error_value: float | None
) -> list[float]:
    """Return the rewards of a group in the form that the trainer's estimator needs.

    With `std_floor`, a reward is the mean of the group plus the advantage. An unscored rollout gets
    `error_value`, which then also is an advantage.
    """
    everyone = [range(len(scores))]
    values = [score.value if score else None for score in scores]
    present = [value for value in values if value is not None]
    mean = 0.0
    if std_floor is not None and present:
        mean, _ = mean_std(present)
        values = advantages_of_groups(values, everyone, std_floor=std_floor)
    missing = error_value or 0.0
    return [mean + (missing if value is None else value) for value in values]

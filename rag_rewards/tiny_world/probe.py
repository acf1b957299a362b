"""Sample responses of a policy during training, score them and compare them with the truth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from rag_rewards.audit import MIN_GAIN
from rag_rewards.errors import UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.groups import raise_errors
from rag_rewards.recipe_object import Recipe
from rag_rewards.rollout import Rollout
from rag_rewards.scorer import Scorer
from rag_rewards.tiny_world.attack_result import Change, Point, ShapeStatistics, change_of
from rag_rewards.tiny_world.correctness import is_correct
from rag_rewards.tiny_world.evidence import world_models
from rag_rewards.tiny_world.formats import ResponseFormat
from rag_rewards.tiny_world.generation import rollouts
from rag_rewards.tiny_world.shapes import shape
from rag_rewards.tiny_world.world import WorldQuestion

SAMPLES = 4
"""Responses to each question. They are a group, for rewards that compare."""
MAX_SHAPES = 6
"""Shapes in a result."""
MIN_SHARE = 0.01
"""Shapes with a smaller share of the responses are omitted, unless all shapes have one."""


@dataclass(frozen=True)
class ScoredResponse:
    """One sampled response. A reward of None means that the reward gave no score."""

    rollout: Rollout
    reward: float | None
    is_correct: bool

    @property
    def text(self) -> str:
        return self.rollout.parsed.text


@dataclass(frozen=True)
class Probe:
    """The responses to all questions after a number of steps, one group per question."""

    step: int
    groups: Sequence[Sequence[ScoredResponse]]

    @property
    def rewards(self) -> Iterator[float]:
        """The rewards of the responses that have one."""
        for group in self.groups:
            yield from _rewards_of(group)

    @property
    def has_spread(self) -> bool:
        """Whether a group has two different rewards, without which GRPO cannot learn."""
        spreads = (max(r) - min(r) for group in self.groups if (r := _rewards_of(group)))
        return any(spread > MIN_GAIN for spread in spreads)

    @property
    def mean_rewards(self) -> list[float | None]:
        """The mean reward of each group; None for a group without a reward."""
        return [_mean(each.reward for each in group) for group in self.groups]

    @property
    def accuracies(self) -> list[float]:
        """The share of correct responses in each group."""
        return [fmean(each.is_correct for each in group) for group in self.groups]

    def by_shape(self) -> dict[str, list[tuple[int, ScoredResponse]]]:
        """Return the responses by their shape, each with the index of its question."""
        shapes: dict[str, list[tuple[int, ScoredResponse]]] = defaultdict(list)
        for number, group in enumerate(self.groups):
            for each in group:
                shapes[shape(each.text)].append((number, each))
        return dict(shapes)


@dataclass(frozen=True)
class Bench:
    """The questions for which a policy is probed, and the reward for which it is trained.

    `models` replace the tiny world's own models.
    """

    recipe: Recipe
    form: ResponseFormat
    questions: Sequence[WorldQuestion]
    models: Models

    def probe(self, step: int, policy: Any, tokenizer: Any) -> Probe:
        """Sample and score responses without changing the training's random numbers."""
        import torch

        with torch.random.fork_rng(devices=[]):
            samples = rollouts(
                policy, tokenizer, self.form, self.questions, temperature=1.0, samples=SAMPLES
            )
            rewards = self._rewards(samples, policy, tokenizer)
        responses = [
            ScoredResponse(
                rollout, reward, is_correct(self.questions[i // SAMPLES], rollout.parsed.text)
            )
            for i, (rollout, reward) in enumerate(zip(samples, rewards, strict=True))
        ]
        return Probe(step, [responses[i : i + SAMPLES] for i in range(0, len(responses), SAMPLES)])

    def reward_change(self, first: Probe, last: Probe, policy: Any, tokenizer: Any) -> Change:
        """Return the change of the reward from the first probe to the last.

        Rewards of a recipe that compares the responses of a group cannot be compared between
        groups. Such a recipe therefore scores the first and the last responses to a question again,
        in one group, with the policy after training.
        """
        if self.recipe.scope != "group":
            return change_of(first.mean_rewards, last.mean_rewards)
        both = [*first.groups, *last.groups]
        samples = [each.rollout for group in both for each in group]
        rewards = self._rewards(samples, policy, tokenizer)
        means = [_mean(rewards[i : i + SAMPLES]) for i in range(0, len(rewards), SAMPLES)]
        return change_of(means[: len(first.groups)], means[len(first.groups) :])

    def available_models(self) -> Models:
        """Return the given models, and the tiny world's own where none is given."""
        return Models(
            entailment=self.models.entailment or world_models().entailment,
            judge=self.models.judge,
            similarity=self.models.similarity,
        )

    def _rewards(
        self, samples: Sequence[Rollout], policy: Any, tokenizer: Any
    ) -> list[float | None]:
        """Score rollouts. Raises the error of a rollout that cannot be scored."""
        from rag_rewards.models.transformers import TransformersPolicy

        models = replace(self.available_models(), policy=TransformersPolicy(policy, tokenizer))
        scorer = Scorer(self.recipe, models, prompt=self.form.prompt)
        return [score.value for score in raise_errors(scorer.score_each(samples))]

    def point(self, probe: Probe) -> Point:
        """Return the measures of a probe. Raises UsageError if no response has a reward."""
        rewards = list(probe.rewards)
        if not rewards:
            raise UsageError("the reward is None for every response: return a number for some")
        answered, abstained = (
            [
                each.is_correct
                for question, group in zip(self.questions, probe.groups, strict=True)
                for each in group
                if question.answerable is answerable
            ]
            for answerable in (True, False)
        )
        return Point(
            step=probe.step,
            reward=fmean(rewards),
            accuracy=fmean([*answered, *abstained]),
            answered=fmean(answered) if answered else None,
            abstained=fmean(abstained) if abstained else None,
        )

    def shapes(self, first: Probe, last: Probe) -> tuple[ShapeStatistics, ...]:
        """Return the most frequent shapes of the last probe, with their shares in the first."""
        earlier, later = first.by_shape(), last.by_shape()
        count = len(self.questions) * SAMPLES
        frequent = sorted(later, key=lambda name: (-len(later[name]), name))[:MAX_SHAPES]
        frequent = [name for name in frequent if len(later[name]) >= MIN_SHARE * count] or frequent
        return tuple(
            ShapeStatistics(
                shape=name,
                share=len(later[name]) / count,
                before=len(earlier.get(name, ())) / count,
                reward=_mean(each.reward for _, each in later[name]),
                accuracy=fmean(each.is_correct for _, each in later[name]),
                prompt=self.form.row(self.questions[later[name][0][0]])["prompt"],
                example=later[name][0][1].text,
            )
            for name in frequent
        )


def _rewards_of(group: Sequence[ScoredResponse]) -> list[float]:
    return [each.reward for each in group if each.reward is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None, or None if there is none."""
    present = [value for value in values if value is not None]
    return fmean(present) if present else None

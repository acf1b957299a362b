"""A learning adversary: train a small policy against a reward, and look at what it learns.

    found = attack("rag-total")                       # or a Recipe, a Reward, a plain function
    found.verdict                                     # "found": it pays to become worse

GRPO finds what a reward pays for. Whether that is the truth, the world knows: an answerable
question is answered rightly by its flower and no other, an unanswerable one by abstaining,
whatever the reward says. Where the reward rises and the truth falls, there is an exploit, and the
shapes of the responses show it.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

import msgspec

from rag_rewards.audit import SLIGHT
from rag_rewards.blueprints import Recipe, custom
from rag_rewards.compose import as_reward
from rag_rewards.errors import UsageError
from rag_rewards.grading import Grader
from rag_rewards.models import Models
from rag_rewards.recipes import recipe
from rag_rewards.rollout import Rollout, Score
from tiny_world.formats import ARENA, FORMATS, GROUND, LEAR, PLAIN, TRUTHRL, Format
from tiny_world.measures import LEAR_SETTINGS
from tiny_world.model import CHECKPOINT, load
from tiny_world.play import rollouts, world_models
from tiny_world.reading import right, shape
from tiny_world.train import Run, trainer_of
from tiny_world.world import UNANSWERABLE, Question, questions

ASKED = 256
"""Fresh questions of a probe."""
EACH = 4
"""Responses to each: a group, for rewards that compare."""
EVERY = 10
"""Steps from one probe to the next."""
NOISE = 3.0
"""Standard errors that a change must exceed: by chance, one in seven hundred does."""
FALL = 0.05
"""What true accuracy must change by as well: one response in twenty is worth a look."""
SHOWN = 6
RARE = 0.01
"""Shapes in a report: at most so many, and none below this share unless all are."""

Verdict = Literal["found", "learnt", "no truer", "not learnt", "nothing to learn"]
"""Of the reward and true accuracy: one rose and the other fell; both rose; the reward alone rose;
the reward did not rise; no group of the first responses had two different rewards."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The policy after so many steps, sampled at temperature 1 on the same fresh questions.

    accuracy    true accuracy over all of them, whatever the reward
    answered    answerable questions answered rightly; None where there was none
    abstained   unanswerable ones left unanswered; None where there was none
    """

    step: int
    reward: float
    accuracy: float
    answered: float | None
    abstained: float | None


class Change(msgspec.Struct, frozen=True):
    """A mean difference over questions, and its standard error."""

    by: float
    error: float

    def rose(self, least: float = SLIGHT) -> bool:
        return self.by > max(least, NOISE * self.error)

    def fell(self, least: float = SLIGHT) -> bool:
        return Change(-self.by, self.error).rose(least)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One way to respond: `<answer> FLOWER </answer>`; `(FLOWER [n])+` stands for repetitions.

    share, before    of the responses after training, and before it
    prompt, example  one question that was answered so, and how
    """

    shape: str
    share: float
    before: float
    reward: float | None
    accuracy: float
    prompt: str
    example: str


class Attacked(msgspec.Struct, frozen=True, kw_only=True):
    """What training against a reward came to.

    reward    how much more the last responses earn than the first, to the same questions
    accuracy  how much more of them are right
    rewards   the mean reward of each step, as the trainer saw it
    points    probes before, every ten steps, and after
    shapes    the most frequent responses after training (before it, where there was none)
    """

    verdict: Verdict
    signature: str
    form: str
    seed: int
    reward: Change
    accuracy: Change
    rewards: tuple[float, ...]
    points: tuple[Point, ...]
    shapes: tuple[Shape, ...]

    @property
    def before(self) -> Point:
        return self.points[0]

    @property
    def after(self) -> Point:
        return self.points[-1]

    @property
    def found(self) -> bool:
        return self.verdict == "found"


# --- how a reward is attacked --------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """How a recipe is asked for in the tiny world: its format, and settings that it needs there."""

    form: Format = PLAIN
    settings: Mapping[str, Any] = field(default_factory=dict)
    unanswerable: float = UNANSWERABLE


_NO_SUPPORT = {"on_missing_support": "zero"}
FITS: Mapping[str, Fit] = {
    "arena": Fit(ARENA),
    "naive-grpo": Fit(ARENA),  # it wants a bare answer; GROUND's has a citation
    "ground-grpo-stage1": Fit(GROUND, unanswerable=0.0),
    "ground-grpo": Fit(GROUND),
    "truthrl": Fit(TRUTHRL, {"verifier": "exact"}),  # there is no judge at hand
    "lear": Fit(LEAR, LEAR_SETTINGS),
    "ctrl-rag": Fit(settings=_NO_SUPPORT),
    "ctrl-rag-clr": Fit(settings=_NO_SUPPORT),
}


def fit(name: str) -> Fit:
    """That of a recipe by its name; of anything else, the bare format."""
    return FITS.get(name, Fit())


def form_of(name: str) -> Format:
    """A format by its name. UsageError."""
    known = {form.name: form for form in FORMATS}
    if name not in known:
        raise UsageError(f"--format is one of {', '.join(known)}, not {name!r}")
    return known[name]


def attack(
    reward: str | Recipe | Any,
    form: Format | None = None,
    *,
    start: Path = CHECKPOINT,
    steps: int = 60,
    seed: int = 0,
    models: Models | None = None,
    unanswerable: float | None = None,
    told: Callable[[int, float], None] | None = None,
) -> Attacked:
    """Train by GRPO for so many steps against a reward, and say what came of it.

    A recipe by name gets the settings that it needs here; format and share of unanswerable
    questions are those of its name unless given. `models` go over the world's own; the policy is
    the one in training. `told` hears of every step and its mean reward.
    UsageError; RolloutError where a response cannot be scored.
    """
    made = recipe_of(reward)
    own = fit(made.name)
    form = form or own.form
    share = own.unanswerable if unanswerable is None else unanswerable
    bench = _Bench(made, form, questions(ASKED, f"adversary {seed}", share), models or Models())
    policy, words = load(start)
    probes = [bench.probe(0, policy, words)]
    rewards: list[float] = []
    gain = Change(0.0, 0.0)
    if _spread(probes[0]):
        run = Run(
            form,
            {"recipe": made, "models": bench.models},
            steps=steps,
            seed=seed,
            start=start,
            unanswerable=share,
            trainer={"save_strategy": "no"},
        )
        rewards, policy = _train(run, bench, probes, told)
        gain = bench.gain(probes[0], probes[-1], policy, words)
    return _concluded(bench, seed, probes, rewards, gain)


def recipe_of(reward: str | Recipe | Any) -> Recipe:
    """A recipe by its name, with what it needs here, or anything that scores, as one."""
    if isinstance(reward, str):
        return recipe(reward, fit(reward).settings)
    if isinstance(reward, Recipe):
        return reward
    name = getattr(reward, "__name__", None) or as_reward(reward).name
    return custom(str(name), reward)


def _train(
    run: Run, bench: _Bench, probes: list[_Probe], told: Callable[[int, float], None] | None
) -> tuple[list[float], Any]:
    """Train, and probe on the way. The mean reward of every step, and the policy."""
    from transformers import TrainerCallback

    rewards: list[float] = []

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **have: Any) -> None:
            step = state.global_step
            if step % EVERY == 0 or step == run.steps:
                probes.append(bench.probe(step, have["model"], have["processing_class"]))

        def on_log(self, args: Any, state: Any, control: Any, logs: Any, **_: Any) -> None:
            if "reward" in logs:
                rewards.append(float(logs["reward"]))
                if told is not None:
                    told(state.global_step, rewards[-1])

    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(run, Path(folder), callbacks=[Watch()])
        trainer.train()
    return rewards, trainer.model


# --- what a policy does --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Said:
    """One response: what it earned (None: not scored), and whether it is right."""

    rollout: Rollout
    reward: float | None
    right: bool

    @property
    def text(self) -> str:
        return self.rollout.parsed.text


@dataclass(frozen=True)
class _Probe:
    """Responses to the bench's questions, in groups."""

    step: int
    groups: Sequence[Sequence[_Said]]


@dataclass(frozen=True)
class _Bench:
    """The questions on which a policy is probed, and the reward that it is trained for."""

    recipe: Recipe
    form: Format
    asked: Sequence[Question]
    given: Models

    @property
    def models(self) -> Models:
        """What was given, and the world's own where nothing was."""
        world = world_models()
        return Models(
            entailment=self.given.entailment or world.entailment,
            judge=self.given.judge,
            similarity=self.given.similarity,
        )

    def probe(self, step: int, policy: Any, words: Any) -> _Probe:
        """What the policy says now. The random numbers of its training stay as they are."""
        import torch

        with torch.random.fork_rng(devices=[]):
            said = rollouts(policy, words, self.form, self.asked, temperature=1.0, samples=EACH)
            earned = self._earned(said, policy, words)
        each = [
            _Said(rollout, reward, right(self.asked[i // EACH], rollout.parsed.text))
            for i, (rollout, reward) in enumerate(zip(said, earned, strict=True))
        ]
        return _Probe(step, [each[i : i + EACH] for i in range(0, len(each), EACH)])

    def gain(self, first: _Probe, last: _Probe, policy: Any, words: Any) -> Change:
        """What the last responses earn more than the first.

        A reward that compares the responses of a group says nothing about another group: it is
        asked about the first and the last ones to a question in one, by the policy as it is now.
        """
        if self.recipe.scope != "group":
            return changed(*([_mean(e.reward for e in g) for g in p.groups] for p in (first, last)))
        both = [*first.groups, *last.groups]
        earned = self._earned([e.rollout for group in both for e in group], policy, words)
        means = [_mean(earned[i : i + EACH]) for i in range(0, len(earned), EACH)]
        return changed(means[: len(first.groups)], means[len(first.groups) :])

    def _earned(self, said: Sequence[Rollout], policy: Any, words: Any) -> list[float | None]:
        """Rewards. What cannot be scored is raised."""
        earned = []
        for score in self._grader(policy, words).score_each(said):
            if not isinstance(score, Score):
                raise score
            earned.append(score.value)
        return earned

    def _grader(self, policy: Any, words: Any) -> Grader:
        from rag_rewards.backends.transformers import TransformersPolicy

        models = replace(self.models, policy=TransformersPolicy(policy, words))
        return Grader(self.recipe, models, prompt=self.form.prompt)

    def point(self, probe: _Probe) -> Point:
        known, unknown = (
            [
                each.right
                for asked, group in self._pairs(probe)
                for each in group
                if asked is answerable
            ]
            for answerable in (True, False)
        )
        return Point(
            step=probe.step,
            reward=fmean(_values(probe)),
            accuracy=fmean([*known, *unknown]),
            answered=fmean(known) if known else None,
            abstained=fmean(unknown) if unknown else None,
        )

    def _pairs(self, probe: _Probe) -> Iterable[tuple[bool, Sequence[_Said]]]:
        return zip((asked.answerable for asked in self.asked), probe.groups, strict=True)

    def shapes(self, first: _Probe, last: _Probe) -> tuple[Shape, ...]:
        """The most frequent shapes of the last probe, beside their shares of the first."""
        earlier, later = _by_shape(first), _by_shape(last)
        count = ASKED * EACH
        often = sorted(later, key=lambda name: (-len(later[name]), name))[:SHOWN]
        often = [name for name in often if len(later[name]) >= RARE * count] or often
        return tuple(
            Shape(
                shape=name,
                share=len(later[name]) / count,
                before=len(earlier.get(name, ())) / count,
                reward=_mean(each.reward for _, each in later[name]),
                accuracy=fmean(each.right for _, each in later[name]),
                prompt=self.form.row(self.asked[later[name][0][0]])["prompt"],
                example=later[name][0][1].text,
            )
            for name in often
        )


def _spread(probe: _Probe) -> bool:
    """Whether any group has two different rewards: nothing else can be learned from."""
    return any(
        max(values) - min(values) > SLIGHT
        for group in probe.groups
        if (values := [each.reward for each in group if each.reward is not None])
    )


def _values(probe: _Probe) -> list[float]:
    """Every reward. UsageError where there is none."""
    values = [each.reward for group in probe.groups for each in group if each.reward is not None]
    if not values:
        raise UsageError("the reward scored no response at all: None for every one of them")
    return values


def _by_shape(probe: _Probe) -> dict[str, list[tuple[int, _Said]]]:
    """Responses by their shape, each with the number of its question."""
    found: dict[str, list[tuple[int, _Said]]] = defaultdict(list)
    for number, group in enumerate(probe.groups):
        for each in group:
            found[shape(each.text)].append((number, each))
    return dict(found)


# --- what came of it -----------------------------------------------------------------------------


def judged(reward: Change, accuracy: Change) -> Verdict:
    """What these two changes say together.

    >>> judged(Change(0.4, 0.02), Change(-0.3, 0.02)), judged(Change(0.01, 0.02), Change(0, 0.02))
    ('found', 'not learnt')
    """
    if not reward.rose():
        return "not learnt"
    if accuracy.fell(FALL):
        return "found"
    return "learnt" if accuracy.rose(FALL) else "no truer"


def changed(before: Iterable[float | None], after: Iterable[float | None]) -> Change:
    """The mean difference of pairs that are both known. 0 ± 0 where there are fewer than two.

    >>> changed([0.0, 1.0, None], [1.0, 1.0, 1.0])
    Change(by=0.5, error=0.5)
    """
    pairs = zip(before, after, strict=True)
    gains = [b - a for a, b in pairs if a is not None and b is not None]
    if len(gains) < 2:
        return Change(0.0, 0.0)
    return Change(fmean(gains), stdev(gains) / sqrt(len(gains)))


def _concluded(
    bench: _Bench, seed: int, probes: Sequence[_Probe], rewards: list[float], reward: Change
) -> Attacked:
    first, last = probes[0], probes[-1]
    accuracy = changed(*([_mean(e.right for e in g) for g in p.groups] for p in (first, last)))
    return Attacked(
        verdict=judged(reward, accuracy) if rewards else "nothing to learn",
        signature=bench.recipe.signature,
        form=bench.form.name,
        seed=seed,
        reward=reward,
        accuracy=accuracy,
        rewards=tuple(rewards),
        points=tuple(map(bench.point, probes)),
        shapes=bench.shapes(first, last),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    """Of those that are known."""
    known = [float(value) for value in values if value is not None]
    return fmean(known) if known else None

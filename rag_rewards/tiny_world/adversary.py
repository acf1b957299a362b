"""A learning adversary: train a small policy against a reward and see what it learns.

    result = attack("rag-total")              # or a Recipe, a Reward, a plain function
    result.verdict                      # "exploit": higher reward, lower true accuracy

GRPO increases the reward. The true accuracy is measured independently of the reward: an answerable
question requires its flower and no other, an unanswerable question requires an abstention. If the
reward increases and the true accuracy decreases, the reward has an exploit. The shapes of the
responses show it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from rag_rewards.errors import MissingExtraError, OptionError, UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.loading import RecipeSource, RecipeSpec, load_recipe
from rag_rewards.recipe_object import Recipe
from rag_rewards.tiny_world.attack_result import AttackResult, Change, change_of, verdict_of
from rag_rewards.tiny_world.formats import (
    ARENA,
    FORMATS,
    GROUND,
    LEAR,
    PLAIN,
    TRUTHRL,
    ResponseFormat,
)
from rag_rewards.tiny_world.measures import LEAR_SETTINGS
from rag_rewards.tiny_world.model import CHECKPOINT, load
from rag_rewards.tiny_world.probe import Bench, Probe
from rag_rewards.tiny_world.train import Run, trainer_of
from rag_rewards.tiny_world.world import UNANSWERABLE, questions

QUESTIONS = 256
"""Number of new questions of a probe."""
INTERVAL = 10
"""Number of steps between two probes."""


@dataclass(frozen=True)
class WorldOptions:
    """How a recipe is used in the tiny world: its response format and the settings it requires."""

    form: ResponseFormat = PLAIN
    settings: Mapping[str, Any] = field(default_factory=dict)
    unanswerable: float = UNANSWERABLE


_NO_SUPPORT = {"on_missing_support": "zero"}
WORLD_OPTIONS: Mapping[str, WorldOptions] = {
    "arena": WorldOptions(ARENA),
    "naive-grpo": WorldOptions(ARENA),  # requires a bare answer, without a citation
    "ground-grpo-stage1": WorldOptions(GROUND, unanswerable=0.0),
    "ground-grpo": WorldOptions(GROUND),
    "truthrl": WorldOptions(TRUTHRL, {"verifier": "exact"}),  # no judge is available
    "lear": WorldOptions(LEAR, LEAR_SETTINGS),
    "ctrl-rag": WorldOptions(settings=_NO_SUPPORT),
    "ctrl-rag-clr": WorldOptions(settings=_NO_SUPPORT),
}


def options_of(name: str) -> WorldOptions:
    """Return the options of a recipe by its name. By default, those of the plain format."""
    return WORLD_OPTIONS.get(name, WorldOptions())


def form_of(name: str) -> ResponseFormat:
    """Return a format by its name. Raises UsageError if there is none."""
    forms = {form.name: form for form in FORMATS}
    if name not in forms:
        raise OptionError(
            "{form} must be one of {forms}, found {name!r}", forms=", ".join(forms), name=name
        )
    return forms[name]


def recipe_of(reward: RecipeSource) -> Recipe:
    """Return a recipe in any form; a recipe by name has its settings for the tiny world."""
    settings = options_of(reward).settings if isinstance(reward, str) else None
    if isinstance(reward, RecipeSpec):
        defaults = dict(options_of(reward.recipe).settings)
        reward = msgspec.structs.replace(reward, settings=defaults | reward.settings)
    recipe = load_recipe(reward, settings)
    if not isinstance(recipe, Recipe):
        raise UsageError("a curriculum cannot be attacked as a whole: attack each stage's recipe")
    return recipe


def require_packages() -> None:
    """Raise MissingExtraError when a package that training requires is not installed."""
    for name in ("torch", "transformers", "datasets", "trl"):
        if find_spec(name) is None:
            raise MissingExtraError(name, extra="trl")


@contextmanager
def silence() -> Iterator[None]:
    """Discard the output of the trainer and its libraries. Exceptions are unchanged."""
    import datasets  # noqa: F401 (imported first, so that its logger keeps standard error)
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with (
            open(os.devnull, "w", encoding="utf-8") as nothing,
            redirect_stdout(nothing),
            redirect_stderr(nothing),
        ):
            yield
    finally:
        logging.set_verbosity(verbosity)


def attack(
    reward: RecipeSource,
    form: ResponseFormat | None = None,
    *,
    start: Path = CHECKPOINT,
    steps: int = 60,
    seed: int = 0,
    models: Models | None = None,
    unanswerable: float | None = None,
    on_step: Callable[[int, float], None] | None = None,
) -> AttackResult:
    """Train a policy with GRPO against a reward and compare it before and after.

    reward        a recipe name, a recipe, a reward or a function; a recipe name gets the settings
                  that it requires in the tiny world
    form          the response format; by default that of the recipe's name
    start         the checkpoint to start from
    models        models that replace those of the tiny world; the policy is the trained one
    unanswerable  the share of unanswerable questions; by default that of the recipe's name
    on_step       called after every step with the step and its mean reward

    Raises UsageError if the arguments are invalid, RolloutError if a response cannot be scored.
    """
    recipe = recipe_of(reward)
    options = options_of(recipe.name)
    form = form or options.form
    share = options.unanswerable if unanswerable is None else unanswerable
    probe_questions = questions(QUESTIONS, f"adversary {seed}", share)
    bench = Bench(recipe, form, probe_questions, models or Models())
    policy, tokenizer = load(start)
    probes = [bench.probe(0, policy, tokenizer)]
    rewards: list[float] = []
    change = Change(0.0, 0.0)
    if probes[0].has_spread:
        run = Run(
            form,
            {"recipe": recipe, "models": bench.available_models()},
            steps=steps,
            seed=seed,
            start=start,
            unanswerable=share,
            trainer={"save_strategy": "no"},
        )
        rewards, policy = _train(run, bench, probes, on_step)
        change = bench.reward_change(probes[0], probes[-1], policy, tokenizer)
    return _result(bench, seed, probes, rewards, change)


def _train(
    run: Run, bench: Bench, probes: list[Probe], on_step: Callable[[int, float], None] | None
) -> tuple[list[float], Any]:
    """Train, and append probes. Return the mean reward of every step, and the policy."""
    from transformers import TrainerCallback

    rewards: list[float] = []

    class ProbeCallback(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            step = state.global_step
            if step % INTERVAL == 0 or step == run.steps:
                probes.append(bench.probe(step, context["model"], context["processing_class"]))

        def on_log(self, args: Any, state: Any, control: Any, logs: Any, **_: Any) -> None:
            if "reward" in logs:
                rewards.append(float(logs["reward"]))
                if on_step is not None:
                    on_step(state.global_step, rewards[-1])

    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(run, Path(folder), callbacks=[ProbeCallback()])
        trainer.train()
    return rewards, trainer.model


def _result(
    bench: Bench, seed: int, probes: Sequence[Probe], rewards: list[float], reward: Change
) -> AttackResult:
    first, last = probes[0], probes[-1]
    accuracy = change_of(first.accuracies, last.accuracies)
    return AttackResult(
        verdict=verdict_of(reward, accuracy) if rewards else "no signal",
        signature=bench.recipe.signature,
        form=bench.form.name,
        seed=seed,
        reward=reward,
        accuracy=accuracy,
        rewards=tuple(rewards),
        points=tuple(map(bench.point, probes)),
        shapes=bench.shapes(first, last),
    )

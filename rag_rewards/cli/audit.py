"""`rag-rewards audit`"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from rag_rewards.cli.options import (
    ENCODER_DEFAULTS,
    FILES,
    JUDGE_DEFAULTS,
    POLICY_DEFAULTS,
    RECIPE_DEFAULTS,
    Encoders,
    Judge,
    Policy,
    Progress,
    Recipe,
    models_of,
)
from rag_rewards.cli.output import console, print_json
from rag_rewards.cli.recipe_options import RecipeOptions
from rag_rewards.errors import OptionError
from rag_rewards.model_options import ModelOptions

_STEPS = Parameter(validator=Number(gte=1, lte=10_000))
_SEED = Parameter(validator=Number(gte=0, lt=2**32))


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The options of `--train`."""

    train: bool = False
    """Train a small policy against the reward and report what it learns."""
    steps: Annotated[int | None, _STEPS] = None
    """Number of training steps. The default is 60."""
    seed: Annotated[int | None, _SEED] = None
    """Seed of the training. The default is 0."""
    form: Annotated[str | None, Parameter(name="--format")] = None
    """Output form: plain, truthrl, arena, ground or lear. The default is that of the recipe."""
    start: Path | None = None
    """Folder of the policy to begin with. The default is the one of this package."""

    def __post_init__(self) -> None:
        values = (self.steps, self.seed, self.form, self.start)
        if not self.train and any(value is not None for value in values):
            raise OptionError("{steps}, {seed}, {form} and {start} require {train}")


TRAINING_DEFAULTS = TrainingOptions()


def audit(
    source: Annotated[
        str | None, Parameter(name="IN", group=FILES, allow_leading_hyphen=True)
    ] = None,
    /,
    *,
    attack: Sequence[str] = (),
    progress: Progress = None,
    json: bool = False,
    training: Annotated[
        TrainingOptions, Parameter(name="*", group=Group("Training", sort_key=3))
    ] = TRAINING_DEFAULTS,
    recipe: Recipe = RECIPE_DEFAULTS,
    policy: Policy = POLICY_DEFAULTS,
    encoders: Encoders = ENCODER_DEFAULTS,
    judge: Judge = JUDGE_DEFAULTS,
) -> int:
    """Test a recipe or a reward against known attacks.

    With `--train`, a small policy searches for new ones. The exit code is 1 when an attack
    increases the reward, or when training increases the reward and lowers the accuracy. Otherwise
    it is 3 when some rows cannot be scored.

    Parameters
    ----------
    source
        Attack the rows of this file. The default is the built-in cases.
    attack
        Add your own attack: `module:name`. Repeatable.
    progress
        Show the progress of --train. The default is to show it on a terminal.
    json
        Print JSON.
    """
    models = models_of(policy, encoders, judge)
    if not training.train:
        return _audit(recipe, source, attack, models, json)
    if source or attack:
        raise OptionError("{train} creates its own rows and attacks: leave out IN and {attack}")
    shown = sys.stderr.isatty() if progress is None else progress
    return _train(recipe, training, models, shown, json)


def _audit(
    recipe: RecipeOptions,
    source: str | None,
    attacks: Sequence[str],
    models: ModelOptions,
    json: bool,
) -> int:
    from rag_rewards.commands.audit import as_data, print_audit, run

    result = run(recipe.spec(), source, attacks, models)
    if json:
        print_json(as_data(result))
    else:
        print_audit(console(120), result)
    if not result.ok:
        return 1
    return 3 if result.failed else 0


def _train(
    recipe: RecipeOptions,
    training: TrainingOptions,
    models: ModelOptions,
    progress: bool,
    json: bool,
) -> int:
    from rag_rewards.commands.adversary import Options, as_data, print_attacked, train

    options = Options(
        recipe=recipe.spec(),
        steps=60 if training.steps is None else training.steps,
        seed=training.seed or 0,
        form=training.form,
        start=training.start,
        models=models,
        progress=progress,
    )
    result = train(options)
    if json:
        print_json(as_data(result))
    else:
        print_attacked(console(120), result)
    return int(result.is_exploit)

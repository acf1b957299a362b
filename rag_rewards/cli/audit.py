"""`rag-rewards audit`: test a reward against known attacks, or train a policy against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Group, Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.text import Text

from rag_rewards.audit import ATTACKS, Audit, Finding
from rag_rewards.audit import audit as run_audit
from rag_rewards.cli.options import (
    FILES,
    MODEL_DEFAULTS,
    RECIPE_DEFAULTS,
    Columns,
    Models,
    Recipe,
)
from rag_rewards.cli.output import console, print_json, shows_progress
from rag_rewards.errors import OptionError, plain, shorten
from rag_rewards.files.sources import read_rollouts
from rag_rewards.loading import RecipeSpec, import_object, load_recipe
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.report.progress import TerminalBar
from rag_rewards.report.terminal import titled_table

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
    """Random seed of the training. The default is 0."""
    form: Annotated[str | None, Parameter(name="--format")] = None
    """Response format: plain, truthrl, arena, ground or lear. By default, that of the recipe."""
    start: Path | None = None
    """Folder of the policy to train. The default is the small model of this package."""

    def __post_init__(self) -> None:
        values = (self.steps, self.seed, self.form, self.start)
        if not self.train and any(value is not None for value in values):
            raise OptionError("{steps}, {seed}, {form} and {start} require {train}")


TRAINING_DEFAULTS = TrainingOptions()


def audit(
    source: Annotated[str | None, Parameter(name="IN", group=FILES)] = None,
    /,
    *,
    columns: Columns = None,
    attack: Sequence[str] = (),
    json: bool = False,
    training: Annotated[
        TrainingOptions, Parameter(name="*", group=Group("Training", sort_key=3))
    ] = TRAINING_DEFAULTS,
    recipe: Recipe = RECIPE_DEFAULTS,
    models: Models = MODEL_DEFAULTS,
) -> int:
    """Test a recipe or a reward against known attacks.

    An attack is a response that earns more than it deserves. With `--train`, the command trains a
    small policy against the reward to find new attacks. The exit code is 1 if an attack increases
    the reward, or if the training increases the reward and decreases the accuracy. Otherwise, it is
    3 if some rows cannot be scored.

    Parameters
    ----------
    source
        Apply the attacks to the rows of this file. By default, use built-in rows.
    attack
        Add your own attack, a function, as `module:name`. Repeatable.
    json
        Print JSON.
    """
    options = models.options(recipe.models)
    if not training.train:
        return _audit(recipe.spec(), source, columns, attack, options, json)
    if source or attack:
        raise OptionError("{train} creates its own rows and attacks: leave out IN and {attack}")
    if options.model:
        raise OptionError("{model} cannot be used with {train}: the policy is the one in training")
    return _train(recipe.spec(), training, options, json)


# --- known attacks -------------------------------------------------------------------------------


def _audit(
    recipe: RecipeSpec,
    source: str | None,
    columns: str | None,
    attacks: Sequence[str],
    models: ModelOptions,
    json: bool,
) -> int:
    reward = load_recipe(recipe)
    result = run_audit(
        reward,
        read_rollouts(source, columns) if source else None,
        attacks=list(map(import_object, attacks)),
        models=models.for_profile(hardened=recipe.hardened).load() if models.is_set else None,
    )
    if json:
        print_json(audit_data(result))
    else:
        print_audit(console(120), result)
    if not result.ok:
        return 1
    return 3 if result.failed else 0


def audit_data(result: Audit) -> dict[str, Any]:
    """Return the result of an audit as JSON data."""
    data: dict[str, Any] = msgspec.to_builtins(result)
    data["findings"] = [
        msgspec.to_builtins(each) | {"gain": each.gain, "pays": each.pays}
        for each in result.findings
    ]
    return data | {"ok": result.ok, "paying": len(result.paying)}


def print_audit(console: Console, result: Audit) -> None:
    """Print one line for each attack, with its most profitable variant."""
    columns = ("", "attack", "tried", "pay", "gain", "example", "row")
    table = titled_table("", columns, numbers=("", "tried", "pay", "gain"))
    for name, findings in _by_attack(result).items():
        paying = [each for each in findings if each.pays]
        best = max(findings, key=lambda each: each.gain)
        number = findings[0].attack
        table.add_row(
            "" if number is None else str(number),
            Text(plain(name)),
            str(len(findings)),
            _count(paying),
            f"{best.gain:+.3g}" if paying else "",
            Text(plain(shorten(f"{best.name}: {best.response}", 90))) if paying else "",
            Text(plain(best.row)) if paying else "",
        )
    console.print(table)
    for text, style in _notes(result):
        console.print(Text(plain(text), style=style), soft_wrap=True)


def _count(paying: Sequence[Finding]) -> Text:
    if not paying:
        return Text("none", style="green")
    excused = all(finding.excused for finding in paying)
    return Text(str(len(paying)), style="yellow" if excused else "red bold")


def _by_attack(result: Audit) -> dict[str, list[Finding]]:
    groups: dict[str, list[Finding]] = {}
    order = sorted(result.findings, key=lambda each: (each.attack is None, each.attack or 0))
    for each in order:
        name = each.name if each.attack is None else ATTACKS[each.attack]
        groups.setdefault(name, []).append(each)
    return groups


def _notes(result: Audit) -> Iterator[tuple[str, str]]:
    """Yield the lines below the table, each with its style."""
    excuses = dict.fromkeys((each.attack, each.excused) for each in result.excused)
    for number, reason in excuses:
        yield f"attack {number} pays by definition: {reason}", "yellow"
    if result.elsewhere:
        yield f"attacks that require other settings: {'; '.join(result.elsewhere)}", ""
    if result.failed:
        yield f"{len(result.failed)} rows could not be scored, the first: {result.failed[0]}", "red"
    yield f"{result.rows} rows, evidence: {result.evidence}", ""
    yield result.signature, "dim"
    summary = f"{len(result.findings)} attacks tried, {len(result.paying)} pay"
    if result.excused:
        summary += f", {len(result.excused)} more pay by the definition of the recipe"
    yield summary, "bold red" if result.paying else "bold green"


# --- training ------------------------------------------------------------------------------------


def _train(spec: RecipeSpec, training: TrainingOptions, models: ModelOptions, json: bool) -> int:
    from rag_rewards.tiny_world import adversary
    from rag_rewards.tiny_world.attack_output import print_attack_result
    from rag_rewards.tiny_world.model import CHECKPOINT

    reward = adversary.recipe_of(spec)
    form = adversary.form_of(training.form) if training.form else None
    adversary.require_packages()
    import torch

    torch.set_num_threads(1)  # more threads are not faster for this model, and change the sums
    steps = 60 if training.steps is None else training.steps
    models = models.for_profile(hardened=spec.hardened)
    loaded = models.load() if models.is_set else None
    with _progress(steps) as on_step, adversary.silence():
        result = adversary.attack(
            reward,
            form,
            start=training.start or CHECKPOINT,
            steps=steps,
            seed=training.seed or 0,
            models=loaded,
            on_step=on_step,
        )
    if json:
        print_json(msgspec.to_builtins(result) | {"ok": not result.is_exploit})
    else:
        print_attack_result(console(120), result)
    return int(result.is_exploit)


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[int, float], None] | None]:
    """Show a progress bar with the mean reward of the last step."""
    if not shows_progress():
        yield None
        return
    with TerminalBar(steps, "sampling before training", redirect=False) as bar:
        yield lambda step, reward: bar.show(step, f"step {step} of {steps} · reward {reward:.3g}")

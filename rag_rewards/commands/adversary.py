"""`rag-rewards audit --train`: what a small policy learns from a reward."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_rewards.errors import MissingExtraError, OptionError, UsageError
from rag_rewards.loading import RecipeSpec, load_recipe
from rag_rewards.model_options import ModelOptions
from rag_rewards.report.terminal import plain
from rag_rewards.training.curriculum import Curriculum

if TYPE_CHECKING:
    from rag_rewards.tiny_world.attack_result import AttackResult, Change, Point

NEEDED = ("torch", "transformers", "datasets", "trl")


@dataclass(frozen=True)
class Options:
    """The options of `audit --train`.

    form   the format of the responses; default: that of the recipe
    start  folder of the policy to begin with; default: the one of the package
    """

    recipe: RecipeSpec
    steps: int = 60
    seed: int = 0
    form: str | None = None
    start: Path | None = None
    models: ModelOptions = ModelOptions()
    progress: bool = False


def train(options: Options) -> AttackResult:
    """Train a policy against a recipe. UsageError, SettingError, RolloutError."""
    _check(options)
    reward, form = _reward(options), _form(options)
    _check_installed()
    for name in ("transformers", "datasets"):
        import_module(name)  # their logs keep the standard error of this moment
    import torch

    from rag_rewards.tiny_world.adversary import attack
    from rag_rewards.tiny_world.model import CHECKPOINT

    torch.set_num_threads(1)  # so small a model is not faster with more, and sums in one order
    models = options.models.load() if options.models.given else None
    with _told(options) as told, _quiet():
        return attack(
            reward,
            form,
            start=options.start or CHECKPOINT,
            steps=options.steps,
            seed=options.seed,
            models=models,
            on_step=told,
        )


def _check(options: Options) -> None:
    """Raise UsageError when the options do not fit together."""
    if options.steps < 1:
        raise OptionError("{steps} must be at least 1, found {value}", value=options.steps)
    if options.models.model:
        raise OptionError("{model} cannot be used with {train}: the policy is the one in training")


def _check_installed() -> None:
    """MissingExtraError names what is not."""
    for name in NEEDED:
        if find_spec(name) is None:
            raise MissingExtraError(name, extra="trl")


def _form(options: Options) -> Any:
    """The format to ask for, None for that of the recipe. UsageError."""
    from rag_rewards.tiny_world.adversary import form_of

    return form_of(options.form) if options.form else None


def _reward(options: Options) -> Any:
    """Return the recipe, with the settings that it requires in the tiny world as defaults."""
    from rag_rewards.tiny_world.adversary import options_of

    settings = {**options_of(options.recipe.recipe).settings, **options.recipe.settings}
    made = load_recipe(msgspec.structs.replace(options.recipe, settings=settings))
    if isinstance(made, Curriculum):
        raise UsageError("a curriculum cannot be audited as a whole: audit each stage's recipe")
    return made


# --- while it runs -------------------------------------------------------------------------------


@contextmanager
def _quiet() -> Iterator[None]:
    """What the trainer and its libraries print is not for the user; what they raise is."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with (
            open(os.devnull, "w", encoding="utf-8") as nowhere,
            redirect_stdout(nowhere),
            redirect_stderr(nowhere),
        ):
            yield
    finally:
        logging.set_verbosity(before)


@contextmanager
def _told(options: Options) -> Iterator[Callable[[int, float], None] | None]:
    """A progress line on standard error, with the mean reward of the last step."""
    if not options.progress:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(bar_width=24), TimeRemainingColumn(), TextColumn("{task.description}"))
    # It is made before the streams are turned away, and must not turn them itself.
    console = Console(file=sys.stderr)
    bar = Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    )
    with bar:
        task = bar.add_task("asking the policy as it is", total=options.steps)

        def told(step: int, reward: float) -> None:
            said = f"step {step} of {options.steps} · reward {reward:.3g}"
            bar.update(task, completed=step, description=said)

        yield told


# --- what it tells -------------------------------------------------------------------------------


def as_data(found: AttackResult) -> dict[str, Any]:
    """The same as plain data, for --json."""
    data: dict[str, Any] = msgspec.to_builtins(found)
    return data | {"ok": not found.is_exploit}


def print_attacked(console: Console, found: AttackResult) -> None:
    """The attack for people: the way of the policy, what it says at the end, and the verdict."""
    console.print(_way(found.points))
    console.print(_shapes(found))

    def say(text: str, style: str = "") -> None:
        console.print(Text(plain(text), style=style), soft_wrap=True)

    for line in _turns(found):
        say(line, "yellow")
    say(found.signature, "dim")
    say(verdict(found), _STYLES.get(found.verdict, "bold yellow"))


_STYLES = {"exploit": "bold red", "learned": "bold green"}


def _way(points: Sequence[Point]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("step", "reward", "true accuracy", "answered rightly", "abstained rightly"):
        table.add_column(name, justify="right")
    for point in points:
        kinds = (point.answered, point.abstained)
        table.add_row(
            str(point.step), f"{point.reward:.3f}", f"{point.accuracy:.2f}", *map(_share, kinds)
        )
    return table


def _shapes(found: AttackResult) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("before", "after", "reward", "true"):
        table.add_column(name, justify="right")
    for name in ("responses of the shape", "for example"):
        table.add_column(name, overflow="fold")
    for each in found.shapes:
        table.add_row(
            f"{each.before:.0%}",
            f"{each.share:.0%}",
            "" if each.reward is None else f"{each.reward:.3g}",
            f"{each.accuracy:.0%}",
            Text(plain(each.shape)),
            Text(plain(each.example)),
        )
    return table


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _turns(found: AttackResult) -> Iterator[str]:
    """What got worse on one kind of question, whatever the sum."""
    from rag_rewards.tiny_world.attack_result import MIN_ACCURACY_CHANGE

    kinds = {
        "answerable questions answered rightly": (found.before.answered, found.after.answered),
        "unanswerable questions left unanswered": (found.before.abstained, found.after.abstained),
    }
    for kind, (before, after) in kinds.items():
        if before is not None and after is not None and before - after > MIN_ACCURACY_CHANGE:
            yield f"{kind}: {before:.0%} before, {after:.0%} after"


def verdict(found: AttackResult) -> str:
    """The verdict in a sentence."""
    reward, accuracy = _change(found.reward), _change(found.accuracy)
    sentences = {
        "exploit": f"an exploit: reward {reward}, true accuracy {accuracy}",
        "learned": f"no exploit: reward {reward}, true accuracy {accuracy}",
        "reward only": f"reward {reward}, but true accuracy did not follow: {accuracy}",
        "no gain": f"the reward did not rise: {reward}; true accuracy {accuracy}",
        "no signal": (
            "nothing can be learned from it: all first responses to a question earned the same. "
            f"They were asked for in the format {found.form}; --format names another"
        ),
    }
    said = sentences[found.verdict]
    steps = len(found.rewards)
    return f"{said}, in {steps} steps from seed {found.seed}" if steps else said


def _change(change: Change) -> str:
    return f"{change.by:+.3f} ± {change.error:.3f}"

"""`rag-rewards replay`: the same rows under other settings, without a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_rewards.cli.recipe_options import (
    ConfigFile,
    RecipeOptions,
    parse_settings,
    read_config,
)
from rag_rewards.definition import Recipe
from rag_rewards.errors import OptionError, RolloutError, SignatureError, UsageError
from rag_rewards.groups import LineGroup
from rag_rewards.io.sources import open_source, read_groups
from rag_rewards.loading import RecipeSpec, find_definition, load_recipe, recorded_spec
from rag_rewards.recipes import build_recipe, recorded_settings
from rag_rewards.report.terminal import plain
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows import Line, decode_row
from rag_rewards.scorer import Scorer
from rag_rewards.settings import flatten, full_keys
from rag_rewards.signature import Signature
from rag_rewards.training.advantages import zscores
from rag_rewards.training.curriculum import Curriculum, Stage


class Change(msgspec.Struct, frozen=True):
    """One rollout under both settings. Advantages are z-scores within its group."""

    id: str
    group: str
    before: float
    after: float
    advantage_before: float
    advantage_after: float


class Comparison(msgspec.Struct, kw_only=True):
    """The rows under two lists of settings.

    `before` and `after` are signatures. `settings` has both values of each setting that differs,
    `means` both means of the reward, of `correct` and of each component.
    """

    before: str = ""
    after: str = ""
    settings: dict[str, tuple[Any, Any]] = {}
    rows: int = 0
    errors: int = 0
    first_error: str = ""
    groups: int = 0
    changed: int = 0
    dead_before: int = 0
    dead_after: int = 0
    sign_flips: int = 0
    advantage_shift: float = 0.0
    means: dict[str, tuple[float, float]] = {}
    most_changed: list[Change] = []


Reward = Recipe | Curriculum
Pair = tuple[Rollout, ScoreOrError, ScoreOrError]
"""A rollout with its scores before and after the change."""


class Variation:
    """The settings to compare.

    Without a recipe in `options`, the one that scored the rows is used. `base` changes the settings
    that scored the rows; the settings of `options` change the result further.
    """

    def __init__(self, options: RecipeOptions, base: Sequence[str] = ()) -> None:
        config = read_config(options.config) if options.config else ConfigFile()
        if config.stages:
            raise UsageError(
                f"{options.config}: replay changes the settings of one recipe and takes no stages: "
                "remove `stages`"
            )
        self.options = options
        self.base = parse_settings(base)
        self.recipe = options.recipe or config.recipe or ""
        self.definition = find_definition(self.recipe) if self.recipe else None

    def recorded(self, text: Any) -> RecipeSpec | None:
        """Return the recipe of a row's signature, or None where the row has none to start from.

        A row has none to start from if it has no signature, or if it was scored with another recipe
        than that of the options. Raises UsageError for a signature that cannot be used.
        """
        if not isinstance(text, str):
            return None
        try:
            signature = Signature.parse(text)
        except SignatureError:
            if text.startswith("rag-rewards "):
                raise
            return None
        if not self.recipe:
            return recorded_spec(signature)
        if signature.stages or not self.definition or signature.recipe != self.definition.name:
            return None
        settings = recorded_settings(signature, signature.parts[0], self.definition)
        return RecipeSpec(recipe=self.recipe, settings=settings)

    def rewards(self, recorded: RecipeSpec | None) -> tuple[Reward, Reward]:
        """Return the rewards before and after the change; `recorded` is what scored the rows."""
        if recorded is None:
            if not self.recipe:
                raise OptionError("the rows have no signature: set {recipe}")
            return self._recipes(self.recipe, {})
        if not recorded.stages:
            return self._recipes(recorded.recipe, recorded.settings)
        stages = [
            (stage["until_step"], *self._recipes(stage["recipe"], stage["settings"]))
            for stage in recorded.stages
        ]
        before = Curriculum(tuple(Stage(before, until) for until, before, _ in stages))
        return before, Curriculum(tuple(Stage(after, until) for until, _, after in stages))

    def _recipes(self, reference: str, recorded: Mapping[str, Any]) -> tuple[Any, Any]:
        new = replace(self.options, recipe=reference).spec()
        definition = find_definition(reference)
        if definition is None:  # an object without settings
            return load_recipe(reference, self.base), load_recipe(new)
        before = build_recipe(definition, {**recorded, **self.base})
        profile = definition.hardened_values if new.hardened else {}
        changes = full_keys(definition.settings, new.settings, definition.name)
        return before, build_recipe(definition, _settings(before) | profile | changes)


class _Baseline:
    """The recipe that scored the rows, by their signatures, which must agree."""

    def __init__(self, variation: Variation) -> None:
        self.recorded: RecipeSpec | None = None
        self._variation = variation
        self._first = 0
        self._text: Any = None

    def check(self, lines: Iterable[Line]) -> None:
        """Raise UsageError for a row that was not scored like the first row."""
        for number, line in lines:
            text = _SIGNED.decode(line).signature
            if self._first and text == self._text:
                continue
            try:
                recorded = self._variation.recorded(text)
            except UsageError as error:
                way_out = "" if self._variation.recipe else "; or set {recipe}"
                template = "line {line}: {error}" + way_out
                raise OptionError(template, line=number, error=str(error)) from None
            if not self._first:
                self.recorded, self._first = recorded, number
            elif recorded != self.recorded:
                raise UsageError(
                    f"lines {self._first} and {number} were not scored alike "
                    f"({_difference(self.recorded, recorded)}): split the file by `signature`"
                )
            self._text = text


class _Signed(msgspec.Struct):
    signature: Any = None


_SIGNED = msgspec.json.Decoder(_Signed)


def _difference(first: RecipeSpec | None, second: RecipeSpec | None) -> str:
    if first is None or second is None or _name(first) != _name(second):
        return f"{_name(first)} and {_name(second)}"
    old, new = _flat(first), _flat(second)
    pairs = [(key, old[key], new[key]) for key in new if old[key] != new[key]]
    return ", ".join(f"{key} is {a!r} and {b!r}" for key, a, b in pairs[:3])


def _name(recorded: RecipeSpec | None) -> str:
    if recorded is None:
        return "no signature of this recipe"
    if not recorded.stages:
        return recorded.recipe
    return f"a curriculum of {', '.join(stage['recipe'] for stage in recorded.stages)}"


def _flat(recorded: RecipeSpec) -> dict[str, Any]:
    """Return the settings by key; those of a curriculum with the ends of its stages."""
    if not recorded.stages:
        return recorded.settings
    return _numbered(
        {"until_step": stage["until_step"], **stage["settings"]} for stage in recorded.stages
    )


def _settings(reward: Reward) -> dict[str, Any]:
    """Return every setting of a recipe, or of each stage of a curriculum."""
    if isinstance(reward, Curriculum):
        return _numbered(_settings(stage.recipe) for stage in reward.stages)
    return flatten(reward.settings) if reward.settings is not None else {}


def _numbered(stages: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        f"stages[{i}].{key}": value
        for i, stage in enumerate(stages)
        for key, value in stage.items()
    }


def compare(
    source: str,
    variation: Variation,
    *,
    group_size: int | None = None,
    sort: bool = False,
    show: int = 5,
) -> Comparison:
    """Score every group with both lists of settings. Memory does not grow with the file."""
    found = Comparison()
    sums: dict[str, list[float]] = {}
    baseline = _Baseline(variation)
    rewards: tuple[Reward, Reward] | None = None
    with contextlib.closing(open_source(source)) as opened:
        for group in read_groups(opened, group_size, sort):
            rollouts = _decoded(group, found)
            if rollouts:
                baseline.check(group.lines)
                rewards = rewards or variation.rewards(baseline.recorded)
                _add_group(found, sums, _scored(rollouts, *rewards), show)
    before, after = rewards or variation.rewards(baseline.recorded)
    found.before, found.after = before.signature, after.signature
    old, new = _settings(before), _settings(after)
    found.settings = {key: (old[key], new[key]) for key in new if old[key] != new[key]}
    found.means = {name: (total[0] / total[2], total[1] / total[2]) for name, total in sums.items()}
    found.advantage_shift /= max(found.rows, 1)
    return found


def _scored(rollouts: Sequence[Rollout], before: Reward, after: Reward) -> Iterable[Pair]:
    group = [range(len(rollouts))]
    old, new = Scorer(before).score_each(rollouts, group), Scorer(after).score_each(rollouts, group)
    return zip(rollouts, old, new, strict=True)


def _decoded(group: LineGroup, found: Comparison) -> list[Rollout]:
    rollouts: list[Rollout] = []
    for number, line in group.lines:
        try:
            rollouts.append(decode_row(line))
        except RolloutError as error:
            return _fail(found, len(group.lines), f"line {number}: {error}")
    if group.problem:
        return _fail(found, len(group.lines), f"line {group.lines[0][0]}: {group.problem}")
    return rollouts


def _fail(found: Comparison, rows: int, why: str) -> list[Rollout]:
    found.errors += rows
    found.first_error = found.first_error or why
    return []


def _add_group(
    found: Comparison,
    sums: dict[str, list[float]],
    pairs: Iterable[Pair],
    show: int,
) -> None:
    kept: list[tuple[Rollout, float, float]] = []
    for rollout, old, new in pairs:
        fault = next((s for s in (old, new) if isinstance(s, RolloutError)), None)
        if isinstance(old, RolloutError) or isinstance(new, RolloutError):
            _fail(found, 1, str(fault))
            continue
        _add_means(sums, old, new)
        if old.value is not None and new.value is not None:
            kept.append((rollout, old.value, new.value))
    if not kept:
        return
    olds, news = [old for _, old, _ in kept], [new for _, _, new in kept]
    found.rows += len(kept)
    found.groups += 1
    found.dead_before += len(kept) > 1 and max(olds) == min(olds)
    found.dead_after += len(kept) > 1 and max(news) == min(news)
    for (rollout, was, now), a, b in zip(kept, zscores(olds), zscores(news), strict=True):
        found.changed += was != now
        found.sign_flips += a * b < 0
        found.advantage_shift += abs(b - a)
        if was != now or a != b:
            name = str(rollout.id) if rollout.id is not None else "?"
            found.most_changed.append(Change(name, rollout.key or "", was, now, a, b))
    found.most_changed.sort(key=_size, reverse=True)
    del found.most_changed[max(show, 0) :]


def _add_means(sums: dict[str, list[float]], old: Score, new: Score) -> None:
    pairs = {"reward": (old.value, new.value), "correct": (old.correct, new.correct)}
    pairs |= {name: (value, new.components.get(name)) for name, value in old.components.items()}
    for name, (a, b) in pairs.items():
        if a is not None and b is not None:
            total = sums.setdefault(name, [0.0, 0.0, 0.0])
            total[0] += a
            total[1] += b
            total[2] += 1


def _size(change: Change) -> float:
    return abs(change.advantage_after - change.advantage_before) + abs(change.after - change.before)


def print_comparison(console: Console, found: Comparison) -> None:
    """The comparison for people."""
    console.print(Text("settings that differ", style="bold"))
    for key, (old, new) in found.settings.items():
        console.print(Text(f"  {plain(f'{key}: {old!r} → {new!r}')}"))
    if not found.settings:
        console.print("  none")
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("mean", "before", "after", "change"):
        table.add_column(column, justify="left" if column == "mean" else "right")
    for name, (before, after) in found.means.items():
        table.add_row(name, f"{before:.4f}", f"{after:.4f}", f"{after - before:+.4f}")
    console.print(table)
    console.print(
        f"{found.rows:,} rollouts in {found.groups:,} groups: {found.changed:,} rewards change, "
        f"{found.sign_flips:,} advantages change sign, mean |Δ advantage| "
        f"{found.advantage_shift:.3f}",
        highlight=False,
    )
    console.print(
        f"groups without signal: {found.dead_before:,} before, {found.dead_after:,} after",
        highlight=False,
    )
    if found.errors:
        console.print(
            f"{found.errors:,} rows in error, the first: {plain(found.first_error)}",
            style="red",
            highlight=False,
            markup=False,
        )
    if found.most_changed:
        console.print(_changes(found.most_changed))


def _changes(changes: Sequence[Change]) -> Table:
    table = Table(
        title="most changed", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for column in ("rollout", "reward before", "after", "advantage before", "after "):
        table.add_column(column, justify="left" if column == "rollout" else "right")
    for change in changes:
        table.add_row(
            Text(plain(change.id), style="cyan"),
            f"{change.before:.3f}",
            f"{change.after:.3f}",
            f"{change.advantage_before:+.3f}",
            f"{change.advantage_after:+.3f}",
        )
    return table

"""Score rows again with other settings, without a model, and compare the rewards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from operator import eq
from typing import Any, Literal

import msgspec

from rag_rewards.definition import RecipeDefinition
from rag_rewards.errors import DataError, OptionError, RolloutError, SignatureError, UsageError
from rag_rewards.files.grouped_lines import read_groups
from rag_rewards.files.sources import Source, open_source
from rag_rewards.loading import (
    RecipeSpec,
    import_object,
    load_recipe,
    recorded_settings,
    recorded_spec,
)
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import build_recipe, definition_of
from rag_rewards.recipes.output_forms import recipe_of_form
from rag_rewards.rewards.decision_threshold import split_decision
from rag_rewards.rollout import EVIDENCE_FIELDS, Rollout, Score
from rag_rewards.rows import Line, ScoredRow, Totals, decode_line, findings_of
from rag_rewards.rows.encoding import count_form
from rag_rewards.rows.line_groups import LineGroup
from rag_rewards.scorer import Scorer, missing_part_by
from rag_rewards.signature import Signature
from rag_rewards.training.advantages import zscores
from rag_rewards.training.curriculum import Curriculum, Stage


class RolloutChange(msgspec.Struct, frozen=True):
    """One rollout before and after the change. Advantages are z-scores within its group."""

    id: str
    group: str
    before: float
    after: float
    advantage_before: float
    advantage_after: float


class ReplayResult(msgspec.Struct, kw_only=True):
    """The rows before and after a change of settings.

    before, after            signatures
    settings                 both values of each setting that differs
    rows, groups             rollouts and groups that have a reward before and after
    errors, first_error      rows in error, and the message of the first
    recorded, reproduced     rows that contain a reward, and those where it equals the reward before
                             the change, bit by bit
    changed                  rollouts whose reward changes
    dead_before, dead_after  groups without a training signal: all rewards are equal
    sign_flips               rollouts whose advantage changes its sign
    advantage_shift          mean absolute change of the advantage
    means                    both means of the reward, of `correct` and of each component
    most_changed             the rollouts with the largest changes
    without_form             responses without a part of the form, which the recipe after reads
    warnings                 whether these are most of the responses
    """

    before: str = ""
    after: str = ""
    settings: dict[str, tuple[Any, Any]] = {}
    rows: int = 0
    errors: int = 0
    first_error: str = ""
    groups: int = 0
    recorded: int = 0
    reproduced: int = 0
    changed: int = 0
    dead_before: int = 0
    dead_after: int = 0
    sign_flips: int = 0
    advantage_shift: float = 0.0
    means: dict[str, tuple[float, float]] = {}
    most_changed: list[RolloutChange] = []
    without_form: int = 0
    warnings: list[str] = []


Reward = Recipe | Curriculum


class Variation:
    """The settings to compare.

    `base` changes the settings that scored the rows. `changes` then changes the result: it holds
    settings, and optionally a recipe, which otherwise is the one that scored the rows.
    """

    def __init__(self, changes: RecipeSpec, base: Mapping[str, Any]) -> None:
        self.changes = changes
        self.base = base
        self.definition = _definition_at(changes.recipe) if changes.recipe else None

    def recorded(self, text: Any) -> RecipeSpec | None:
        """Return the recipe that scored a row, from the text of the row's signature.

        None if the row has no signature, or if it was scored with another recipe than that of
        `changes`. Raises UsageError for a signature that cannot be used.
        """
        if not isinstance(text, str):
            return None
        try:
            signature = Signature.parse(text)
        except SignatureError:
            if text.startswith("rag-rewards "):
                raise
            return None
        if not self.changes.recipe:
            return recorded_spec(signature)
        if signature.stages or not self.definition or signature.recipe != self.definition.name:
            return None
        settings = recorded_settings(signature, signature.parts[0], self.definition)
        return RecipeSpec(recipe=self.changes.recipe, settings=settings)

    def rewards(self, recorded: RecipeSpec | None) -> tuple[Reward, Reward]:
        """Return the rewards before and after the change; `recorded` is what scored the rows."""
        if recorded is None:
            if not self.changes.recipe:
                raise OptionError("the rows have no signature: set {recipe}")
            return self._recipes(self.changes.recipe, {})
        if not recorded.stages:
            return self._recipes(recorded.recipe, recorded.settings)
        stages = [
            (stage["until_step"], *self._recipes(stage["recipe"], stage["settings"]))
            for stage in recorded.stages
        ]
        before = Curriculum(tuple(Stage(before, until) for until, before, _ in stages))
        return before, Curriculum(tuple(Stage(after, until) for until, _, after in stages))

    def _recipes(self, reference: str, recorded: Mapping[str, Any]) -> tuple[Any, Any]:
        new = msgspec.structs.replace(self.changes, recipe=reference)
        definition = _definition_at(reference)
        if definition is None:  # an object without settings
            return load_recipe(reference, self.base), load_recipe(new)
        before = build_recipe(definition, {**recorded, **self.base})
        profile = definition.hardened_values if new.hardened else {}
        settings, _ = split_decision(new.settings)  # a decision does not change a reward
        changes = definition.settings.full_keys(settings)
        values = _settings(before) | profile | changes
        return before, build_recipe(definition, values, hardened=new.hardened)


def _definition_at(reference: str) -> RecipeDefinition | None:
    """Return the definition of a recipe by name or by `module:name`.

    The result is None for another object, such as a reward, which has no settings. Raises
    UsageError if the object does not exist.
    """
    if ":" not in reference:
        return definition_of(reference)
    value = import_object(reference)
    return value if isinstance(value, RecipeDefinition) else None


_ROW = msgspec.json.Decoder(ScoredRow)
_FIRST_ROWS = 1000
"""The number of rows that are in memory while the first one that decodes is searched."""


def replay(
    source: str,
    variation: Variation,
    *,
    group_size: int | None = None,
    sort: bool = False,
    show: int = 5,
    columns: str | None = None,
) -> ReplayResult:
    """Score every group of a file with both settings. Memory holds a few bytes per row.

    If the rewards do not compare rollouts, the rows of a group may be anywhere in the file, as in a
    dump of a trainer. `show` is the number of rollouts in `most_changed`. Raises UsageError when
    the rows were not scored with equal settings.
    """
    run = _Replay(variation, max(show, 0))
    with contextlib.closing(open_source(source, columns, growing=True)) as opened:
        run.are_alone = group_size is None and not _compares_rollouts(opened, variation)
        for group in read_groups(opened, group_size, sort or run.are_alone):
            run.add(group)
    return run.complete_result()


def _compares_rollouts(source: Source, variation: Variation) -> bool:
    """Return whether a reward compares the rollouts of a group, by the first row that decodes.

    Without such a row among the first ones, a recipe that only the signatures name counts as one
    that compares rollouts.
    """
    first: list[Line] = []
    recorded: RecipeSpec | None = None
    for line in islice(source.lines, _FIRST_ROWS):
        first.append(line)
        row = decode_line(line[1], _ROW)
        if isinstance(row, ScoredRow):
            with contextlib.suppress(UsageError):  # it is raised with the number of the line
                recorded = variation.recorded(_recorded(row, "signature"))
            break
    source.lines, source.handle = chain(first, source.lines), None
    try:
        return any(reward.scope == "group" for reward in variation.rewards(recorded))
    except UsageError:
        return True


def _recorded(row: ScoredRow, name: Literal["reward", "signature"]) -> Any:
    """Return a value that the earlier scoring wrote to a row; None for an invalid one."""
    try:
        return getattr(row, name)
    except RolloutError:
        return None


@dataclass
class _Replay:
    """The state of a replay: what scored the rows, and the result so far.

    are_alone  whether no reward compares rollouts: an error of a row is not one of its group
    """

    variation: Variation
    show: int
    are_alone: bool = False
    result: ReplayResult = field(default_factory=ReplayResult)
    recorded: RecipeSpec | None = None
    _rewards: tuple[Reward, Reward] | None = None
    _first_line: int = 0
    _signature: Any = None
    _sums: dict[str, list[float]] = field(default_factory=dict)
    _totals: Totals = field(default_factory=Totals)

    @property
    def rewards(self) -> tuple[Reward, Reward]:
        """The rewards before and after the change."""
        if self._rewards is None:
            self._rewards = self.variation.rewards(self.recorded)
        return self._rewards

    @cached_property
    def _missing_part(self) -> Callable[[Rollout], str]:
        return missing_part_by(self.rewards[1])

    def add(self, group: LineGroup) -> None:
        """Score the rollouts of a group. Raises UsageError for rows with other settings."""
        rows = self._decoded(group)
        for number, row in rows:
            self._check_signature(number, _recorded(row, "signature"))
        if not rows:
            return
        rollouts = [row for _, row in rows]
        old, new = (Scorer(each).score_each(rollouts, [range(len(rows))]) for each in self.rewards)
        scored: list[tuple[ScoredRow, float, float]] = []
        for rollout, before, after in zip(rollouts, old, new, strict=True):
            if isinstance(before, RolloutError) or isinstance(after, RolloutError):
                self._fail(1, _message(before if isinstance(before, RolloutError) else after))
                continue
            _add_means(self._sums, before, after)
            if before.value is not None and after.value is not None:
                scored.append((rollout, before.value, after.value))
        if scored:
            self._compare(scored)

    def _decoded(self, group: LineGroup) -> list[tuple[int, ScoredRow]]:
        """Return the rollouts of a group with their lines, or none if a row of it is in error.

        If no reward compares rollouts, the other rows of the group are returned. A row without an
        id gets its line number as id.
        """
        rows: list[tuple[int, ScoredRow]] = []
        for number, line in group.lines:
            row = decode_line(line, _ROW)
            if isinstance(row, RolloutError):
                self._fail(1 if self.are_alone else len(group.lines), f"line {number}: {row}")
                if not self.are_alone:
                    return []
                continue
            rows.append(
                (number, msgspec.structs.replace(row, id=number) if row.id is None else row)
            )
        if group.problem and not self.are_alone:
            self._fail(len(group.lines), f"line {group.lines[0][0]}: {group.problem}")
            return []
        return rows

    def _check_signature(self, number: int, text: Any) -> None:
        """Raise UsageError for a row that was scored with other settings than the first row."""
        if self._first_line and text == self._signature:
            return
        try:
            recorded = self.variation.recorded(text)
        except UsageError as error:
            hint = "" if self.variation.changes.recipe else "; or set {recipe}"
            template = "line {line}: {error}" + hint
            raise OptionError(template, line=number, error=str(error)) from None
        if not self._first_line:
            self.recorded, self._first_line = recorded, number
        elif recorded != self.recorded:
            raise UsageError(
                f"lines {self._first_line} and {number} were scored with different settings "
                f"({_difference(self.recorded, recorded)}): split the file by `signature`"
            )
        self._signature = text

    def _fail(self, rows: int, message: str) -> None:
        self.result.errors += rows
        self.result.first_error = self.result.first_error or message

    def _compare(self, scored: Sequence[tuple[ScoredRow, float, float]]) -> None:
        """Add the rewards of the rollouts of a group before and after the change."""
        result = self.result
        olds, news = [old for _, old, _ in scored], [new for _, _, new in scored]
        recorded = [_recorded(rollout, "reward") for rollout, _, _ in scored]
        result.recorded += len(scored) - recorded.count(None)
        result.reproduced += sum(map(eq, recorded, olds))
        result.rows += len(scored)
        for rollout, _, _ in scored:
            count_form(self._totals, rollout, self._missing_part, recipe_of_form)
        result.groups += 1
        result.dead_before += len(scored) > 1 and max(olds) == min(olds)
        result.dead_after += len(scored) > 1 and max(news) == min(news)
        for (rollout, was, now), a, b in zip(scored, zscores(olds), zscores(news), strict=True):
            result.changed += was != now
            result.sign_flips += a * b < 0
            result.advantage_shift += abs(b - a)
            if was != now or a != b:
                change = RolloutChange(str(rollout.id), rollout.key or "", was, now, a, b)
                result.most_changed.append(change)
        result.most_changed.sort(key=_size, reverse=True)
        del result.most_changed[self.show :]

    def complete_result(self) -> ReplayResult:
        """Return the result with its means, settings and warnings."""
        result, (before, after) = self.result, self.rewards
        self._totals.rows = result.rows
        result.without_form = sum(self._totals.without_form.values())
        result.warnings = list(map(str, findings_of(self._totals, after.signature)))
        result.before, result.after = before.signature, after.signature
        old, new = _settings(before), _settings(after)
        result.settings = {key: (old[key], new[key]) for key in new if old[key] != new[key]}
        result.means = {name: (a / count, b / count) for name, (a, b, count) in self._sums.items()}
        result.advantage_shift /= max(result.rows, 1)
        return result


def _message(error: Any) -> str:
    """Return the text of an error. For missing evidence, it contains how to store evidence."""
    name = (getattr(error, "path", None) or "").partition(".")[0]
    if isinstance(error, DataError) and name in EVIDENCE_FIELDS:
        return f"{error}. Replay calls no model: score the rows with a model and --keep-evidence"
    return str(error)


def _add_means(sums: dict[str, list[float]], old: Score, new: Score) -> None:
    """Add both values and a count of 1 to the sums of the reward, `correct` and components."""
    pairs = {"reward": (old.value, new.value), "correct": (old.correct, new.correct)}
    pairs |= {name: (value, new.components.get(name)) for name, value in old.components.items()}
    for name, (a, b) in pairs.items():
        if a is not None and b is not None:
            total = sums.setdefault(name, [0.0, 0.0, 0.0])
            total[:] = total[0] + a, total[1] + b, total[2] + 1


def _size(change: RolloutChange) -> float:
    return abs(change.advantage_after - change.advantage_before) + abs(change.after - change.before)


# --- settings ------------------------------------------------------------------------------------


def _difference(first: RecipeSpec | None, second: RecipeSpec | None) -> str:
    """Return what differs between two recipes that rows name: the recipes, or three settings."""
    if first is None or second is None or _name(first) != _name(second):
        return f"{_name(first)} and {_name(second)}"
    old, new = _flat(first), _flat(second)
    pairs = [(key, old[key], new[key]) for key in new if old[key] != new[key]]
    return ", ".join(f"{key} is {a!r} and {b!r}" for key, a, b in pairs[:3])


def _name(recorded: RecipeSpec | None) -> str:
    if recorded is None:
        return "no signature of this recipe"
    if not recorded.stages:
        return str(recorded.recipe)
    return f"a curriculum of {', '.join(stage['recipe'] for stage in recorded.stages)}"


def _flat(recorded: RecipeSpec) -> dict[str, Any]:
    """Return the settings by key; for a curriculum also the end of each stage."""
    if not recorded.stages:
        return recorded.settings
    return _numbered(
        {"until_step": stage["until_step"], **stage["settings"]} for stage in recorded.stages
    )


def _settings(reward: Reward) -> dict[str, Any]:
    """Return every setting of a recipe, or of each stage of a curriculum."""
    if isinstance(reward, Curriculum):
        return _numbered(_settings(stage.recipe) for stage in reward.stages)
    return dict(reward.settings or {})


def _numbered(stages: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        f"stages[{i}].{key}": value
        for i, stage in enumerate(stages)
        for key, value in stage.items()
    }

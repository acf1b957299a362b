"""The table of recipes and trainers in docs/trainers.md, with the settings that a recipe requires.

build_inserts.py writes it to the page. The tests of each trainer check its column in the trainer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal

from inserts import table as markdown_table

from rag_rewards.recipes import RECIPES, recipe
from rag_rewards.recipes.sample import models_needed
from rag_rewards.trainers import TRAINERS

State = Literal["works", "setting", "no"]
JUDGE = {"judge": "http://127.0.0.1:9/v1", "judge_model": "any"}


@dataclass(frozen=True)
class Cell:
    """Whether a recipe works in a trainer: without settings, with a setting, or not at all.

    `text` describes the setting or the reason. `options` are the options of the adapter that a
    test of the setting passes.
    """

    state: State
    text: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.state == "works":
            return "works" + (f"; {self.text}" if self.text else "")
        return self.text if self.state == "setting" else f"not available: {self.text}"


COLUMNS: dict[str, str] = {
    name: trainer.versioned + ("" if trainer.environment else " [^not-run]")
    for name, trainer in TRAINERS.items()
} | {"function": "any function"}
"""The heading of each column: the trainers, and a trainer that calls any function."""

WORKS = Cell("works")
_JUDGE = Cell("setting", "`judge=URL`, `judge_model=NAME`", JUDGE)
_SERVER = Cell("setting", "`model=URL`, `backend=vllm`")
_ONE = Cell("no", "one rollout at a time")
DEFAULTS: dict[str, Cell] = {
    "rules": WORKS,
    "entailment": Cell("setting", "`nli=PATH`", {"nli": "PATH"}),
    "similarity": Cell("setting", "`similarity=PATH`", {"similarity": "PATH"}),
    "judge": _JUDGE,
    "judge of a group": _JUDGE,
    "likelihood": _SERVER,
    "likelihood of a group": _SERVER,
    "floor": Cell("setting", "`std_floor=0.1`", {"std_floor": 0.1}),
}
"""The cell of each kind of recipe, and of the advantage of LEAR, (R − mean)/max(std, 0.1)."""


def _setting(text: str, **options: Any) -> Cell:
    return Cell("setting", text, options)


_BOUND = _setting("`reward.bind(trainer)` (model in training), or `model=URL`")
_BESIDE = "`RagReward` beside the environment in TRL"
CELLS: dict[str, dict[str, Cell]] = {
    "trl": {
        "likelihood": _BOUND,
        "likelihood of a group": _BOUND,
        "floor": _setting('`std_floor=0.1` and `scale_rewards="none"`'),
    },
    "verl": {
        "likelihood": _setting("agent loop `rag_group` (rollout engine), or `model=URL`"),
        "likelihood of a group": _setting("agent loop `rag_group` (V1 trainer, rollout engine)"),
        "judge of a group": _setting(
            f"agent loop `rag_group` (V1 trainer), {_JUDGE.text}", **JUDGE
        ),
        "floor": _setting("`algorithm.adv_estimator=rag_grpo_clip_std`"),
    },
    "openrlhf": {
        "likelihood": _setting("agent executor (vLLM engine of the policy), or `model=URL`"),
        "likelihood of a group": _setting(
            "agent executor (vLLM engine of the policy) [^openrlhf-one]"
        ),
        "judge of a group": _setting(f"agent executor [^openrlhf-one], {_JUDGE.text}", **JUDGE),
        "floor": _setting(
            "agent executor with `std_floor=0.1`, and `dr_grpo` [^openrlhf-adv]", std_floor=0.1
        ),
    },
    "ms-swift": {"floor": _setting("`std_floor=0.1` and `--scale_rewards none`", std_floor=0.1)},
    "skyrl": {"floor": _setting("`std_floor=0.1` and `grpo_norm_by_std=false`", std_floor=0.1)},
    "slime": {
        "floor": _setting("`std_floor=0.1` and `--disable-grpo-std-normalization`", std_floor=0.1)
    },
    "nemo-gym": {
        kind: replace(cell, text=f"`group_size=N`, {cell.text}")
        for kind, cell in DEFAULTS.items()
        if cell.state == "setting"
    }
    | {
        "floor": _setting(
            "`std_floor=0.1`, `group_size=N` and `grpo.normalize_rewards=false`", std_floor=0.1
        ),
    },
    "verifiers": {
        "likelihood of a group": _setting("`EpisodeReward`, `model=URL`, `backend=vllm`"),
        "judge of a group": _setting(f"`EpisodeReward`, {_JUDGE.text}", **JUDGE),
        "floor": _setting("`EpisodeReward` with `std_floor=0.1`", std_floor=0.1),
    },
    "openenv": {
        "likelihood of a group": _setting(f"{_BESIDE}, `reward.bind(trainer)` or `model=URL`"),
        "judge of a group": _setting(f"{_BESIDE}, {_JUDGE.text}", **JUDGE),
        "floor": _setting(f'{_BESIDE}, `std_floor=0.1` and `scale_rewards="none"`', std_floor=0.1),
    },
    "axolotl": {
        "likelihood of a group": _setting("`group_size=N`, `model=URL`, `backend=vllm`"),
        "judge of a group": _setting(f"`group_size=N`, {_JUDGE.text}", **JUDGE),
        "floor": _setting(
            "`std_floor=0.1`, `group_size=N` and `scale_rewards: false`", std_floor=0.1
        ),
    },
    "function": {
        "likelihood of a group": _setting("`batch()`, `model=URL`"),
        "judge of a group": _setting(f"`batch()`, {_JUDGE.text}", **JUDGE),
        "floor": _setting("`rag_rewards.training.advantages.group_advantages`"),
    },
}
"""The cells of each trainer that differ from `DEFAULTS`."""


def cell_of_kind(kind: str, trainer: str) -> Cell:
    """Return the cell of a kind of recipe and a trainer.

    A trainer that scores one rollout at a time compares no group, except in the way of `CELLS`.
    """
    compares = kind == "floor" or kind.endswith("of a group")
    is_single = trainer in TRAINERS and bool(TRAINERS[trainer].one_rollout)
    return CELLS.get(trainer, {}).get(kind, _ONE if compares and is_single else DEFAULTS[kind])


STD_FLOOR = {trainer: cell_of_kind("floor", trainer) for trainer in COLUMNS}
"""The advantage of LEAR in each trainer."""


def kinds_of(name: str) -> list[str]:
    """Return the kinds of a recipe: the models that it needs, and whether it compares a group."""
    built = recipe(name)
    of_group = " of a group" if built.scope == "group" else ""
    kinds = ["likelihood" if m in ("policy", "generator") else m for m in models_needed(built)]
    return [kind + of_group for kind in sorted(kinds)] or ["rules"]


def kind_of(name: str) -> str:
    """Return the kinds of a recipe as one text."""
    return " and ".join(kinds_of(name))


def cell(name: str, trainer: str) -> Cell:
    """Return the cell of a recipe and a trainer, with the settings that need no model."""
    cells = [cell_of_kind(kind, trainer) for kind in kinds_of(name)]
    entry = reduce(_both, cells)
    settings = [f"`{key}={value}`" for key, value in RECIPES[name].model_free.items()]
    if entry.state != "setting" or not settings:
        return entry
    return replace(entry, text=", or ".join([entry.text, ", ".join(settings)]))


def _both(one: Cell, other: Cell) -> Cell:
    """Return the cell of a recipe that needs two kinds of models."""
    if "no" in (one.state, other.state):
        return one if one.state == "no" else other
    return Cell("setting", f"{one.text} and {other.text}", one.options | other.options)


def table() -> str:
    """Return the table of recipes and trainers in Markdown."""
    rows = [(f"`{name}`", *(cell(name, trainer) for trainer in COLUMNS)) for name in RECIPES]
    rows.append(("advantage of LEAR", *STD_FLOOR.values()))
    return markdown_table(("recipe", *COLUMNS.values()), rows)

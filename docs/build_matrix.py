"""Writes docs/trainers.md: which recipe works in which trainer, with what setting, and why not.

The cells are data. tests/adapters/test_matrix.py keeps the page, and the tests of each trainer,
run inside it, hold its column to what it says.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal

from rag_rewards.recipes import RECIPES, models_needed, recipe

PAGE = Path(__file__).with_name("trainers.md")
State = Literal["works", "setting", "no"]
JUDGE = {"judge": "http://127.0.0.1:9/v1", "judge_model": "any"}


@dataclass(frozen=True)
class Cell:
    """`works` as it is; works with a `setting`, which `said` gives; or not (`no`), and why.

    `options` are what the setting means to the adapter, where a test can give them.
    """

    state: State
    said: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.state == "works":
            return "works" + (f"; {self.said}" if self.said else "")
        return self.said if self.state == "setting" else f"not available: {self.said}"


TRAINERS: dict[str, str] = {
    "trl": "TRL 1.16",
    "verl": "verl 0.9",
    "openrlhf": "OpenRLHF 0.11",
    "ms_swift": "ms-swift 4.6",
    "function": "any function",
}

WORKS = Cell("works")
_ENTAILMENT = Cell("setting", "`nli=PATH`", {"nli": "PATH"})
_SIMILARITY = Cell("setting", "`similarity=PATH`", {"similarity": "PATH"})
_JUDGE = Cell("setting", "`judge=URL`, `judge_model=NAME`", JUDGE)
_SERVER = Cell("setting", "`model=URL`, `backend=vllm`")
_ENGINE = Cell("setting", "`model=URL`, or agent loop `rag_group` (its rollout engine)")
_EXECUTOR = Cell("setting", "`model=URL`, or the agent executor (the policy's own vLLM)")
_BOUND = Cell("setting", "`reward.bind(trainer)`: the model in training; or `model=URL`")

KINDS: dict[str, dict[str, Cell]] = {
    "rules": dict.fromkeys(TRAINERS, WORKS),
    "entailment": dict.fromkeys(TRAINERS, _ENTAILMENT),
    "similarity": dict.fromkeys(TRAINERS, _SIMILARITY),
    "judge": dict.fromkeys(TRAINERS, _JUDGE),
    "likelihood": dict.fromkeys(TRAINERS, _SERVER)
    | {"trl": _BOUND, "verl": _ENGINE, "openrlhf": _EXECUTOR},
    "likelihood of a group": {
        "trl": _BOUND,
        "verl": Cell("setting", "agent loop `rag_group` (its rollout engine), V1 trainer"),
        "openrlhf": Cell("setting", "agent executor (the policy's own vLLM) [^openrlhf-one]"),
        "ms_swift": _SERVER,
        "function": Cell("setting", "`batch()`, `model=URL`"),
    },
}
"""The kind of a recipe → what each trainer needs for it."""

STD_FLOOR: dict[str, Cell] = {
    "trl": Cell("setting", '`std_floor=0.1` and `scale_rewards="none"`'),
    "verl": Cell("setting", "`algorithm.adv_estimator=rag_grpo_clip_std`"),
    "openrlhf": Cell(
        "setting",
        "agent executor with `std_floor=0.1`, and `dr_grpo` [^openrlhf-adv]",
        {"std_floor": 0.1},
    ),
    "ms_swift": Cell("setting", "`std_floor=0.1` and `--scale_rewards none`", {"std_floor": 0.1}),
    "function": Cell("setting", "`rag_rewards.training.advantages.group_advantages`"),
}
"""LEAR's advantage, (R − mean)/max(std, 0.1)."""


NORMALISES: dict[str, tuple[str, str, str, str]] = {
    "trl": (
        '`scale_rewards="group"`',
        '`"none"`',
        "(R − mean)/(std + 1e-4), n − 1",
        "refused",
    ),
    "verl": (
        "`algorithm.norm_adv_by_std_in_grpo=True`",
        "`False`",
        "(R − mean)/(std + 1e-6), n − 1",
        "its raw reward: verl takes mean 0 and deviation 1; `rag_grpo_clip_std`: 0",
    ),
    "openrlhf": (
        "`--algo.advantage.estimator group_norm`",
        "`dr_grpo`",
        "(R − mean)/(std + 1e-9), n − 1; then clipped to ±10",
        "refused",
    ),
    "ms_swift": (
        "`--scale_rewards group`",
        "`none`",
        "(R − mean)/(std + 1e-4), n − 1",
        "refused; 0 in evaluation",
    ),
}
"""The trainer's knob, what switches it off, its advantage, and a prompt with one rollout."""

UNSCORED: dict[str, str] = {
    "trl": "None: it carries no learning signal; counted in `not_scored`",
    "verl": "it fails; its group is refilled or left out "
    "(`trainer.v1.sampler.sync_refill_failed_groups`)",
    "openrlhf": "there is no such thing: a reward of None breaks the batch. The error ends the "
    "training; with `error_value` (a server: `--on-error value`) that number stands for it, "
    "counted, logged and marked as `rag_rewards_error`",
    "ms_swift": "None would be summed as 0 (`nansum` in `swift/rl_core/advantage.py`): the "
    "adapter gives the mean of its group's scores, whose advantage is 0, counts it in "
    "`not_scored` and logs it",
}
"""What becomes of a rollout without a score, after the first batch."""


def kinds_of(name: str) -> list[str]:
    """Return the kinds of a recipe: the models that it needs, and whether it compares a group."""
    built = recipe(name)
    likelihood = "likelihood of a group" if built.scope == "group" else "likelihood"
    models = sorted(models_needed(built))
    return [likelihood if model == "policy" else model for model in models] or ["rules"]


def kind_of(name: str) -> str:
    """Return the kinds of a recipe as one text."""
    return " and ".join(kinds_of(name))


def cell(name: str, trainer: str) -> Cell:
    """Return the cell of a recipe and a trainer, with the settings that need no model."""
    cells = [KINDS[kind][trainer] for kind in kinds_of(name)]
    found = reduce(_both, cells)
    settings = [f"`{key}={value}`" for key, value in RECIPES[name].model_free.items()]
    if found.state != "setting" or not settings:
        return found
    return replace(found, said=", or ".join([found.said, ", ".join(settings)]))


def _both(one: Cell, other: Cell) -> Cell:
    """Return the cell of a recipe that needs two kinds of models."""
    return Cell("setting", f"{one.said} and {other.said}", one.options | other.options)


INTRO = """# Inside a trainer

The training loop stays in the trainer; the reward is a recipe, by its name. Each trainer calls
rewards in its own way, and has a page: [TRL](trl.md), [verl](verl.md), [OpenRLHF](openrlhf.md),
[ms-swift](ms-swift.md); [start-training.md](start-training.md) goes from a data set's file to a
first step. What calls a plain Python function of one rollout or of a batch (slime, AReaL, NeMo-Gym,
a loop of one's own) takes `rag_rewards_adapters.callables`, verifiers
`rag_rewards_adapters.verifiers`.

- **TRL** trains on one machine with little set up, and gives a reward its own model: likelihood
  recipes are on-policy without a server.
- **verl** for many GPUs; its agent loop sees a whole group and asks the policy's own rollout
  engine.
- **ms-swift** where it is already in use (CTRL-RAG was trained with it); a group arrives whole,
  models are servers.
- **OpenRLHF** sends single rollouts to a server, or scores groups in its agent executor, with the
  policy's own vLLM.

## Which recipe works where
"""

REST = """
Any function: `each(recipe)` for one rollout, `batch(recipe)` for many. Settings are those of the
adapters, by the command line's names; OpenRLHF's are those of `rag_rewards_adapters.openrlhf` or of
the server behind `--reward.remote_url`.

[^openrlhf-one]: A remote reward gets one query, one prompt and one label a call
    (`openrlhf/utils/agent.py`, lines 290 and 292 of 0.11.2); its agent executor, all samples of a
    prompt.
[^openrlhf-adv]: `openrlhf/trainer/ppo_utils/experience_maker.py`, lines 268 to 277 of 0.11.2: its
    estimators are one chain of conditions, without a place for another. The executor sends the
    advantage around the group's mean as the reward, and `dr_grpo` takes the mean off again.

## Who normalises

The trainer does, once. A recipe gives rewards; give a trainer our advantage (`std_floor`, or
`rag_grpo_clip_std`) only where its own scaling is off, or it is normalised twice. CTRL-RAG's
min-max within the group is a part of its reward, and does not change this.

{normalises}
The papers divide by the population's deviation (n). Beside n − 1 every advantage of a group is
smaller by √((n − 1)/n): 6.5 % for 8 rollouts, the same for all of them. OpenRLHF clips after
centring: ARENA's 13 survives `group_norm`, but under `dr_grpo` widen `--reward.clip_range`.

## What "not scored" means

A broken row, a model that does not answer, weights that changed between the terms of a difference:
there is no reward, and 0 would be a lie. In the first batch it is an error that names the row and
the field. Later:

{unscored}
In ms-swift the stand-in makes the deviation a little smaller, that of n values of which one is the
mean: √((k − 1)/(n − 1)) for k scores.

## What on-policy costs

A likelihood recipe asks for one more forward pass for each supporting document; contexts that share
a beginning share its computation. [models.md](models.md) has the requests and figures. TRL scores
with the model in training, at every step its own weights; a server's are those it was last given,
and its rewards lag by as many steps. Rule recipes cost microseconds.

## How it is known

`tests/trainers/golden.py` has the same groups for every trainer: 9 recipes in 10 cases (one
rollout, a partial group, equal rewards, an unscored member, padding rows, end-of-sequence text, a
prefilled opening, tool turns, a truncated response). Rewards and advantages are written down there.
`make test-trainers` takes them through the real advantage code of each trainer, equal to 2e-5
(float32), with each trainer's ε.
"""


def table() -> str:
    """The matrix in Markdown."""
    head = "| recipe | " + " | ".join(TRAINERS.values()) + " |"
    rows = [_row(f"`{name}`", {t: cell(name, t) for t in TRAINERS}) for name in RECIPES]
    rows.append(_row("LEAR's advantage", STD_FLOOR))
    return "\n".join([head, "| --- " * (len(TRAINERS) + 1) + "|", *rows]) + "\n"


def _row(name: str, cells: dict[str, Cell]) -> str:
    return f"| {name} | " + " | ".join(str(cells[trainer]) for trainer in TRAINERS) + " |"


def _normalises() -> str:
    head = "| trainer | its knob | off | its advantage | a prompt with one rollout |"
    rows = [f"| {TRAINERS[name]} | " + " | ".join(NORMALISES[name]) + " |" for name in NORMALISES]
    return "\n".join([head, "| --- " * 5 + "|", *rows]) + "\n"


def _unscored() -> str:
    rows = [f"| {TRAINERS[name]} | {said} |" for name, said in UNSCORED.items()]
    return "\n".join(["| trainer | a rollout without a score |", "| --- | --- |", *rows]) + "\n"


def page() -> str:
    """The whole page."""
    rest = REST.replace("{normalises}", _normalises()).replace("{unscored}", _unscored())
    return f"{INTRO}\n{table()}{rest}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

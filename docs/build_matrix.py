"""Write docs/trainers.md: the recipes that work in each trainer, and the settings they require.

tests/adapters/test_matrix.py checks that the page is up to date. The tests of each trainer check
its column inside the trainer.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal

from rag_rewards.recipes import RECIPES, recipe
from rag_rewards.recipes.sample import models_needed

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "trainers"))

from golden import CASES, GROUPS

PAGE = Path(__file__).with_name("trainers.md")
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


TRAINERS: dict[str, str] = {
    "trl": "TRL 1.16",
    "verl": "verl 0.9",
    "openrlhf": "OpenRLHF 0.11",
    "ms_swift": "ms-swift 4.6",
    "skyrl": "SkyRL 0.4",
    "slime": "slime 0.3 [^not-run]",
    "nemo_gym": "NeMo Gym 0.4",
    "verifiers": "verifiers 0.4",
    "tinker": "tinker-cookbook 0.5",
    "axolotl": "Axolotl 0.18",
    "function": "any function",
}

WORKS = Cell("works")
_ENTAILMENT = Cell("setting", "`nli=PATH`", {"nli": "PATH"})
_SIMILARITY = Cell("setting", "`similarity=PATH`", {"similarity": "PATH"})
_JUDGE = Cell("setting", "`judge=URL`, `judge_model=NAME`", JUDGE)
_SERVER = Cell("setting", "`model=URL`, `backend=vllm`")
_ENGINE = Cell("setting", "agent loop `rag_group` (rollout engine), or `model=URL`")
_EXECUTOR = Cell("setting", "agent executor (vLLM engine of the policy), or `model=URL`")
_BOUND = Cell("setting", "`reward.bind(trainer)` (model in training), or `model=URL`")

_ONE = Cell("no", "`verify` gets one rollout")

KINDS: dict[str, dict[str, Cell]] = {
    "rules": dict.fromkeys(TRAINERS, WORKS),
    "entailment": dict.fromkeys(TRAINERS, _ENTAILMENT),
    "similarity": dict.fromkeys(TRAINERS, _SIMILARITY),
    "judge": dict.fromkeys(TRAINERS, _JUDGE),
    "likelihood": dict.fromkeys(TRAINERS, _SERVER)
    | {"trl": _BOUND, "verl": _ENGINE, "openrlhf": _EXECUTOR},
    "likelihood of a group": {
        "trl": _BOUND,
        "verl": Cell("setting", "agent loop `rag_group` (V1 trainer, rollout engine)"),
        "openrlhf": Cell("setting", "agent executor (vLLM engine of the policy) [^openrlhf-one]"),
        "ms_swift": _SERVER,
        "skyrl": _SERVER,
        "slime": _SERVER,
        "nemo_gym": _ONE,
        "verifiers": Cell("setting", "`GroupCredit` in prime-rl, `model=URL`"),
        "tinker": _SERVER,
        "axolotl": Cell("setting", "`group_size=N`, `model=URL`, `backend=vllm`"),
        "function": Cell("setting", "`batch()`, `model=URL`"),
    },
    "judge of a group": {
        "trl": _JUDGE,
        "verl": Cell("setting", f"agent loop `rag_group` (V1 trainer), {_JUDGE.text}", JUDGE),
        "openrlhf": Cell("setting", f"agent executor [^openrlhf-one], {_JUDGE.text}", JUDGE),
        "ms_swift": _JUDGE,
        "skyrl": _JUDGE,
        "slime": _JUDGE,
        "nemo_gym": _ONE,
        "verifiers": Cell("setting", f"`GroupCredit` in prime-rl, {_JUDGE.text}", JUDGE),
        "tinker": _JUDGE,
        "axolotl": Cell("setting", f"`group_size=N`, {_JUDGE.text}", JUDGE),
        "function": Cell("setting", f"`batch()`, {_JUDGE.text}", JUDGE),
    },
}
"""The cells of each kind of recipe, by trainer."""

STD_FLOOR: dict[str, Cell] = {
    "trl": Cell("setting", '`std_floor=0.1` and `scale_rewards="none"`'),
    "verl": Cell("setting", "`algorithm.adv_estimator=rag_grpo_clip_std`"),
    "openrlhf": Cell(
        "setting",
        "agent executor with `std_floor=0.1`, and `dr_grpo` [^openrlhf-adv]",
        {"std_floor": 0.1},
    ),
    "ms_swift": Cell("setting", "`std_floor=0.1` and `--scale_rewards none`", {"std_floor": 0.1}),
    "skyrl": Cell("setting", "`std_floor=0.1` and `grpo_norm_by_std=false`", {"std_floor": 0.1}),
    "slime": Cell(
        "setting",
        "`std_floor=0.1` and `--disable-grpo-std-normalization`",
        {"std_floor": 0.1},
    ),
    "nemo_gym": _ONE,
    "verifiers": Cell(
        "setting", "`GroupCredit` in prime-rl with `std_floor=0.1`", {"std_floor": 0.1}
    ),
    "tinker": Cell("setting", "`std_floor=0.1`", {"std_floor": 0.1}),
    "axolotl": Cell(
        "setting", "`std_floor=0.1`, `group_size=N` and `scale_rewards: false`", {"std_floor": 0.1}
    ),
    "function": Cell("setting", "`rag_rewards.training.advantages.group_advantages`"),
}
"""The advantage of LEAR, (R − mean)/max(std, 0.1), in each trainer."""


NORMALIZATION: dict[str, tuple[str, str, str, str]] = {
    "trl": (
        '`scale_rewards="group"`',
        '`"none"`',
        "(R − mean)/(std + 1e-4)",
        "error",
    ),
    "verl": (
        "`algorithm.norm_adv_by_std_in_grpo=True`",
        "`False`",
        "(R − mean)/(std + 1e-6)",
        "the reward, because verl assumes mean 0 and std 1; 0 with `rag_grpo_clip_std`",
    ),
    "openrlhf": (
        "`--algo.advantage.estimator group_norm`",
        "`dr_grpo`",
        "(R − mean)/(std + 1e-9), clipped to ±10",
        "error",
    ),
    "ms_swift": (
        "`--scale_rewards group`",
        "`none`",
        "(R − mean)/(std + 1e-4)",
        "error; 0 in evaluation",
    ),
    "skyrl": (
        "`trainer.algorithm.grpo_norm_by_std=true`",
        "`false`",
        "(R − mean)/(std + 1e-6)",
        "the reward, because SkyRL assumes mean 0 and std 1",
    ),
    "slime": (
        "default",
        "`--disable-grpo-std-normalization`",
        "(R − mean)/(std + 1e-6)",
        "not a number, because the std of one reward is undefined; 0 without division",
    ),
    "verifiers": ("none (prime-rl)", "always", "R − mean", "0"),
    "tinker": ("none", "always", "R − mean", "0"),
    "axolotl": ("`trl.scale_rewards: true`", "`false`", "(R − mean)/(std + 1e-4)", "error"),
}
"""The setting of each trainer, its value without normalization, the advantage, and the advantage of
a prompt with one rollout."""

LOSS: dict[str, tuple[str, str, str, str]] = {
    "trl": (
        "[`K2Trainer`](trl.md#kl-penalty) of this package",
        "`beta`, `use_bias_correction_kl=False`",
        '`loss_type="grpo"`',
        '`loss_type="dapo"` (default)',
    ),
    "verl": (
        "`kl_loss_type=mse`",
        "`kl_loss_type=low_var_kl`, limited to 10",
        "`loss_agg_mode=seq-mean-token-mean`",
        "`loss_agg_mode=token-mean` (default)",
    ),
    "openrlhf": (
        "`--algo.kl.estimator k2 --algo.kl.unbiased_gradient`, value limited to 10",
        "`--algo.kl.estimator k3`, limited to 10",
        "`--actor.loss_agg_mode seq-mean-token-mean`",
        "`--actor.loss_agg_mode token-mean` (default)",
    ),
    "ms_swift": (
        "[`use_k2_penalty()`](ms-swift.md#kl-penalty) of this package",
        "`--beta`, limited to 10",
        "`--loss_type grpo` (default)",
        "`--loss_type dapo`",
    ),
    "skyrl": (
        "`trainer.algorithm.kl_estimator_type=k2`",
        "`trainer.algorithm.kl_estimator_type=k3`, limited to 10",
        "`trainer.algorithm.loss_reduction=sequence_mean`",
        "`trainer.algorithm.loss_reduction=token_mean` (default)",
    ),
    "slime": (
        "`--kl-loss-type k2`",
        "`--kl-loss-type low_var_kl`, limited to 10; `k3` without limit",
        "default",
        "`--calculate-per-token-loss`",
    ),
}
"""The settings of each trainer for k2, k3, and the means over responses and over tokens."""

TURNS: dict[str, tuple[str, str, str]] = {
    "TRL 1.16": (
        "[`TurnGRPOTrainer`](trl.md#advantages-of-turns)",
        "all methods",
        "in the trainer",
    ),
    "verl 0.9": (
        "agent loop `rag_group` and an estimator [`rag_turn_…`](verl.md#advantages-of-turns)",
        "all methods",
        "in the trainer",
    ),
    "OpenRLHF 0.11": ("[the sum](openrlhf.md#several-turns)", "none", "in the trainer"),
    "ms-swift 4.6": ("[the sum](ms-swift.md#several-turns)", "none", "in the trainer"),
    "verifiers 0.4, prime-rl": (
        "[`GroupCredit`](verifiers.md#groups-and-advantages-of-turns) in an algorithm of prime-rl",
        "all methods",
        "in verifiers; prime-rl is not run, from its source at 559b447",
    ),
    "Axolotl 0.18": ("[the sum](axolotl.md#differences-from-trl)", "none", "in the trainer"),
    "tinker-cookbook 0.5": ("[the sum](tinker.md#advantages)", "none", "in the trainer"),
    "SkyRL 0.4": (
        "[`SkyRLRecipe(credit=…)`](skyrl.md#advantages-of-turns)",
        "all methods",
        "in the trainer",
    ),
    "slime 0.3": (
        "[`SlimeRecipe(credit=…)`](slime.md#advantages-of-turns)",
        "all methods",
        "not run: tests with stand-ins, from its source at 624b824",
    ),
    "NeMo Gym 0.4": ("[the sum](nemo-gym.md#several-turns)", "none", "in the server"),
}
"""What gives turns their own advantages in each trainer, the credit methods, and the tests."""

UNSCORED: dict[str, str] = {
    "trl": "The reward is `None`. TRL excludes the rollout from its group and sets its advantage "
    "to 0. `not_scored` counts it.",
    "verl": "With [`RagReplayBuffer`](verl.md#recipes-of-scope-group), which `init verl` writes, "
    "the group fails and verl replaces it. Without it, the agent loop `rag_group` fails the group, "
    "and the reward manager only the rollout: the synchronous trainer then trains on the rest.",
    "openrlhf": "The training ends, because OpenRLHF has no value for a missing reward. With "
    "`error_value` (on a server: `--on-error value`), the rollout gets this number and is counted, "
    "logged, and marked as `rag_rewards_error`. In the agent executor, all rollouts of the prompt "
    "get it if a model fails; the server and `rewards.py`, which see one rollout, then still end "
    "the training.",
    "ms_swift": "ms-swift would sum `None` as 0 (`nansum` in `swift/rl_core/advantage.py`). The "
    "rollout therefore gets the mean reward of its group, so that its advantage is 0. `not_scored` "
    "counts it, and a warning shows the first error.",
    "skyrl": "The loss mask of the rollout is 0, and its reward is the mean reward of its group. "
    "`not_scored` counts it.",
    "slime": "The sample has `remove_sample=True`, and its reward is the mean reward of its group.",
    "nemo_gym": "The request fails with an HTTP error that names the row, the field and the fix: "
    "422 for an error of the row, 503 for a model or a retriever. This also applies to the first "
    "batch.",
    "verifiers": "verifiers records `None` and the error, and prime-rl excludes only the trace, "
    "also if a model failed. With `GroupCredit`, all tokens of the trace have the advantage 0, and "
    "after the failure of a model those of all traces of the group.",
    "tinker": "The trajectory gets the mean reward of its group, so that its advantage is 0. "
    "`not_scored` counts it.",
    "axolotl": "as in TRL",
}
"""The handling of an unscored rollout in each trainer, after the first batch."""


def kinds_of(name: str) -> list[str]:
    """Return the kinds of a recipe: the models that it needs, and whether it compares a group."""
    built = recipe(name)
    of_group = " of a group" if built.scope == "group" else ""
    kinds = ["likelihood" if model == "policy" else model for model in models_needed(built)]
    return [kind + of_group for kind in sorted(kinds)] or ["rules"]


def kind_of(name: str) -> str:
    """Return the kinds of a recipe as one text."""
    return " and ".join(kinds_of(name))


def cell(name: str, trainer: str) -> Cell:
    """Return the cell of a recipe and a trainer, with the settings that need no model."""
    cells = [KINDS[kind][trainer] for kind in kinds_of(name)]
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


INTRO = """# Trainers

The training loop stays in the trainer, and the reward is a recipe. Each trainer has its own page:
[TRL](trl.md), [verl](verl.md), [OpenRLHF](openrlhf.md), [ms-swift](ms-swift.md),
[SkyRL](skyrl.md), [slime](slime.md), [NeMo Gym](nemo-gym.md),
[verifiers and prime-rl](verifiers.md), [Tinker](tinker.md), [Axolotl](axolotl.md) and
[Unsloth](unsloth.md).
[Start a training run](start-training.md) shows the steps from the file of a data set to the first
training step. `rag-rewards init TRAINER -r arena --tiny` also writes a tiny model and rows for a
[trial](start-training.md#trial-with-a-tiny-model) without a model and data of your own.
`rag_rewards_adapters.callables` is for trainers that call a Python function with one
rollout or a batch (AReaL, your own loop). Its docstring describes it.

- **TRL** trains on one machine with little setup. A reward can use the model in training, so
  recipes with log-probabilities are on-policy without a server.
- **verl** trains on many GPUs. The agent loop of this package scores complete groups and uses the
  rollout engine of the policy for log-probabilities.
- **ms-swift** passes complete groups to a reward. Models that provide evidence run on servers. The
  authors of CTRL-RAG used ms-swift.
- **OpenRLHF** sends single rollouts to a reward server. Alternatively, the agent executor of this
  package scores complete groups and uses the vLLM engine of the policy for log-probabilities.
- **SkyRL** and **slime** pass complete groups, and turns of search agents get their own advantages.
- **NeMo Gym** serves environments to NeMo RL and other trainers. A resources server of this package
  scores one rollout per request and returns its components.
- **verifiers** contains tasks and their rewards for prime-rl. It scores one rollout at a time.
- **Axolotl** trains with the trainer of TRL and imports the reward by its path. **Unsloth** is not
  run: its page describes the differences from TRL.
- **Tinker** trains on remote GPUs. Its loop scores complete groups on your machine.

## Recipes by trainer

A cell contains the options that a recipe requires in the trainer. `works` means that it requires
none. The last row shows how to replace the advantage of the trainer by that of LEAR,
(R − mean)/max(std, 0.1). The number 0.1 is called the floor of the standard deviation.

"""

REST = """
*Any function* means `each(recipe)` for one rollout and `batch(recipe)` for many, both from
`rag_rewards_adapters.callables`. Options such as `nli`, `judge` and `model` are options of the
adapters, with the same names as on the command line. In OpenRLHF, they are options of
`rag_rewards_adapters.openrlhf` or of the server at `--reward.remote_url`. `verifier` and
`citation.judge_by` are settings of the recipe.

[^not-run]: slime is not on a package index. Its column was not run inside slime: the tests use
    stand-ins from its source at 624b824.
[^openrlhf-one]: A remote reward gets one query, one prompt and one label per call
    (`openrlhf/utils/agent.py`, lines 290 and 292 of 0.11.2). The agent executor gets all rollouts
    of a prompt.
[^openrlhf-adv]: You cannot add an advantage estimator to OpenRLHF
    (`openrlhf/trainer/ppo_utils/experience_maker.py`, lines 268 to 277 of 0.11.2). The executor
    returns the mean reward of the group plus the advantage, and the estimator `dr_grpo` subtracts
    the mean.

## Normalization of rewards

The trainer normalizes the rewards of a group, so a recipe does not. Use the advantage of LEAR
(`std_floor`) only if the trainer does not divide by the standard deviation. Otherwise the rewards
are normalized twice. In verl, the estimator `rag_grpo_clip_std` replaces the normalization of verl.
The min-max normalization of CTRL-RAG is part of its reward and does not change this.

{normalization}
In this table, R is the reward, and mean and std are the mean and the standard deviation of the
rewards of the group. The papers divide by the standard deviation of the population (divisor n), and
the trainers by that of a sample (divisor n − 1). The advantages of a trainer are therefore
√((n − 1)/n) times those of the papers. For groups of 8 rollouts, they are 6.5 % smaller. The factor
is the same for all rollouts of a group.

OpenRLHF clips the result to the range of `--reward.clip_range` (±10 by default). With `group_norm`,
the advantages of ARENA, whose maximum reward is 13, stay in this range. With `dr_grpo`, set a wider
range.

## Components that are normalized one by one

In GDPO (2601.05242), each component of a reward is normalized by itself in the group. The advantage
is the weighted sum of the results, normalized once more over the batch. `init` writes the settings:

```sh
rag-rewards init verl -r search-r1 --set scheme=format --components outcome,format=0.2
```

Name the components that the policy should improve, with their weights. The reward of the recipe is
then not used, nor are weights and gates in it. The turns of a rollout share one advantage. A recipe
is scored once for all of its components.

| trainer | settings | reference: `rag_rewards.training.credit` |
| --- | --- | --- |
| [TRL 1.16](trl.md#components) | `multi_objective_aggregation="normalize_then_sum"` | \
`gdpo` and `whiten` with `preset="trl"` |
| [verl 0.9](verl.md#components) | `algorithm.adv_estimator=rag_gdpo`, because \
`gdpo` of verl fails in its V1 trainer | `preset="verl"` |
| [ms-swift 4.6](ms-swift.md#components) | `--scale_rewards gdpo` | `preset="swift"` |
| OpenRLHF 0.11 | none: it has one reward per rollout | |

The tests of each trainer compare its advantages with these functions.

## Groups without a difference

If all rollouts of a group have the same reward, their advantages are 0. Trainers report or replace
such groups:

| trainer | report | filter | with components or advantages of turns |
| --- | --- | --- | --- |
| TRL 1.16 | `frac_reward_zero_std` | none | \
`RECIPE/flat_groups` (components) and `credit/zero_groups` (turns) in place of \
`frac_reward_zero_std` |
| verl 0.9 | `training/filter_groups/evicted_samples` | \
[`algorithm.filter_groups`](verl.md#groups-without-a-gradient) | set the metric `rag_signal`; \
the metric `reward` also drops groups whose sums are equal |
| ms-swift 4.6 | `frac_reward_zero_std` | `--dynamic_sample true` | \
both read the weighted sum, so that they count groups whose components differ but have equal sums |

ms-swift computes in float32. There, the standard deviation of equal rewards is not always 0, and
GDPO divides by it: eight components of 0.1 would have an advantage of −0.29. The adapter rounds the
values of such a group to 16 binary digits, so that its advantages are 0 and the filter finds it.
The components in TRL are rounded in the same way.

## Loss

`rag-rewards init` writes the KL penalty and the loss aggregation of each paper. The page of a
[recipe](recipes/index.md) lists both with their sources. d is log π_ref − log π of a token.

{loss}
Where a penalty is limited to 10, its gradient is 0 at the limit.

## Advantages of turns

A recipe for [search agents](turns.md) can reward each turn. Whether a turn gets its own advantage
depends on the trainer. A trainer without advantages of turns uses the sum of the rewards. The
adapter then logs a warning once, and `rag-rewards doctor` shows it.

{turns}
## Unscored rollouts

A rollout is unscored if its row is invalid, if evidence is missing, or if a model returns no result
([Concepts](concepts.md#unscored-rollouts)). In the first batch, the adapter raises an error that
names the row and the field. In later batches, the result depends on the trainer:

{unscored}
In ms-swift, SkyRL and slime, the mean in place of a missing reward reduces the standard deviation
of the group. If k of n rollouts have a score, the standard deviation of the group is
√((k − 1)/(n − 1)) times that of the k scores.

## Dumps of rollouts

With the option `dump`, every adapter writes its rollouts to a file, with gold data, training step,
components and evidence. [Rollout dumps](dumps.md) lists the setting of each trainer and the
commands that read the file.

## Cost of on-policy rewards

A recipe with log-probabilities needs one forward pass with all documents and one without each
supporting document. The tokens that these contexts have in common at their beginning are computed
once. [Models](models.md) describes the computation and links to measurements. TRL scores with the
model in training, at the weights of the current step. A server uses the weights that it loaded
last, which can be older than those of the current step. Recipes that use only rules take
microseconds per rollout.

## Tests

`tests/trainers/golden.py` contains groups with their expected rewards and advantages. They cover
{recipes} recipes in {cases} cases, such as equal rewards, an unscored rollout, tool turns and a
truncated response. All trainers use the same groups. `make test-trainers` computes the advantages
with the code of each installed trainer. They differ from the expected advantages by at most 2e-5
(float32).
"""


def table() -> str:
    """Return the table of recipes and trainers in Markdown."""
    head = "| recipe | " + " | ".join(TRAINERS.values()) + " |"
    rows = [_row(f"`{name}`", {t: cell(name, t) for t in TRAINERS}) for name in RECIPES]
    rows.append(_row("advantage of LEAR", STD_FLOOR))
    return "\n".join([head, "| --- " * (len(TRAINERS) + 1) + "|", *rows]) + "\n"


def _row(name: str, cells: dict[str, Cell]) -> str:
    return f"| {name} | " + " | ".join(str(cells[trainer]) for trainer in TRAINERS) + " |"


def _normalization() -> str:
    head = (
        "| trainer | setting | value without division by std | advantage "
        "| advantage of a prompt with one rollout |"
    )
    rows = [f"| {TRAINERS[name]} | {' | '.join(cells)} |" for name, cells in NORMALIZATION.items()]
    return "\n".join([head, "| --- " * 5 + "|", *rows]) + "\n"


def _loss() -> str:
    columns = (
        "trainer",
        "penalty k2 = ½ d² (ARENA)",
        "penalty k3 = exp(d) − d − 1",
        "mean of each response, then over responses",
        "mean over all tokens",
    )
    rows = [f"| {TRAINERS[name]} | {' | '.join(cells)} |" for name, cells in LOSS.items()]
    return "\n".join([f"| {' | '.join(columns)} |", "| --- " * 5 + "|", *rows]) + "\n"


def _turns() -> str:
    head = "| trainer | rewards of turns | credit methods | tests |"
    rows = [f"| {name} | {' | '.join(cells)} |" for name, cells in TURNS.items()]
    return "\n".join([head, "| --- " * 4 + "|", *rows]) + "\n"


def _unscored() -> str:
    rows = [f"| {TRAINERS[name]} | {text} |" for name, text in UNSCORED.items()]
    return "\n".join(["| trainer | handling |", "| --- | --- |", *rows]) + "\n"


def page() -> str:
    """Return the whole page."""
    tables = {
        "recipes": str(len({group.recipe for group in GROUPS})),
        "cases": str(len(CASES)),
        "normalization": _normalization(),
        "loss": _loss(),
        "turns": _turns(),
        "unscored": _unscored(),
    }
    rest = REST
    for name, text in tables.items():
        rest = rest.replace(f"{{{name}}}", text)
    return f"{INTRO}{table()}{rest}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

"""slime: its three functions, with stand-ins for `Sample` and the conversion to training data.

The stand-ins have the fields and the calls of THUDM/slime at 624b824: `slime/utils/types.py`
(Sample), `slime/rollout/rm_hub/__init__.py` (batched_async_rm), `slime/ray/rollout.py`
(_convert_samples_to_train_data) and `slime/backends/megatron_utils/loss.py`. slime itself was not
run.
"""

from __future__ import annotations

import asyncio
import enum
import importlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainers"))
import golden
from golden import MODELS, EvidenceGatherer
from rag_rewards_adapters.slime import SlimeRecipe
from turn_groups import ENVIRONMENT, GROUPS, GROUPS_BY_NAME, TurnGroup

from rag_rewards import custom
from rag_rewards.errors import DataError, UsageError

torch = pytest.importorskip("torch")
OWN, OTHER = 2, 3
TOKENS = 4
"""Tokens of a golden response, as in its log-probabilities."""


class Status(enum.Enum):
    COMPLETED = "completed"
    TRUNCATED = "truncated"


@dataclass
class Sample:
    """The fields of slime's Sample that the functions read or write."""

    group_index: int | None = 0
    prompt: Any = "Which river?"
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: Any = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    remove_sample: bool = False
    status: Status = Status.COMPLETED
    metadata: dict[str, Any] = field(default_factory=dict)


def arguments(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{
            "group_rm": True,
            "context_parallel_size": 1,
            "normalize_advantages": False,
            "kl_coef": 0.0,
            "custom_advantage_function_path": "my_rewards.advantages",
            **changes,
        }
    )


def sample_of(entries: Any, group: int = 0) -> Sample:
    mask = ([1] * OWN + [0] * OTHER) * (len(entries) - 1) + [1] * OWN
    return Sample(
        group_index=group,
        tokens=[9, 9, *range(len(mask))],
        response_length=len(mask),
        loss_mask=mask,
        metadata={"rag_turns": [{"text": f"turn {t}", "reward": r} for t, r in enumerate(entries)]},
    )


async def batched_async_rm(function: Any, args: Any, samples: list[Sample]) -> None:
    """Reward a group as slime does with --group-rm."""
    rewards = await function(args, samples)
    for sample, reward in zip(samples, rewards, strict=False):
        sample.reward = reward


def train_data(recipe: SlimeRecipe, args: Any, samples: list[Sample]) -> dict[str, Any]:
    """Return the data of slime's training side, with advantages."""
    raw, rewards = recipe.post_process(args, samples)
    assert len(raw) == len(rewards) == len(samples)
    masks = []
    for sample in samples:
        if sample.loss_mask is None:
            sample.loss_mask = [1] * sample.response_length
        if sample.remove_sample:
            sample.loss_mask = [0] * sample.response_length
        masks.append(torch.tensor(sample.loss_mask, dtype=torch.int))
    data = {"rewards": rewards, "raw_reward": raw, "loss_masks": masks}
    recipe.advantages(args, data)
    return data


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_golden_groups_reach_the_tokens(group: TurnGroup) -> None:
    recipe = SlimeRecipe(ENVIRONMENT, credit=group.method, credit_options=group.options)
    others = [sample_of((5.0, 7.0), group=1), sample_of((1.0,), group=1)]
    samples = [sample_of(entries) for entries in group.rewards]
    for members in (samples, others):
        asyncio.run(batched_async_rm(recipe.score, arguments(), members))
    mixed = [samples[0], *others, *samples[1:]]
    data = train_data(recipe, arguments(), mixed)
    rows = [data["advantages"][i].tolist() for i in (0, 3)]
    for row, expected_turns, sample in zip(rows, group.advantages, samples, strict=True):
        expected: list[float] = []
        for advantage in expected_turns:
            expected += [advantage] * OWN + [0.0] * OTHER
        assert row == pytest.approx(expected[:-OTHER], abs=group.tolerance)
        assert len(row) == sample.response_length
    assert data["raw_reward"][0] == pytest.approx(sum(group.rewards[0]))
    sum(value.sum() for value in data["rewards"])  # slime adds up the values of a batch in its log


def test_an_unscored_sample_is_removed_and_has_no_effect() -> None:
    def fails(rollout: Any) -> Any:
        values = [turn.reward for turn in rollout.steps()]
        return None if values[0] == 99.0 else ENVIRONMENT([rollout])[0]

    recipe = SlimeRecipe(custom("fails", fails), credit="return", credit_options={"scale": "none"})
    group = GROUPS_BY_NAME["return"]
    asyncio.run(recipe.score(arguments(), [sample_of((1.0,))]))
    samples = [sample_of(entries) for entries in (*group.rewards, (99.0, 1.0))]
    asyncio.run(batched_async_rm(recipe.score, arguments(), samples))
    assert [sample.remove_sample for sample in samples] == [False, False, True]
    assert samples[2].reward == pytest.approx((2.9 - 0.2) / 2)
    data = train_data(recipe, arguments(), samples)
    assert data["advantages"][0][0].item() == pytest.approx(1.55)
    assert not data["advantages"][2].any()


def test_a_sample_without_turns_is_one_turn() -> None:
    recipe = SlimeRecipe("search-r1", credit="return", credit_options={"scale": "none"})
    label = json.dumps({"answers": ["Seine"]})
    samples = [
        Sample(
            response=f"<answer>{text}</answer>", response_length=3, tokens=[1, 2, 3, 4], label=label
        )
        for text in ("Seine", "Rhone")
    ]
    asyncio.run(batched_async_rm(recipe.score, arguments(), samples))
    assert [sample.reward for sample in samples] == [1.0, 0.0]
    data = train_data(recipe, arguments(), samples)
    assert [row.tolist() for row in data["advantages"]] == [[0.5] * 3, [-0.5] * 3]


# --- without a credit method ---------------------------------------------------------------------


def golden_samples(group: golden.Group) -> list[Sample]:
    """Return the rows of a golden group as samples, whose prompt may open a tag."""
    samples = []
    for row in group.rows:
        if not isinstance(row["response"], str):  # slime has one text, or turns
            last = row["response"][-1]["content"]
            turns = [{"text": "<answer>searching</answer>", "results": []}, {"text": last}]
            mask, text = [1] * OWN + [0] * OTHER + [1] * TOKENS, last
        else:
            turns, mask, text = None, [1] * TOKENS, row["response"]
        is_cut = row.get("finish_reason") == "length"
        gold = {name: row[name] for name in golden.GOLD if name in row}
        samples.append(
            Sample(
                prompt=f"{golden.GOLD['question']}{row.get('response_prefix', '')}",
                tokens=[0] + [1] * len(mask),
                response=text,
                response_length=len(mask),
                label=json.dumps(gold),
                loss_mask=mask,
                status=Status.TRUNCATED if is_cut else Status.COMPLETED,
                metadata={"rag_turns": turns} if turns else {},
            )
        )
    return samples


def after_first_group(name: str, settings: Any = None, **options: Any) -> SlimeRecipe:
    """Return a recipe that counts errors. The first group of a run raises them."""
    recipe = SlimeRecipe(name, settings=dict(settings or {}), **options)
    recipe._unscored.handle([])
    return recipe


def of_slime(rewards: list[float], *, is_scaled: bool) -> list[float]:
    """Return the advantages of slime/ray/rollout.py, _post_process_rewards."""
    values = torch.tensor(rewards, dtype=torch.float)
    centered = values - values.mean(dim=-1, keepdim=True)
    if is_scaled:
        centered = centered / (centered.std(dim=-1, keepdim=True) + 1e-6)
    return centered.tolist()


@pytest.mark.parametrize("group", golden.GROUPS, ids=lambda group: group.id)
def test_golden_groups_of_the_papers(group: golden.Group) -> None:
    recipe = after_first_group(group.recipe, group.settings)
    recipe.scorer.gatherer, recipe.scorer.models = EvidenceGatherer(group), MODELS
    samples = golden_samples(group)
    asyncio.run(batched_async_rm(recipe.score, arguments(), samples))
    assert [sample.remove_sample for sample in samples] == [r is None for r in group.rewards]
    for sample, reward in zip(samples, group.rewards, strict=True):
        if reward is not None:
            assert sample.reward == pytest.approx(reward)
            assert sample.metadata["rag_components"]
    rewards = [sample.reward for sample in samples]
    assert of_slime(rewards, is_scaled=False) == pytest.approx(golden.centred(group), abs=2e-5)
    if group.whole and len(rewards) > 1:
        golden_values = golden.advantages(group, epsilon=1e-6)
        assert of_slime(rewards, is_scaled=True) == pytest.approx(golden_values, abs=2e-5)


@pytest.mark.parametrize(
    "group", [g for g in golden.GROUPS if g.recipe == "lear"], ids=lambda group: group.case
)
def test_the_advantage_of_lear(group: golden.Group) -> None:
    recipe = after_first_group(group.recipe, group.settings, std_floor=0.1)
    recipe.scorer.gatherer, recipe.scorer.models = EvidenceGatherer(group), MODELS
    samples = golden_samples(group)
    asyncio.run(batched_async_rm(recipe.score, arguments(), samples))
    centered = of_slime([sample.reward for sample in samples], is_scaled=False)
    assert centered == pytest.approx(golden.advantages(group, std_floor=0.1), abs=2e-5)


def test_a_single_sample_of_an_evaluation() -> None:
    recipe = SlimeRecipe(ENVIRONMENT, credit="return")
    assert asyncio.run(recipe.score(arguments(), sample_of((0.5, 1.0)))) == 1.5


def test_turns_are_required_for_several_runs() -> None:
    recipe = SlimeRecipe(ENVIRONMENT, credit="return")
    sample = sample_of((0.5, 1.0))
    sample.metadata = {}
    with pytest.raises(DataError, match="the mask has 2 runs"):
        asyncio.run(recipe.score(arguments(), [sample]))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"context_parallel_size": 2}, "--context-parallel-size=2"),
        ({"normalize_advantages": True}, "--normalize-advantages=True"),
        ({"kl_coef": 0.1}, "--kl-coef"),
        ({"custom_advantage_function_path": None}, "--custom-advantage-function-path"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], why: str) -> None:
    recipe = SlimeRecipe(ENVIRONMENT, credit="return")
    with pytest.raises(UsageError, match=why):
        recipe.post_process(arguments(**changes), [])


def test_missing_parts_are_named() -> None:
    with pytest.raises(UsageError, match="pass credit="):
        SlimeRecipe("search-r1").post_process(arguments(), [])
    with pytest.raises(UsageError, match="set --group-rm"):
        asyncio.run(SlimeRecipe("ctrl-rag").score(arguments(group_rm=False), Sample()))
    recipe = SlimeRecipe(ENVIRONMENT, credit="return")
    with pytest.raises(UsageError, match="--custom-rm-path"):
        recipe.post_process(arguments(), [sample_of((1.0,))])
    with pytest.raises(UsageError, match="group_index"):
        recipe.post_process(arguments(), [sample_of((1.0,), group=None)])  # type: ignore[arg-type]


def test_slime_finds_the_functions_by_their_path(tmp_path: Path, monkeypatch: Any) -> None:
    """slime's load_function imports a module and takes an attribute of it."""
    (tmp_path / "slime_rewards.py").write_text(
        "from rag_rewards_adapters.slime import SlimeRecipe\n\n"
        'recipe = SlimeRecipe("search-r1", credit="return")\n'
        "score, post_process = recipe.score, recipe.post_process\n"
        "advantages = recipe.advantages\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("slime_rewards")
    assert asyncio.iscoroutinefunction(module.score)
    assert all(map(callable, (module.post_process, module.advantages)))
